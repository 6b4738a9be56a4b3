"""A way to the web that is opened when it is needed; until then there is nothing to close."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from mistnet.upstream.web.doors import Door
from mistnet.upstream.web.port import Readable, WebAnswer, WebTransport


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

    async def get(self, door: Door, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        if self._open is None:
            raise RuntimeError("visits are made while the network is open")
        return await self._open.get(door, headers=headers, readable=readable)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        if self._given is not None:
            yield
            return
        from mistnet.upstream.web.network import Network  # noqa: PLC0415 (slow to load; most commands call nobody)

        rules = self._rules
        async with Network(
            user_agent=rules.user_agent, largest=rules.largest, total_seconds=rules.total_seconds, via=rules.via
        ) as network:
            self._open = network
            yield
        self._open = None
