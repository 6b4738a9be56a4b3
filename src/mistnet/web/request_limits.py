"""Middleware in front of every route: size limits, rate limits, security headers."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistnet.web.errors import RequestRefused, unforeseen

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


class RequestLimits:
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
                raise RequestRefused(413, f"a request may have {most:,} bytes at most", headers={"Connection": "close"})
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


_SPAN_SECONDS: Final = 60.0
_BY_ADDRESS: Final = 10
_BY_ACCOUNT: Final = 100
_ADDRESSES: Final = 10_000

_Tries: TypeAlias = deque[float]


class Throttle:
    """Counts failed tries of the last minute: from each address, and for each account.

    There is no count of all tries together: strangers would fill it, and everybody else would have to wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_address: OrderedDict[str, _Tries] = OrderedDict()
        self._by_account: dict[str, _Tries] = {}

    def failed(self, address: str, account: str | None = None) -> None:
        now = self._clock()
        self._forget(now)
        self._by_address.setdefault(address, deque(maxlen=_BY_ADDRESS)).append(now)
        self._by_address.move_to_end(address)
        if account is not None:
            self._by_account.setdefault(account, deque(maxlen=_BY_ACCOUNT)).append(now)

    def wait(self, address: str, account: str | None = None) -> int | None:
        """For how many seconds this address must not try again, or no one for this account; None: they may."""
        now = self._clock()
        counted = (
            (self._by_address.get(address), _BY_ADDRESS),
            (self._by_account.get(account) if account is not None else None, _BY_ACCOUNT),
        )
        waits = [
            math.ceil(tries[0] + _SPAN_SECONDS - now)
            for tries, most in counted
            if tries and len(_recent(tries, now)) >= most
        ]
        return max(waits, default=None)

    def _forget(self, now: float) -> None:
        """The address that failed last is at the end, so that those to forget are at the beginning."""
        while self._by_address:
            tries = next(iter(self._by_address.values()))
            if tries[-1] > now - _SPAN_SECONDS and len(self._by_address) < _ADDRESSES:
                return
            self._by_address.popitem(last=False)


def _recent(tries: _Tries, now: float) -> _Tries:
    while tries and tries[0] <= now - _SPAN_SECONDS:
        tries.popleft()
    return tries
