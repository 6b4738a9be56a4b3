"""What tests of the queue share: fresh databases, a clock to turn, toy kinds, an effects table."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import CallPurpose
from mistnet.kit.database import Database
from mistnet.kit.merged import Part, insert_part
from mistnet.kit.types import UtcTime
from mistnet.operations.runs.model import Run, RunAccount, RunId, RunStatus
from mistnet.queue.kinds import Kind, KindRegistry, Policy, single
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import (
    Args,
    Continue,
    Done,
    Enqueued,
    Job,
    JobClass,
    JobId,
    KindName,
    Lane,
    Lease,
    NewJob,
    Outcome,
    Settlement,
    Wake,
    WorkerCard,
    WorkerName,
    Write,
)
from mistnet.queue.ports import Tools
from mistnet.queue.settler import settlement
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.enqueue import JobWriter, write_wakes
from mistnet.queue.store.upkeep import StoreUpkeep
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.store.writes import Writer, Writers
from mistnet.queue.worker import Worker
from tests.databases import effects, open_database

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=300)


class Number(Args, frozen=True):
    n: int = 0


class Effect(Write, frozen=True, kw_only=True):
    """A row that must be there exactly once for each job that succeeded."""

    job_id: int
    note: str = ""


async def write_effects(connection: AsyncConnection, values: Sequence[Effect], _now: datetime) -> None:
    rows = [{"job_id": value.job_id, "note": value.note} for value in values]
    await connection.execute(insert(effects), rows)


async def effects_at_once(connection: AsyncConnection, values: Sequence[Effect], _now: datetime) -> Sequence[Part]:
    return [insert_part(connection, effects, [(value.job_id, value.note) for value in values], "")]


class TurnedClock:
    """A clock that stands still until it is turned."""

    def __init__(self, now: datetime = START) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def turn(self, **by: float) -> datetime:
        self._now += timedelta(**by)
        return self._now


async def done(_job: Job[Number]) -> Outcome:
    return Done()


def kind(
    name: str = "step",
    handler: Callable[[Job[Number]], Coroutine[Any, Any, Outcome]] = done,
    *,
    job_class: JobClass = JobClass.WALK,
    lanes: Sequence[str] = ("x",),
    running_cap: int | None = None,
    live_cap: int | None = None,
) -> Kind:
    return single(name, handler, Number, job_class=job_class, lanes=lanes, running_cap=running_cap, live_cap=live_cap)


def new(kind_name: str = "step", key: str | None = None, n: int = 0, **about: Any) -> NewJob:
    return NewJob(kind=KindName(kind_name), key=key, args=Number(n=n), **about)


@dataclass
class Shop:
    """A queue on a real database, opened for one test."""

    database: Database
    kinds: KindRegistry
    clock: TurnedClock
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        self.job_writer = JobWriter(self.kinds.rules)
        writers: list[Writer[Any]] = [
            Writer(Effect, write_effects, parts=effects_at_once),
            Writer(NewJob, self.job_writer.write, parts=self.job_writer.parts),
            Writer(Wake, write_wakes),
        ]
        self.queue = JobQueue(self.database, self.job_writer, Writers(writers))
        self.upkeep = StoreUpkeep(self.database)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    async def add(self, *jobs: NewJob) -> Enqueued:
        return await self.queue.enqueue(jobs, now=self.now)

    async def claim(
        self, worker: str = "ann", *, slots: int = 1, lanes: Sequence[str] | None = None, **about: Any
    ) -> Sequence[Lease]:
        return await self.queue.claim(
            worker=WorkerName(worker),
            targets=self.kinds.targets(slots=slots, lanes=lanes, lane_caps=self.policy.lane_caps),
            room=slots,
            lease=self.policy.lease,
            now=self.now,
            aged_before=self.now - self.policy.aging if self.policy.aging else None,
            **about,
        )

    def settlement(self, lease: Lease, outcome: Outcome) -> Settlement:
        return settlement(lease, outcome, now=self.now, policy=self.policy, chance=0.5)

    async def settle(self, lease: Lease, outcome: Outcome) -> bool:
        return lease.claim in await self.queue.settle([self.settlement(lease, outcome)], now=self.now)

    async def database_write(self, sql: str) -> None:
        async with self.database.transaction() as connection:
            statement = text(sql)
            binds = {"now": self.now} if ":now" in sql else {}
            if binds:
                statement = statement.bindparams(bindparam("now", type_=UtcTime()))
            await connection.execute(statement, binds)

    async def rows(self, sql: str, **binds: Any) -> list[Any]:
        async with self.database.read() as connection:
            return list((await connection.execute(text(sql), binds)).all())

    async def one(self, sql: str, **binds: Any) -> Any:
        (row,) = await self.rows(sql, **binds)
        return row[0] if len(row) == 1 else row

    async def effects(self) -> list[int]:
        async with self.database.read() as connection:
            return sorted((await connection.execute(select(effects.c.job_id))).scalars())

    def worker(self, name: str = "ann", *, concurrency: int = 10, until_idle: bool = True, **policy: Any) -> Worker:
        card = WorkerCard(
            name=WorkerName(name), host="here", pid=1, concurrency=concurrency, lanes=["x"], version="test"
        )
        tools = Tools(
            queue=self.queue,
            upkeep=self.upkeep,
            wakeup=LocalWakeups(),
            clock=self.database.clock,
            kinds=self.kinds,
            policy=Policy(**policy) if policy else self.policy,
            metrics=EngineMetrics(),
            secrets=["hunter2-secret"],
            chance=random.Random(1),
        )
        return Worker(tools, card, until_idle=until_idle)


@asynccontextmanager
async def open_shop(
    url: str, *kinds: Kind, policy: Policy | None = None, clock: TurnedClock | None = None, real_time: bool = False
) -> AsyncIterator[Shop]:
    turned = clock or TurnedClock()
    database = open_database(url, clock=None if real_time else turned)
    try:
        shop = Shop(database, KindRegistry(kinds or [kind()]), turned, policy or Policy())
        yield shop
    finally:
        await database.close()


def leases_by_lane(leases: Sequence[Lease]) -> dict[Lane, list[JobId]]:
    lanes: dict[Lane, list[JobId]] = {}
    for lease in leases:
        lanes.setdefault(lease.lane, []).append(lease.id)
    return lanes


def stepping(total: int, seen: list[int]) -> Callable[[Job[Number]], Coroutine[Any, Any, Outcome]]:
    """A handler that makes one step per turn and is done after `total`."""

    async def handler(job: Job[Number]) -> Outcome:
        await asyncio.sleep(0)
        seen.append(job.id)
        return Done() if job.args.n + 1 >= total else Continue(args=Number(n=job.args.n + 1))

    return handler


async def run_until(worker: Worker, condition: Callable[[], bool], *, seconds: float = 50) -> None:
    """Runs a worker until a condition holds, then drains it."""
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                if running.done():
                    running.result()
                    break
                await asyncio.sleep(0.01)
    finally:
        worker.drain()
        await running


async def no_wait(_seconds: float) -> None:
    """Replaces a sleep in tests that must not wait."""


class LetThrough:
    """A call without a governor; it remembers what it cost."""

    def __init__(self, key: str, endpoint: str) -> None:
        self.key, self.endpoint = key, endpoint
        self.items = self.credits = 0

    def settle(self, *, items: int, credits_due: int) -> None:
        self.items, self.credits = items, credits_due


class OpenGate:
    """Lets every call through at once, and keeps a list of them."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.calls: list[LetThrough] = []

    @asynccontextmanager
    async def call(self, endpoint: str, *, most: int, purpose: CallPurpose) -> AsyncIterator[LetThrough]:
        self.calls.append(LetThrough(self._key, endpoint))
        yield self.calls[-1]
        assert self.calls[-1].credits <= most


def finished_run(*accounts: RunAccount, seconds: float = 0) -> Run:
    """A run that ended so many seconds after it began."""
    return Run(
        id=RunId("r"),
        status=RunStatus.COMPLETED,
        asked_by="ann",
        post_limit=5,
        created_at=START,
        updated_at=START,
        finished_at=START + timedelta(seconds=seconds),
        accounts=accounts,
    )
