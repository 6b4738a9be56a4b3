"""The moments at which something is due, how many of them passed unseen, and a timer for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import msgspec
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from loguru import logger

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import OutageLog

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT: Final = timedelta(microseconds=1)
_LOOK_BACK: Final = timedelta(days=35)
_SPANS: Final = (timedelta(hours=1), timedelta(days=1), _LOOK_BACK, timedelta(days=366), timedelta(days=4 * 366))
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Due(msgspec.Struct, frozen=True):
    """A slot whose time has come. It stands for those before it that nobody was there for."""

    at: datetime
    missed: int = 0


class Slots(Protocol):
    """A rhythm in UTC, the same for whoever asks."""

    def after(self, at: datetime) -> datetime | None:
        """The next slot later than this moment."""
        ...

    def due(self, last: datetime | None, now: datetime) -> Due | None:
        """The latest slot since `last`, up to now. Without a last one the latest that there was is due."""
        ...


class Interval(msgspec.Struct, frozen=True):
    """Every so often, counted from the epoch: all processes agree on the slots, whenever they started."""

    every: timedelta

    def after(self, at: datetime) -> datetime:
        return self._slot(self._number(at) + 1)

    def due(self, last: datetime | None, now: datetime) -> Due | None:
        number = self._number(now)
        if last is None:
            return Due(self._slot(number))
        passed = number - self._number(last)
        return Due(self._slot(number), passed - 1) if passed > 0 else None

    def _number(self, at: datetime) -> int:
        return (at - _EPOCH) // self.every

    def _slot(self, number: int) -> datetime:
        return _EPOCH + number * self.every

    def __str__(self) -> str:
        return f"every {self.every.total_seconds():g} s"


class Crontab:
    """A crontab line: Sunday is 0 or 7, and of two kinds of days either will do, as cron has it.

    Raises ValueError with what is wrong with the line.
    """

    def __init__(self, line: str) -> None:
        self.line = line
        fields = line.split()
        if len(fields) != 5:
            raise ValueError(f"a crontab line has 5 fields, this one has {len(fields)}")
        minute, hour, day, month, weekday = fields
        weekday = _by_name(weekday)
        days = [(day, weekday)]
        if not day.startswith("*") and not weekday.startswith("*"):
            days = [(day, "*"), ("*", weekday)]
        self._triggers = [
            CronTrigger.from_crontab(f"{minute} {hour} {each_day} {month} {each_weekday}", timezone=UTC)
            for each_day, each_weekday in days
        ]

    def after(self, at: datetime) -> datetime | None:
        found = [trigger.get_next_fire_time(None, at + _INSTANT) for trigger in self._triggers]
        return min((each for each in found if each is not None), default=None)

    def due(self, last: datetime | None, now: datetime) -> Due | None:
        """Slots more than five weeks old are not counted any more."""
        if last is None:
            return self._latest(now)
        slots = self._between(max(last, now - _LOOK_BACK), now)
        return Due(slots[-1], len(slots) - 1) if slots else None

    def _latest(self, now: datetime) -> Due | None:
        for span in _SPANS:
            if slots := self._between(now - span, now):
                return Due(slots[-1])
        return None

    def _between(self, last: datetime, now: datetime) -> list[datetime]:
        slots: list[datetime] = []
        slot = self.after(last)
        while slot is not None and slot <= now:
            slots.append(slot)
            slot = self.after(slot)
        return slots

    def __str__(self) -> str:
        return f"cron {self.line}"


def _by_name(field: str) -> str:
    """Weekdays by their names: APScheduler counts from Monday, cron from Sunday."""
    if field.startswith("*") and "/" not in field:
        return field
    days = sorted({day for part in field.lower().split(",") for day in _days(part)})
    return ",".join(_WEEKDAYS[day] for day in days)


def _days(part: str) -> list[int]:
    span, _, step = part.partition("/")
    first, _, last = ("0", "-", "6") if span == "*" else span.partition("-")
    begin = _day(first)
    end = _day(last) if last else (6 if step else begin)
    if step and not (step.isdecimal() and int(step)):
        raise ValueError(f"{part!r} is no weekday")
    if end < begin:
        end += 7
    return [day % 7 for day in range(begin, end + 1, int(step or 1))]


def _day(word: str) -> int:
    if word in _WEEKDAYS:
        return _WEEKDAYS.index(word)
    if word.isdecimal() and int(word) <= 7:
        return int(word)
    raise ValueError(f"{word!r} is no weekday; write 0-7 or sun-sat")


_LATE: Final = timedelta(milliseconds=20)
"""A timer that fires a moment early would find nothing due and wait for the slot after."""


class Ticker:
    """Calls actions when their slots come. None overlaps itself; what came meanwhile is one call after it."""

    def __init__(self, clock: Clock, outage: OutageLog | None = None) -> None:
        self._clock = clock
        self._outage = outage or OutageLog()
        self._actions: dict[str, tuple[Slots, Callable[[], Awaitable[object]]]] = {}
        self._running: set[asyncio.Task[Any]] = set()

    def add(self, name: str, slots: Slots, action: Callable[[], Awaitable[object]]) -> None:
        """Beginning at once, then at every slot."""
        if name in self._actions:
            raise ValueError(f"two actions are called {name!r}")
        self._actions[name] = slots, action

    async def run(self) -> None:
        """Until cancelled; then whatever runs is cancelled and waited for."""
        timers = self._timers()
        timers.start()
        try:
            await asyncio.Event().wait()
        finally:
            timers.shutdown(wait=False)
            await asyncio.sleep(0)  # it shuts down in the loop's next turn
            await self._stop()

    def _timers(self) -> AsyncIOScheduler:
        quiet = logging.getLogger("apscheduler")
        quiet.propagate = False  # we log what matters ourselves, without secrets
        quiet.addHandler(logging.NullHandler())
        timers = AsyncIOScheduler(
            timezone=UTC, job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
        )
        timers.add_listener(_complain, EVENT_JOB_ERROR)
        for name, (slots, action) in self._actions.items():
            timers.add_job(
                self._guarded,
                InOurTime(slots, self._clock),
                args=(name, action),
                id=name,
                next_run_time=datetime.now(UTC),
            )
        return timers

    async def _guarded(self, name: str, action: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (we are a coroutine that runs)
        self._running.add(task)
        try:
            await action()
        except DatabaseError as error:
            self._outage.failed(name, error)  # it is tried again at its next time
        else:
            self._outage.answered(name)
        finally:
            self._running.discard(task)

    async def _stop(self) -> None:
        running = [task for task in self._running if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(running)


class InOurTime(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Fires at our clock's slots, whatever the machine's clock shows."""

    def __init__(self, slots: Slots, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime | None:
        ours = self._clock.now()
        slot = self._slots.after(ours)
        return None if slot is None else now + (slot - ours) + _LATE


def _complain(event: JobExecutionEvent) -> None:
    """Says what broke; the action is called again at its next slot all the same."""
    if not isinstance(event.exception, asyncio.CancelledError):
        logger.error(
            "{name} broke: {problem}",
            name=event.job_id,
            problem=f"{type(event.exception).__name__}: {event.exception}",
        )
        logger.debug("{traceback}", traceback=event.traceback)
