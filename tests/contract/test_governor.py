"""The governor on real databases: rate, breaker, money and keys, shared by several processes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeVar

import pytest

from mistnet.governor.errors import BrokenAnswer, BudgetSpent, RateLimited, SourceDown, SourcePaused, SourceRefused
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits, take_slots
from mistnet.governor.model import (
    X_SOURCE,
    CallPurpose,
    CallRecord,
    Halt,
    KeyLabel,
    KeyState,
    PausedBy,
    SourceName,
    SourceState,
)
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseBusy
from mistnet.queue.errors import NotNow
from mistnet.queue.model import JobId
from mistnet.social.model import UserId
from mistnet.sources.x import client as prices
from tests.databases import open_database
from tests.support import START, TurnedClock

T = TypeVar("T")
FIRST, SECOND = KeyLabel("key-1"), KeyLabel("key-2")


@dataclass
class Hold:
    early: bool
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        self.reached.set()
        await self.over.wait()


class CountingBook(DatabaseSourceStore):
    """The real book; it also knows how often it was opened."""

    opened = 0
    held: Hold | None = None

    def hold_next(self, *, early: bool) -> Hold:
        """The next change waits, before it is made or before its maker hears of it."""
        self.held = Hold(early=early)
        return self.held

    async def change(
        self,
        source: SourceName,
        label: KeyLabel,
        decide: Callable[[SourceState, KeyState], tuple[SourceState, KeyState, T]],
    ) -> T:
        self.opened += 1
        held, self.held = self.held, None
        if held and held.early:
            await held.wait()
        changed = await super().change(source, label, decide)
        if held and not held.early:
            await held.wait()
        return changed


@dataclass
class Office:
    """Several processes that share one database and one clock."""

    database: Database
    clock: TurnedClock
    book: CountingBook

    async def sleep(self, seconds: float) -> None:
        self.clock.turn(seconds=seconds)

    def governor(self, *, keys: Sequence[KeyLabel] = (FIRST,), secret: str = "secret", **limits: object) -> Governor:
        given = GovernorLimits(**{"failure_credits": prices.failure, **limits})  # type: ignore[arg-type]
        secrets = {label: f"{secret} of {label}" for label in keys}
        return Governor(X_SOURCE, secrets, store=self.book, clock=self.clock, limits=given, sleep=self.sleep)

    async def state(self) -> SourceState:
        (found,) = await self.book.states()
        return found

    async def key(self, label: KeyLabel = FIRST) -> KeyState:
        return next(key for key in await self.book.keys() if key.label == label)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Office]:
    clock = TurnedClock()
    database = open_database(url, clock=clock)
    try:
        yield Office(database, clock, CountingBook(database))
    finally:
        await database.close()


async def call(governor: Governor, *, most: int = 300, cost: int = 300, error: Exception | None = None) -> str:
    async with governor.call("tweet/advanced_search", most=most, purpose=CallPurpose(JobId(7), UserId(42))) as ticket:
        if error:
            raise error
        ticket.settle(items=20, credits_due=cost)
    return ticket.key


async def fail(governor: Governor, error: Exception) -> None:
    with pytest.raises(type(error)):
        await call(governor, error=error)


def test_slots_are_spaced_and_a_rest_allows_a_burst() -> None:
    fresh, next_at = take_slots(None, START, rate=10, burst=3, count=5)
    assert [round((slot - START).total_seconds(), 3) for slot in fresh] == [0, 0, 0, 0.1, 0.2]
    follow, _ = take_slots(next_at, START, rate=10, burst=3, count=2)
    assert [round((slot - START).total_seconds(), 3) for slot in follow] == [0.3, 0.4]
    later, _ = take_slots(next_at, START + timedelta(hours=1), rate=10, burst=3, count=4)
    assert [round((slot - START).total_seconds(), 3) for slot in later] == [3600, 3600, 3600, 3600.1]


async def test_calls_keep_to_the_rate_however_many_processes_make_them(url: str) -> None:
    async with opened(url) as office:
        governors = [office.governor(rate_per_minute=600, burst=4) for _ in range(3)]
        made: list[datetime] = []
        for number in range(90):
            await call(governors[number % 3])
            made.append(office.clock.now())
        made.sort()
        for begin in made:
            within = [at for at in made if begin <= at < begin + timedelta(seconds=1)]
            assert len(within) <= 10 + 4 + 3  # the rate, the burst, and a moment's lateness
        assert made[-1] - made[0] >= timedelta(seconds=(90 - 4) / 10 - 0.5)


async def test_a_fast_key_costs_few_trips_to_the_database(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=60_000)
        for _ in range(500):
            await call(governor)
        assert office.book.opened <= 60  # ten calls' worth of credits each time, and no more


async def test_without_credits_to_watch_slots_come_by_the_hundred(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=60_000)
        for _ in range(500):
            await call(governor, most=0, cost=0)
        assert office.book.opened <= 5


async def test_a_slow_key_sends_callers_away_one_after_the_other(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=10, burst=1)
        await call(governor)
        until = []
        for _ in range(3):
            with pytest.raises(NotNow, match="rate") as refused:
                await call(governor)
            until.append(refused.value.until)
        assert [after - before for before, after in pairwise(until)] == [timedelta(seconds=6)] * 2


async def test_five_failures_open_the_breaker_and_one_probe_closes_it(url: str) -> None:
    async with opened(url) as office:
        ann, bob = office.governor(), office.governor()
        for number in range(5):
            await fail((ann, bob)[number % 2], SourceDown("x", "503"))
            office.clock.turn(seconds=2)
        opened_until = (await office.state()).opened_until
        assert opened_until == office.clock.now() - timedelta(seconds=2) + timedelta(minutes=5)
        with pytest.raises(NotNow, match="5 failures in a row") as refused:
            await call(bob)
        assert refused.value.until == opened_until
        office.clock.turn(minutes=5)
        async with ann.call("tweets", most=15, purpose=CallPurpose()) as probe:
            with pytest.raises(NotNow, match="one call tests"):
                await call(bob)
            probe.settle(items=1, credits_due=15)
        assert (await office.state()).failure_streak == 0
        office.clock.turn(seconds=2)
        await call(bob)


async def test_a_failed_probe_opens_the_breaker_again(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor()
        for _ in range(5):
            await fail(governor, BrokenAnswer("x", "tweets", "no JSON"))
        office.clock.turn(minutes=6)
        await fail(governor, SourceDown("x", "still down"))
        state = await office.state()
        assert state.opened_until == office.clock.now() + timedelta(minutes=5)
        assert state.failure_streak == 6
        assert "still down" in (state.last_failure or "")


async def test_a_success_between_failures_starts_the_count_again(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor()
        for _ in range(4):
            await fail(governor, SourceDown("x", "503"))
        await call(governor)
        for _ in range(4):
            await fail(governor, SourceDown("x", "503"))
        await call(governor)
        assert (await office.state()).opened_until is None


async def test_several_workers_never_exceed_the_days_budget(url: str) -> None:
    async with opened(url) as office:
        governors = [office.governor(rate_per_minute=1e6, day_credits=10_000) for _ in range(3)]
        spent, refusals = 0, []
        for number in range(120):
            try:
                await call(governors[number % 3], most=300, cost=285)
                spent += 285
            except BudgetSpent as refused:
                refusals.append(refused)
        assert 10_000 - 3 * 600 <= spent <= 10_000
        assert {refused.until for refused in refusals} == {datetime(2026, 3, 2, tzinfo=UTC)}
        assert governors[0].halted(await office.state(), a_page=300) is Halt.BUDGET
        office.clock.turn(hours=12)
        await call(governors[0])
        assert governors[0].halted(await office.state(), a_page=300) is None


async def test_the_months_budget_holds_over_days(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=1e6, month_credits=1_000)
        for _ in range(3):
            await call(governor)
        office.clock.turn(days=1)
        with pytest.raises(BudgetSpent, match="month") as refused:
            await call(governor)
        assert refused.value.until == datetime(2026, 4, 1, tzinfo=UTC)


async def test_a_cap_set_by_hand_goes_before_the_settings(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(day_credits=10)
        with pytest.raises(BudgetSpent):
            await call(governor)
        await office.book.set_caps(X_SOURCE, day=5_000, month=None)
        await call(governor)


async def test_what_was_set_aside_and_not_spent_is_given_back(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(day_credits=100_000)
        async with governor.opened():
            await call(governor, most=300, cost=45)
            assert (await office.state()).day_credits > 45
        assert (await office.state()).day_credits == 45


async def test_a_refused_key_is_paused_and_the_other_goes_on(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(keys=(FIRST, SECOND))
        refused = SourceRefused("x", START + timedelta(hours=1), "no credits left", status=402)
        first = await call(governor)
        with pytest.raises(SourceRefused):
            await call(governor, error=refused)
        used = {await call(governor) for _ in range(5)}
        assert len(used) == 1
        assert used <= {"secret of key-1", "secret of key-2"}
        assert first in {"secret of key-1", "secret of key-2"}
        assert (await office.state()).paused_at is None
        with pytest.raises(SourceRefused):
            await call(governor, error=refused)
        state = await office.state()
        assert (state.paused_by, state.pause_reason) == (PausedBy.SOURCE, "no credits left")
        assert governor.halted(state, a_page=300) is Halt.REFUSED
        with pytest.raises(SourcePaused, match="no credits left"):
            await call(office.governor(keys=(FIRST, SECOND)))


async def test_a_refusal_is_the_last_failure_of_its_source(url: str) -> None:
    async with opened(url) as office:
        await fail(office.governor(), SourceRefused(X_SOURCE, START, "it refuses the key (401)", status=401))
        found = await office.state()
        assert (found.last_failure, found.last_failure_at) == ("it refuses the key (401)", office.clock.now())


async def test_a_key_that_must_wait_lets_the_other_go_first(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(keys=(FIRST, SECOND), rate_per_minute=6, burst=1)
        used = [await call(governor), await call(governor)]
        assert sorted(used) == ["secret of key-1", "secret of key-2"]
        with pytest.raises(NotNow, match="rate"):
            await call(governor)
        office.clock.turn(seconds=10)
        async with governor.call("tweets", most=15, purpose=CallPurpose()) as ticket:
            limited = ticket.key
            with pytest.raises(RateLimited):
                await call(governor, error=RateLimited("x", office.clock.now() + timedelta(minutes=5)))
            ticket.settle(items=1, credits_due=15)
        office.clock.turn(seconds=10)
        assert await call(governor) == limited


async def test_resuming_lets_calls_through_again(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor()
        with pytest.raises(SourceRefused):
            await call(governor, error=SourceRefused("x", START, "the key is refused", status=401))
        await office.book.resume(X_SOURCE, now=office.clock.now())
        office.clock.turn(seconds=2)
        await call(governor)


def refusal(clock: TurnedClock) -> SourceRefused:
    return SourceRefused("x", clock.now() + timedelta(hours=1), "the key is refused", status=401)


async def test_a_new_key_starts_clean_and_ends_the_pause_that_belonged_to_the_old_one(url: str) -> None:
    async with opened(url) as office:
        wrong = office.governor(secret="mistyped")
        await fail(wrong, refusal(office.clock))
        assert (await office.state()).paused_by is PausedBy.SOURCE
        with pytest.raises(SourcePaused, match="`mistnet sources resume x`"):
            await call(office.governor(secret="mistyped"))
        await call(office.governor(secret="right"))
        assert (await office.state()).paused_at is None
        assert (await office.key()).paused_at is None
        with pytest.raises(SourcePaused):
            await call(office.governor(secret="mistyped"))
        office.clock.turn(seconds=2)
        with pytest.raises(SourcePaused):
            await call(wrong)
        assert (await office.state()).paused_at is None, "its own refusal is no reason to stop the other"
        await office.book.resume(X_SOURCE, now=office.clock.now())
        office.clock.turn(seconds=2)
        await call(wrong)


async def test_a_refused_key_is_not_taken_for_a_new_one_because_another_was_refused_after_it(url: str) -> None:
    async with opened(url) as office:
        ann, bob = office.governor(secret="ann's"), office.governor(secret="bob's")
        await fail(ann, refusal(office.clock))
        await fail(bob, refusal(office.clock))
        office.clock.turn(minutes=10)
        for governor in (ann, bob):
            with pytest.raises(SourcePaused):
                await call(governor)


async def test_one_process_with_a_wrong_key_does_not_stop_another_whose_key_works(url: str) -> None:
    async with opened(url) as office:
        good, bad = office.governor(keys=(FIRST,)), office.governor(keys=(SECOND,))
        await call(good)
        refused = refusal(office.clock)
        await fail(bad, refused)
        state = await office.state()
        assert state.paused_at is None
        assert bad.halted(state, a_page=300) is Halt.REFUSED
        assert bad.stands_aside
        assert refused.until - office.clock.now() <= timedelta(minutes=1), "the other may do this job soon"
        assert good.halted(state, a_page=300) is None
        office.clock.turn(seconds=2)
        await call(good)
        with pytest.raises(SourcePaused):
            await call(bad)


async def test_a_source_is_paused_when_no_key_of_any_process_has_worked_lately(url: str) -> None:
    async with opened(url) as office:
        good, bad = office.governor(keys=(FIRST,)), office.governor(keys=(SECOND,))
        await call(good)
        office.clock.turn(hours=1)
        await fail(bad, refusal(office.clock))
        assert (await office.state()).paused_by is PausedBy.SOURCE
        await call(good)
        assert (await office.state()).paused_at is None, "a key that was not refused may be tried"


async def test_a_process_that_starts_learns_which_of_its_keys_are_refused(url: str) -> None:
    async with opened(url) as office:
        await fail(office.governor(secret="mistyped"), refusal(office.clock))
        again, mended = office.governor(secret="mistyped"), office.governor(secret="right")
        for governor in (again, mended):
            await governor.look_at_keys(await office.book.states(), await office.book.keys())
        assert again.halted(await office.state(), a_page=300) is Halt.REFUSED
        assert mended.halted(await office.state(), a_page=300) is None
        assert (await office.state()).paused_at is None


async def test_an_operators_pause_stops_every_process_within_two_seconds(url: str) -> None:
    async with opened(url) as office:
        ann, bob = office.governor(), office.governor()
        await call(ann)
        await call(bob)
        await office.book.pause(X_SOURCE, "too dear", now=office.clock.now())
        office.clock.turn(seconds=1.5)
        for governor in (ann, bob):
            with pytest.raises(SourcePaused, match="too dear"):
                await call(governor)
        assert ann.halted(await office.state(), a_page=300) is Halt.PAUSED


async def test_a_free_key_is_known_by_its_429_and_stays_slow(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor()
        limited = RateLimited("x", START + timedelta(seconds=5.2), free_tier=True)
        await fail(governor, limited)
        assert (await office.key()).rate_per_minute == 11.5
        office.clock.turn(hours=1)
        await call(governor)
        assert (await office.key()).rate_per_minute == 11.5


async def test_a_429_slows_a_paid_key_for_a_while(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=900)
        await fail(governor, RateLimited("x", START + timedelta(seconds=3)))
        assert (await office.key()).slowdown == pytest.approx(0.8)
        begun = office.clock.now()
        await call(governor)
        assert office.clock.now() - begun >= timedelta(seconds=2.9)
        for _ in range(3):
            office.clock.turn(seconds=3)
            await call(governor)
        assert (await office.key()).slowdown == 1


@pytest.mark.parametrize("early", [True, False], ids=["not yet looked", "not yet heard"])
@pytest.mark.parametrize("most", [100, 1_000_000], ids=["for slots", "for credits alone"])
@pytest.mark.parametrize(
    ("news", "until"),
    [
        (RateLimited("x", START + timedelta(seconds=30)), timedelta(seconds=30)),
        (SourceDown("x", "503"), timedelta(seconds=1)),
        (SourceRefused("x", START, "no such key", status=401), timedelta(seconds=1)),
    ],
    ids=["429", "what opens the breaker", "refused"],
)
async def test_who_is_on_the_way_to_the_book_hears_what_another_was_told_meanwhile(
    url: str, early: bool, most: int, news: Exception, until: timedelta
) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=6_000, breaker_failures=1)
        governed = governor.call("search", most=0, purpose=CallPurpose())
        await governed.__aenter__()
        if most == 100:
            office.clock.turn(seconds=2)  # what it has in hand is too old
        held = office.book.hold_next(early=early)
        asking = asyncio.create_task(call(governor, most=most, cost=0))
        await held.reached.wait()
        await governed.__aexit__(type(news), news, None)
        held.over.set()
        with pytest.raises(NotNow) as refused:
            await asking
        assert refused.value.until >= office.clock.now() + until - timedelta(seconds=2)
        if not isinstance(news, SourceRefused):
            office.clock.turn(minutes=10)
            for _ in range(3):
                await call(governor)


async def test_who_waits_for_its_slot_does_not_take_it_after_another_was_told_to_stop(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=120, burst=1, day_credits=10_000)
        governed = governor.call("search", most=0, purpose=CallPurpose())
        await governed.__aenter__()
        limited = RateLimited("x", START + timedelta(seconds=30))
        sleep = office.sleep

        async def told_meanwhile(seconds: float) -> None:
            await governed.__aexit__(RateLimited, limited, None)
            await sleep(seconds)

        governor._sleep = told_meanwhile
        with pytest.raises(NotNow) as refused:
            await call(governor)
        assert refused.value.until >= limited.until
        office.clock.turn(minutes=1)
        governor._sleep = sleep
        await call(governor)
        async with governor.opened():
            pass  # at its end, what was not spent is given back
        assert (await office.state()).day_credits == 300  # what was set aside for the one that was turned away is back


async def test_a_rate_set_by_hand_outlives_a_429(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor(rate_per_minute=900)
        await call(governor)
        await office.book.set_rate(X_SOURCE, 300, labels=[FIRST])
        await fail(governor, RateLimited("x", office.clock.now() + timedelta(seconds=3)))
        for _ in range(5):
            office.clock.turn(seconds=3)
            await call(governor)
        key = await office.key()
        assert (key.rate_per_minute, key.slowdown) == (300, 1)


async def test_a_key_that_is_never_seen_is_refused_in_the_end(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor()
        for _ in range(30):
            unseen = RateLimited("x", office.clock.now() + timedelta(seconds=30), key_unseen=True)
            await fail(governor, unseen)
            office.clock.turn(seconds=40)
        assert (await office.state()).paused_by is PausedBy.SOURCE


async def test_every_call_is_in_the_ledger_with_its_job_and_account(url: str) -> None:
    async with opened(url) as office:
        governor = office.governor()
        async with governor.opened():
            await call(governor, cost=285)
            await fail(governor, SourceDown("x", "no answer"))
            await fail(governor, RateLimited("x", START))
            await fail(governor, BrokenAnswer("x", "tweet/advanced_search", "no JSON"))
            await fail(governor, SourceDown("x", "boom", status=502))
        async with office.database.read() as connection:
            rows = (
                await connection.exec_driver_sql(
                    "SELECT status, items, credits, job_id, account_id, error FROM calls ORDER BY id"
                )
            ).all()
        assert [tuple(row[:5]) for row in rows] == [
            (200, 20, 285, 7, 42),
            (None, 0, 300, 7, 42),  # upstream may have billed the whole page, though it did not reach us
            (429, 0, 0, 7, 42),
            (200, 0, 300, 7, 42),
            (502, 0, 15, 7, 42),
        ]
        assert rows[0].error is None
        assert "no answer" in rows[1].error
        assert (await office.state()).last_success_at == START


async def test_the_ledger_waits_for_a_database_that_is_away(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as office:
        governor = office.governor()
        kept: list[Sequence[CallRecord]] = []
        record = office.book.record

        async def away(calls: Sequence[CallRecord]) -> None:
            kept.append(calls)
            if len(kept) == 1:
                raise DatabaseBusy("locked")
            await record(calls)

        monkeypatch.setattr(office.book, "record", away)
        await call(governor)
        with pytest.raises(DatabaseBusy, match="locked"):
            await governor.flush()
        await governor.flush()
        assert kept[0] == kept[1]
