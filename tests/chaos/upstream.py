"""Faults of upstream: refusals, silence, broken and empty answers, closed ports, and pages that harm their reader."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from mistnet.app import open_app
from mistnet.settings import load_settings
from mistnet.shops.links.naming import canonical_link
from mistnet.shops.model import Canonical, LinkTarget
from mistnet.shops.store.links import LinkWriter
from mistnet.sim.faults import SimFault as Wrong
from tests.chaos.faults import HOLD_SECONDS, Fault, Target
from tests.services.proxy import Proxy
from tests.simulated import START_SECONDS, ask_world, tell_world

OFFER: Final = b"""<html><head><script type="application/ld+json">{"@type": "Product", "name": "Cup",
"offers": {"price": "12.50", "priceCurrency": "EUR"}}</script></head><body><h1>Cup</h1></body></html>"""
HOSTILE: Final = {
    "deep": b"<div>" * 120_000,
    "wide": b"<div " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">",
}
GOOD: Final = "cup"


class Upstream:
    """The way to the world's port, which can be closed so that connections are refused."""

    def __init__(self, world: str) -> None:
        self.world = world
        where = urlsplit(world)
        assert where.hostname is not None
        assert where.port is not None
        self._proxy = Proxy(where.hostname, where.port)
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def opened(self) -> Iterator[Upstream]:
        thread = threading.Thread(target=self._loop.run_forever, name="upstream", daemon=True)
        thread.start()
        try:
            self.listen()
            yield self
            self.refuse()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def listen(self) -> None:
        self._do(self._listen())

    def refuse(self) -> None:
        """Close the port and cut every connection to it."""
        self._do(self._close())

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._proxy.met, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._proxy.end()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(START_SECONDS)


class _Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind = self.path.strip("/").partition("-")[0]
        body = gzip.compress(HOSTILE.get(kind, OFFER), compresslevel=1)
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # the client was killed
            self.wfile.write(body)

    def log_message(self, *_about: object) -> None:
        """Requests are no news."""


@contextmanager
def shop_served() -> Iterator[str]:
    """A shop with a page for every address. What it answers depends on how the path begins."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Shop) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def hostile_pages(target: Target) -> int:
    """Links to hostile pages beside a good one; a worker that reads them must go on."""
    target.links += 1
    asyncio.run(_add_links(target.url, [f"http://shop.example.com/{kind}-{target.links}" for kind in (*HOSTILE, GOOD)]))
    time.sleep(HOLD_SECONDS)
    return len(HOSTILE)


async def _add_links(database_url: str, urls: Sequence[str]) -> None:
    targets = {}
    for url in urls:
        about = canonical_link(url)
        assert isinstance(about, Canonical)
        targets[about.url_norm] = LinkTarget(url=url, canonical=about)
    async with open_app(load_settings(database_url=database_url)) as app, app.database.transaction() as connection:
        await LinkWriter(app.job_writer, ["web"]).ensure(connection, targets, app.database.clock.now())


def refuse_connections(target: Target) -> None:
    assert target.upstream is not None
    target.upstream.refuse()
    time.sleep(HOLD_SECONDS)
    target.upstream.listen()


def _answers(name: str, rates: Mapping[Wrong, float]) -> Fault:
    def play(target: Target) -> int:
        assert target.upstream is not None
        world = target.upstream.world
        before = _faulty(world)
        tell_world(world, "faults", rates=rates, seed=target.chance.randrange(2**31))
        time.sleep(HOLD_SECONDS)
        tell_world(world, "faults")
        return _faulty(world) - before

    return Fault(name, play, "answer", costs_attempts=True)


def _faulty(world: str) -> int:
    return sum(ask_world(world, "stats")["faults"].values())


OF_UPSTREAM: Final = (
    _answers("upstream answers 429", {Wrong.RATE_LIMITED: 0.4, Wrong.RATE_LIMITED_WITH_WAIT: 0.1}),
    _answers("upstream answers 5xx", {Wrong.SERVER_ERROR: 0.4, Wrong.SERVER_ERROR_PAGE: 0.3}),
    _answers("upstream does not answer", {Wrong.TIMEOUT: 0.5}),
    _answers("answers cut short or broken", {Wrong.CUT_BODY: 0.4, Wrong.BROKEN_JSON: 0.3}),
    _answers(
        "empty pages",
        {Wrong.EMPTY_CLAIMS_MORE: 0.3, Wrong.EMPTY_CLAIMS_END: 0.3, Wrong.NULL_DATA: 0.1, Wrong.MISSING_RECORDS: 0.1},
    ),
    _answers(
        "repeated and malformed pages",
        dict.fromkeys(
            (
                Wrong.REPEATED_PAGE,
                Wrong.STUCK_CEILING,
                Wrong.LOOPING_CURSOR,
                Wrong.DUPLICATE_POSTS,
                Wrong.MALFORMED_POST,
            ),
            0.15,
        ),
    ),
    Fault("upstream refuses connections", refuse_connections, costs_attempts=True),
)
OF_PAGES: Final = (Fault("hostile pages", hostile_pages, "page", costs_attempts=True),)
