"""Pages that take too much to read, met by a real process: they cost no other job anything."""

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mistnet.app import open_app
from mistnet.settings import load_settings
from tests.e2e.conftest import QUICK, RESTLESS, CommandLine
from tests.e2e.test_service import Service
from tests.shops import WRITER, post

PRICED = b"""<html><head><script type="application/ld+json">{"@type": "Product", "name": "Cup",
"offers": {"price": "12.50", "priceCurrency": "EUR"}}</script></head><body><h1>Cup</h1></body></html>"""
BOMBS = {
    "/deep": b"<div>" * 120_000,
    "/wide": b"<div " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">",
}
LEASE_SECONDS = 15.0
"""On a busy machine a worker may not get to renew shorter ones. Read in its own process, one page would outlast it."""
GOOD = [f"/cup{number}" for number in range(6)]


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = gzip.compress(BOMBS.get(self.path, PRICED))
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_about: object) -> None:
        """Write no log."""


@contextmanager
def shop_served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def post_links(command: CommandLine, base_url: str) -> None:
    async def write() -> None:
        async with open_app(load_settings(database_url=command.url, crawl_lanes=["web"])) as app:
            said = " ".join(f"http://shop.example.com{path}" for path in (*BOMBS, *GOOD))
            prepared = app.writers.prepare([WRITER, post(1, said)])
            async with app.database.transaction() as connection:
                await app.writers.write(connection, prepared, app.database.clock.now())

    asyncio.run(write())
    command.settings |= {
        **QUICK,
        **RESTLESS,
        "MISTNET_LEASE_SECONDS": str(LEASE_SECONDS),
        "MISTNET_CRAWL_LANES": "web",
        "MISTNET_CRAWL_VIA": json.dumps({"*": base_url}),
        "MISTNET_CRAWL_RATE_PER_MINUTE": "100000",
        "MISTNET_CRAWL_HOST_SECONDS": "0",
        "MISTNET_CRAWL_READ_SECONDS": "1",
        "MISTNET_SCHEDULER_ENABLED": "false",
    }


def test_hostile_pages_end_unreadable_while_their_neighbours_are_read_and_the_service_answers(
    on_sqlite: CommandLine,
) -> None:
    with shop_served() as base_url:
        post_links(on_sqlite, base_url)
        up = Service(on_sqlite.start("up", "--port", "0"))
        slowest = 0.0
        while on_sqlite.sql("SELECT id FROM jobs WHERE kind = 'crawl'"):
            begun = time.monotonic()
            assert up.ask("/healthz")[0] == 200
            slowest = max(slowest, time.monotonic() - begun)
            time.sleep(0.05)
        code, _, said = up.stop()
    assert code == 0, said
    found = on_sqlite.sql("SELECT l.url, c.outcome, c.problem FROM crawls c JOIN links l ON l.id = c.link_id")
    outcomes = {row["url"].rpartition("example.com")[2]: row["outcome"] for row in found}
    assert outcomes == {**dict.fromkeys(BOMBS, "unreadable"), **dict.fromkeys(GOOD, "offer")}
    problems = {row["url"].rpartition("/")[2]: row["problem"] for row in found if row["problem"]}
    assert "inside each other" in problems["deep"]
    assert "longer than 1 s" in problems["wide"]
    assert on_sqlite.sql("SELECT error FROM job_errors") == [], "no job lost its lease or failed"
    assert slowest < LEASE_SECONDS, "the process must answer while it reads"
