"""A token bucket written as a time line: moments at which calls may start, taken from it a run at a time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

LATE_SECONDS: Final = 0.05
"""A process that was kept busy so long may still use its moments; later they would make a crowd."""

_DENSE_SECONDS: Final = 0.001
_ALMOST: Final = 1e-6
_MICRO: Final = timedelta(microseconds=1)


class Slots:
    """A run of evenly spaced moments. One that is not used soon after its time is let go: late ones make a crowd.

    Nothing here is made per moment, so that a run may be long. Times are seconds since 1970: this is what every
    call goes through.
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
        """The moments that are left; none is before the run was taken."""
        for place in range(self._place, self._count):
            yield datetime.fromtimestamp(max(self._first + place * self.interval, self._since), UTC)

    @property
    def rest(self) -> float:
        """How much longer to sleep than to the next moment: where they are dense, some then come due together."""
        return min(self.late / 4, _DENSE_SECONDS) if self.interval < _DENSE_SECONDS else 0.0

    @property
    def head(self) -> float:
        """When the next call may start. Only where there is one."""
        return self._first + self._place * self.interval

    def take_due(self, now: float) -> bool:
        """Takes the next moment if it has come; those long gone are let go."""
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
        """Takes the next moment, be it in the future or the past."""
        slot = self.head
        self._place += 1
        self.used += 1
        return slot

    def drop_late(self, now: float) -> None:
        """Lets go what is too late to be used."""
        missed = math.ceil((now - self.late - self.head) / self.interval) if len(self) else 0
        if missed > 0:
            missed = min(missed, len(self))
            self._place += missed
            self.let_go += missed


def crowd(rate: float, burst: int) -> float:
    """How many more than the rate allows can start in any span of time: the burst, and what came a moment late."""
    return burst + rate * LATE_SECONDS


def take_slots(
    next_at: datetime | None, now: datetime, *, rate: float, burst: int, count: int
) -> tuple[Slots, datetime]:
    """`count` moments at which a call may start, and when the one after may. After a rest `burst` may start at once.

    In any span of T seconds no more than `rate * T + crowd` of all moments ever taken can be used.
    """
    interval = 1 / rate
    reach = (burst - 1) * interval
    rested = now - timedelta(seconds=reach)
    first = max(next_at, rested) if next_at else rested
    slots = Slots(first.timestamp(), since=now.timestamp(), interval=interval, count=count, late=reach + LATE_SECONDS)
    return slots, first + _rounded_up(count * interval)


def _rounded_up(seconds: float) -> timedelta:
    """Whole microseconds: what is rounded off would be calls too many, at hundreds of thousands a second."""
    return _MICRO * math.ceil(round(seconds * 1e6, 3))


def tokens(next_at: datetime | None, now: datetime, *, rate: float, burst: int) -> int:
    """How many calls may start at once now."""
    slots, _ = take_slots(next_at, now, rate=rate, burst=burst, count=1)
    return max(math.floor((now.timestamp() - slots.head) * rate + 1 + _ALMOST), 0)
