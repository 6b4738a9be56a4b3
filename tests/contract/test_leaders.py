"""Leadership as a leased row: one holder at a time, and a fence that grows with each change."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from sqlalchemy import text

from mistnet.queue.leader import LeaderTerm, StoreLeaders, still_leads
from tests.databases import open_database
from tests.support import START, TurnedClock

LEASE = timedelta(seconds=30)
RIVALS = 20


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[StoreLeaders]:
    database = open_database(url, clock=TurnedClock())
    try:
        yield StoreLeaders(database)
    finally:
        await database.close()


async def take(leaders: StoreLeaders, holder: str, *, seconds: float = 0) -> LeaderTerm | None:
    return await leaders.take("schedule", holder, lease=LEASE, now=START + timedelta(seconds=seconds))


async def test_of_many_who_try_at_once_exactly_one_leads(url: str) -> None:
    async with opened(url) as leaders:
        for round_ in range(5):
            seconds = 31 * round_
            terms = await asyncio.gather(*(take(leaders, f"p{n}.{round_}", seconds=seconds) for n in range(RIVALS)))
            won = [term for term in terms if term]
            assert len(won) == 1
            assert won[0].fence == round_ + 1


async def test_of_many_processes_who_try_at_once_exactly_one_leads(url: str) -> None:
    """Each with a pool of its own, as processes have."""

    async def rival(holder: str) -> LeaderTerm | None:
        async with opened(url) as leaders:
            return await take(leaders, holder)

    terms = await asyncio.gather(*(rival(f"p{n}") for n in range(8)))
    assert len([term for term in terms if term]) == 1


async def test_a_lease_cannot_be_taken_until_it_runs_out(url: str) -> None:
    async with opened(url) as leaders:
        assert await take(leaders, "ann") == LeaderTerm(name="schedule", holder="ann", fence=1)
        assert await take(leaders, "bea", seconds=29.9) is None
        assert await take(leaders, "bea", seconds=30) == LeaderTerm(name="schedule", holder="bea", fence=2)
        assert await take(leaders, "ann", seconds=31) is None


async def test_taking_ones_own_changes_no_fence(url: str) -> None:
    async with opened(url) as leaders:
        await take(leaders, "ann")
        assert await take(leaders, "ann", seconds=50) == LeaderTerm(name="schedule", holder="ann", fence=1)
        (leader,) = await leaders.all()
        assert leader.since == START
        assert leader.lease_until == START + timedelta(seconds=80)


async def test_a_renewal_keeps_others_away(url: str) -> None:
    async with opened(url) as leaders:
        term = await take(leaders, "ann")
        assert term
        assert await leaders.renew(term, lease=LEASE, now=START + timedelta(seconds=20))
        assert await take(leaders, "bea", seconds=40) is None
        assert await take(leaders, "bea", seconds=50)


async def test_a_late_renewal_is_void(url: str) -> None:
    async with opened(url) as leaders:
        term = await take(leaders, "ann")
        assert term
        await take(leaders, "bea", seconds=30)
        assert not await leaders.renew(term, lease=LEASE, now=START + timedelta(seconds=31))
        (leader,) = await leaders.all()
        assert (leader.holder, leader.lease_until) == ("bea", START + timedelta(seconds=60))


async def test_a_leader_that_resigns_is_replaced_at_once(url: str) -> None:
    async with opened(url) as leaders:
        term = await take(leaders, "ann")
        assert term
        await leaders.resign(term, now=START + timedelta(seconds=1))
        assert await take(leaders, "bea", seconds=1) == LeaderTerm(name="schedule", holder="bea", fence=2)


async def test_a_late_resignation_does_not_end_anothers_term(url: str) -> None:
    async with opened(url) as leaders:
        term = await take(leaders, "ann")
        assert term
        await take(leaders, "bea", seconds=30)
        await leaders.resign(term, now=START + timedelta(seconds=31))
        assert await take(leaders, "cy", seconds=32) is None


async def test_leaderships_of_other_names_are_other_leaderships(url: str) -> None:
    async with opened(url) as leaders:
        assert await leaders.take("schedule", "ann", lease=LEASE, now=START)
        assert await leaders.take("dispatch", "bea", lease=LEASE, now=START)
        assert [each.name for each in await leaders.all()] == ["dispatch", "schedule"]
        assert all(each.leads_at(START) for each in await leaders.all())
        assert not any(each.leads_at(START + LEASE) for each in await leaders.all())


async def test_a_takeover_waits_for_the_leaders_transaction(url: str) -> None:
    """Late as it may be: what the old leader writes is there before the new one begins."""
    late = START + timedelta(seconds=40)
    async with opened(url) as leaders, opened(url) as others:
        term = await take(leaders, "ann")
        assert term
        async with leaders._database.transaction() as connection:
            assert await still_leads(connection, term, now=START + timedelta(seconds=29))
            rival = asyncio.create_task(others.take("schedule", "bea", lease=LEASE, now=late))
            done, _ = await asyncio.wait({rival}, timeout=0.3)
            assert not done
        assert (await rival) == LeaderTerm(name="schedule", holder="bea", fence=2)
        async with leaders._database.transaction() as connection:
            assert not await still_leads(connection, term, now=late)


async def test_a_leader_stopped_in_the_middle_of_its_transaction_cannot_block_the_next_for_long(
    postgresql_url: str,
) -> None:
    """As a process that is suspended would be: the server ends its transaction."""
    async with opened(postgresql_url) as leaders, opened(postgresql_url) as others:
        term = await take(leaders, "ann")
        assert term
        async with leaders._database.engine.connect() as connection:
            await connection.begin()
            assert await still_leads(connection, term, now=START + timedelta(seconds=29))
            patience = await connection.execute(text("SHOW idle_in_transaction_session_timeout"))
            assert patience.scalar_one() == "5s"
            await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '100ms'"))
            async with asyncio.timeout(50):
                assert await take(others, "bea", seconds=40)
            await connection.invalidate()
