"""Decides what a process may take from the shared rows of a source: moments for calls, and credits. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mistnet.domain.errors import BudgetSpent, NotNow, SourcePaused
from mistnet.domain.sources import Halt, KeyState, PausedBy, SourceName, SourceState

PAUSED_LOOK: Final = timedelta(minutes=5)
_SLICE_SECONDS: Final = 0.25
_MOST_SLOTS: Final = 1_000
_CAPPED_CALLS: Final = 10
_UNCAPPED_CALLS: Final = 100
_PATIENCE_SECONDS: Final = 3.0
_PROBE: Final = timedelta(seconds=60)
_FASTER: Final = 1.25
_FASTER_AFTER: Final = timedelta(seconds=2)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say of a source; what its shared row says goes before."""

    rate_per_minute: float = 900.0
    burst: int = 5
    day_credits: int | None = None
    month_credits: int | None = None
    breaker_failures: int = 5
    breaker_cooldown: timedelta = timedelta(minutes=5)
    failure_credits: Callable[[int | None], int] = lambda _status: 0


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the shared rows brought: slots and credits, or the reason for none."""

    slots: tuple[datetime, ...] = ()
    credits: int = 0
    refusal: NotNow | None = None
    halt: Halt | None = None
    key_paused: bool = False
    free_at: datetime | None = None
    rate: float = 0.0
    failing: bool = False
    probing: bool = False


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one source, as the settings and its shared rows have them."""

    source: SourceName
    limits: Limits

    def grant(
        self, source: SourceState, key: KeyState, *, need: int, wanted: int, now: datetime
    ) -> tuple[SourceState, KeyState, Grant]:
        """Decides on both rows at once. Pure: what it returns is written by the store."""
        source = on_day(source, now)
        refusal, halt = self._closed(source, key, now)
        if refusal:
            return source, key, Grant(refusal=refusal, halt=halt, key_paused=key.paused_at is not None)
        slice_credits = self._affordable(source, need)
        if slice_credits < need:
            return source, key, Grant(refusal=self._too_dear(source, need, now), halt=Halt.BUDGET)
        key = self._quickened(key, now)
        half_open = source.failure_streak >= self.limits.breaker_failures
        rate = self.rate(key) / 60
        slots, next_at = take_slots(
            key.next_at, now, rate=rate, burst=self.limits.burst, count=1 if half_open else wanted * _slice(rate)
        )
        if slots and (slots[0] - now).total_seconds() > _PATIENCE_SECONDS:
            refusal = NotNow(slots[0], f"{self.source}: the key's rate allows no more now")
            return source, key, Grant(refusal=refusal, free_at=slots[0], rate=rate)
        source = msgspec.structs.replace(
            source,
            day_credits=source.day_credits + slice_credits,
            month_credits=source.month_credits + slice_credits,
            probe_until=now + _PROBE if half_open else None,
        )
        key = msgspec.structs.replace(key, next_at=next_at)
        failing = source.failure_streak > 0
        return source, key, Grant(slots=slots, credits=slice_credits, failing=failing, probing=half_open)

    def _closed(self, source: SourceState, key: KeyState, now: datetime) -> tuple[NotNow | None, Halt | None]:
        if source.paused_at:
            halt = Halt.REFUSED if source.paused_by is PausedBy.SOURCE else Halt.PAUSED
            return SourcePaused(self.source, now + PAUSED_LOOK, source.pause_reason or "paused"), halt
        if key.paused_at:
            return SourcePaused(self.source, now + PAUSED_LOOK, key.pause_reason or "its key is paused"), Halt.REFUSED
        if source.opened_until and source.opened_until > now:
            problem = f"{self.source}: {source.failure_streak} failures in a row, next try then"
            return NotNow(source.opened_until, problem), None
        if source.probe_until and source.probe_until > now:
            return NotNow(now + _PROBE / 6, f"{self.source}: one call tries whether it is well again"), None
        return None, None

    def _affordable(self, source: SourceState, need: int) -> int:
        """A slice to spend without asking again: a twentieth of what is left, ten calls' worth at most.

        Where nothing is capped, a process that dies takes nothing from the others: there it may be more.
        """
        if need == 0:
            return 0
        rooms = [cap - spent for cap, spent in self.caps(source) if cap is not None]
        room = min(rooms, default=None)
        if room is None:
            return _UNCAPPED_CALLS * need
        return min(max(need, min(_CAPPED_CALLS * need, room // 20)), max(room, 0))

    def caps(self, source: SourceState) -> tuple[tuple[int | None, int], tuple[int | None, int]]:
        day = source.day_cap if source.day_cap is not None else self.limits.day_credits
        month = source.month_cap if source.month_cap is not None else self.limits.month_credits
        return (day, source.day_credits), (month, source.month_credits)

    def _too_dear(self, source: SourceState, need: int, now: datetime) -> BudgetSpent:
        (day, of_day), (month, of_month) = self.caps(source)
        if month is not None and of_month + need > month:
            first = (now.replace(day=1) + timedelta(days=32)).replace(day=1)
            return BudgetSpent(self.source, _midnight(first), "month", of_month, month)
        return BudgetSpent(self.source, _midnight(now + timedelta(days=1)), "day", of_day, day or 0)

    def _quickened(self, key: KeyState, now: datetime) -> KeyState:
        """A key that a 429 slowed down gets faster again while no other comes."""
        if key.slowed_at is None or now - key.slowed_at < _FASTER_AFTER:
            return key
        slowdown = min(key.slowdown * _FASTER, 1.0)
        return msgspec.structs.replace(key, slowdown=slowdown, slowed_at=now if slowdown < 1 else None)

    def rate(self, key: KeyState) -> float:
        """Calls a minute, now."""
        return (key.rate_per_minute or self.limits.rate_per_minute) * key.slowdown


def take_slots(
    next_at: datetime | None, now: datetime, *, rate: float, burst: int, count: int
) -> tuple[tuple[datetime, ...], datetime]:
    """`count` moments at which a call may start, and when the one after may. After a rest `burst` may start at once."""
    interval = timedelta(seconds=1 / rate)
    rested = now - interval * (burst - 1)
    first = max(next_at, rested) if next_at else rested
    slots = tuple(max(first + interval * place, now) for place in range(count))
    return slots, first + interval * count


def _slice(rate: float) -> int:
    return min(max(int(rate * _SLICE_SECONDS), 1), _MOST_SLOTS)


def on_day(source: SourceState, now: datetime) -> SourceState:
    """A new day starts at nothing, a new month too."""
    today = day_of(now)
    if source.day == today:
        return source
    same_month = source.day is not None and source.day[:7] == today[:7]
    return msgspec.structs.replace(
        source, day=today, day_credits=0, month_credits=source.month_credits if same_month else 0
    )


def day_of(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()


def _midnight(day: datetime) -> datetime:
    return day.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
