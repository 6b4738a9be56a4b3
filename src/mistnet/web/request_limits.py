"""Limits in front of every route: body size and security headers, and the rate limit of failed log-ins."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistnet.web.errors import RequestRefused, internal_error

MOST_BYTES: Final = 1024 * 1024
MOST_PUSHED_BYTES: Final = 8 * MOST_BYTES
"""A source pushes many posts at once. Its key is checked before its body is read."""

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


class RequestLimits:
    """Middleware: refuses bodies that are too large, whether announced or not, and adds security headers."""

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
        begun = False  # once a response has begun, no other can be sent

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if too_large or received > most:
                raise RequestRefused(413, f"a request may have {most:,} bytes at most", headers={"Connection": "close"})
            return message

        async def send_with_headers(message: Message) -> None:
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
            await self._inner(scope, receive_counted, send_with_headers)
        except Exception as error:  # noqa: BLE001 (the last resort: a response must not show internals)
            answer = internal_error(Request(scope), error)
            if not begun:
                await answer(scope, receive, send_with_headers)


_SPAN_SECONDS: Final = 60.0
_BY_ADDRESS: Final = 10
_BY_ACCOUNT: Final = 100
_ADDRESSES: Final = 10_000

_Attempts: TypeAlias = deque[float]


class Throttle:
    """Counts failed attempts of the last minute, by address and by account.

    There is no total: strangers could fill it, and then everyone else would have to wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_address: OrderedDict[str, _Attempts] = OrderedDict()
        self._by_account: dict[str, _Attempts] = {}

    def failed(self, address: str, account: str | None = None) -> None:
        now = self._clock()
        self._forget(now)
        self._by_address.setdefault(address, deque(maxlen=_BY_ADDRESS)).append(now)
        self._by_address.move_to_end(address)
        if account is not None:
            self._by_account.setdefault(account, deque(maxlen=_BY_ACCOUNT)).append(now)

    def wait(self, address: str, account: str | None = None) -> int | None:
        """The seconds until this address may try again, or anyone for this account. None: now."""
        now = self._clock()
        counted = (
            (self._by_address.get(address), _BY_ADDRESS),
            (self._by_account.get(account) if account is not None else None, _BY_ACCOUNT),
        )
        waits = []
        for attempts, most in counted:
            while attempts and attempts[0] <= now - _SPAN_SECONDS:
                attempts.popleft()
            if attempts and len(attempts) >= most:
                waits.append(math.ceil(attempts[0] + _SPAN_SECONDS - now))
        return max(waits, default=None)

    def _forget(self, now: float) -> None:
        """Drop old attempts. The address that failed last is at the end, so that the oldest are at the beginning."""
        while self._by_address:
            attempts = next(iter(self._by_address.values()))
            if attempts[-1] > now - _SPAN_SECONDS and len(self._by_address) < _ADDRESSES:
                return
            self._by_address.popitem(last=False)
