"""A proxy before a libSQL server that counts requests, and can lose any of them on either way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum

import aiohttp
from aiohttp import web

from tests.services.postgres import _free_port
from tests.services.sqld import SqldServer


class Fate(StrEnum):
    """What becomes of a request."""

    THROUGH = "through"
    NEVER_ARRIVES = "never arrives"
    NEVER_ANSWERED = "never answered"


def all_through(_body: bytes) -> Fate:
    return Fate.THROUGH


class Middleman:
    """Put `decide` in place to lose requests by what they say."""

    def __init__(self, server: SqldServer) -> None:
        self._server = server
        self._session: aiohttp.ClientSession | None = None
        self.port = 0
        self.requests: list[bytes] = []
        self.decide: Callable[[bytes], Fate] = all_through

    def url(self, url: str) -> str:
        """The same database, through here."""
        return url.replace(f":{self._server.port}", f":{self.port}")

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append(body)
        fate = self.decide(body)
        if fate is Fate.NEVER_ARRIVES:
            return _hang_up(request)
        status, said = await self._forward(request, body)
        return _hang_up(request) if fate is Fate.NEVER_ANSWERED else web.Response(status=status, body=said)

    async def _forward(self, request: web.Request, body: bytes) -> tuple[int, bytes]:
        headers = {name: request.headers[name] for name in ("Host", "Authorization", "Content-Type")}
        assert self._session is not None
        where = f"http://127.0.0.1:{self._server.port}{request.path}"
        async with self._session.post(where, data=body, headers=headers) as answer:
            return answer.status, await answer.read()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Middleman]:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v3/pipeline", self.serve)
        async with serving(app) as port, aiohttp.ClientSession() as self._session:
            self.port = port
            yield self


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[int]:
    """An application on a free port, while the block lasts."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = _free_port()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield port
    finally:
        await runner.cleanup()


def _hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
