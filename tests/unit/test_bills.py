"""What a bill says beside the ledger: pure decisions on numbers."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mistnet.governor.bills import Bill, BillVerdict, FailedCalls, LedgerCorrection, committed_after, known_since
from mistnet.governor.model import KeyLabel

NOON = datetime(2026, 3, 15, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 3, 15, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def bill(*, billed: int, booked: int, failed: Sequence[FailedCalls] = (), **about: Any) -> Bill:
    given = {"since": NOON - HOUR, "until": NOON, "failed": failed, **about}
    return Bill(label=KeyLabel("key-1"), balance_before=1_000, balance=1_000 - billed, booked=booked, **given)


def failures(credits_booked: int, *, hours_ago: float = 0.5) -> FailedCalls:
    return FailedCalls(last_at=NOON - hours_ago * HOUR, credits=credits_booked)


@pytest.mark.parametrize(
    ("found", "verdict", "difference"),
    [
        (bill(billed=300, booked=300), BillVerdict.EQUAL, 0),
        (bill(billed=345, booked=300), BillVerdict.TOO_LITTLE, 45),
        (bill(billed=1, booked=0), BillVerdict.TOO_LITTLE, 1),
        (bill(billed=100, booked=300, failed=[failures(200)]), BillVerdict.TOO_MUCH, -200),
        (bill(billed=0, booked=0, since=NOON), BillVerdict.FIRST, 0),
    ],
)
def test_bill_and_ledger_are_compared(found: Bill, verdict: BillVerdict, difference: int) -> None:
    assert (found.verdict, found.difference) == (verdict, difference)


def test_a_difference_is_booked_to_the_credit() -> None:
    assert bill(billed=345, booked=300).corrections() == (LedgerCorrection(at=NOON, credits=45),)
    assert bill(billed=300, booked=300).corrections() == []


@pytest.mark.parametrize("billed", [-5_000, -1, 0, 99])
def test_credits_that_were_added_are_no_negative_spending(billed: int) -> None:
    """Calls that went well cost 100: a balance that fell by less was filled up in between."""
    found = bill(billed=billed, booked=300, failed=[failures(200)])
    assert found.verdict is BillVerdict.CREDITS_ADDED
    assert found.corrections() == ()


def test_a_bill_that_does_not_show_all_calls_yet_proves_nothing_about_what_it_lacks() -> None:
    assert bill(billed=100, booked=300, is_complete=False).verdict is BillVerdict.NOT_YET
    assert bill(billed=345, booked=300, is_complete=False).verdict is BillVerdict.TOO_LITTLE
    assert bill(billed=-100, booked=300, is_complete=False).verdict is BillVerdict.CREDITS_ADDED


def test_what_was_booked_too_much_is_taken_from_the_oldest_failures() -> None:
    """So the sum of today stays at least what today was billed."""
    days = [failures(100, hours_ago=60), failures(100, hours_ago=30), failures(100)]
    found = bill(billed=150, booked=300, failed=days, since=NOON - 72 * HOUR)
    assert found.corrections() == [
        LedgerCorrection(at=NOON - 60 * HOUR, credits=-100),
        LedgerCorrection(at=NOON - 30 * HOUR, credits=-50),
    ]


def test_calls_that_an_earlier_balance_did_not_show_yet_are_not_booked_twice() -> None:
    assert bill(billed=345, booked=300, just_before=45).difference == 0
    assert bill(billed=345, booked=300, just_before=30).difference == 15
    assert bill(billed=300, booked=300, just_before=30).difference == 0


def test_a_loss_of_today_may_hide_behind_failures_of_yesterday() -> None:
    """Booked 100 too much yesterday, lost 100 today: bill and ledger agree, and today's sum lacks 100."""
    found = bill(billed=300, booked=300, failed=[failures(100, hours_ago=30)], since=NOON - 36 * HOUR)
    assert found.uncertain_from(MIDNIGHT) == 100
    assert found.uncertain_from(MARCH) == 0
    assert bill(billed=260, booked=300, failed=found.failed, since=found.since).uncertain_from(MIDNIGHT) == 60


@pytest.mark.parametrize(
    ("ledger", "committed", "uncertain", "after"),
    [(45, 3_000, 0, 45), (45, 3_000, 100, 145), (45, 60, 100, 60), (45, 30, 100, 45), (45, 30, 0, 45)],
)
def test_caps_count_what_was_spent_and_what_cannot_be_ruled_out(
    ledger: int, committed: int, uncertain: int, after: int
) -> None:
    assert committed_after(ledger, committed, uncertain) == after


@pytest.mark.parametrize(
    ("used_at", "since"),
    [
        (None, MARCH),
        (MARCH - HOUR, MARCH),
        (MIDNIGHT - HOUR, MIDNIGHT),
        (NOON - HOUR, NOON),
    ],
)
def test_a_period_in_which_a_key_was_not_used_is_known_from_its_beginning(
    used_at: datetime | None, since: datetime
) -> None:
    assert known_since(used_at, NOON) == since
