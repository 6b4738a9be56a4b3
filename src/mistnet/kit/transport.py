"""The port to the network: HTTP requests and answers, and transports that open when they are first needed.

Tests put the simulator behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from mistnet.kit.text import read_number


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request. Secrets go into `headers` or `hidden`, a part of the query that is never shown.

    With a form it is a POST.
    """

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    hidden: Mapping[str, str] = {}
    form: Mapping[str, str] | None = None

    @property
    def method(self) -> str:
        return "GET" if self.form is None else "POST"

    def __repr__(self) -> str:
        shown = "&".join(f"{name}={value}" for name, value in self.query.items())
        return f"{self.method} {self.path}?{shown}"


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP answer with any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream answer, without secrets and with only the beginning of the body.

    If `status` is None, there was no answer, and `body` says why.
    """

    endpoint: str
    status: int | None
    headers: Mapping[str, str] = {}
    body: str = ""


class Unanswered(Exception):
    """The connection failed, or the answer was late or incomplete."""


class Unreached(Unanswered):
    """No connection could be made, so the request was never sent."""


class Transport(Protocol):
    """Sends a request. Raises only Unanswered."""

    async def send(self, request: HttpRequest) -> HttpAnswer: ...


T = TypeVar("T")


class Late(Generic[T]):
    """A way to the network that `make` makes when it is opened, or the one given in its place, which is always open."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]], given: T | None = None) -> None:
        self._make = make
        self._given = given
        self._open: T | None = given

    @property
    def current(self) -> T:
        if self._open is None:
            raise RuntimeError("calls are made while the transport is open")
        return self._open

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        if self._given is not None:
            yield
            return
        async with self._make() as made:
            self._open = made
            yield
        self._open = None


class LateTransport(Late[Transport]):
    """The network to one server."""

    def __init__(self, base_url: str, *, user_agent: str, total_seconds: float, given: Transport | None = None) -> None:
        def make() -> AbstractAsyncContextManager[Transport]:
            from mistnet.kit.http import HttpTransport  # noqa: PLC0415 (slow to load, and most commands make no calls)

            return HttpTransport(base_url, user_agent=user_agent, total_seconds=total_seconds)

        super().__init__(make, given)

    async def send(self, request: HttpRequest) -> HttpAnswer:
        return await self.current.send(request)


Part: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class SharedResource:
    """Opens its parts in order and closes them in reverse."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._lock = asyncio.Lock()
        self._users = 0
        self._open = AsyncExitStack()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self._lock:
            if not self._users:
                # If one of them fails, those before it are closed again.
                async with AsyncExitStack() as opening:
                    for part in self._parts:
                        await opening.enter_async_context(part())
                    self._open = opening.pop_all()
            self._users += 1
        try:
            yield
        finally:
            async with self._lock:
                self._users -= 1
                if not self._users:
                    await self._open.aclose()


def retry_after(headers: Mapping[str, str], now: datetime, *, longest: timedelta) -> timedelta | None:
    """Read `Retry-After`: seconds or a date, of any length, never more than `longest`. None: it cannot be read."""
    told = next((value.strip() for name, value in headers.items() if name.lower() == "retry-after"), "")
    if told.isascii() and told.isdecimal():
        most = int(longest.total_seconds())
        seconds = read_number(told, most=most)
        return longest if seconds is None else timedelta(seconds=seconds)
    try:
        at = parsedate_to_datetime(told)
    except (ValueError, OverflowError):
        return None
    wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta(0)), longest)
