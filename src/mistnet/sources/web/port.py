"""The port to the web: one request to one URL, no hops. Simulations put their shops behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

import msgspec

from mistnet.sources.web.safe_url import SafeUrl


class WebAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, whatever its status; header names in small letters. `unread`: why the body was left alone."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    unread: str | None = None


Readable: TypeAlias = Callable[[int, Mapping[str, str]], str | None]
"""Looks at an answer's beginning; says why its body is not worth reading, or None."""


class WebTransport(Protocol):
    """Raises Unanswered, or CrawlRefused where the answer is not to be had at any time."""

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer: ...


class NetworkRules(msgspec.Struct, frozen=True, kw_only=True):
    """How visits introduce themselves, how large and how slow an answer may be, and who plays which host."""

    user_agent: str
    largest: int
    total_seconds: float
    via: Mapping[str, str]


class LateNetwork:
    """The guarded network, or whatever was given in its place."""

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
        from mistnet.sources.web.network import Network  # noqa: PLC0415 (slow to load; most commands call nobody)

        rules = self._rules
        async with Network(
            user_agent=rules.user_agent, largest=rules.largest, total_seconds=rules.total_seconds, via=rules.via
        ) as network:
            self._open = network
            yield
        self._open = None
