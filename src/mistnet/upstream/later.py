"""A transport that is opened when it is needed; until then there is nothing to close."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mistnet.upstream.transport import Answer, Request, Transport


class LateTransport:
    """The real network to one server, or whatever was given in its place."""

    def __init__(self, base_url: str, *, user_agent: str, total_seconds: float, given: Transport | None = None) -> None:
        self._base_url = base_url
        self._user_agent = user_agent
        self._total_seconds = total_seconds
        self._given = given
        self._open: Transport | None = given

    async def send(self, request: Request) -> Answer:
        if self._open is None:
            raise RuntimeError("calls are made while the transport is open")
        return await self._open.send(request)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        if self._given is not None:
            yield
            return
        from mistnet.upstream.http import HttpTransport  # noqa: PLC0415 (slow to load; most commands call nobody)

        async with HttpTransport(
            self._base_url, user_agent=self._user_agent, total_seconds=self._total_seconds
        ) as transport:
            self._open = transport
            yield
        self._open = None
