"""Counts of what was collected over time, and other answers that are cached between requests."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from loguru import logger

from mistnet.kit.errors import DatabaseError
from mistnet.operations.overview import Unit

FINE: Final = timedelta(minutes=15)
KEPT: Final = timedelta(days=31)
_OVERLAP: Final = timedelta(seconds=10)
_WIDE_OVERLAP: Final = timedelta(minutes=5)
_WIDE_EVERY: Final = timedelta(minutes=1)
_LEAST_BARS, _LEAD = 12, 3


class ChartSpan(StrEnum):
    """How far back a chart looks."""

    MINUTES = "2 min"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"

    @property
    def bars(self) -> tuple[int, int]:
        """How many bars, and the seconds of each."""
        return {
            ChartSpan.MINUTES: (60, 2),
            ChartSpan.HOUR: (60, 60),
            ChartSpan.DAY: (24, 3_600),
            ChartSpan.MONTH: (31, 86_400),
        }[self]


class SpanCounts(Protocol):
    """Reads the amount of each second or minute that has any."""

    async def __call__(self, unit: Unit, since: datetime, until: datetime | None = None) -> Mapping[datetime, int]: ...


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts in spans of equal length. The last span is still going on."""

    since: Sequence[int]
    amounts: Sequence[int]

    @property
    def edges(self) -> Sequence[datetime]:
        """Where each span begins, and where the last one ends."""
        after = 2 * self.since[-1] - self.since[-2]
        return [datetime.fromtimestamp(at, UTC) for at in (*self.since, after)]


class EventCounts:
    """Amounts by second for some minutes, by minute for a month, and one sum of everything before."""

    def __init__(self, read: SpanCounts, before: Callable[[datetime], Awaitable[int]] | None = None) -> None:
        self._read = read
        self._before = before
        self._seconds: dict[int, int] = {}
        self._minutes: dict[int, int] = {}
        # The minutes in order, and the sum before each: a month has 43,200, too many to add up for each page.
        self._order: list[int] = []
        self._sums = [0]
        self._older = 0
        self._read_at: datetime | None = None
        self._read_wide_at: datetime | None = None

    @property
    def total(self) -> int:
        return self._older + self._sums[-1] + sum(self._seconds.values())

    @property
    def first_at(self) -> int | None:
        """The first second or minute with an amount. None if it is more than a month ago, or if there is none."""
        return None if self._older else min(self._order[:1] or self._seconds, default=None)

    def since(self, moment: datetime) -> int:
        first = int(moment.timestamp())
        late = sum(amount for at, amount in self._seconds.items() if at >= first)
        return self._sums[-1] - self._sum_before(first) + late

    async def renew(self, now: datetime) -> None:
        """Read the last seconds again, and once a minute the last minutes: transactions may commit late."""
        fine = (now - FINE).replace(second=0, microsecond=0)
        if self._read_at is None or self._read_wide_at is None:
            first = (now - KEPT).replace(second=0, microsecond=0)
            # The old ones first: what is stored meanwhile belongs to the seconds that are read last.
            older = await self._before(first) if self._before else 0
            minutes = _by_epoch(await self._read("minute", first, fine))
            seconds = _by_epoch(await self._read("second", fine))
            self._older, self._minutes, self._seconds = older, minutes, seconds
            self._read_at = self._read_wide_at = now
            self._add_up()
            return
        wide = now - self._read_wide_at >= _WIDE_EVERY
        since = (self._read_wide_at - _WIDE_OVERLAP if wide else self._read_at - _OVERLAP).replace(microsecond=0)
        amounts = await self._read("second", since)
        begin = int(since.timestamp())
        self._seconds = {at: amount for at, amount in self._seconds.items() if at < begin} | _by_epoch(amounts)
        self._read_at = now
        self._read_wide_at = now if wide else self._read_wide_at
        # Move old seconds into minutes, and old minutes into the sum.
        cut, kept = int(fine.timestamp()), int((now - KEPT).timestamp())
        moved = [each for each in self._seconds if each < cut]
        for at in moved:
            minute = at - at % 60
            self._minutes[minute] = self._minutes.get(minute, 0) + self._seconds.pop(at)
        if moved:
            self._add_up()
        if gone := self._order[: bisect_left(self._order, kept)]:
            self._older += sum(self._minutes.pop(at) for at in gone)
            self._add_up()

    def _add_up(self) -> None:
        self._order = sorted(self._minutes)
        self._sums = [0, *accumulate(self._minutes[at] for at in self._order)]

    def _sum_before(self, at: int) -> int:
        """The sum of the minutes before this one."""
        return self._sums[bisect_left(self._order, at)]

    def bars(self, span: ChartSpan, now: datetime, begin: int | None = None) -> Bars:
        """Bars before `begin` are left out, if enough bars remain."""
        count, width = span.bars
        last = int(now.timestamp()) // width * width
        if begin is not None:
            count = min(count, max((last - begin) // width + _LEAD, _LEAST_BARS))
        since = range(last - (count - 1) * width, last + 1, width)
        sums = {at: self._sum_before(at + width) - self._sum_before(at) for at in since}
        for at, amount in self._seconds.items():
            if (place := at - at % width) in sums:
                sums[place] += amount
        return Bars(since=list(sums), amounts=list(sums.values()))


def _by_epoch(amounts: Mapping[datetime, int]) -> dict[int, int]:
    return {int(at.timestamp()): amount for at, amount in amounts.items()}


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
PATIENCE_SECONDS: Final = 1.5
"""A page waits no longer for an answer that is not kept yet."""

_KEPT_ANSWERS: Final = 32
_KEPT_SECONDS: Final = 60.0
_SHARE: Final = 20
"""A renewal that takes a second is made at most every twenty seconds."""
_OLD_SECONDS: Final = 30.0
_WAIT_SECONDS: Final = 0.1


class CachedResult(Generic[T]):
    """Returns the last answer at once. A stale one starts a renewal in the background."""

    def __init__(
        self, find: Callable[[], Awaitable[T]], *, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._find = find
        self._seconds = seconds
        self._clock = clock
        self._kept: T | None = None
        self._found_at = 0.0
        self._due_at = 0.0
        self._renewal: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Waits for the first answer only, and for a moment if the last one is very old."""
        if self._kept is None:
            # A client that goes away must not cancel the renewal that others wait for.
            return await asyncio.shield(self._start_renewal())
        if self._clock() >= self._due_at:
            renewal = self._start_renewal()
            if self._clock() - self._found_at > _OLD_SECONDS:
                await asyncio.wait([renewal], timeout=_WAIT_SECONDS)
        return self._kept

    async def recent(self, seconds: float) -> T:
        """An answer that is not older than this. One that is half as old starts a renewal in the background."""
        age = self._clock() - self._found_at
        if self._kept is None or age > seconds:
            return await asyncio.shield(self._start_renewal())
        if age > seconds / 2:
            self._start_renewal()
        return self._kept

    @property
    def idle(self) -> bool:
        """Whether no renewal is under way, so that this object may be dropped."""
        return self._renewal is None or self._renewal.done()

    async def close(self) -> None:
        """Cancel a renewal that is under way."""
        if self._renewal is not None and not self._renewal.done():
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    def _start_renewal(self) -> asyncio.Task[T]:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(), name="snapshot")
            self._renewal.add_done_callback(_log_failure)
        return self._renewal

    async def _renew(self) -> T:
        started = self._clock()
        try:
            self._kept = await self._find()
            self._found_at = self._clock()
        finally:
            # Also after a failure: a database that does not answer is not asked again at once.
            took = self._clock() - started
            self._due_at = self._clock() + max(self._seconds, took * _SHARE)
        return self._kept


class KeptResults(Generic[K, T]):
    """Answers by key, found when one is asked for. Those that were asked for last are kept."""

    def __init__(self, find: Callable[[K], Awaitable[T]]) -> None:
        self._find = find
        self._kept: dict[K, CachedResult[T]] = {}
        self.found = 0
        """How many were found so far. Pages update when it changes."""

    async def get(self, key: K) -> T | None:
        """None: it takes longer than a page may wait. A later page has it."""
        answer = self._kept.pop(key, None) or CachedResult(lambda: self._find_one(key), seconds=_KEPT_SECONDS)
        self._kept[key] = answer
        idle = [each for each, kept in self._kept.items() if kept.idle]  # the oldest first; a busy one is still found
        for each in idle[: max(len(self._kept) - _KEPT_ANSWERS, 0)]:
            del self._kept[each]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await answer.get()
        except TimeoutError:
            return None

    async def close(self) -> None:
        for answer in self._kept.values():
            await answer.close()

    async def _find_one(self, key: K) -> T:
        answer = await self._find(key)
        self.found += 1
        return answer


def _log_failure(renewal: asyncio.Task[T]) -> None:
    """A renewal that no request waited for must not fail silently."""
    if renewal.cancelled():
        return
    error = renewal.exception()
    if isinstance(error, DatabaseError):
        logger.warning("the dashboard shows older figures: {problem}", problem=error)
