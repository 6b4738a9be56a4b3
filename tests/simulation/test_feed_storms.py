"""Feeds of a simulated Threads in virtual time: with faults and crashes, compared with what is true there."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.governor.model import THREADS_SOURCE
from mistnet.kit.database import Database
from mistnet.queue.model import WorkerCard, WorkerName
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.worker import Worker
from mistnet.settings import Settings
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.faults import SimFault
from mistnet.sim.people import WorldSize
from mistnet.sim.threads import DEFAULT_TOKEN, ThreadsService
from tests.databases import Templates
from tests.feeds import FeedOracle, ThreadsTransport, threads_of
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.virtual import run_virtually
from tests.simulation.world import POLICY, Chaos, Fleet, Machine, open_database

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind

SIZE = WorldSize(users=24, stars=9, posts=170)
OPEN_FEEDS = 2
SETTINGS: dict[str, Any] = {
    "threads_token": DEFAULT_TOKEN,
    "threads_rate_per_minute": 60_000,
    "second_look_seconds": 30,
    "max_attempts": 1000,
    "breaker_seconds": 60,
}


def settings_for(url: str) -> Settings:
    return Settings.model_validate({"database_url": url, **SETTINGS})


class FewerFeeds(FeedOracle):
    """Some of the feeds that can be read, others with each seed, and all that cannot."""

    @property
    def open_handles(self) -> Sequence[str]:
        every = super().open_handles
        first = self.service.threads.world.seed % len(every)
        return [*every[first:], *every[:first]][:OPEN_FEEDS]


@dataclass
class FeedFleet(Fleet):
    """Machines that read feeds of one simulated Threads."""

    service: ThreadsService | None = None

    async def _live(self, machine: Machine) -> None:
        async def point() -> None:
            await machine.point("on the wire")

        assert self.service is not None
        database = machine.database()
        app = App(
            settings_for(self.url), database=database, transports={"threads": ThreadsTransport(self.service, point)}
        )
        tools = app.tools(LocalWakeups(), policy=POLICY, chance=random.Random(f"{self.chaos.seed} {machine.name}"))
        card = WorkerCard(
            name=WorkerName(machine.name), host="box", pid=1, concurrency=4, lanes=["threads"], version="sim"
        )
        async with app.sources[THREADS_SOURCE].opened():
            await Worker(tools, card).run()


@dataclass(frozen=True)
class Read:
    """What came of it: everything that is wrong after the first look and after later ones, and what went wrong."""

    wrong: list[str]
    later: list[str]
    crashes: int
    faults: int
    tokens_seen: list[str]


def read_feeds(url: str, seed: int, *, faults: str, chaos: Chaos | None = None, days: Sequence[float] = ()) -> Read:
    return run_virtually(_read_feeds(url, seed, faults, chaos, days))


async def _read_feeds(url: str, seed: int, faults: str, chaos: Chaos | None, days: Sequence[float]) -> Read:
    database = open_database(url)
    at = [WORLD_START_AT]
    service = threads_of(seed, size=SIZE, faults=faults, now=lambda: at[0])
    if chaos:  # a false end, the true page lost in a crash, and a false end again look like the end
        service.faults.rates.pop(SimFault.EMPTY_CLAIMS_END, None)
    calm = Chaos(seed, calm=True, crashes_left=0, freezes_left=0)
    fleet = FeedFleet(url, chaos or calm, size=3 if chaos else 1, service=service)
    app = App(settings_for(url), database=database, transports={"threads": ThreadsTransport(service)})
    try:
        oracle = FeedOracle(service) if faults == "none" else FewerFeeds(service)
        await app.feeds.store.add(oracle.all_handles, every_seconds=None, job_writer=app.job_writer)
        await _until_idle(app, fleet)
        wrong, later = await oracle.compare(database), []
        watched = oracle.open_handles
        for pause in days:
            await asyncio.sleep(pause * 86_400)
            at[0] += timedelta(days=pause)
            assert await app.feeds.make_due(app.job_writer) >= len(watched)
            await _until_idle(app, fleet)
            later += await _lacking(FeedOracle(service, at=at[0]), database, watched)
        tokens = await _tokens(database)
    finally:
        await database.close()
    crashes = sum("CRASHES" in line for line in fleet.trace)
    return Read(wrong, later, crashes, sum(service.stats.faults.values()), tokens)


async def _until_idle(app: App, fleet: FeedFleet) -> None:
    async def done() -> bool:
        return not await app.upkeep.work_left(list(app.kinds), ["threads"], now=app.database.clock.now())

    await fleet.run(until=done, deadline=asyncio.get_running_loop().time() + 48 * 3600)


async def _lacking(oracle: FeedOracle, database: Database, watched: Sequence[str]) -> list[str]:
    """Of what can be had by now, what is not there. What was deleted since it was read stays."""
    async with database.read() as connection:
        stored = set((await connection.execute(text("SELECT id FROM posts WHERE platform = 'threads'"))).scalars())
    wrong = []
    for handle in watched:
        truth = oracle.truth.feed(handle, oracle.at)
        lost = {*truth.posts, *truth.replies, *truth.originals} - stored if truth else set()
        if lost:
            wrong.append(f"{handle} at {oracle.at:%d %H:%M}: {len(lost)} posts are missing: {sorted(lost)[:3]}")
    return wrong


async def _tokens(database: Database) -> list[str]:
    """Every text of the database that has the token in it."""
    questions = {
        "posts": "SELECT CAST(raw AS TEXT) FROM posts",
        "users": "SELECT CAST(raw AS TEXT) FROM users",
        "calls": "SELECT COALESCE(endpoint, '') || COALESCE(error, '') FROM calls",
        "jobs": "SELECT CAST(args AS TEXT) || COALESCE(last_error, '') FROM jobs",
        "job_history": "SELECT CAST(args AS TEXT) FROM job_history",
        "job_errors": "SELECT error FROM job_errors",
        "sources": "SELECT COALESCE(last_failure, '') || COALESCE(pause_reason, '') FROM sources",
        "quarantine": "SELECT payload FROM quarantine",
    }
    async with database.read() as connection:
        held = {table: list((await connection.execute(text(asked))).scalars()) for table, asked in questions.items()}
    return [f"{table}: {each!r:.80}" for table, told in held.items() for each in told if DEFAULT_TOKEN in str(each)]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_feeds_bring_exactly_what_is_true_and_go_on_from_there(
    memory: Templates, request: pytest.FixtureRequest, backend: str
) -> None:
    dsn = "" if backend == "sqlite" else request.getfixturevalue("postgres_dsn")
    url = memory.postgresql(dsn) if dsn else memory.sqlite()
    read = read_feeds(url, 1, faults="none", days=(0.05, 4) if dsn else (0.05, 0.4, 1.5, 4))
    assert (read.wrong, read.later, read.tokens_seen) == ([], [], [])


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=2), ids=named)
def test_faults_of_threads_cost_no_post(memory: Templates, seeds: range) -> None:
    for seed in seeds:
        read = read_feeds(memory.sqlite(), seed, faults="all", days=(0.1, 1))
        assert (read.wrong, read.later, read.tokens_seen) == ([], [], []), replay(seed)
        assert read.faults or not is_fixed(seeds), "a world without faults proves nothing"


def read_in_a_storm(url: str, seed: int, *, days: Sequence[float] = ()) -> Read:
    read = read_feeds(url, seed, faults="all", chaos=Chaos(seed, crash=0.002, freeze=0.002), days=days)
    assert (read.wrong, read.later, read.tokens_seen) == ([], [], []), replay(seed)
    return read


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=1), ids=named)
def test_crashes_leave_no_hole_in_a_feed(memory: Templates, seeds: range) -> None:
    crashes = sum(read_in_a_storm(memory.sqlite(), seed, days=(2,)).crashes for seed in seeds)
    assert crashes or not is_fixed(seeds), "a storm that breaks nothing proves nothing"


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("seeds", chunks(1, 0, 1), ids=named)
def test_crashes_leave_no_hole_in_a_feed_on_postgresql(memory: Templates, postgres_dsn: str, seeds: range) -> None:
    for seed in seeds:
        read_in_a_storm(memory.postgresql(postgres_dsn), seed)
