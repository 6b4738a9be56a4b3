"""Compares what a source billed for a key with what the ledger has booked, and decides what to correct. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from mistnet.domain.sources import KeyLabel

RECONCILIATION: Final = "reconciliation"
"""The endpoint of a ledger row that is no call: it corrects the sum where the bill says otherwise."""

BALANCE: Final = "my/info"
"""The endpoint that tells a key's balance. It is free."""


class Verdict(StrEnum):
    """How the bill of a key compares with the ledger."""

    FIRST = "first balance"
    EQUAL = "equal"
    TOO_LITTLE = "booked too little"
    TOO_MUCH = "booked too much"
    CREDITS_ADDED = "credits were added"
    NOT_YET = "not all billed yet"


class FailedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What was booked on one day (UTC) for calls that failed. They are booked at the most they can have cost."""

    last_at: datetime
    credits: int


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """One row to add to the ledger. Below zero: calls that failed cost less than was booked for them."""

    at: datetime
    credits: int


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """One key between two balances: since the ledger last agreed with the bill, and now."""

    label: KeyLabel
    since: datetime
    until: datetime
    balance_before: int
    balance: int
    booked: int
    failed: Sequence[FailedCalls] = ()
    """By day, the oldest first."""

    just_before: int = 0
    """Booked for calls so shortly before `since` that the first balance may not have shown them yet."""

    is_complete: bool = True
    """Whether the balance of now shows all calls: it shows each some time after it was made."""

    @property
    def billed(self) -> int:
        """How far the balance fell. Below zero: it rose."""
        return self.balance_before - self.balance

    @property
    def booked_for_failures(self) -> int:
        return sum(each.credits for each in self.failed)

    @property
    def shown_late(self) -> int:
        """What was billed now and booked before `since`."""
        return min(max(self.billed - self.booked, 0), self.just_before)

    @property
    def difference(self) -> int:
        """Credits that the ledger lacks. Below zero: it has too many."""
        return self.billed - self.booked - self.shown_late

    @property
    def verdict(self) -> Verdict:
        if self.since == self.until:
            return Verdict.FIRST
        if not self.is_complete and 0 <= self.billed < self.booked:
            return Verdict.NOT_YET
        if self.billed < self.booked - self.booked_for_failures:
            return Verdict.CREDITS_ADDED  # calls that went well cost what the price table says, and no less
        if self.difference == 0:
            return Verdict.EQUAL
        return Verdict.TOO_LITTLE if self.difference > 0 else Verdict.TOO_MUCH

    @property
    def is_known(self) -> bool:
        """Whether the two balances tell what was billed."""
        return self.verdict not in (Verdict.FIRST, Verdict.CREDITS_ADDED, Verdict.NOT_YET)

    def corrections(self) -> Sequence[Correction]:
        """The rows that make the ledger equal to the bill.

        What the ledger lacks counts as spent now, as nobody knows when it was. What it has too much of is taken
        from the oldest failures, so that the sums of this day and month are never lower than what they were billed.
        """
        if not self.is_known:
            return ()
        if self.difference > 0:
            return (Correction(at=self.until, credits=self.difference),)
        found, left = [], -self.difference
        for each in self.failed:
            if taken := min(each.credits, left):
                found.append(Correction(at=each.last_at, credits=-taken))
                left -= taken
        return found

    def uncertain_from(self, start: datetime) -> int:
        """What may have been billed from `start` on beyond the ledger's sum: failures before it that were free."""
        earlier = sum(each.credits for each in self.failed if each.last_at < start)
        return max(earlier + min(self.difference, 0), 0) + self.shown_late


def committed_after(ledger: int, committed: int, uncertain: int) -> int:
    """What caps are compared with after a reconciliation: what was spent, and what cannot be ruled out."""
    return ledger + min(uncertain, max(committed - ledger, 0))


def known_since(last_used_at: datetime | None, now: datetime) -> datetime:
    """Since when all that a key was billed is known if its first balance is that of now.

    A day or month in which it was not used before is known from its beginning.
    """
    for start in (month_start(now), day_start(now)):
        if last_used_at is None or last_used_at < start:
            return start
    return now


def day_start(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def month_start(now: datetime) -> datetime:
    return day_start(now).replace(day=1)
