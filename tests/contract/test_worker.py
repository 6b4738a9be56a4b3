"""The worker on a real queue: fairness, batches, faults, draining."""

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec
import pytest
from sqlalchemy import select

from mistnet.kit.outage import Outage
from mistnet.queue.errors import NotNow, Permanent, Temporary
from mistnet.queue.feeds import Polling
from mistnet.queue.kinds import Kind, Policy, batched
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import Claim, Done, Job, JobClass, NewJob, Outcome, Settlement, WorkerCard
from mistnet.queue.ports import Tools
from mistnet.queue.store.upkeep import StoreUpkeep
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.tables import jobs
from tests.support import Effect, Number, Shop, kind, new, open_shop, run_until, stepping

QUICK = Policy(backoff_base=timedelta(milliseconds=20), grace=timedelta(seconds=5))


async def add(shop: Shop, *jobs: NewJob) -> None:
    await shop.queue.enqueue(jobs, now=shop.database.clock.now())


def in_batches(handler: object, size: int = 20) -> Kind:
    return batched("many", handler, Number, batch=size, job_class=JobClass.WALK, lanes=["x"])  # type: ignore[arg-type]


@pytest.mark.common_sql
async def test_fifty_long_jobs_take_turns_within_ten_percent(url: str) -> None:
    seen: list[int] = []
    async with open_shop(url, kind(handler=stepping(20, seen)), real_time=True) as shop:
        await add(shop, *(new(key=str(n)) for n in range(50)))
        await shop.worker(concurrency=5).run()
        assert len(seen) == 1000
        for done_so_far in (250, 500, 750):
            turns = Counter(seen[:done_so_far])
            assert len(turns) == 50
            fair = done_so_far / 50
            assert max(turns.values()) <= fair * 1.1 + 1
            assert min(turns.values()) >= fair * 0.9 - 1


@pytest.mark.common_sql
async def test_two_workers_share_fifty_long_jobs_fairly(url: str) -> None:
    seen: list[int] = []
    async with open_shop(url, kind(handler=stepping(20, seen)), real_time=True) as shop:
        await add(shop, *(new(key=str(n)) for n in range(50)))
        await asyncio.gather(shop.worker("ann", concurrency=3).run(), shop.worker("bob", concurrency=3).run())
        turns = Counter(seen[:500])
        assert max(turns.values()) <= 12
        assert min(turns.values()) >= 8
        assert set(Counter(seen).values()) == {20}


async def test_jobs_that_end_sooner_than_a_claim_are_claimed_ahead_and_never_run_at_once(url: str) -> None:
    running, most = 0, 0

    async def handler(_job: Job[Number]) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return Done()

    async with open_shop(url, kind(handler=handler), real_time=True) as shop:
        await add(shop, *(new(key=str(n)) for n in range(200)))
        await shop.worker(concurrency=2).run()
        claims = await shop.rows("SELECT started_at, count(*) AS jobs FROM job_history GROUP BY started_at")
        assert sum(each.jobs for each in claims) == 200
        assert max(each.jobs for each in claims) > 2, "200 jobs of two at a time would be 100 claims"
        assert most == 2


@pytest.mark.common_sql
async def test_a_worker_is_listed_before_it_runs_a_job(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[list[str]] = []
    sign_in = StoreUpkeep.sign_in

    async def sign_in_slowly(self: StoreUpkeep, card: WorkerCard, *, now: datetime) -> None:
        await asyncio.sleep(0.3)
        await sign_in(self, card, now=now)

    monkeypatch.setattr(StoreUpkeep, "sign_in", sign_in_slowly)

    async def handler(_job: Job[Number]) -> Outcome:
        listed.append([row.name for row in await shop.rows("SELECT name FROM workers")])
        return Done()

    async with open_shop(url, kind(handler=handler), real_time=True) as shop:
        await add(shop, new())
        await shop.worker("ann").run()
    assert listed == [["ann"]]


async def test_a_batch_handler_gets_the_claimed_jobs_together(url: str) -> None:
    sizes: list[int] = []

    async def handler(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
        sizes.append(len(jobs))
        return [Done([Effect(job_id=job.id)]) for job in jobs]

    async with open_shop(url, in_batches(handler), real_time=True) as shop:
        await add(shop, *(new("many", key=str(n)) for n in range(45)))
        await shop.worker(concurrency=1).run()
        assert sorted(sizes) == [5, 20, 20]
        assert len(await shop.effects()) == 45


async def test_a_transaction_stores_a_limited_number_of_values_unless_one_job_has_more(url: str) -> None:
    async def handler(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
        values = [[Effect(job_id=100 * job.id + nr) for nr in range(job.args.n)] for job in jobs]
        return [Done(some) for some in values]

    policy = msgspec.structs.replace(QUICK, settle_writes=10)
    async with open_shop(url, in_batches(handler), policy=policy, real_time=True) as shop:
        sizes: list[list[int]] = []
        settle = shop.queue.settle

        async def noted(settlements: Sequence[Settlement], *, now: datetime) -> Collection[Claim]:
            sizes.append([len(each.writes) for each in settlements])
            return await settle(settlements, now=now)

        shop.queue.settle = noted  # type: ignore[method-assign]
        await add(shop, *(new("many", key=str(place), n=n) for place, n in enumerate((4, 4, 4, 4, 30, 4))))
        await shop.worker(concurrency=1).run()
        assert [values for group in sizes for values in group] == [4, 4, 4, 4, 30, 4]
        assert all(sum(group) <= 10 or len(group) == 1 for group in sizes), sizes
        assert max(map(len, sizes)) == 2, "jobs are still settled together"
        assert len(await shop.effects()) == 50


async def test_one_bad_member_is_split_off_and_retried_alone(url: str) -> None:
    calls: list[list[int]] = []

    async def handler(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
        calls.append([job.args.n for job in jobs])
        if any(job.args.n == 13 for job in jobs):
            raise ZeroDivisionError("member 13")
        return [Done([Effect(job_id=job.args.n)]) for job in jobs]

    async with open_shop(url, in_batches(handler), policy=QUICK, real_time=True) as shop:
        await add(shop, *(new("many", key=str(n), n=n) for n in range(20)))
        await shop.worker(concurrency=1).run()
        assert await shop.effects() == [n for n in range(20) if n != 13]
        row = await shop.one("SELECT state, attempts, last_error, args FROM jobs")
        assert (row.state, row.attempts) == ("dead", 5)
        assert "member 13" in row.last_error
        assert max(Counter(n for call in calls for n in call).values()) <= 9
        assert calls[-4:] == [[13]] * 4, "split off once, it never spoils a batch again"


async def test_a_batch_answered_with_too_few_outcomes_loses_no_job(url: str) -> None:
    async def handler(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
        return [Done()] * (1 if len(jobs) > 1 else 0) or [Done()] * len(jobs)

    async with open_shop(url, in_batches(handler), policy=QUICK, real_time=True) as shop:
        await add(shop, *(new("many", key=str(n)) for n in range(5)))
        await shop.worker(concurrency=1).run()
        assert await shop.one("SELECT count(*) FROM job_history") == 5
        assert "returned 1 outcomes for 5 jobs" in (await shop.rows("SELECT error FROM job_errors"))[0].error


async def test_an_unknown_error_is_retried_with_its_traceback_cut_and_without_secrets(url: str) -> None:
    async def handler(job: Job[Number]) -> Outcome:
        raise RuntimeError(
            "key=hunter2-secret Authorization: Bearer abcdef123456 "
            f"postgresql://me:pass1234@host/db \x00 {'y' * 50_000} end"
        )

    async with open_shop(url, kind(handler=handler), policy=QUICK, real_time=True) as shop:
        await add(shop, new())
        await shop.worker().run()
        row = await shop.one("SELECT state, attempts, last_error FROM jobs")
        assert (row.state, row.attempts) == ("dead", 5)
        assert "RuntimeError" in row.last_error
        assert "in handler" in row.last_error
        assert row.last_error.rstrip().endswith("end")
        assert len(row.last_error) <= 8_000
        for secret in ("hunter2", "abcdef123456", "pass1234", "\x00"):
            assert secret not in row.last_error


async def test_named_faults_become_their_outcomes(url: str) -> None:
    later: list[object] = []

    async def handler(job: Job[Number]) -> Outcome:
        match job.args.n:
            case 1:
                raise Temporary("the line is down")
            case 2:
                raise Permanent("no such thing")
            case _:
                later.append(job.run_at + timedelta(days=1))
                raise NotNow(job.run_at + timedelta(days=1), "closed on Sundays")

    async with open_shop(url, kind(handler=handler), real_time=True) as shop:
        await add(shop, *(new(key=str(n), n=n) for n in (1, 2, 3)))
        worker = shop.worker(until_idle=False)
        await run_until(worker, lambda: worker.settled_count == 3)
        assert worker.ended_count == 1, "one is tried again and one waits: only one job is over"
        rows = await shop.rows("SELECT key, state, attempts, wait_reason FROM jobs ORDER BY key")
        assert [tuple(row)[:3] for row in rows] == [("1", "retryable", 1), ("2", "failed", 1), ("3", "pending", 0)]
        assert rows[2].wait_reason == "closed on Sundays"


async def test_a_handler_that_hangs_is_stopped_and_retried(url: str) -> None:
    async def handler(_job: Job[Number]) -> Outcome:
        await asyncio.Event().wait()
        return Done()

    policy = Policy(job_timeout=timedelta(milliseconds=50), backoff_base=timedelta(milliseconds=5))
    async with open_shop(url, kind(handler=handler), policy=policy, real_time=True) as shop:
        await add(shop, new())
        await shop.worker().run()
        row = await shop.one("SELECT state, last_error FROM jobs")
        assert row.state == "dead"
        assert "did not finish within 0.05 s" in row.last_error


async def test_args_that_no_longer_fit_fail_only_their_job(url: str) -> None:
    async with open_shop(url, real_time=True) as shop:
        await add(shop, new(key="bad"), new(key="good"))
        await shop.database_write("""UPDATE jobs SET args = '{"m": 1}' WHERE key = 'bad'""")
        await shop.worker().run()
        row = await shop.one("SELECT key, state, last_error FROM jobs")
        assert (row.key, row.state) == ("bad", "failed")
        assert "unknown field `m`" in row.last_error
        assert await shop.one("SELECT key FROM job_history") == "good"


async def test_draining_lets_short_jobs_finish_and_hands_long_ones_back(url: str) -> None:
    started, release_short = asyncio.Event(), asyncio.Event()
    running: set[int] = set()

    async def handler(job: Job[Number]) -> Outcome:
        running.add(job.args.n)
        if len(running) == 2:
            started.set()
        await (release_short.wait() if job.args.n == 1 else asyncio.Event().wait())
        return Done([Effect(job_id=job.args.n)])

    policy = Policy(grace=timedelta(seconds=1))
    async with open_shop(url, kind(handler=handler), policy=policy, real_time=True) as shop:
        await add(shop, new(key="short", n=1), new(key="long", n=2), new(key="third", n=3))
        worker = shop.worker(concurrency=2, until_idle=False)
        task = asyncio.create_task(worker.run())
        await started.wait()
        worker.drain()
        release_short.set()
        await task
        assert await shop.effects() == [1]
        rows = await shop.rows("SELECT key, state, attempts FROM jobs ORDER BY key")
        assert [tuple(row) for row in rows] == [("long", "pending", 0), ("third", "pending", 0)]
        assert await shop.rows("SELECT name FROM workers") == []


async def test_a_worker_stops_working_on_a_job_it_has_lost(url: str) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(_job: Job[Number]) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Done()

    policy = Policy(heartbeat=timedelta(milliseconds=50))
    async with open_shop(url, kind(handler=handler), policy=policy, real_time=True) as shop:
        await add(shop, new())
        worker = shop.worker(until_idle=False)
        task = asyncio.create_task(worker.run())
        await started.wait()
        await shop.database_write("UPDATE jobs SET fence = fence + 1, worker = 'thief'")
        async with asyncio.timeout(50):
            await cancelled.wait()
        worker.drain()
        await task
        assert await shop.one("SELECT worker FROM jobs") == "thief"


async def test_a_running_job_outlives_many_leases_by_its_heartbeat(url: str) -> None:
    """The clock is turned by half a lease after each heartbeat: how long a heartbeat takes decides nothing."""
    policy = Policy(
        lease=timedelta(seconds=60), heartbeat=timedelta(milliseconds=20), reclaim=timedelta(milliseconds=20)
    )

    async def handler(_job: Job[Number]) -> Outcome:
        async with asyncio.timeout(50):
            for _ in range(10):
                now = shop.clock.turn(seconds=30)
                while await lease_until(shop) < now + policy.lease:
                    await asyncio.sleep(0.005)
        return Done([Effect(job_id=1)])

    async with open_shop(url, kind(handler=handler), policy=policy) as shop:
        await add(shop, new())
        await asyncio.gather(shop.worker("ann").run(), shop.worker("bob").run())
        assert await shop.effects() == [1]
        row = await shop.one("SELECT fence, attempts FROM job_history")
        assert tuple(row) == (1, 0)


async def lease_until(shop: Shop) -> datetime:
    async with shop.database.read() as connection:
        until: datetime = (await connection.execute(select(jobs.c.lease_until))).scalar_one()
        return until


async def test_children_are_worked_on_at_once_and_parked_ones_let_in(url: str) -> None:
    async def parent(job: Job[Number]) -> Outcome:
        return Done([new("child", key=str(n)) for n in range(30)])

    child = kind("child", live_cap=4)
    async with open_shop(url, kind("parent", parent), child, real_time=True) as shop:
        await add(shop, new("parent"))
        async with asyncio.timeout(50):
            await shop.worker(concurrency=2).run()
        assert await shop.one("SELECT count(*) FROM job_history WHERE kind = 'child'") == 30


async def test_jobs_that_lost_their_worker_twice_run_while_nothing_else_does(url: str) -> None:
    running: set[int] = set()
    beside: dict[int, set[int]] = {}

    async def handler(job: Job[Number]) -> Outcome:
        running.add(job.id)
        for _ in range(5):
            await asyncio.sleep(0.002)
            for each in running:
                beside.setdefault(each, set()).update(running - {each})
        running.discard(job.id)
        return Done([Effect(job_id=job.id)])

    async with open_shop(url, kind(handler=handler), real_time=True) as shop:
        await add(shop, *(new(key=str(n)) for n in range(12)))
        await shop.database_write("UPDATE jobs SET alone = TRUE, attempts = 2 WHERE id % 4 = 0")
        await shop.database_write("UPDATE jobs SET alone = TRUE, attempts = 1 WHERE id % 4 = 1")
        await shop.worker(concurrency=6).run()
        assert len(await shop.effects()) == 12
    isolated = {each for each in beside if each % 4 == 0}
    assert len(isolated) == 3
    assert all(not beside[each] for each in isolated), beside
    assert any(others for each, others in beside.items() if each % 4 == 1), "one loss is no reason to stand still"


async def test_a_worker_claims_nothing_from_lanes_it_leaves_to_others(sqlite_url: str) -> None:
    async with open_shop(sqlite_url, kind("here", lanes=["y"]), kind("there", lanes=["x"]), real_time=True) as shop:
        await add(shop, new("here"), new("there"))
        worker = shop.worker()
        closed = {"x"}
        tools = Tools(
            queue=shop.queue,
            upkeep=shop.upkeep,
            wakeup=LocalWakeups(),
            clock=shop.database.clock,
            kinds=shop.kinds,
            policy=shop.policy,
            metrics=EngineMetrics(),
            avoided_lanes=lambda: closed,
        )
        outage = Outage(shop.database.clock, renewal_grace=shop.policy.renewal_grace, chance=random.Random(1))
        feed = Polling(tools, outage, worker=worker.name, lanes=None, unpark=nothing_parked)
        assert [lease.kind for lease in await feed.take(5)] == ["here"]
        closed.add("y")
        assert await feed.take(5) == []
        await feed.wait(leaving=True)
        closed.clear()
        assert [lease.kind for lease in await feed.take(5)] == ["there"]


async def nothing_parked() -> int:
    return 0
