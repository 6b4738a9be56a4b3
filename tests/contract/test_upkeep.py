"""Chores and signals: retention, the clock, the bell, work left to do."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.queue.model import Continue, Done, Fail, KindName, Retry, Snooze, WorkerCard, WorkerName
from mistnet.queue.store.wakeups import DatabaseWakeups
from tests.support import LEASE, START, kind, new, open_shop


async def test_history_is_kept_for_its_time_and_errors_as_long_as_their_job(url: str) -> None:
    async with open_shop(url) as shop:
        for key in ("old", "new"):
            await shop.add(new(key=key))
            (lease,) = await shop.claim()
            await shop.settle(lease, Retry("hiccup"))
            shop.clock.turn(hours=1)
            (lease,) = await shop.claim()
            await shop.settle(lease, Done())
            shop.clock.turn(days=20)
        await shop.add(new(key="gap"))
        (lease,) = await shop.claim()
        await shop.settle(lease, Fail("for good"))
        shop.clock.turn(days=15)
        assert await shop.upkeep.prune(before=shop.now - timedelta(days=40), limit=100) == 1
        assert await shop.one("SELECT key FROM job_history") == "new"
        assert await shop.one("SELECT count(*) FROM job_errors") == 2
        shop.clock.turn(days=365)
        await shop.upkeep.prune(before=shop.now, limit=100)
        assert await shop.one("SELECT error FROM job_errors") == "for good"


async def test_work_left_is_what_will_be_done_without_being_asked_again(url: str) -> None:
    async with open_shop(url, kind("a"), kind("b", live_cap=1)) as shop:

        async def left() -> bool:
            return await shop.upkeep.work_left(list(shop.kinds), shop.kinds.lanes, now=shop.now)

        assert not await left()
        await shop.add(new("a", run_at=START + timedelta(days=1)))
        assert not await left(), "set for another day"
        shop.clock.turn(days=1)
        assert await left(), "due"
        (lease,) = await shop.claim()
        assert await left(), "running"
        await shop.settle(lease, Retry("x"))
        assert await left(), "waits for its next try"
        shop.clock.turn(days=1)
        (lease,) = await shop.claim()
        await shop.settle(lease, Continue(run_at=shop.now + timedelta(hours=1)))
        assert await left(), "waits for its next step"
        shop.clock.turn(days=1)
        (lease,) = await shop.claim()
        await shop.settle(lease, Snooze(shop.now + timedelta(hours=1), "rate limit"))
        assert await left(), "snoozed"
        shop.clock.turn(days=1)
        (lease,) = await shop.claim()
        await shop.settle(lease, Fail("x"))
        assert not await left(), "a gap is not work"
        await shop.add(new("b"), new("b"))
        (lease,) = await shop.claim()
        await shop.settle(lease, Done())
        assert await left(), "parked"
        await shop.database_write("INSERT INTO paused_kinds (kind, reason, paused_at) VALUES ('b', 'why', :now)")
        assert not await left(), "paused"


async def test_workers_sign_in_and_out(url: str) -> None:
    async with open_shop(url) as shop:
        card = WorkerCard(name=WorkerName("ann"), host="here", pid=7, concurrency=3, lanes=["x"], version="1")
        await shop.upkeep.sign_in(card, now=shop.now)
        shop.clock.turn(minutes=1)
        await shop.upkeep.sign_in(card, now=shop.now)
        row = await shop.one("SELECT name, pid, started_at, seen_at FROM workers")
        assert (row.name, row.pid) == ("ann", 7)
        assert row.seen_at > row.started_at
        await shop.upkeep.sign_out(WorkerName("ann"))
        assert await shop.rows("SELECT name FROM workers") == []


async def test_the_bell_rings_when_another_process_adds_work(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mistnet.queue.store.wakeups._ASK_SECONDS", 0.05)
    async with (
        open_shop(url, real_time=True) as shop,
        open_shop(url, real_time=True) as other,
        DatabaseWakeups(shop.database) as wakeup,
    ):
        if shop.database.dialect == "postgresql":
            await wakeup.wait(50)  # the listener rings once when it is ready
        waiting = asyncio.create_task(wakeup.wait(600))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        async with asyncio.timeout(50):
            while not waiting.done():  # who has not looked yet sees no change in the first job
                await other.queue.enqueue([new()], now=other.database.clock.now())
                await asyncio.wait([waiting], timeout=0.2)


async def test_the_bell_survives_the_loss_of_its_connection(postgresql_url: str) -> None:
    async with (
        open_shop(postgresql_url, real_time=True) as shop,
        open_shop(postgresql_url, real_time=True) as other,
        DatabaseWakeups(shop.database, reconnect_seconds=0.05) as wakeup,
    ):
        await wakeup.wait(50)
        await other.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        await wakeup.wait(50)  # rings by itself once it listens again
        await wakeup.wait(0.3)
        waiting = asyncio.create_task(wakeup.wait(600))
        await other.queue.enqueue([new()], now=other.database.clock.now())
        async with asyncio.timeout(50):
            await waiting


async def test_one_slow_answer_does_not_put_the_clock_off(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = iter([1.0, 0.0, 0.0])

    async def slow_at_first(self: Database, connection: AsyncConnection) -> datetime:
        told = await time_there(self, connection)
        await asyncio.sleep(next(delays))
        return told

    time_there = Database.time_there
    monkeypatch.setattr(Database, "time_there", slow_at_first)
    async with open_shop(postgresql_url, real_time=True) as shop:
        await shop.database.correct_clock()
        assert abs(shop.database.clock.now() - datetime.now(UTC)) < timedelta(seconds=0.4)


async def test_a_wrong_wall_clock_plays_no_part(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(hours=3)

    monkeypatch.setattr("mistnet.kit.clock.datetime", Ahead)
    async with open_shop(postgresql_url, real_time=True) as shop:
        clock = shop.database.clock
        assert clock.now() - datetime.now(UTC) > timedelta(hours=2)
        await shop.database.correct_clock()
        server = await shop.one("SELECT clock_timestamp()")
        assert abs(clock.now() - server) < timedelta(seconds=1)
        assert abs(await shop.database.correct_clock()) < timedelta(seconds=1)


async def test_what_is_awaited_names_who_holds_jobs_and_when_the_next_falls_due(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="held"), new(key="waits"), new(key="another lane's"))
        leases = {lease.key: lease for lease in await shop.claim("ann", slots=3)}
        held, waits = leases["held"], leases["waits"]
        later = shop.now + timedelta(minutes=2)
        await shop.settle(waits, Snooze(later, "the source asks us to wait"))
        await shop.database_write("UPDATE jobs SET lane = 'y' WHERE key = 'another lane''s'")
        found = await shop.upkeep.awaited([KindName("step")], ["x"], now=shop.now)
        assert [(each.worker, each.jobs, each.seen_at) for each in found.leases] == [("ann", 1, None)]
        assert found.leases[0].lease_until == shop.now + LEASE
        assert (found.jobs, found.next_due_at, found.reason) == (1, later, "the source asks us to wait")
        await shop.settle(held, Done())
        assert (await shop.upkeep.awaited([KindName("step")], ["x"], now=later)).leases == []
