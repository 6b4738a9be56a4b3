"""New jobs: unique while alive, in the caller's transaction, held back above a cap."""

import asyncio
from datetime import timedelta

import pytest

from mistnet.kit.errors import WriteRefused
from mistnet.queue.errors import BadArgs, UnknownKind
from mistnet.queue.model import Done, Enqueued, Fail, Lane, Retry
from tests.support import START, kind, new, open_shop


async def test_a_key_is_unique_among_the_living_of_its_kind(url: str) -> None:
    async with open_shop(url, kind("a"), kind("b")) as shop:
        assert await shop.add(new("a", key="k"), new("a", key="k")) == Enqueued(created=1, duplicates=1)
        assert await shop.add(new("a", key="k"), new("b", key="k")) == Enqueued(created=1, duplicates=1)
        (lease,) = await shop.claim()
        assert (await shop.add(new("a", key="k"))).created == 0, "running is alive"
        await shop.settle(lease, Retry("x"))
        assert (await shop.add(new("a", key="k"))).created == 0, "retryable is alive"


@pytest.mark.parametrize("ended", [Done(), Fail("gone")], ids=["succeeded", "failed"])
async def test_a_key_is_free_again_once_its_job_has_ended(url: str, ended: Done | Fail) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="k"))
        (lease,) = await shop.claim()
        await shop.settle(lease, ended)
        assert (await shop.add(new(key="k"))).created == 1


async def test_jobs_without_a_key_are_all_different(url: str) -> None:
    async with open_shop(url) as shop:
        assert (await shop.add(new(), new(), new())).created == 3


async def test_unique_keys_hold_under_a_race(url: str) -> None:
    async with open_shop(url) as shop:

        async def racer() -> int:
            async with open_shop(url) as own:
                total = 0
                for start in range(0, 60, 5):
                    total += (await own.add(*(new(key=str(n)) for n in range(start, start + 20)))).created
                return total

        created = await asyncio.gather(*(racer() for _ in range(8)))
        assert sum(created) == await shop.one("SELECT count(*) FROM jobs") == 75


async def test_jobs_in_a_callers_transaction_roll_back_with_it(url: str) -> None:
    async with open_shop(url) as shop:

        async def interrupted() -> None:
            async with shop.database.transaction() as connection:
                made = await shop.job_writer.write(connection, [new(key="a")], shop.now)
                assert made.created == 1
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await interrupted()
        assert await shop.one("SELECT count(*) FROM jobs") == 0
        async with shop.database.transaction() as connection:
            await shop.job_writer.write(connection, [new(key="a")], shop.now)
        assert await shop.one("SELECT count(*) FROM jobs") == 1


async def test_an_unknown_kind_or_lane_stores_nothing(url: str) -> None:
    async with open_shop(url) as shop:
        with pytest.raises(UnknownKind, match=r"stepp.*Did you mean 'step'"):
            await shop.add(new(), new("stepp"))
        with pytest.raises(BadArgs, match="no lane 'moon'"):
            await shop.add(new(), new(lane=Lane("moon")))
        assert await shop.one("SELECT count(*) FROM jobs") == 0


async def test_above_the_cap_new_jobs_are_parked_and_let_in_by_and_by(url: str) -> None:
    async with open_shop(url, kind(live_cap=10)) as shop:
        assert await shop.add(*(new(key=f"{n:02}") for n in range(14))) == Enqueued(created=14, duplicates=0, parked=4)
        assert (await shop.add(new(key="99"))).parked == 1
        leases = list(await shop.claim(slots=20))
        assert [lease.key for lease in leases] == [f"{n:02}" for n in range(10)]
        caps = shop.kinds.live_caps
        assert await shop.upkeep.unpark(caps) == 0
        for lease in leases[:3]:
            await shop.settle(lease, Done())
        assert (await shop.add(new(key="10"))).created == 0, "a parked job is alive"
        assert await shop.upkeep.unpark(caps) == 3
        assert [lease.key for lease in await shop.claim(slots=20)] == ["10", "11", "12"]


async def test_a_long_list_is_added_like_a_short_one(url: str) -> None:
    async with open_shop(url, kind("a", live_cap=250), kind("b")) as shop:
        await shop.add(new("b", key="3"))
        free = [new("a", run_at=START + timedelta(hours=1), reason="not before one") for _ in range(300)]
        keyed = [new("b", key=str(n)) for n in range(5)]
        assert await shop.add(*free, *keyed, *keyed) == Enqueued(created=304, duplicates=6, parked=50)
        waiting = "SELECT count(*) FROM jobs WHERE kind = 'a' AND lane = 'x' AND wait_reason = 'not before one'"
        assert await shop.one(f"{waiting} AND NOT parked") == 250
        assert await shop.one(f"{waiting} AND parked AND state = 'pending' AND attempts = 0") == 50
        assert len(await shop.claim(slots=400)) == 5


async def test_a_long_list_goes_with_its_transaction(url: str) -> None:
    async with open_shop(url) as shop:
        async with shop.database.transaction() as connection:
            await shop.job_writer.write(connection, [new() for _ in range(300)], shop.now)
            await connection.rollback()
        assert await shop.one("SELECT count(*) FROM jobs") == 0


async def test_a_long_list_with_a_bad_job_is_refused(postgresql_url: str) -> None:
    async with open_shop(postgresql_url) as shop:
        with pytest.raises(WriteRefused):
            await shop.add(*(new() for _ in range(200)), new(reason="a\x00b"))
        assert await shop.one("SELECT count(*) FROM jobs") == 0
        assert (await shop.add(new())).created == 1


async def test_a_job_may_be_set_for_later(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(run_at=START + timedelta(days=3)))
        assert await shop.claim() == []
        shop.clock.turn(days=3)
        assert len(await shop.claim()) == 1


async def test_ids_are_never_used_again(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        (first,) = await shop.claim()
        await shop.settle(first, Done())
        await shop.add(new())
        (second,) = await shop.claim()
        assert second.id > first.id
        assert await shop.settle(second, Done())
