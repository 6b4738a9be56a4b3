"""The simulated source in a process of its own: warm, on loopback, gone when its owner is.

    python -m bench.collect.source --seed 7 --users 2000 --stars 40 --posts 20000 [--latency 1]

prints its address once its accounts' posts are written. Time stands still in it, so every side finds the same posts.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import uvloop

from bench.collect.common import PROFILE, ROOT, cpu_seconds, now_ns
from mistnet.sim.clock import SimClock, to_ms
from mistnet.sim.faults import Faults
from mistnet.sim.people import SIZES, WorldSize
from mistnet.sim.server import PREFIX, App, Message, Receive, Send, asgi, serving
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.truth import Truth
from mistnet.sim.world import World

KEY = "sim-key"
SPAN = "/_bench/span"
CREDITS = 10**12
PATIENCE_S = 600
MOST_USERS = 50_000
MOST_WRITTEN_AHEAD = 50_000
"""As many posts as the world keeps in its memory; of a larger one each is written when it is asked for."""

EVEN_SHARE = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """`posts` counts all people's; the accounts worth tracking write about six tenths of them."""

    seed: int = 7
    users: int
    stars: int
    posts: int
    latency: float = 0.0
    even: bool = False
    """Whether all accounts are made equally busy; else a few write most."""

    @property
    def arguments(self) -> list[str]:
        given = asdict(self)
        even = given.pop("even")
        return [*(f"--{name}={value}" for name, value in given.items()), *(["--even"] if even else [])]


def named(size: str, *, seed: int) -> WorldPlan:
    found = SIZES[size]
    return WorldPlan(seed=seed, users=found.users, stars=found.stars, posts=found.posts)


def holding(posts: int, *, stars: int = 40, even: bool = False, latency: float = 0.0) -> WorldPlan:
    """A world whose accounts have about so many posts to collect."""
    everyone = posts * 10 // 6
    users = max(stars + 12, min(everyone // 20, MOST_USERS))
    return WorldPlan(users=users, stars=stars, posts=everyone, even=even, latency=latency)


@dataclass(frozen=True, slots=True)
class Source:
    """The way to a running source, and to what only a simulated one can tell."""

    url: str
    pid: int = 0
    """Of its process, if that runs here."""

    def cpu_seconds(self) -> float:
        """What its process has used so far."""
        return cpu_seconds(self.pid)

    def accounts(self) -> list[str]:
        return list(self._ask("accounts")["handles"])

    def post_ids(self, handle: str) -> set[int]:
        """What the two passes over an account must find."""
        found = self._ask("account", handle=handle)["account"]
        return {int(each) for each in (*found["search"], *found["retweets"])}

    def profile(self, handle: str) -> bytes:
        """As the source itself shows it."""
        found = _answer(f"{self.url}{PROFILE}?{urlencode({'userName': handle})}")["data"]
        return json.dumps(found).encode()

    def reset(self) -> None:
        self._ask("reset", body=b"{}")
        _answer(f"{self.url}{SPAN}", b"{}")

    def stats(self) -> dict[str, Any]:
        return self._ask("stats")

    def least(self, handles: list[str]) -> dict[str, Any]:
        return self._ask("cost", handles=",".join(handles), retweets="true")

    def first_call_ns(self) -> int:
        return int(_answer(f"{self.url}{SPAN}")["first_ns"])

    def _ask(self, name: str, body: bytes | None = None, **query: str) -> dict[str, Any]:
        return _answer(f"{self.url}{PREFIX}{name}?{urlencode(query)}", body)


def _answer(url: str, body: bytes | None = None) -> dict[str, Any]:
    with urlopen(Request(url, data=body, headers={"X-API-Key": KEY}), timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


@contextmanager
def running(plan: WorldPlan) -> Iterator[Source]:
    """A source for the length of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.collect.source", *plan.arguments],
        stdin=subprocess.PIPE,  # its end is the source's
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    try:
        if process.stdout is None or not (url := process.stdout.readline().strip()):
            raise RuntimeError("the source did not start")
        yield Source(url, process.pid)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


class Watched:
    """The app, and when it was first asked for something."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._first_ns = 0

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        if path == SPAN:
            told = json.dumps({"first_ns": self._first_ns}).encode()
            if scope["method"] == "POST":
                self._first_ns = 0
            await _reply(send, told)
            return
        if not self._first_ns and not path.startswith(PREFIX):
            self._first_ns = now_ns()
        await self._app(dict(scope), receive, send)


async def _reply(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(plan: WorldPlan) -> AsyncIterator[str]:
    clock = SimClock()
    world = World(plan.seed, WorldSize(users=plan.users, stars=plan.stars, posts=plan.posts))
    key = Key(name=KEY, tier=Tier.UNLIMITED, recharge_credits=CREDITS)
    faults = Faults(plan.seed, {}, latency_seconds=(plan.latency, plan.latency))
    service = XService(world, clock.now, keys=[key], faults=faults)
    if plan.even:
        _make_even(world, round(plan.posts * EVEN_SHARE / plan.stars))
    _warm(service, Truth(world).accounts(clock.now()), plan)
    async with serving(Watched(asgi(service, clock))) as url:
        yield url


def _make_even(world: World, posts: int) -> None:
    """Before anybody has written anything."""
    for star in world.stars:
        world.people[star.index] = replace(star, posts=posts)


def _warm(service: XService, handles: list[str], plan: WorldPlan) -> None:
    now_ms = to_ms(service.now())
    if plan.posts * EVEN_SHARE <= MOST_WRITTEN_AHEAD:
        service.warm(handles)
    for handle in handles:
        if person := service.world.holder(handle, now_ms):
            service.world.timeline(person.index, now_ms)


async def until_abandoned() -> None:
    """The process that started this holds the other end of its input."""
    await asyncio.to_thread(sys.stdin.read)


async def serve(plan: WorldPlan) -> None:
    async with served(plan) as url:
        print(url, flush=True)
        await until_abandoned()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.collect.source", description=__doc__)
    for name in ("seed", "users", "stars", "posts"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--even", action="store_true")
    uvloop.run(serve(WorldPlan(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
