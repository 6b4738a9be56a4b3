"""Decides what a process may take from the shared rows of a source: moments for calls, and credits. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mistnet.domain.errors import BudgetSpent, NotNow, RateLimited, SourcePaused
from mistnet.domain.plural import counted
from mistnet.domain.sources import Halt, KeyState, PausedBy, SourceName, SourceState
from mistnet.engine import breaker
from mistnet.engine.breaker import PROBE, BreakerRules
from mistnet.engine.bucket import Slots, take_slots
from mistnet.engine.refusals import OTHERS_WORK_WAIT, left_behind

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


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say of a source; what its shared row says goes before."""

    rate_per_minute: float = 900.0
    burst: int = 5
    day_credits: int | None = None
    month_credits: int | None = None
    breaker_failures: int = 5
    breaker_cooldown: timedelta = timedelta(minutes=5)
    failure_credits: Callable[[int | None, int], int] = lambda _status, _most: 0
    """What to book for a call that failed with this status, or without one, and had this much set aside."""

    @property
    def breaker(self) -> BreakerRules:
        return BreakerRules(self.breaker_failures, self.breaker_cooldown)


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the shared rows brought: slots and credits, or the reason for none."""

    slots: Slots | None = None
    credits: int = 0
    refusal: NotNow | None = None
    halt: Halt | None = None
    key_paused: bool = False
    free_at: datetime | None = None
    rate: float = 0.0
    failing: bool = False
    probe_until: datetime | None = None


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one source, as the settings and its shared rows have them."""

    source: SourceName
    limits: Limits

    def grant(
        self, source: SourceState, key: KeyState, *, refused: bool, need: int, span: float, now: datetime
    ) -> tuple[SourceState, KeyState, Grant]:
        """Decides on both rows at once: the slots of `span` seconds, one at least; for nothing at all, no slot.

        `refused`: the refusal on record is that of this very key. Pure: what it returns is written by the store.
        """
        source = on_day(source, now)
        if not refused:
            source, key = left_behind(source, key)
        refusal, halt = self._closed(source, key, now, refused=refused)
        if refusal:
            return source, key, Grant(refusal=refusal, halt=halt, key_paused=refused)
        key = self._quickened(key, now)
        half_open = breaker.is_half_open(source, now)
        rate = self.rate(key) / 60
        count = 1 if half_open else _slots_in(span, rate)
        slice_credits = self._affordable(source, need, count)
        if slice_credits < need:
            return source, key, Grant(refusal=self._too_dear(source, need, now), halt=Halt.BUDGET)
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

    def _closed(
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
            return NotNow(now + PROBE / 6, f"{self.source}: one call tries whether it is well again"), None
        return None, None

    def _affordable(self, source: SourceState, need: int, count: int) -> int:
        """A slice to spend without asking again: a twentieth of what is left, ten calls' worth at most.

        Where nothing is capped, a process that dies takes nothing from the others: there it may be as much as the
        slots that come with it allow.
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

    def _too_dear(self, source: SourceState, need: int, now: datetime) -> BudgetSpent:
        (day, of_day), (month, of_month) = self.caps(source)
        if month is not None and of_month + need > month:
            first = (now.replace(day=1) + timedelta(days=32)).replace(day=1)
            return BudgetSpent(self.source, midnight(first), "month", of_month, month)
        return BudgetSpent(self.source, midnight(now + timedelta(days=1)), "day", of_day, day or 0)

    def _quickened(self, key: KeyState, now: datetime) -> KeyState:
        """A key that a 429 slowed down gets faster again while no other comes."""
        if key.slowed_at is None or now - key.slowed_at < _FASTER_AFTER:
            return key
        slowdown = min(key.slowdown * _FASTER, 1.0)
        return msgspec.structs.replace(key, slowdown=slowdown, slowed_at=now if slowdown < 1 else None)

    def rate(self, key: KeyState) -> float:
        """Calls a minute, now."""
        return (key.rate_per_minute or self.limits.rate_per_minute) * key.slowdown


def slower_key(key: KeyState, limited: RateLimited, *, rate: float, now: datetime) -> KeyState:
    """A key after a 429: not before the time it was told, and more slowly for a while; a free one for good."""
    key = msgspec.structs.replace(key, next_at=max(key.next_at or limited.until, limited.until))
    if limited.free_tier:
        slowest = min(rate, _FREE_KEY_PER_MINUTE)
        return msgspec.structs.replace(key, rate_per_minute=slowest, slowdown=1.0, slowed_at=None)
    if rate > _FREE_KEY_PER_MINUTE and (key.slowed_at is None or now - key.slowed_at >= _SLOWED_ONCE):
        return msgspec.structs.replace(key, slowdown=key.slowdown * _SLOWER, slowed_at=now)
    return key


def _slots_in(span: float, rate: float) -> int:
    return max(int(span * rate + _ALMOST_ONE), 1) if span > 0 else 0


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


def midnight(day: datetime) -> datetime:
    """When that day (UTC) began."""
    return day.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
