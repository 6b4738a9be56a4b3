"""Leases: lengthened while work goes on, handed back on request, taken back when they run out."""

from datetime import timedelta

from mistnet.queue.model import Done, JobState, Retry
from tests.support import START, kind, new, open_shop


async def test_a_lost_lease_lets_another_worker_take_over_and_counts_the_attempt(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        (first,) = await shop.claim("ann")
        shop.clock.turn(seconds=299)
        assert await shop.claim("bob") == []
        shop.clock.turn(seconds=1)
        (second,) = await shop.claim("bob")
        assert (second.id, second.fence, second.attempts, second.lost_by) == (first.id, 2, 1, "ann")
        row = await shop.one("SELECT worker, error FROM job_errors")
        assert row.worker == "ann"
        assert "lease ran out" in row.error


async def test_the_reclaimer_takes_jobs_back_and_names_the_worker_who_lost_them(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        await shop.claim("ann")
        assert await shop.upkeep.reclaim(now=shop.now, limit=10) == []
        shop.clock.turn(seconds=300)
        (lost,) = await shop.upkeep.reclaim(now=shop.now, limit=10)
        assert (lost.lost_by, lost.attempts, lost.state) == ("ann", 1, JobState.RETRYABLE)
        row = await shop.one("SELECT state, attempts, worker, last_error FROM jobs")
        assert (row.state, row.attempts, row.worker) == ("retryable", 1, None)
        assert "ann" in row.last_error
        (again,) = await shop.claim("bob")
        assert (again.attempts, again.lost_by) == (1, None)


async def test_a_job_that_kills_every_worker_ends_dead_and_is_not_claimed_again(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        for n in range(5):
            (lease,) = await shop.claim(f"victim {n}")
            assert lease.attempts == n
            shop.clock.turn(seconds=300)
        assert await shop.claim("bob") == []
        (lost,) = await shop.upkeep.reclaim(now=shop.now, limit=10)
        assert (lost.state, lost.attempts, lost.lost_by) == (JobState.DEAD, 5, "victim 4")
        assert await shop.one("SELECT count(*) FROM job_errors") == 5
        assert await shop.claim("bob") == []


async def test_a_heartbeat_keeps_a_lease_alive(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        (lease,) = await shop.claim("ann")
        for _ in range(5):
            shop.clock.turn(seconds=200)
            ours = await shop.queue.extend([lease], until=shop.now + timedelta(seconds=300))
            assert ours == {lease.claim}
            assert await shop.claim("bob") == []
        assert await shop.settle(lease, Done())


async def test_a_heartbeat_tells_which_leases_are_lost(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(*(new(key=str(n)) for n in range(4)))
        leases = list(await shop.claim("ann", slots=4))
        await shop.settle(leases[0], Done())
        await shop.settle(leases[1], Retry("x"))
        shop.clock.turn(seconds=300)
        (taken,) = await shop.claim("bob")
        kept = {lease.claim for lease in leases[2:] if lease.id != taken.id}
        assert await shop.queue.extend(leases, until=shop.now + timedelta(seconds=300)) == kept


async def test_a_lease_handed_back_costs_nothing_and_keeps_its_place(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="first"))
        shop.clock.turn(seconds=5)
        await shop.add(new(key="second"))
        (lease,) = await shop.claim("ann")
        shop.clock.turn(seconds=5)
        await shop.queue.release([lease])
        (again,) = await shop.claim("bob")
        assert (again.key, again.attempts, again.fence, again.run_at) == ("first", 0, 2, START)
        assert not await shop.settle(lease, Done())


async def test_expired_leases_go_before_due_work_and_stay_within_room(url: str) -> None:
    async with open_shop(url, kind("a"), kind("b")) as shop:
        await shop.add(*(new("a", key=str(n)) for n in range(5)))
        await shop.claim("ann", slots=5)
        await shop.add(new("b"))
        shop.clock.turn(seconds=300)
        taken = await shop.claim("bob", slots=3)
        assert [lease.kind for lease in taken] == ["a", "a", "a"]
        assert {lease.lost_by for lease in taken} == {"ann"}


async def test_jobs_whose_leases_were_lost_together_share_no_batch_again(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(*(new(key=str(n)) for n in range(3)))
        assert not any(lease.alone for lease in await shop.claim("ann", slots=3))
        shop.clock.turn(seconds=300)
        taken = await shop.claim("bob", slots=2)
        assert [lease.alone for lease in taken] == [True, True]
        await shop.upkeep.reclaim(now=shop.now, limit=10)
        (last,) = await shop.claim("bob", slots=3)
        assert last.alone
        assert not any(lease.is_suspect for lease in (*taken, last))
        shop.clock.turn(seconds=300)
        assert all(lease.is_suspect for lease in await shop.claim("cem", slots=3))
