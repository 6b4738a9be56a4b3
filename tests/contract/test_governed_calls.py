"""The governor's edges on real databases: calls that end late, are cut off, or cross midnight; the breaker by hand."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text

from mistnet.governor.errors import SourceDown
from mistnet.governor.governor import Governor
from mistnet.governor.model import X_SOURCE, CallPurpose
from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered, Unreached
from mistnet.queue.errors import NotNow
from mistnet.social.errors import NotShown
from mistnet.sources.x.client import XClient
from tests.contract.test_governor import Office, call, fail, opened
from tests.support import no_wait

DOWN = SourceDown("x", "503")


class Failing:
    """Every request fails in the same way."""

    def __init__(self, error: Unanswered) -> None:
        self._error = error

    async def send(self, _request: HttpRequest) -> HttpAnswer:
        raise self._error


async def break_down(office: Office, governor: Governor) -> None:
    for _ in range(5):
        await fail(governor, DOWN)
    assert (await office.state()).opened_until == office.clock.now() + timedelta(minutes=5)


async def test_a_call_that_began_before_decides_nothing(url: str) -> None:
    async with opened(url) as office:
        ann, bob = office.governor(), office.governor()
        early, other = (ann.call("tweets", most=15, purpose=CallPurpose()) for _ in range(2))
        for governed in (early, other):
            (await governed.__aenter__()).settle(items=1, credits_due=15)
        await break_down(office, bob)
        opened_until = (await office.state()).opened_until
        await early.__aexit__(None, None, None)
        assert (await office.state()).opened_until == opened_until
        office.clock.turn(minutes=6)
        async with bob.call("tweets", most=15, purpose=CallPurpose()) as probe:
            tried = (await office.state()).probe_until
            await other.__aexit__(SourceDown, DOWN, None)
            state = await office.state()
            assert (state.probe_until, state.opened_until) == (tried, opened_until)
            with pytest.raises(NotNow, match="one call tests"):
                await call(office.governor())
            probe.settle(items=1, credits_due=15)
        assert (await office.state()).opened_until is None


async def test_a_probe_that_takes_long_is_still_the_only_one(url: str) -> None:
    async with opened(url) as office:
        ann, bob = office.governor(), office.governor()
        await break_down(office, ann)
        office.clock.turn(minutes=6)
        async with ann.call("tweets", most=15, purpose=CallPurpose()) as probe:
            for _ in range(8):
                office.clock.turn(seconds=31)
                await ann.keep_probe()
                with pytest.raises(NotNow, match="one call tests"):
                    await call(bob)
            probe.settle(items=1, credits_due=15)
        assert (await office.state()).opened_until is None


async def test_the_probe_of_a_process_that_died_is_missed_after_a_minute(url: str) -> None:
    async with opened(url) as office:
        ann, bob = office.governor(), office.governor()
        await break_down(office, ann)
        office.clock.turn(minutes=6)
        await ann.call("tweets", most=15, purpose=CallPurpose()).__aenter__()
        with pytest.raises(NotNow, match="one call tests"):
            await call(bob)
        office.clock.turn(seconds=61)
        await call(bob)
        assert (await office.state()).opened_until is None


async def test_a_probe_that_is_cut_off_lets_the_next_call_try(url: str) -> None:
    async with opened(url) as office:
        ann, bob = office.governor(), office.governor()
        await break_down(office, ann)
        office.clock.turn(minutes=6)
        with pytest.raises(asyncio.CancelledError):
            async with ann.call("tweets", most=15, purpose=CallPurpose()):
                raise asyncio.CancelledError
        await call(bob)
        assert (await office.state()).failure_streak == 0


async def test_a_probe_that_is_told_no_has_been_answered(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor()
        await break_down(office, governor)
        office.clock.turn(minutes=6)
        await fail(governor, NotShown("x", "a user", "suspended", status=404))
        assert (await office.state()).opened_until is None


async def test_a_breaker_opened_by_hand_is_followed_by_one_try(url: str) -> None:
    async with opened(url) as office:
        ann, bob = office.governor(), office.governor()
        await call(ann)
        until = office.clock.now() + timedelta(minutes=10)
        await office.book.open_breaker(X_SOURCE, "opened by ann: it is sale day", until=until)
        office.clock.turn(seconds=2)
        with pytest.raises(NotNow, match="sale day") as refused:
            await call(ann)
        assert refused.value.until == until
        office.clock.turn(minutes=10)
        await fail(bob, DOWN)
        state = await office.state()
        assert (state.opened_until, state.pause_reason) == (office.clock.now() + timedelta(minutes=5), None)
        await office.book.close_breaker(X_SOURCE, now=office.clock.now())
        office.clock.turn(seconds=2)
        await call(ann)
        assert (await office.state()).failure_streak == 0


async def test_opening_the_breaker_of_a_paused_source_keeps_the_reason_of_the_pause(url: str) -> None:
    async with opened(url) as office:
        now = office.clock.now()
        await office.book.pause(X_SOURCE, "too dear", now=now)
        await office.book.open_breaker(X_SOURCE, "opened by ann", until=now + timedelta(minutes=1))
        assert (await office.state()).pause_reason == "too dear"
        await office.book.close_breaker(X_SOURCE, now=now)
        state = await office.state()
        assert (state.pause_reason, state.opened_until, state.paused_at) == ("too dear", None, now)


async def test_credits_that_were_set_aside_yesterday_are_not_spent_today(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(day_credits=1_000, rate_per_minute=1e6)
        async with governor.call("tweets", most=900, purpose=CallPurpose()) as late:
            office.clock.turn(hours=13)
            await call(governor, most=100, cost=100)
            late.settle(items=1, credits_due=15)
        spent = 100
        for _ in range(20):
            try:
                await call(governor, most=100, cost=100)
                spent += 100
            except NotNow:
                break
        assert spent == 1_000


async def test_a_call_that_is_cut_off_while_it_waits_gives_its_credits_back(url: str) -> None:
    async with opened(url) as office:

        async def cut_off(_seconds: float) -> None:
            raise asyncio.CancelledError

        governor = office.governor(day_credits=100_000, rate_per_minute=60, burst=1)
        async with governor.opened():
            await call(governor, most=300, cost=300)
            governor._sleep = cut_off
            with pytest.raises(asyncio.CancelledError):
                await call(governor, most=300, cost=300)
        assert (await office.state()).day_credits == 300


async def test_what_no_database_takes_does_not_stop_the_ledger(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor()
        await fail(governor, SourceDown("x", "it said \x00 and \ud800"))
        await call(governor)
        await governor.flush()
        async with office.database.read() as connection:
            rows = (await connection.execute(text("SELECT error FROM calls ORDER BY id"))).scalars().all()
        assert "it said" in rows[0]
        assert rows[1] is None


async def test_who_calls_seldom_takes_few_slots_from_the_others(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=60_000)
        await call(governor)
        first = (await office.key()).next_at
        assert first is not None
        assert first > office.clock.now() + timedelta(seconds=0.04)  # a twentieth of a second at first
        for _ in range(5):
            office.clock.turn(seconds=0.3)
            await call(governor)
        last = (await office.key()).next_at
        assert last is not None
        assert last <= office.clock.now()


@pytest.mark.parametrize(
    ("error", "booked"),
    [(Unreached("refused"), 0), (Unanswered("cut short"), 300)],
    ids=["never sent", "sent and cut off"],
)
async def test_only_a_request_that_was_sent_is_booked(url: str, error: Unanswered, booked: int) -> None:
    async with opened(url) as office:
        governor = office.governor(day_credits=100_000)
        async with governor.opened():
            x = XClient(Failing(error), gate=governor, clock=office.clock, sleep=no_wait)
            with pytest.raises(SourceDown):
                await x.search("from:ann")
        async with office.database.read() as connection:
            rows = (await connection.execute(text("SELECT credits FROM calls"))).scalars().all()
        assert rows == [booked, booked]
        assert (await office.state()).day_credits == 2 * booked
