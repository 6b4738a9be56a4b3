"""Compare what a source billed for a key with what the ledger has booked, and correct the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import Column, ColumnElement, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import CallRecord, KeyLabel, SourceName, SourceState, day_of, day_start, on_day
from mistnet.governor.store import day_of_call, ensure_key, write_calls
from mistnet.governor.tables import call_sums, calls, source_keys, sources
from mistnet.kit.database import Store
from mistnet.kit.view import columns_of, record_of
from mistnet.queue.model import WorkerName
from mistnet.queue.tables import workers

RECONCILIATION: Final = "reconciliation"
"""The endpoint of a ledger row that is not a call: it corrects the sum to match the bill."""

BALANCE: Final = "my/info"
"""The endpoint that returns a key's balance. It is free."""


class BillVerdict(StrEnum):
    """How the bill of a key compares with the ledger."""

    FIRST = "first balance"
    EQUAL = "equal"
    TOO_LITTLE = "booked too little"
    TOO_MUCH = "booked too much"
    CREDITS_ADDED = "credits were added"
    NOT_YET = "not all billed yet"


class FailedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What was booked on one day (UTC) for failed calls: each at the most that it can have cost."""

    last_at: datetime
    credits: int


class LedgerCorrection(msgspec.Struct, frozen=True, kw_only=True):
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
    """Whether the current balance includes all calls: it shows each one with a delay."""

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
    def verdict(self) -> BillVerdict:
        if self.since == self.until:
            return BillVerdict.FIRST
        if not self.is_complete and 0 <= self.billed < self.booked:
            return BillVerdict.NOT_YET
        if self.billed < self.booked - self.booked_for_failures:
            return BillVerdict.CREDITS_ADDED  # calls that went well cost what the price table says, and no less
        if self.difference == 0:
            return BillVerdict.EQUAL
        return BillVerdict.TOO_LITTLE if self.difference > 0 else BillVerdict.TOO_MUCH

    @property
    def is_known(self) -> bool:
        """Whether the two balances determine what was billed."""
        return self.verdict not in (BillVerdict.FIRST, BillVerdict.CREDITS_ADDED, BillVerdict.NOT_YET)

    def corrections(self) -> Sequence[LedgerCorrection]:
        """The rows that make the ledger equal to the bill.

        What the ledger lacks counts as spent now, as its time is not known. What it has too much of is taken
        from the oldest failures, so that the sums of this day and month are never lower than what they were billed.
        """
        if not self.is_known:
            return ()
        if self.difference > 0:
            return (LedgerCorrection(at=self.until, credits=self.difference),)
        corrections, left = [], -self.difference
        for each in self.failed:
            if taken := min(each.credits, left):
                corrections.append(LedgerCorrection(at=each.last_at, credits=-taken))
                left -= taken
        return corrections

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


def month_start(now: datetime) -> datetime:
    return day_start(now).replace(day=1)


_LONGEST_CALL: Final = timedelta(minutes=10)
_SLOTS_AHEAD: Final = timedelta(seconds=5)
"""While a key is in use, its next slot is at most this far ahead. It is later only after a 429."""

_NO_CALLS: Final = (BALANCE, RECONCILIATION)
_IS_CALL: Final = calls.c.endpoint.not_in(_NO_CALLS)


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What a day's or month's cap is compared with, before and after, beside the ledger's sum.

    `not_known`: keys in use of whose bill a part is not known, so that nothing could be given back.
    """

    before: int
    after: int
    in_ledger: int
    not_known: Sequence[KeyLabel] = ()


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison, and whether the differences were booked.

    They are not booked while `workers` are alive (with when each was last seen), nor before the bill shows all calls.
    """

    bills: Sequence[Bill]
    workers: Mapping[WorkerName, datetime]
    complete_at: datetime | None
    day: Committed
    month: Committed

    @property
    def is_booked(self) -> bool:
        return not self.workers and self.complete_at is None


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    label: KeyLabel
    next_at: datetime | None
    balance: int | None
    balance_at: datetime | None
    reconciled_balance: int | None
    reconciled_at: datetime | None
    billed_since: datetime | None
    used_at: datetime | None = None
    """This month, as far as is known."""


class Bills(Store):
    """Compares bill and ledger, and corrects the ledger."""

    async def reconcile(
        self, source: SourceName, labels: Collection[KeyLabel], *, lag: timedelta, silence: timedelta
    ) -> Reconciled:
        """Compare the balances just fetched for these keys with the ledger; book the differences.

        One transaction that locks the source's rows: a process that reserved credits meanwhile would falsify the sums.
        """
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            own_row = select(*columns_of(SourceState, sources)).where(sources.c.name == source)
            locked = await connection.execute(own_row.with_for_update())
            state = on_day(record_of(SourceState, locked.mappings().one()), now)
            periods = [(day_start(now), state.day_credits), (month_start(now), state.month_credits)]
            keys = await _lock_keys(connection, source, now)
            seen = select(workers.c.name, workers.c.seen_at).where(workers.c.seen_at >= now - silence)
            alive = {row.name: row.seen_at for row in await connection.execute(seen.order_by(workers.c.name))}
            complete_at = await _complete_at(connection, source, keys.values(), lag, now)
            bills = [
                await _bill(connection, source, keys[label], lag, is_complete=complete_at is None)
                for label in sorted(labels)
            ]
            if alive or complete_at:
                day, month = [
                    Committed(before=before, after=before, in_ledger=await _booked(connection, source, start))
                    for start, before in periods
                ]
            else:
                corrections = [
                    CallRecord(
                        source=source,
                        key_label=bill.label,
                        endpoint=RECONCILIATION,
                        at=each.at,
                        seconds=0.0,
                        status=None,
                        items=0,
                        credits=each.credits,
                    )
                    for bill in bills
                    for each in bill.corrections()
                ]
                if corrections:
                    await write_calls(connection, corrections)
                day, month = [
                    await _recount(connection, source, keys, bills, start, before) for start, before in periods
                ]
                values = {"day": state.day, "day_credits": day.after, "month_credits": month.after}
                await connection.execute(update(sources).where(sources.c.name == source).values(**values))
                kept_from = [
                    start for (start, _), each in zip(periods, (day, month), strict=True) if each.after > each.in_ledger
                ]
                for bill in bills:
                    await _set_baseline(connection, source, keys[bill.label], bill, kept_from)
        return Reconciled(bills=bills, workers=alive, complete_at=complete_at, day=day, month=month)

    async def note_balance(self, source: SourceName, label: KeyLabel, balance: int) -> None:
        """Store what a key has left. The first balance is also the one from which on bills are compared."""
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            await ensure_key(connection, source, label)
            # A reconciliation locks the source's row first: without the same order here the two would deadlock.
            await connection.execute(select(sources.c.name).where(sources.c.name == source).with_for_update())
            key = (await _lock_keys(connection, source, now))[label]
            values: dict[str, Any] = {"balance": balance, "balance_at": now}
            if key.reconciled_at is None:
                since = known_since(key.used_at, now)
                values |= {"reconciled_balance": balance, "reconciled_at": now, "billed_since": since}
            await connection.execute(update(source_keys).where(_is_key(source, label)).values(**values))


async def _lock_keys(connection: AsyncConnection, source: SourceName, now: datetime) -> Mapping[KeyLabel, _Key]:
    own = source_keys.c
    names = [name for name in _Key.__struct_fields__ if name != "used_at"]
    query = select(*(own[name] for name in names)).where(own.source == source).order_by(own.label).with_for_update()
    keys = [_Key(**row) for row in (await connection.execute(query)).mappings()]
    called = select(calls.c.key_label, func.max(calls.c.at).label("at")).where(
        calls.c.source == source, calls.c.at >= month_start(now), _IS_CALL
    )
    last = {row.key_label: row.at for row in await connection.execute(called.group_by(calls.c.key_label))}
    # Of pruned calls only the day is known. They count as made at its end.
    sums = call_sums.c
    by_day = select(sums.key_label, func.max(sums.day).label("day")).where(
        sums.source == source, sums.day >= day_of(month_start(now)), sums.endpoint.not_in(_NO_CALLS)
    )
    pruned = {
        row.key_label: datetime.fromisoformat(f"{row.day}T23:59:59.999999+00:00")
        for row in await connection.execute(by_day.group_by(sums.key_label))
    }
    used = {key.label: [at for at in (last.get(key.label), pruned.get(key.label), key.next_at) if at] for key in keys}
    return {key.label: msgspec.structs.replace(key, used_at=max(used[key.label], default=None)) for key in keys}


async def _bill(
    connection: AsyncConnection, source: SourceName, key: _Key, lag: timedelta, *, is_complete: bool
) -> Bill:
    if key.balance is None or key.balance_at is None or key.reconciled_balance is None or key.reconciled_at is None:
        raise AssertionError("a key with a balance has both")
    since = key.reconciled_at
    own = (calls.c.source == source, calls.c.key_label == key.label, _IS_CALL)
    # Pruned calls exist only as sums of whole days; those of the day of `since` itself are not pruned.
    pruned = await _sum(
        connection,
        call_sums.c.credits,
        call_sums.c.source == source,
        call_sums.c.key_label == key.label,
        call_sums.c.endpoint.not_in(_NO_CALLS),
        call_sums.c.day > day_of(since),
    )
    day = day_of_call(connection.dialect.name)
    failed = (
        select(func.max(calls.c.at).label("last_at"), func.sum(calls.c.credits).label("credits"))
        .where(*own, calls.c.at >= since, calls.c.error.is_not(None), calls.c.credits > 0)
        .group_by(day)
        .order_by(day)
    )
    return Bill(
        label=key.label,
        since=since,
        until=key.balance_at,
        balance_before=key.reconciled_balance,
        balance=key.balance,
        booked=await _sum(connection, calls.c.credits, *own, calls.c.at >= since) + pruned,
        failed=[FailedCalls(**row) for row in (await connection.execute(failed)).mappings()],
        is_complete=is_complete,
        just_before=await _sum(connection, calls.c.credits, *own, calls.c.at >= since - lag, calls.c.at < since),
    )


async def _complete_at(
    connection: AsyncConnection, source: SourceName, keys: Collection[_Key], lag: timedelta, now: datetime
) -> datetime | None:
    """When the bill will show the last call; None if it does. Calls need no worker: commands and requests make them."""
    query = (
        select(calls.c.at, calls.c.seconds)
        .where(calls.c.source == source, calls.c.at >= now - lag - _LONGEST_CALL, _IS_CALL)
        .order_by(calls.c.at.desc())
        .limit(1)
    )
    ended = [row.at + timedelta(seconds=row.seconds) for row in await connection.execute(query)]
    ended += [key.next_at for key in keys if key.next_at and key.next_at <= now + _SLOTS_AHEAD]
    complete_at = max(ended, default=now) + lag
    return complete_at if ended and complete_at > now else None


async def _recount(
    connection: AsyncConnection,
    source: SourceName,
    keys: Mapping[KeyLabel, _Key],
    bills: Sequence[Bill],
    start: datetime,
    before: int,
) -> Committed:
    """What the cap is compared with from now on: never less than the ledger, nor than what may have been billed."""
    in_ledger = await _booked(connection, source, start)
    known = {bill.label for bill in bills if bill.is_known and (keys[bill.label].billed_since or bill.until) <= start}
    not_known = [key.label for key in keys.values() if key.used_at and key.used_at >= start and key.label not in known]
    uncertain = sum(bill.uncertain_from(start) for bill in bills if bill.is_known)
    after = max(before, in_ledger) if not_known else committed_after(in_ledger, before, uncertain)
    return Committed(before=before, after=after, in_ledger=in_ledger, not_known=not_known)


async def _set_baseline(
    connection: AsyncConnection, source: SourceName, key: _Key, bill: Bill, kept_from: Sequence[datetime]
) -> None:
    """`kept_from`: the starts of the periods in which more stays counted than the ledger has."""
    values: dict[str, Any] = {"reconciled_balance": bill.balance, "reconciled_at": bill.until}
    if bill.verdict is BillVerdict.CREDITS_ADDED:
        values["billed_since"] = known_since(key.used_at, bill.until)
    elif any(bill.uncertain_from(start) for start in kept_from):
        values["billed_since"] = bill.until  # or the next reconciliation would give back what this one kept
    await connection.execute(update(source_keys).where(_is_key(source, bill.label)).values(**values))


async def _booked(connection: AsyncConnection, source: SourceName, start: datetime) -> int:
    """Since the start of a day."""
    own = call_sums.c
    pruned = await _sum(connection, own.credits, own.source == source, own.day >= day_of(start))
    return pruned + await _sum(connection, calls.c.credits, calls.c.source == source, calls.c.at >= start)


async def _sum(connection: AsyncConnection, amounts: Column[Any], *conditions: ColumnElement[bool]) -> int:
    query = select(func.coalesce(func.sum(amounts), 0)).where(*conditions)
    return int((await connection.execute(query)).scalar_one())


def _is_key(source: SourceName, label: KeyLabel) -> ColumnElement[bool]:
    return (source_keys.c.source == source) & (source_keys.c.label == label)
