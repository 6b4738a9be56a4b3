"""Runs actions at their slots, with APScheduler's timers and our own clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from loguru import logger

from mistnet.domain.errors import DatabaseError
from mistnet.domain.ports import Clock
from mistnet.engine.outage import OutageLog
from mistnet.engine.slots import Slots

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
