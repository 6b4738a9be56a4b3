"""What a process may take from the shared rows of a source, time slots and credits, and the calls that use it."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from mistnet.governor.errors import BudgetSpent, RateLimited, SourceDown, SourcePaused
from mistnet.governor.model import (
    OTHERS_WORK_WAIT,
    PROBE,
    CallPurpose,
    Halt,
    KeyLabel,
    KeyState,
    PausedBy,
    SourceName,
    SourceState,
    day_start,
    end_foreign_pauses,
    is_half_open,
    is_open,
    is_probed,
    on_day,
)
from mistnet.kit.text import counted
from mistnet.queue.errors import NotNow

if TYPE_CHECKING:
    from mistnet.governor.governor import Governor

T = TypeVar("T")

LATE_SECONDS: Final = 0.05
"""How late a slot may be used. Later ones would add up to bursts beyond the rate."""

_DENSE_SECONDS: Final = 0.001
_LARGE_BURST: Final = 100
_ALMOST: Final = 1e-6
_MICRO: Final = timedelta(microseconds=1)


class CallSlots:
    """Evenly spaced time slots. A slot that is not used soon after its time is dropped: late ones add up to bursts.

    No object is created per slot, so that there may be many. Times are seconds since 1970, for speed: every call
    passes here.
    """

    __slots__ = ("_count", "_first", "_place", "_since", "interval", "late", "let_go", "used")

    def __init__(
        self, first: float = 0.0, *, since: float = 0.0, interval: float = 1.0, count: int = 0, late: float = 0.0
    ) -> None:
        self._first, self._since, self.interval, self._count = first, since, interval, count
        self._place = 0
        self.late = late
        self.used = 0
        self.let_go = 0

    def __len__(self) -> int:
        return self._count - self._place

    def __iter__(self) -> Iterator[datetime]:
        """The slots that are left; none is before the time they were taken."""
        for place in range(self._place, self._count):
            yield datetime.fromtimestamp(max(self._first + place * self.interval, self._since), UTC)

    @property
    def rest(self) -> float:
        """How much longer to sleep than until the next slot: where slots are dense, several then come due together."""
        return min(self.late / 4, _DENSE_SECONDS) if self.interval < _DENSE_SECONDS else 0.0

    @property
    def head(self) -> float:
        """When the next call may start. Only valid if a slot is left."""
        return self._first + self._place * self.interval

    def take_due(self, now: float) -> bool:
        """Take the next slot if its time has come; drop those that are too late."""
        if self._place >= self._count:
            return False
        slot = self._first + self._place * self.interval
        if slot > now:
            return False
        if slot < now - self.late:
            self.drop_late(now)
            return self.take_due(now)
        self._place += 1
        self.used += 1
        return True

    def take(self) -> float:
        """Take the next slot, in the future or the past."""
        slot = self.head
        self._place += 1
        self.used += 1
        return slot

    def drop_late(self, now: float) -> None:
        """Drop the slots that are too late to be used."""
        missed = math.ceil((now - self.late - self.head) / self.interval) if len(self) else 0
        if missed > 0:
            missed = min(missed, len(self))
            self._place += missed
            self.let_go += missed


def crowd(rate: float, burst: int) -> float:
    """How many more calls than the rate allows can start in any span: the burst, and late slots."""
    return burst + rate * LATE_SECONDS


def take_slots(
    next_at: datetime | None, now: datetime, *, rate: float, burst: int, count: int
) -> tuple[CallSlots, datetime]:
    """`count` slots for calls, and when the one after may start. After a pause `burst` calls may start at once.

    Of a large burst a quarter is given up: the oldest slots expire at once, and processes would come back for others.

    In any span of T seconds no more than `rate * T + crowd` of all slots ever taken can be used.
    """
    interval = 1 / rate
    reach = (burst - 1) * interval
    rested = now - timedelta(seconds=reach - (min(reach / 4, _LONGEST_SPAN) if burst >= _LARGE_BURST else 0.0))
    first = max(next_at, rested) if next_at else rested
    slots = CallSlots(
        first.timestamp(), since=now.timestamp(), interval=interval, count=count, late=reach + LATE_SECONDS
    )
    # Rounded up to whole microseconds: rounding down would allow too many calls at high rates.
    return slots, first + _MICRO * math.ceil(round(count * interval * 1e6, 3))


def tokens(next_at: datetime | None, now: datetime, *, rate: float, burst: int) -> int:
    """How many calls may start at once now."""
    slots, _ = take_slots(next_at, now, rate=rate, burst=burst, count=1)
    return max(math.floor((now.timestamp() - slots.head) * rate + 1 + _ALMOST), 0)


PAUSED_LOOK: Final = timedelta(minutes=5)
"""How long work waits until it checks again whether its source is still paused."""

_CAPPED_CALLS: Final = 10
_UNCAPPED_CALLS: Final = 100
# For a longer wait the job is put back, so that its worker can do other work.
_PATIENCE_SECONDS: Final = 3.0
_FASTER: Final = 1.25
_FASTER_AFTER: Final = timedelta(seconds=2)
# Against rounding: 0.999999999 calls are one call.
_ALMOST_ONE: Final = 1e-9
# Twelve are allowed; a little fewer, so that clocks need not agree.
_FREE_KEY_PER_MINUTE: Final = 11.5
_SLOWER: Final = 0.8
_SLOWED_ONCE: Final = timedelta(seconds=1)
# In seconds. Slots that a process holds are lost to all others, so it takes few at once.
_FIRST_SPAN: Final = 0.05
_LONGEST_SPAN: Final = 0.25
_MORE: Final = 2.0
_SPARE: Final = 1.25
_REPEAT_SECONDS: Final = 0.5


class GovernorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a source in the settings; those in its shared row override them."""

    rate_per_minute: float = 900.0
    burst: int = 5
    day_credits: int | None = None
    month_credits: int | None = None
    breaker_failures: int = 5
    breaker_cooldown: timedelta = timedelta(minutes=5)
    failure_credits: Callable[[int | None, int], int] = lambda _status, _most: 0
    """The cost to book for a call that failed with this status, or without one, and reserved this much."""

    def caps(self, source: SourceState) -> tuple[tuple[int | None, int], tuple[int | None, int]]:
        """The caps of the day and the month, each with what is spent or reserved of it."""
        day = source.day_cap if source.day_cap is not None else self.day_credits
        month = source.month_cap if source.month_cap is not None else self.month_credits
        return (day, source.day_credits), (month, source.month_credits)


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a process took from the shared rows: slots and credits, or the reason for none."""

    slots: CallSlots | None = None
    credits: int = 0
    refusal: NotNow | None = None
    halt: Halt | None = None
    key_paused: bool = False
    free_at: datetime | None = None
    rate: float = 0.0
    failing: bool = False
    probe_until: datetime | None = None


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one source, from the settings and its shared rows."""

    source: SourceName
    limits: GovernorLimits

    def grant(
        self, source: SourceState, key: KeyState, *, refused: bool, need: int, span: float, now: datetime
    ) -> tuple[SourceState, KeyState, Grant]:
        """Decide on both rows at once: the slots of `span` seconds, at least one; none if the span is 0.

        `refused`: the stored refusal applies to this key. Pure: the store writes what it returns.
        """
        source = on_day(source, now)
        if not refused:
            source, key = end_foreign_pauses(source, key)
        refusal, halt = self._refusal(source, key, now, refused=refused)
        if refusal:
            return source, key, Grant(refusal=refusal, halt=halt, key_paused=refused)
        if key.slowed_at is not None and now - key.slowed_at >= _FASTER_AFTER:
            # A 429 slowed this key down. While no other 429 comes, it speeds up again.
            slowdown = min(key.slowdown * _FASTER, 1.0)
            key = msgspec.structs.replace(key, slowdown=slowdown, slowed_at=now if slowdown < 1 else None)
        half_open = is_half_open(source, now)
        rate = self.rate(key) / 60
        count = 1
        if not half_open:
            count = max(int(span * rate + _ALMOST_ONE), 1) if span > 0 else 0
        slice_credits = self._affordable(source, need, count)
        if slice_credits < need:
            return source, key, Grant(refusal=self._budget_error(source, need, now), halt=Halt.BUDGET)
        slots, next_at = take_slots(key.next_at, now, rate=rate, burst=self.limits.burst, count=count)
        first = next(iter(slots), now)
        if (first - now).total_seconds() > _PATIENCE_SECONDS:
            refusal = NotNow(first, f"{self.source}: the key's rate allows no more now")
            return source, key, Grant(refusal=refusal, free_at=first, rate=rate)
        probe_until = now + PROBE if half_open else None
        source = msgspec.structs.replace(
            source,
            day_credits=source.day_credits + slice_credits,
            month_credits=source.month_credits + slice_credits,
            probe_until=probe_until,
        )
        if count:
            key = msgspec.structs.replace(key, next_at=next_at)
        failing = source.failure_streak > 0
        return source, key, Grant(slots=slots, credits=slice_credits, failing=failing, probe_until=probe_until)

    def _refusal(
        self, source: SourceState, key: KeyState, now: datetime, *, refused: bool
    ) -> tuple[NotNow | None, Halt | None]:
        if source.paused_at:
            halt = Halt.REFUSED if source.paused_by is PausedBy.SOURCE else Halt.PAUSED
            return SourcePaused(self.source, now + PAUSED_LOOK, source.pause_reason or "paused"), halt
        if refused:
            why = key.pause_reason or "this key is refused"
            return SourcePaused(self.source, now + OTHERS_WORK_WAIT, why), Halt.REFUSED
        if is_open(source, now):
            why = source.pause_reason or f"{counted(source.failure_streak, 'failure')} in a row"
            return NotNow(source.opened_until or now, f"{self.source}: {why}, next try then"), None
        if is_probed(source, now):
            return NotNow(now + PROBE / 6, f"{self.source}: one call tests whether it works again"), None
        return None, None

    def _affordable(self, source: SourceState, need: int, count: int) -> int:
        """The credits to take at once: a twentieth of what is left, at most the price of ten calls.

        Without a cap, a process that dies takes nothing from the others: it may then take as much as its slots
        allow.
        """
        if need == 0:
            return 0
        rooms = [cap - spent for cap, spent in self.limits.caps(source) if cap is not None]
        room = min(rooms, default=None)
        if room is None:
            return max(_UNCAPPED_CALLS, count) * need
        return min(max(need, min(_CAPPED_CALLS * need, room // 20)), max(room, 0))

    def _budget_error(self, source: SourceState, need: int, now: datetime) -> BudgetSpent:
        (day, of_day), (month, of_month) = self.limits.caps(source)
        if month is not None and of_month + need > month:
            first = (now.replace(day=1) + timedelta(days=32)).replace(day=1)
            return BudgetSpent(self.source, day_start(first), "month", of_month, month)
        return BudgetSpent(self.source, day_start(now + timedelta(days=1)), "day", of_day, day or 0)

    def rate(self, key: KeyState) -> float:
        """Calls a minute, now."""
        return (key.rate_per_minute or self.limits.rate_per_minute) * key.slowdown


def slow_down_key(key: KeyState, limited: RateLimited, *, rate: float, now: datetime) -> KeyState:
    """A key after a 429: unused until the given time, then slower for a while; a free key stays slow."""
    key = msgspec.structs.replace(key, next_at=max(key.next_at or limited.until, limited.until))
    if limited.free_tier:
        slowest = min(rate, _FREE_KEY_PER_MINUTE)
        return msgspec.structs.replace(key, rate_per_minute=slowest, slowdown=1.0, slowed_at=None)
    if rate > _FREE_KEY_PER_MINUTE and (key.slowed_at is None or now - key.slowed_at >= _SLOWED_ONCE):
        return msgspec.structs.replace(key, slowdown=key.slowdown * _SLOWER, slowed_at=now)
    return key


class CreditReserve:
    """Reserved credits of one day (UTC). Those of yesterday cannot be spent today."""

    __slots__ = ("left", "until")

    def __init__(self) -> None:
        self.left = 0
        self.until = 0.0
        """The end of its day, in seconds since 1970; it also identifies the day."""

    def begin_day(self, now: datetime) -> None:
        """Empty the reserve if its day is over."""
        if now.timestamp() >= self.until:
            self.left = 0
            self.until = day_start(now + timedelta(days=1)).timestamp()

    def put_back(self, unspent: int, day: float) -> None:
        """Return what a call of that day reserved and did not cost; negative if it cost more."""
        if day == self.until:
            self.left += unspent


class KeySlots:
    """The slots that this process holds of one key. Times are seconds since 1970."""

    __slots__ = ("emptied", "free_at", "fresh_until", "label", "paused", "refused", "secret", "slots", "span", "unseen")

    def __init__(self, label: KeyLabel, secret: str) -> None:
        self.label, self.secret = label, secret
        self.slots = CallSlots()
        self.span = _FIRST_SPAN
        self.fresh_until = 0.0
        self.free_at: float | None = None
        self.paused = self.refused = False  # paused by the shared row; refused in this process
        self.unseen = 0
        self.emptied = 0

    def empty(self) -> None:
        """Drop the slots of this process, and those that a call is just fetching."""
        self.slots = CallSlots()
        self.emptied += 1

    def free_from(self, at: float) -> float:
        """When this key may be used: at its next slot, after a refusal, or now."""
        if len(self.slots):
            return self.slots.head
        return self.free_at if self.free_at is not None else at

    def next_span(self) -> float:
        """How many seconds of slots to take: as many as were used last time, more if that was too few.

        Unused slots are lost to all other processes.
        """
        run = self.slots
        if run.let_go:
            return max(run.used * _SPARE, 1.0) * run.interval
        return min(self.span * _MORE, _LONGEST_SPAN) if run.used else self.span


class Ticket(msgspec.Struct):
    """One admitted call: implements `Call`."""

    key: str
    label: KeyLabel
    reserved: int
    items: int = 0
    cost: int | None = None

    def settle(self, *, items: int, credits_due: int) -> None:
        self.items, self.cost = items, credits_due


class GovernedCall:
    """The context manager of a call. Not a generator: creating one would cost more than all the rest of a call."""

    __slots__ = (
        "_begun",
        "_governor",
        "at",
        "day",
        "endpoint",
        "key_slots",
        "most",
        "probe_until",
        "purpose",
        "ticket",
    )

    key_slots: KeySlots
    ticket: Ticket
    at: datetime
    day: float

    def __init__(self, governor: Governor, endpoint: str, most: int, purpose: CallPurpose) -> None:
        self._governor = governor
        self.endpoint, self.most, self.purpose = endpoint, most, purpose
        self.probe_until: datetime | None = None

    async def __aenter__(self) -> Ticket:
        if not self._governor.try_admit(self):
            await self._governor.admit(self)
        key_slots = self.key_slots
        self.ticket = ticket = Ticket(key_slots.secret, key_slots.label, self.most)
        self._begun = time.perf_counter()
        return ticket

    async def __aexit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._begun
        try:
            if error is not None:
                await self._governor.record_failure(self, error)
            elif self._governor.failing or self.probe_until is not None or self.key_slots.unseen:
                await self._governor.record_success(self)
        finally:
            self._governor.note(self, seconds, error)


async def repeat_if_unanswered(call: Callable[[], Awaitable[T]], sleep: Callable[[float], Awaitable[None]]) -> T:
    """Make a call, and once more if the connection failed. The repetition is a governed call of its own."""
    try:
        return await call()
    except SourceDown as error:
        if error.status is not None:  # it answered: the job's own retry comes later
            raise
    await sleep(_REPEAT_SECONDS)
    return await call()
