"""What a process may take from the shared rows of a source: time slots for calls, and credits. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mistnet.governor import breaker
from mistnet.governor.breaker import PROBE, BreakerRules
from mistnet.governor.errors import BudgetSpent, RateLimited, SourcePaused
from mistnet.governor.model import (
    OTHERS_WORK_WAIT,
    Halt,
    KeyState,
    PausedBy,
    SourceName,
    SourceState,
    end_foreign_pauses,
)
from mistnet.kit.text import counted
from mistnet.queue.errors import NotNow

LATE_SECONDS: Final = 0.05
"""How late a slot may be used. Later ones would add up to bursts beyond the rate."""

_DENSE_SECONDS: Final = 0.001
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

    In any span of T seconds no more than `rate * T + crowd` of all slots ever taken can be used.
    """
    interval = 1 / rate
    reach = (burst - 1) * interval
    rested = now - timedelta(seconds=reach)
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
_CAPPED_CALLS: Final = 10
_UNCAPPED_CALLS: Final = 100
_PATIENCE_SECONDS: Final = 3.0
_FASTER: Final = 1.25
_FASTER_AFTER: Final = timedelta(seconds=2)
_ALMOST_ONE: Final = 1e-9
_FREE_KEY_PER_MINUTE: Final = 11.5
_SLOWER: Final = 0.8
_SLOWED_ONCE: Final = timedelta(seconds=1)


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

    @property
    def breaker(self) -> BreakerRules:
        return BreakerRules(self.breaker_failures, self.breaker_cooldown)


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
        key = self._speed_up(key, now)
        half_open = breaker.is_half_open(source, now)
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
        if breaker.is_open(source, now):
            why = source.pause_reason or f"{counted(source.failure_streak, 'failure')} in a row"
            return NotNow(source.opened_until or now, f"{self.source}: {why}, next try then"), None
        if breaker.is_probed(source, now):
            return NotNow(now + PROBE / 6, f"{self.source}: one call tests whether it works again"), None
        return None, None

    def _affordable(self, source: SourceState, need: int, count: int) -> int:
        """The credits to take at once: a twentieth of what is left, at most the price of ten calls.

        Without a cap, a process that dies takes nothing from the others: it may then take as much as its slots
        allow.
        """
        if need == 0:
            return 0
        rooms = [cap - spent for cap, spent in self.caps(source) if cap is not None]
        room = min(rooms, default=None)
        if room is None:
            return max(_UNCAPPED_CALLS, count) * need
        return min(max(need, min(_CAPPED_CALLS * need, room // 20)), max(room, 0))

    def caps(self, source: SourceState) -> tuple[tuple[int | None, int], tuple[int | None, int]]:
        day = source.day_cap if source.day_cap is not None else self.limits.day_credits
        month = source.month_cap if source.month_cap is not None else self.limits.month_credits
        return (day, source.day_credits), (month, source.month_credits)

    def _budget_error(self, source: SourceState, need: int, now: datetime) -> BudgetSpent:
        (day, of_day), (month, of_month) = self.caps(source)
        if month is not None and of_month + need > month:
            first = (now.replace(day=1) + timedelta(days=32)).replace(day=1)
            return BudgetSpent(self.source, midnight(first), "month", of_month, month)
        return BudgetSpent(self.source, midnight(now + timedelta(days=1)), "day", of_day, day or 0)

    def _speed_up(self, key: KeyState, now: datetime) -> KeyState:
        """Speed a key up again that a 429 slowed down, while no other 429 comes."""
        if key.slowed_at is None or now - key.slowed_at < _FASTER_AFTER:
            return key
        slowdown = min(key.slowdown * _FASTER, 1.0)
        return msgspec.structs.replace(key, slowdown=slowdown, slowed_at=now if slowdown < 1 else None)

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


def on_day(source: SourceState, now: datetime) -> SourceState:
    """Reset the credits of the day and the month when a new one begins."""
    today = day_of(now)
    if source.day == today:
        return source
    same_month = source.day is not None and source.day[:7] == today[:7]
    return msgspec.structs.replace(
        source, day=today, day_credits=0, month_credits=source.month_credits if same_month else 0
    )


def day_of(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()


def midnight(day: datetime) -> datetime:
    """When that day (UTC) began."""
    return day.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


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
            self.until = midnight(now + timedelta(days=1)).timestamp()

    def put_back(self, unspent: int, day: float) -> None:
        """Return what a call of that day reserved and did not cost; negative if it cost more."""
        if day == self.until:
            self.left += unspent
