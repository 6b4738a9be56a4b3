"""What stands before every route: the size of requests, and headers that keep browsers careful."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistnet.api.errors import Refusal, unforeseen

MOST_BYTES: Final = 1024 * 1024
MOST_PUSHED_BYTES: Final = 8 * MOST_BYTES
"""A source pushes many posts at once. Its key is looked at before its posts are."""

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Shield:
    """Refuses bodies that are too large, also those that do not say so, and adds the headers to every answer."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        most = MOST_PUSHED_BYTES if scope["path"].startswith("/webhooks/") else MOST_BYTES
        announced = Headers(scope=scope).get("content-length", "")
        too_large = announced.isascii() and announced.isdecimal() and int(announced[:20]) > most
        received = 0
        begun = False

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if too_large or received > most:
                raise Refusal(413, f"a request may have {most:,} bytes at most", headers={"Connection": "close"})
            return message

        async def guarded(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if not scope["path"].startswith("/static/"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._inner(scope, counted, guarded)
        except Exception as error:  # noqa: BLE001 (the last resort: a bug must show nothing of itself to strangers)
            answer = unforeseen(Request(scope), error)
            if not begun:
                await answer(scope, receive, guarded)
