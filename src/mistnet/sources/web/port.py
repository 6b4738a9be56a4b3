"""The port to the web: one request to one URL, without redirects. Simulations implement it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

import msgspec

from mistnet.sources.web.safe_url import SafeUrl


class WebAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of any status; header names are lower case. `unread`: why the body was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    unread: str | None = None


Readable: TypeAlias = Callable[[int, Mapping[str, str]], str | None]
"""Checks an answer's status and headers; returns why its body is not read, or None."""


class WebTransport(Protocol):
    """Raises Unanswered, or CrawlRefused where a retry would not help."""

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer: ...


class NetworkRules(msgspec.Struct, frozen=True, kw_only=True):
    """The user agent, how large and how slow an answer may be, and which addresses stand in for hosts."""

    user_agent: str
    largest: int
    total_seconds: float
    via: Mapping[str, str]


class LateNetwork:
    """The guarded network, opened on first use, or the transport given in its place."""

    def __init__(self, rules: NetworkRules, given: WebTransport | None = None) -> None:
        self._rules = rules
        self._given = given
        self._open: WebTransport | None = given

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        if self._open is None:
            raise RuntimeError("visits are made while the network is open")
        return await self._open.get(target, headers=headers, readable=readable)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        if self._given is not None:
            yield
            return
        from mistnet.sources.web.network import Network  # noqa: PLC0415 (slow to load; most commands fetch no pages)

        rules = self._rules
        async with Network(
            user_agent=rules.user_agent, largest=rules.largest, total_seconds=rules.total_seconds, via=rules.via
        ) as network:
            self._open = network
            yield
        self._open = None
