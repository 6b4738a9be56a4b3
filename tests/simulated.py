"""Simulated sources behind HTTP, served by a thread of the test's process, and questions to them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from mistnet.sim.server import pack, serving
from mistnet.sim.service import DEFAULT_KEY, Key, SimAnswer, Tier, XService

START_SECONDS = 60.0
SEARCH_PATH = "/twitter/tweet/advanced_search"


class SimVisitor:
    """Asks a simulated X in the test's own process."""

    def __init__(self, service: XService, key: str = DEFAULT_KEY.name) -> None:
        self._service, self._key = service, key

    async def ask(self, path: str, **params: object) -> SimAnswer:
        return await self._service.handle("GET", path, urlencode(params), {"X-API-Key": self._key})

    async def get(self, path: str, **params: object) -> Any:
        """The JSON of an answer that must be a 200."""
        answer = await self.ask(path, **params)
        if answer.status != 200:
            raise AssertionError(f"{answer.status}: {answer.body.decode()}")
        return json.loads(answer.body)

    async def search(self, query: str, cursor: str = "") -> Any:
        return await self.get(SEARCH_PATH, query=query, queryType="Latest", cursor=cursor)


@contextmanager
def world_served(*, size: str = "tiny", tier: Tier = Tier.UNLIMITED, **about: Any) -> Iterator[str]:
    """The address of a world of its own; time in it stands still unless `speed` says otherwise."""
    key = Key(name="sim-key", tier=tier, recharge_credits=100_000_000)
    app = pack(size=size, key=key, **about).asgi()
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()
    found: list[str] = []

    async def serve() -> None:
        async with serving(app) as url:
            found.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="world", daemon=True)
    thread.start()
    assert ready.wait(START_SECONDS), "the simulated world did not start"
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def ask_world(url: str, path: str) -> Any:
    """Ask the world what is true."""
    with urlopen(f"{url}/_sim/{path}", timeout=60) as answer:
        return json.load(answer)


def tell_world(url: str, path: str, **given: object) -> Any:
    """Move the world's time, or cause trouble in it."""
    asked = Request(f"{url}/_sim/{path}", data=json.dumps(given).encode(), method="POST")
    with urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def list_handles(url: str) -> list[str]:
    """Accounts of the world that are worth tracking."""
    return [str(each) for each in ask_world(url, "accounts")["handles"]]
