"""Settling: all or nothing, and only for the holder of the lease."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from loguru import logger
from sqlalchemy import event

from mistnet.kit.errors import WriteRefused
from mistnet.queue.model import Awaited, Continue, Done, Fail, Job, Outcome, Retry, Snooze, Wake
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.writes import Writer, Writers
from tests.support import START, Effect, Number, kind, new, open_shop, run_until, write_effects


async def test_a_done_job_moves_to_the_history_with_its_writes(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="a", n=3))
        (lease,) = await shop.claim("ann")
        shop.clock.turn(seconds=2)
        assert await shop.settle(lease, Done([Effect(job_id=lease.id), new(key="child")]))
        assert await shop.effects() == [lease.id]
        assert await shop.one("SELECT key FROM jobs") == "child"
        row = await shop.one("SELECT id, key, state, worker, fence, attempts FROM job_history")
        assert tuple(row) == (lease.id, "a", "succeeded", "ann", 1, 0)


@pytest.mark.parametrize(
    "outcome",
    [
        Done([Effect(job_id=1)]),
        Continue([Effect(job_id=1)], args=Number(n=9)),
        Snooze(START + timedelta(days=1), "no"),
        Retry("no", writes=[Effect(job_id=1)]),
        Fail("no"),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_a_lost_lease_cannot_write(url: str, outcome: Outcome) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(n=1))
        (late,) = await shop.claim("ann")
        shop.clock.turn(seconds=301)
        (lease,) = await shop.claim("bob")
        before = await shop.rows("SELECT * FROM jobs")
        assert not await shop.settle(late, outcome)
        assert await shop.rows("SELECT * FROM jobs") == before
        assert await shop.effects() == []
        assert await shop.settle(lease, Done([Effect(job_id=lease.id)]))
        assert not await shop.settle(late, outcome)
        assert await shop.effects() == [lease.id]


async def test_a_settlement_cannot_be_written_twice(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        (lease,) = await shop.claim()
        assert await shop.settle(lease, Continue([Effect(job_id=1)]))
        assert not await shop.settle(lease, Continue([Effect(job_id=1)]))
        assert await shop.effects() == [1]


async def test_the_holder_may_settle_late_if_the_job_was_not_taken_over(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        (lease,) = await shop.claim()
        shop.clock.turn(hours=2)
        assert await shop.settle(lease, Done([Effect(job_id=lease.id)]))


async def test_continue_sends_the_job_to_the_back_with_new_args_and_fresh_attempts(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="a"))
        (lease,) = await shop.claim()
        await shop.settle(lease, Retry("hiccup"))
        shop.clock.turn(hours=1)
        await shop.add(new(key="b"))
        shop.clock.turn(seconds=1)
        (lease,) = await shop.claim()
        assert (lease.key, lease.attempts) == ("a", 1)
        await shop.settle(lease, Continue(args=Number(n=41)))
        first, second = [*await shop.claim(), *await shop.claim()]
        assert (first.key, second.key, second.args, second.attempts) == ("b", "a", '{"n":41}', 0)


async def test_the_record_of_a_fault_lands_with_the_failed_attempt_the_last_one_too(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="a"))
        for attempt in range(1, 6):
            (lease,) = await shop.claim()
            await shop.settle(lease, Retry("no", writes=[Effect(job_id=attempt)]))
            shop.clock.turn(days=2)
        assert await shop.effects() == [1, 2, 3, 4, 5]
        assert await shop.one("SELECT state FROM jobs") == "dead"


async def test_one_group_settles_winners_and_leaves_losers_alone(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(*(new(key=str(n)) for n in range(6)))
        held = list(await shop.claim("ann", slots=6))
        shop.clock.turn(seconds=301)
        (taken,) = await shop.claim("bob")
        outcomes: list[Outcome] = [Done([Effect(job_id=lease.id)]) for lease in held[:4]]
        outcomes += [Retry("x"), Snooze(START + timedelta(days=1), "y")]
        settlements = [shop.settlement(lease, outcome) for lease, outcome in zip(held, outcomes, strict=True)]
        won = await shop.queue.settle(settlements, now=shop.now)
        assert set(won) == {lease.claim for lease in held if lease.id != taken.id}
        assert await shop.effects() == sorted(lease.id for lease in held[:4] if lease.id != taken.id)


async def test_a_refused_write_rolls_back_the_whole_settlement(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        (lease,) = await shop.claim()
        bad = Effect(job_id=None)  # type: ignore[arg-type]  # the database must refuse it
        with pytest.raises(WriteRefused):
            await shop.settle(lease, Done([new(key="child"), bad]))
        assert await shop.one("SELECT count(*) FROM jobs WHERE state = 'running'") == 1
        assert await shop.one("SELECT count(*) FROM jobs") == 1


async def test_a_worker_settles_a_group_alone_when_one_member_is_refused(url: str) -> None:
    async def handler(job: Job[Number]) -> Outcome:
        return Done([Effect(job_id=None if job.args.n == 3 else job.args.n)])  # type: ignore[arg-type]

    async with open_shop(url, kind(handler=handler), real_time=True) as shop:
        jobs = [new(key=str(n), n=n) for n in range(8)]
        await shop.queue.enqueue(jobs, now=shop.database.clock.now())
        worker = shop.worker(until_idle=False)
        await run_until(worker, lambda: worker.settled_count >= 8)
        assert await shop.effects() == [0, 1, 2, 4, 5, 6, 7]
        row = await shop.one("SELECT state, attempts, last_error FROM jobs")
        assert (row.state, row.attempts) == ("retryable", 1)
        assert "refused the write" in row.last_error


FULL = {
    "postgresql": (
        """CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$""",
        "CREATE TRIGGER no_room BEFORE INSERT ON effects EXECUTE FUNCTION no_room()",
    ),
    "sqlite": (
        "CREATE TRIGGER no_room BEFORE INSERT ON effects BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END",
    ),
}
ROOM = {
    "postgresql": ("DROP TRIGGER IF EXISTS no_room ON effects", "DROP FUNCTION IF EXISTS no_room"),
    "sqlite": ("DROP TRIGGER IF EXISTS no_room",),
}


async def test_work_that_is_done_waits_for_room_on_a_full_disk(url: str) -> None:
    async def handler(job: Job[Number]) -> Outcome:
        return Done([Effect(job_id=job.args.n)])

    async def execute(statements: Sequence[str]) -> None:
        async with shop.database.transaction() as connection:
            for statement in statements:
                await connection.exec_driver_sql(statement)

    waiting = asyncio.Event()
    sink = logger.add(lambda _: waiting.set(), filter=lambda record: "the database fails" in record["message"])
    async with open_shop(url, kind(handler=handler), real_time=True) as shop:
        await execute(FULL[shop.database.dialect])
        worker = shop.worker(until_idle=True)
        try:
            await shop.queue.enqueue([new(key=str(n), n=n) for n in range(3)], now=shop.database.clock.now())
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(50):
                await waiting.wait()
                assert await shop.effects() == []
                await execute(ROOM[shop.database.dialect])
                await running
        finally:
            logger.remove(sink)
            await execute(ROOM[shop.database.dialect])
        assert await shop.effects() == [0, 1, 2]
        assert await shop.rows("SELECT attempts FROM job_history") == [(0,)] * 3
        assert await shop.one("SELECT count(*) FROM job_errors") == 0


async def test_a_value_without_a_writer_is_a_failed_attempt_that_says_so(url: str) -> None:
    class Stray(Effect, frozen=True, kw_only=True):
        pass

    async def handler(_job: Job[Number]) -> Outcome:
        return Done([Stray(job_id=1)])

    async with open_shop(url, kind(handler=handler), real_time=True) as shop:
        await shop.queue.enqueue([new()], now=shop.database.clock.now())
        worker = shop.worker(until_idle=False)
        await run_until(worker, lambda: worker.settled_count >= 1)
        assert "no writer is known for Stray" in await shop.one("SELECT last_error FROM jobs")


async def test_an_old_and_a_new_claim_on_one_job_in_one_group_count_once(url: str) -> None:
    """A worker that froze may settle what it lost together with what it got since, of the same job."""
    async with open_shop(url) as shop:
        await shop.add(new())
        (old,) = await shop.claim("ann")
        shop.clock.turn(seconds=300)
        (held,) = await shop.claim("ann")
        outcomes = [(old, "old"), (held, "new")]
        settlements = [
            shop.settlement(lease, Continue([Effect(job_id=lease.id, note=note)])) for lease, note in outcomes
        ]
        assert set(await shop.queue.settle(settlements, now=shop.now)) == {held.claim}
        assert await shop.one("SELECT note FROM effects") == "new"


async def test_a_writer_that_breaks_is_one_jobs_failed_attempt(url: str) -> None:
    async def handler(job: Job[Number]) -> Outcome:
        return Done([Effect(job_id=10**30 if job.args.n == 3 else job.args.n)])

    async with open_shop(url, kind(handler=handler), real_time=True) as shop:
        await shop.queue.enqueue([new(key=str(n), n=n) for n in range(8)], now=shop.database.clock.now())
        worker = shop.worker(until_idle=False)
        await run_until(worker, lambda: worker.settled_count >= 8)
        assert await shop.effects() == [0, 1, 2, 4, 5, 6, 7]
        row = await shop.one("SELECT state, attempts, last_error FROM jobs")
        assert (row.state, row.attempts) == ("retryable", 1)


WAITS = "the sweep will bring it"
WALKS, SWEEPS = kind("walk"), kind("sweep")


def waits() -> Snooze:
    return Snooze(START + timedelta(minutes=10), WAITS, Awaited(SWEEPS.name, "11"))


async def test_a_job_that_waits_for_one_that_is_alive_waits(url: str) -> None:
    async with open_shop(url, WALKS, SWEEPS) as shop:
        await shop.add(new("sweep", "11"), new("walk", "a"))
        leases = {each.kind: each for each in [*await shop.claim(slots=2), *await shop.claim(slots=2)]}
        await shop.settle(leases[WALKS.name], waits())
        (row,) = await shop.rows("SELECT wait_reason FROM jobs WHERE kind = 'walk'")
        assert row.wait_reason == WAITS
        assert await shop.claim(slots=2) == []


async def test_a_job_that_would_wait_for_one_that_has_just_ended_is_due_at_once(url: str) -> None:
    async with open_shop(url, WALKS, SWEEPS) as shop:
        await shop.add(new("sweep", "11"), new("walk", "a"))
        leases = {each.kind: each for each in [*await shop.claim(slots=2), *await shop.claim(slots=2)]}
        await shop.settle(leases[SWEEPS.name], Done([Wake(kind=WALKS.name, reason=WAITS)]))
        await shop.settle(leases[WALKS.name], waits())
        assert [each.key for each in await shop.claim(slots=2)] == ["a"]


async def test_no_wake_is_lost_when_both_settle_at_the_same_time(url: str) -> None:
    async with open_shop(url, WALKS, SWEEPS) as shop:
        for _ in range(12):
            await shop.add(new("sweep", "11"), new("walk", "a"))
            leases = {each.kind: each for each in [*await shop.claim(slots=2), *await shop.claim(slots=2)]}
            await asyncio.gather(
                shop.settle(leases[WALKS.name], waits()),
                shop.settle(leases[SWEEPS.name], Done([Wake(kind=WALKS.name, reason=WAITS)])),
            )
            (walk,) = await shop.claim(slots=2)
            assert await shop.settle(walk, Done())


async def test_what_follows_from_a_value_is_found_before_the_transaction_begins(url: str) -> None:
    async with open_shop(url) as shop:
        steps: list[str] = []

        def find(value: Effect) -> Iterator[Effect]:
            steps.append("found")
            yield Effect(job_id=value.job_id, note="found")

        writer: Writer[Any] = Writer(Effect, write_effects)
        queue = JobQueue(shop.database, shop.job_writer, Writers([writer], {Effect: find}))
        await shop.add(new())
        (lease,) = await shop.claim("ann")
        event.listen(shop.database.engine.sync_engine, "begin", lambda _connection: steps.append("transaction"))
        settled = shop.settlement(lease, Done([Effect(job_id=lease.id)]))
        assert await queue.settle([settled], now=shop.now) == {lease.claim}
        assert steps[:2] == ["found", "transaction"]
        assert await shop.effects() == [lease.id, lease.id]


async def test_a_value_from_which_nothing_can_be_found_refuses_the_write(url: str) -> None:
    def find(_value: Effect) -> Iterator[Effect]:
        raise LookupError("no such thing")

    async with open_shop(url) as shop:
        writer: Writer[Any] = Writer(Effect, write_effects)
        queue = JobQueue(shop.database, shop.job_writer, Writers([writer], {Effect: find}))
        await shop.add(new())
        (lease,) = await shop.claim("ann")
        with pytest.raises(WriteRefused, match="the writer of Effect failed: LookupError: no such thing"):
            await queue.settle([shop.settlement(lease, Done([Effect(job_id=lease.id)]))], now=shop.now)
        assert await shop.effects() == []
