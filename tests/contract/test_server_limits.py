"""What a server does to a worker at work: locks that are not waited for, sessions that are ended, clocks that jump."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import event, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.queue.kinds import KindRegistry, Policy
from mistnet.queue.model import Done, Job, JobState, Outcome
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.writes import Writer, Writers
from mistnet.queue.tables import jobs
from mistnet.queue.worker import Worker
from tests.support import Effect, Number, Shop, kind, new, open_shop, write_effects

pytestmark = pytest.mark.fresh_database

JOBS = 30
PATIENT_SECONDS = 20.0


async def leave_a_mark(job: Job[Number]) -> Outcome:
    return Done([Effect(job_id=job.id)])


async def set_limit(url: str, limit: str) -> None:
    """For all sessions that begin from now on."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET {limit}")
    finally:
        await connection.close()


def faults_of(database: Database) -> "Counter[str]":
    """Counts the errors of the server from now on, by their code."""
    found: Counter[str] = Counter()

    def note(context: object) -> None:
        found[str(getattr(context.original_exception, "sqlstate", ""))] += 1  # type: ignore[attr-defined]

    event.listen(database.engine.sync_engine, "handle_error", note)
    return found


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def finish(worker: Worker, task: "asyncio.Task[None]", shop: Shop) -> None:
    async with asyncio.timeout(PATIENT_SECONDS):
        while await shop.one("SELECT count(*) FROM jobs"):
            await asyncio.sleep(0.02)
        worker.drain()
        await task


@pytest.mark.parametrize("table", ["jobs", "job_history"])
async def test_a_lock_that_is_not_waited_for_costs_no_attempt(postgresql_url: str, table: str) -> None:
    """Claims need the one table, settling both: the worker tries again until the lock is free."""
    await set_limit(postgresql_url, "lock_timeout = '20ms'")
    async with open_shop(postgresql_url, kind(handler=leave_a_mark), real_time=True) as shop:
        await shop.queue.enqueue([new(key=str(n)) for n in range(JOBS)], now=shop.database.clock.now())
        faults = faults_of(shop.database)
        worker = shop.worker(until_idle=False)
        blocker = await asyncpg.connect(postgresql_url)
        try:
            async with blocker.transaction():
                await blocker.execute(f"LOCK TABLE {table} IN SHARE MODE")
                task = asyncio.create_task(worker.run())
                await until(lambda: faults["55P03"] >= 3)
        finally:
            await blocker.close()
        await finish(worker, task, shop)
        assert len(await shop.effects()) == len(set(await shop.effects())) == JOBS
        assert await shop.rows("SELECT DISTINCT attempts FROM job_history") == [(0,)]


async def test_a_session_that_is_ended_within_its_transaction_loses_nothing(postgresql_url: str) -> None:
    async with open_shop(postgresql_url, real_time=True) as shop:
        await shop.queue.enqueue([new(key=str(n)) for n in range(JOBS)], now=shop.database.clock.now())
    await set_limit(postgresql_url, "idle_in_transaction_session_timeout = '200ms'")
    ended: list[int] = []

    async def dawdle(connection: AsyncConnection, values: Sequence[Effect], now: datetime) -> None:
        await write_effects(connection, values, now)
        if not ended:
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            ended.append(pid)
            async with asyncio.timeout(PATIENT_SECONDS):
                while await watcher.fetchval("SELECT 1 FROM pg_stat_activity WHERE pid = $1", pid):
                    await asyncio.sleep(0.01)

    watcher = await asyncpg.connect(postgresql_url)
    try:
        async with open_shop(postgresql_url, kind(handler=leave_a_mark), real_time=True) as shop:
            slow: Writer[Any] = Writer(Effect, dawdle)
            shop.queue = JobQueue(shop.database, shop.job_writer, Writers([slow]))
            worker = shop.worker(until_idle=False)
            await finish(worker, asyncio.create_task(worker.run()), shop)
            assert ended
            assert len(await shop.effects()) == len(set(await shop.effects())) == JOBS
            assert await shop.rows("SELECT DISTINCT attempts FROM job_history") == [(0,)]
    finally:
        await watcher.close()


class JumpingClock:
    """A machine's clock that is set while work goes on."""

    def __init__(self) -> None:
        self.off = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.off


async def all_are_leased(shop: Shop) -> None:
    """Until each running job has been kept by its worker or taken over by another, by the clock as it is now."""
    leases = select(func.count()).select_from(jobs).where(jobs.c.state == JobState.RUNNING)
    async with asyncio.timeout(PATIENT_SECONDS), shop.database.read() as connection:
        while (await connection.execute(leases.where(jobs.c.lease_until <= shop.now))).scalar_one():
            await asyncio.sleep(0.01)


async def test_a_clock_that_is_set_while_jobs_run_doubles_nothing_and_loses_nothing(url: str) -> None:
    """Set ahead by two leases, others take jobs over that still run; set back, nothing is due for a while."""
    clock, policy = JumpingClock(), Policy(heartbeat=timedelta(milliseconds=20), reclaim=timedelta(milliseconds=20))
    open_gate = asyncio.Event()
    begun: Counter[int] = Counter()

    async def handler(job: Job[Number]) -> Outcome:
        begun[job.id] += 1
        await open_gate.wait()
        return Done([Effect(job_id=job.id)])

    database = Database(url, clock=clock)
    shop = Shop(database, KindRegistry([kind(handler=handler)]), clock, policy)  # type: ignore[arg-type]  # it only asks the time
    try:
        await shop.add(*(new(key=str(n)) for n in range(JOBS)))
        await shop.database_write("UPDATE jobs SET max_attempts = 1000")
        workers = [shop.worker(name, concurrency=3, until_idle=False) for name in ("ann", "bob")]
        tasks = [asyncio.create_task(each.run()) for each in workers]
        await until(lambda: len(begun) >= 6)
        for jump in range(1, 6):
            clock.off = 2 * jump * policy.lease
            await all_are_leased(shop)
            clock.off = -2 * jump * policy.lease
        open_gate.set()
        clock.off = 100 * policy.lease
        async with asyncio.timeout(PATIENT_SECONDS):
            while await shop.one("SELECT count(*) FROM jobs"):
                await asyncio.sleep(0.02)
        for each in workers:
            each.drain()
        await asyncio.gather(*tasks)
        assert sorted(await shop.effects()) == sorted(begun)
        assert len(begun) == JOBS
    finally:
        await database.close()
