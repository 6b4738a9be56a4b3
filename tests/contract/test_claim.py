"""Claims: one lease at a time, in strict order, within every cap."""

import asyncio
from datetime import timedelta

import pytest

from mistnet.queue.kinds import Policy
from mistnet.queue.model import Done, Fail, JobClass, Lease, Retry, Snooze
from tests.support import START, kind, leases_by_lane, new, open_shop


async def test_a_due_job_is_leased_to_the_one_who_claims_it(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="a", n=7))
        (lease,) = await shop.claim("ann")
        row = await shop.one("SELECT state, worker, fence FROM jobs")
        assert (row.state, row.worker, row.fence) == ("running", "ann", 1)
        assert (lease.kind, lease.key, lease.lane, lease.fence, lease.args) == ("step", "a", "x", 1, '{"n":7}')
        assert lease.run_at == START
        assert await shop.claim("bob") == []


async def test_many_claimers_at_once_never_get_the_same_job(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(*(new(key=str(n)) for n in range(400)))
        taken: list[Lease] = []

        async def claimer(name: str) -> None:
            async with open_shop(url) as own:
                while leases := await own.claim(name, slots=7):
                    taken.extend(leases)
                    await asyncio.sleep(0)

        await asyncio.gather(*(claimer(f"worker {n}") for n in range(8)))
        assert len(taken) == len({lease.id for lease in taken}) == 400


async def test_a_lower_class_goes_first_however_long_the_others_waited(url: str) -> None:
    sweep, hydration = kind("sweep", job_class=JobClass.SWEEP), kind("hydrate", job_class=JobClass.HYDRATION)
    async with open_shop(url, hydration, sweep) as shop:
        await shop.add(new("hydrate", run_at=START - timedelta(days=1)), new("sweep"), new("sweep"))
        claimed = [lease.kind for _ in range(3) for lease in await shop.claim()]
        assert claimed == ["sweep", "sweep", "hydrate"]


async def test_with_aging_a_job_that_waited_too_long_goes_before_all_classes(url: str) -> None:
    sweep, hydration = kind("sweep", job_class=JobClass.SWEEP), kind("hydrate", job_class=JobClass.HYDRATION)
    policy = Policy(aging=timedelta(minutes=10))
    async with open_shop(url, hydration, sweep, policy=policy) as shop:
        await shop.add(new("hydrate", key="old", run_at=START - timedelta(minutes=11)))
        await shop.add(new("hydrate", key="new", run_at=START - timedelta(minutes=9)), new("sweep", key="s"))
        claimed = [lease.key for _ in range(3) for lease in await shop.claim()]
        assert claimed == ["old", "s", "new"]


async def test_within_a_class_the_oldest_goes_first_across_kinds(url: str) -> None:
    async with open_shop(url, kind("a"), kind("b")) as shop:
        for age, name in ((1, "a"), (3, "b"), (2, "a"), (4, "a")):
            await shop.add(new(name, key=str(age), run_at=START - timedelta(minutes=age)))
        claimed = [lease.key for _ in range(4) for lease in await shop.claim()]
        assert claimed == ["4", "3", "2", "1"]


async def test_a_job_is_not_due_before_its_time(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(run_at=START + timedelta(minutes=5)))
        shop.clock.turn(minutes=4, seconds=59)
        assert await shop.claim() == []
        shop.clock.turn(seconds=1)
        assert len(await shop.claim()) == 1


async def test_a_claim_with_room_to_spare_leaves_what_is_not_due(url: str) -> None:
    async with open_shop(url) as shop:
        later = shop.now + timedelta(hours=1)
        await shop.add(new(key="now"), new(key="later", run_at=later), new(key="also now"))
        assert {lease.key for lease in await shop.claim(slots=10)} == {"now", "also now"}


async def test_a_retryable_job_waits_for_its_backoff(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        (lease,) = await shop.claim()
        assert await shop.settle(lease, Retry("boom"))
        row = await shop.one("SELECT state, attempts, last_error FROM jobs")
        assert (row.state, row.attempts, row.last_error) == ("retryable", 1, "boom")
        shop.clock.turn(seconds=59)
        assert await shop.claim() == []
        shop.clock.turn(seconds=1)
        (again,) = await shop.claim()
        assert (again.attempts, again.fence) == (1, 2)


async def test_a_snoozed_job_waits_with_its_reason_and_spends_no_attempt(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        (lease,) = await shop.claim()
        await shop.settle(lease, Snooze(START + timedelta(minutes=3), "the day's budget is spent"))
        row = await shop.one("SELECT state, attempts, wait_reason FROM jobs")
        assert (row.state, row.attempts, row.wait_reason) == ("pending", 0, "the day's budget is spent")
        shop.clock.turn(minutes=2)
        assert await shop.claim() == []
        shop.clock.turn(minutes=1)
        (again,) = await shop.claim()
        assert again.attempts == 0
        assert await shop.one("SELECT wait_reason FROM jobs") is None


async def test_failed_and_dead_jobs_stay_and_are_never_claimed_again(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="failed"), new(key="dead"))
        dead, failed = sorted(await shop.claim(slots=2), key=lambda lease: lease.key or "")
        await shop.settle(failed, Fail("gone for good"))
        for _ in range(5):
            await shop.settle(dead, Retry("again"))
            shop.clock.turn(days=2)
            if leases := await shop.claim():
                (dead,) = leases
        rows = await shop.rows("SELECT key, state, attempts FROM jobs ORDER BY key")
        assert [tuple(row) for row in rows] == [("dead", "dead", 5), ("failed", "failed", 1)]
        assert await shop.claim() == []


async def test_each_failed_attempt_leaves_its_error_and_worker(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        for number, name in enumerate(("ann", "bob"), start=1):
            (lease,) = await shop.claim(name)
            await shop.settle(lease, Retry(f"error {number}"))
            shop.clock.turn(hours=1)
        rows = await shop.rows("SELECT worker, error FROM job_errors ORDER BY fence")
        assert [tuple(row) for row in rows] == [("ann", "error 1"), ("bob", "error 2")]


async def test_a_paused_kind_is_not_claimed_and_its_lost_leases_wait_too(url: str) -> None:
    async with open_shop(url, kind("a"), kind("b")) as shop:
        await shop.add(new("a"))
        await shop.claim("crasher")
        await shop.add(new("a"), new("b"))
        await shop.database_write("INSERT INTO paused_kinds (kind, reason, paused_at) VALUES ('a', 'why', :now)")
        shop.clock.turn(hours=1)
        assert [lease.kind for lease in await shop.claim(slots=5)] == ["b"]
        assert await shop.claim() == []
        await shop.database_write("DELETE FROM paused_kinds")
        assert [lease.kind for _ in range(2) for lease in await shop.claim(slots=1)] == ["a", "a"]


async def test_a_worker_sees_only_its_lanes(url: str) -> None:
    crawl = kind("crawl", lanes=("shopee", "taobao"))
    async with open_shop(url, crawl) as shop:
        await shop.add(new("crawl", key="s"), new("crawl", key="t", lane="taobao"))
        assert list(leases_by_lane(await shop.claim(slots=9, lanes=["taobao"]))) == ["taobao"]
        assert await shop.claim(slots=9, lanes=["taobao"]) == []
        assert list(leases_by_lane(await shop.claim(slots=9))) == ["shopee"]


@pytest.mark.parametrize("capped", ["kind", "lane"])
async def test_a_cap_on_what_runs_at_once_holds_under_many_claimers(url: str, capped: str) -> None:
    step = kind(running_cap=5 if capped == "kind" else None)
    policy = Policy(lane_caps={"x": 5} if capped == "lane" else {})
    async with open_shop(url, step, policy=policy) as shop:
        await shop.add(*(new(key=str(n)) for n in range(40)))

        async def claimer(name: str) -> list[Lease]:
            async with open_shop(url, step, policy=policy) as own:
                return [lease for _ in range(3) for lease in await own.claim(name, slots=3)]

        rounds = await asyncio.gather(*(claimer(f"worker {n}") for n in range(6)))
        leases = [lease for taken in rounds for lease in taken]
        assert len(leases) == 5
        assert await shop.claim() == []
        ahead = await shop.queue.outlook(
            shop.kinds.targets(slots=1, lanes=None, lane_caps=policy.lane_caps), now=shop.now
        )
        assert ahead.capped
        await shop.settle(leases[0], Done())
        assert len(await shop.claim(slots=3)) == 1


async def test_the_outlook_tells_when_the_next_job_falls_due(url: str) -> None:
    async with open_shop(url) as shop:
        targets = shop.kinds.targets(slots=1, lanes=None, lane_caps={})
        assert (await shop.queue.outlook(targets, now=shop.now)).next_due_at is None
        await shop.add(new(key="later", run_at=START + timedelta(hours=1)))
        assert (await shop.queue.outlook(targets, now=shop.now)).next_due_at == START + timedelta(hours=1)
        await shop.add(new(key="now"))
        await shop.claim()
        assert (await shop.queue.outlook(targets, now=shop.now)).next_due_at == START + timedelta(minutes=5)
