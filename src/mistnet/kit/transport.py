"""The port to the network: a request goes out, an answer comes back. Simulations put a world behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Protocol

import msgspec

from mistnet.kit.text import read_number


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call, ready to be sent. Secrets travel in the headers, or in the hidden part of the query: never shown.

    A form makes it a POST.
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
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unanswered(Exception):
    """The connection failed, or the answer did not come in time or not whole."""


class Unreached(Unanswered):
    """No connection came about, so the request was never sent."""


class Transport(Protocol):
    """Sends a request. Raises Unanswered and nothing else."""

    async def send(self, request: HttpRequest) -> HttpAnswer: ...


class LateTransport:
    """The real network to one server, or whatever was given in its place."""

    def __init__(self, base_url: str, *, user_agent: str, total_seconds: float, given: Transport | None = None) -> None:
        self._base_url = base_url
        self._user_agent = user_agent
        self._total_seconds = total_seconds
        self._given = given
        self._open: Transport | None = given

    async def send(self, request: HttpRequest) -> HttpAnswer:
        if self._open is None:
            raise RuntimeError("calls are made while the transport is open")
        return await self._open.send(request)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        if self._given is not None:
            yield
            return
        from mistnet.kit.http import HttpTransport  # noqa: PLC0415 (slow to load; most commands call nobody)

        async with HttpTransport(
            self._base_url, user_agent=self._user_agent, total_seconds=self._total_seconds
        ) as transport:
            self._open = transport
            yield
        self._open = None


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
