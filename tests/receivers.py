"""A little server that takes webhooks as a subscriber would, and now and then does not."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SECRET = "hunter2-webhook-secret"


@dataclass(frozen=True)
class Got:
    """One request, and what was answered."""

    path: str
    headers: dict[str, str]
    body: bytes
    status: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> int:
        return int(self.headers["Mistnet-Event-Id"])

    def signed_with(self, secret: str) -> bool:
        """As a receiver checks it, from the documentation alone."""
        signed = self.headers["Mistnet-Timestamp"].encode() + b"." + self.body
        made = "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        return hmac.compare_digest(made, self.headers["Mistnet-Signature"])


@dataclass
class Receiver:
    """Answers as `answer` says, by how many came before; keeps everything."""

    url: str = ""
    answer: Callable[[int], int] = lambda _number: 204
    got: list[Got] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        status = self.answer(len(self.got))
        self.got.append(Got(request.path, dict(request.headers), await request.read(), status))
        location = {"Location": self.url.replace("/hook", "/elsewhere")} if 300 <= status < 400 else {}
        return web.Response(status=status, headers=location)

    @property
    def taken(self) -> list[Got]:
        return [each for each in self.got if 200 <= each.status < 300]

    @property
    def kinds(self) -> list[str]:
        return [each.json["kind"] for each in self.taken]


@asynccontextmanager
async def receiver(answer: Callable[[int], int] = lambda _number: 204) -> AsyncIterator[Receiver]:
    """On loopback, on a free port, under a path that would give a secret away."""
    taking = Receiver(answer=answer)
    service = web.Application()
    service.router.add_post("/hook/{key}", taking.take)
    service.router.add_post("/elsewhere/{key}", taking.take)
    runner = web.AppRunner(service)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        taking.url = f"http://127.0.0.1:{port}/hook/hunter2-in-the-path"
        yield taking
    finally:
        await runner.cleanup()


@contextmanager
def receiver_apart(answer: Callable[[int], int] = lambda _number: 204) -> Iterator[Receiver]:
    """The same for tests without an event loop: it runs in a thread of its own."""
    ready, ended = threading.Event(), asyncio.Event()
    found: list[Receiver] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with receiver(answer) as taking:
            found.append(taking)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()
