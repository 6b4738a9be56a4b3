"""The ledger after crashes: what X billed is compared with what was booked, and the difference is booked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from mistnet.app import App
from mistnet.cli.spend import describe, today_of
from mistnet.governor.bills import RECONCILIATION, Bill, Bills, BillVerdict, Reconciled, month_start
from mistnet.governor.errors import SourceDown
from mistnet.governor.model import X_SOURCE, CallPurpose
from mistnet.operations.overview import By, CallLedger
from mistnet.operations.pruning import StorePruning
from mistnet.queue.model import WorkerCard, WorkerName
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.world import World
from mistnet.sources.x.source import keys_of
from tests.harvests import balances, open_harvest, rows, x_beside
from tests.support import TurnedClock
from tests.worlds import SMALLEST, WorldTransport

pytestmark = pytest.mark.common_sql

LAG, SILENCE = timedelta(minutes=2), timedelta(minutes=1)
A_SLICE = 3_000


class Vendor:
    """X as its bills see it: calls are billed, and so many calls of ours never reached the ledger."""

    def __init__(self, app: App, clock: TurnedClock, *names: str) -> None:
        self.app, self.clock = app, clock
        keys = [Key(name=name, tier=Tier.UNLIMITED, recharge_credits=100_000) for name in names]
        self.service = XService(World(7, SMALLEST), clock.now, keys=keys)
        self.names = names

    async def call(self, billed: int, *, is_lost: bool = False, fails: bool = False) -> None:
        """One call, billed; a lost one is made by a process that dies before it writes it down."""
        self.bill(billed)
        governor = (x_beside(self.app) if is_lost else self.app.sources[X_SOURCE]).governor
        with suppress(SourceDown):
            async with governor.call("tweets", most=30, purpose=CallPurpose()) as ticket:
                if fails:
                    raise SourceDown(X_SOURCE, "no answer", status=None)
                ticket.settle(items=1, credits_due=billed)
        if not is_lost:
            await governor.flush()

    def bill(self, billed: int, name: str | None = None) -> None:
        """Charge this key for calls of another program."""
        ledger = self.service.ledger
        ledger.charge(ledger.balances[name or self.names[0]], billed, int(self.clock.now().timestamp() * 1000))

    def add_credits(self, more: int) -> None:
        balance = self.service.ledger.balances[self.names[0]]
        balance.granted += more

    async def check(self) -> None:
        assert not await balances(self.app, WorldTransport(self.service))

    async def reconcile(self, *, later: timedelta = timedelta(minutes=5)) -> Reconciled:
        self.clock.turn(seconds=later.total_seconds())
        await self.check()
        labels = keys_of(self.app.settings)
        return await Bills(self.app.database).reconcile(X_SOURCE, labels, lag=LAG, silence=SILENCE)

    async def in_ledger(self) -> int:
        return sum(row.credits for row in await CallLedger(self.app.database).spent(By.SOURCE))

    async def committed(self) -> int:
        (today,) = await today_of(self.app)
        return today.committed


@asynccontextmanager
async def vendor_of(url: str, *names: str, **settings: Any) -> AsyncIterator[Vendor]:
    clock, names = TurnedClock(), names or ("one",)
    async with open_harvest(url, clock=clock, x_api_key=",".join(names), **settings) as app:
        yield Vendor(app, clock, *names)


def only(done: Reconciled) -> Bill:
    (found,) = done.bills
    return found


async def test_calls_that_were_pruned_still_count_as_booked(url: str) -> None:
    async with vendor_of(url) as x:
        x.clock.turn(seconds=(month_start(x.clock.now()) + timedelta(days=33) - x.clock.now()).total_seconds())
        await x.call(15)
        x.clock.turn(seconds=300)
        await x.check()
        for _ in range(4):
            x.clock.turn(seconds=timedelta(days=2).total_seconds())
            await x.call(30)
        folded = await StorePruning(x.app.database).fold_calls(before=x.clock.now() - timedelta(days=1))
        assert folded == 3, "neither the last call nor those of the day of the first balance"
        done = await x.reconcile()
        assert (only(done).billed, only(done).booked, only(done).verdict) == (120, 120, BillVerdict.EQUAL)
        assert done.month.in_ledger == 135


async def test_what_a_killed_worker_spent_is_booked_and_what_it_did_not_is_given_back(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(15)
        await x.call(30, is_lost=True)
        assert (await x.in_ledger(), await x.committed()) == (15, 2 * A_SLICE)
        done = await x.reconcile()
        assert (only(done).billed, only(done).booked, only(done).difference) == (45, 15, 30)
        assert done.is_booked
        assert (await x.in_ledger(), await x.committed()) == (45, 45)
        assert (done.day.before, done.day.after, done.month.after) == (2 * A_SLICE, 45, 45)
        assert await rows(x.app, "SELECT credits, items, error FROM calls WHERE endpoint = 'reconciliation'") == [
            (30, 0, None)
        ]


async def test_a_second_reconciliation_books_nothing(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(30, is_lost=True)
        await x.reconcile()
        again = await x.reconcile(later=timedelta(seconds=1))
        assert (only(again).verdict, again.is_booked) == (BillVerdict.EQUAL, True)
        assert (await x.in_ledger(), await x.committed()) == (30, 30)


async def test_a_look_at_the_balance_in_between_loses_no_difference(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(30, is_lost=True)
        x.clock.turn(minutes=5)
        await x.check()
        assert only(await x.reconcile()).difference == 30
        assert await x.in_ledger() == 30


async def test_failed_calls_that_were_free_are_taken_off_the_ledger(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(15)
        await x.call(0, fails=True)
        assert await x.in_ledger() == 45
        done = await x.reconcile()
        assert (only(done).verdict, only(done).difference) == (BillVerdict.TOO_MUCH, -30)
        assert (await x.in_ledger(), await x.committed()) == (15, 15)


async def test_while_a_worker_is_alive_bill_and_ledger_are_only_compared(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(30, is_lost=True)
        seen = x.clock.turn(minutes=4)
        await sign_in(x.app, "carp-1")
        done = await x.reconcile(later=timedelta(seconds=59))
        assert (only(done).difference, done.is_booked, done.workers) == (30, False, {"carp-1": seen})
        assert (await x.in_ledger(), await x.committed()) == (0, A_SLICE)
        done = await x.reconcile(later=timedelta(seconds=2))
        assert (only(done).difference, done.is_booked) == (30, True)
        assert (await x.in_ledger(), await x.committed()) == (30, 30)


async def test_nothing_is_booked_before_the_bill_shows_the_last_call(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(15)
        done = await x.reconcile(later=timedelta(seconds=10))
        assert only(done).verdict is BillVerdict.NOT_YET
        assert (
            lines(done, x)[0] == f"{only(done).label}: 15 credits (<$0.01) of what was booked are not on the bill yet."
        )
        done = await x.reconcile(later=timedelta(seconds=60))
        assert not done.is_booked
        assert done.complete_at
        assert timedelta(seconds=50) <= done.complete_at - x.clock.now() < timedelta(seconds=51)
        assert await x.committed() == A_SLICE
        assert (await x.reconcile(later=timedelta(seconds=51))).is_booked
        assert await x.committed() == 15


async def test_added_credits_are_reported_and_not_booked(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(15)
        x.add_credits(50_000)
        done = await x.reconcile()
        assert only(done).verdict is BillVerdict.CREDITS_ADDED
        assert (await x.in_ledger(), await x.committed()) == (15, A_SLICE), "what was billed is not known"
        await x.call(15, is_lost=True)
        done = await x.reconcile()
        assert (only(done).verdict, only(done).difference) == (BillVerdict.TOO_LITTLE, 15)
        assert await x.in_ledger() == 30
        assert await x.committed() == 2 * A_SLICE, "before the credits were added, more may have been spent today"


async def test_the_first_balance_gives_nothing_back_where_the_key_was_used_before(url: str) -> None:
    async with vendor_of(url) as x:
        await x.call(15, is_lost=True)
        done = await x.reconcile()
        assert only(done).verdict is BillVerdict.FIRST
        for _ in range(2):
            done = await x.reconcile()
            assert (only(done).verdict, done.day.after, done.month.after) == (BillVerdict.EQUAL, A_SLICE, A_SLICE)
            assert done.day.not_known == [only(done).label]


async def test_calls_just_before_the_first_balance_are_not_booked_twice(url: str) -> None:
    async with vendor_of(url) as x:
        await x.call(15)
        x.clock.turn(seconds=1)
        await x.check()
        done = await x.reconcile()
        assert (only(done).billed, only(done).booked, only(done).verdict) == (15, 0, BillVerdict.EQUAL)
        assert await x.in_ledger() == 15


async def test_a_loss_of_yesterday_counts_today(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(30, is_lost=True)
        done = await x.reconcile(later=timedelta(days=1))
        assert (done.day.before, done.day.after) == (0, 30)
        assert (done.month.before, done.month.after) == (A_SLICE, 30)


async def test_what_may_have_been_lost_today_stays_counted(url: str) -> None:
    """Yesterday's failure was free, and as much was lost today: the sums agree, and today's cap must not forget."""
    async with vendor_of(url) as x:
        await x.check()
        await x.call(0, fails=True)
        x.clock.turn(days=1)
        await x.call(30, is_lost=True)
        for _ in range(2):
            done = await x.reconcile()
            assert (only(done).verdict, done.day.in_ledger) == (BillVerdict.EQUAL, 0)
            assert done.day.after >= 30


async def test_each_key_has_a_bill_of_its_own(url: str) -> None:
    async with vendor_of(url, "one", "two") as x:
        await x.check()
        x.bill(40, "two")
        one, two = keys_of(x.app.settings)
        found = {bill.label: (bill.verdict, bill.difference) for bill in (await x.reconcile()).bills}
        assert found == {one: (BillVerdict.EQUAL, 0), two: (BillVerdict.TOO_LITTLE, 40)}


async def test_a_key_that_is_not_configured_here_keeps_counted_what_was_set_aside(url: str) -> None:
    async with vendor_of(url, "one", "two") as x:
        await x.check()
        await x.call(15)
        x.clock.turn(minutes=5)
        used, other = keys_of(x.app.settings)
        done = await Bills(x.app.database).reconcile(X_SOURCE, [other], lag=LAG, silence=SILENCE)
        assert (done.day.after, done.day.not_known) == (A_SLICE, [used])
        assert lines(done, x)[-2] == (
            "Counted against today's cap: 3,000 credits; the ledger has 15. The other 2,985 were set aside and stay "
            f"counted until midnight (UTC), because it is not known what {used} spent."
        )


async def test_a_correction_is_no_call(url: str) -> None:
    async with vendor_of(url) as x:
        await x.check()
        await x.call(15)
        await x.call(30, is_lost=True)
        await x.reconcile()
        found = {row.name: (row.calls, row.credits) for row in await CallLedger(x.app.database).spent(By.ENDPOINT)}
        assert found == {RECONCILIATION: (0, 30), "tweets": (1, 15), "my/info": (2, 0)}


async def test_the_findings_are_in_plain_words(sqlite_url: str) -> None:
    async with vendor_of(sqlite_url) as x:
        await x.check()
        label, *_ = keys_of(x.app.settings)
        x.bill(1)
        lost = "that the ledger did not have, for calls of workers that died or of others who use this key"
        assert lines(await x.reconcile(), x) == [
            f"{label}: X billed 1 credit (<$0.01) {lost}. Now it is booked.",
            "Counted against today's cap: 1 credit (before: 0), as the ledger says.",
            "Counted against this month's cap: 1 credit (before: 0), as the ledger says.",
        ]
        await x.call(15)
        await sign_in(x.app, "carp-1")
        assert lines(await x.reconcile(later=timedelta(seconds=30)), x)[1] == (
            "Nothing was booked: 1 worker is alive (carp-1, seen 30s ago) and may have made calls that are not in the "
            "ledger yet. Stop it and run this again; one that was killed counts as alive for 60s."
        )
        x.add_credits(5_000)
        assert lines(await x.reconcile(), x)[0] == (
            f"{label}: the balance rose by 4,985 credits ($0.05): credits were added. Nothing is booked for it: "
            "what was billed cannot be told. From now on bill and ledger are compared with this balance."
        )


def lines(done: Reconciled, x: Vendor) -> list[str]:
    return list(describe(done, x.clock.now(), SILENCE))


async def sign_in(app: App, name: str) -> None:
    card = WorkerCard(name=WorkerName(name), host="carp", pid=1, concurrency=4, lanes=("x",), version="test")
    await app.upkeep.sign_in(card, now=app.database.clock.now())
