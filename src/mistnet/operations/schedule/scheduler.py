"""The scheduler: the leading process makes the ticks of every group, and does duties for all processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from loguru import logger

from mistnet.governor.model import Costs
from mistnet.kit.clock import Clock
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import OutageLog
from mistnet.operations.pruning import kept_since
from mistnet.operations.schedule.groups import AccountGroup, Interval, Slots, groups_of
from mistnet.operations.schedule.store import PostingRateStore, StoreSchedule, Tick
from mistnet.operations.schedule.ticks import BudgetTicks, SlotTicks
from mistnet.queue.leader import Duty, Leader, Leadership, LeaderTerm, StoreLeaders
from mistnet.queue.store.enqueue import JobWriter
from mistnet.settings import Settings
from mistnet.social.jobs import args
from mistnet.social.store.tracking import NewSuggestion, Refusals, TrackingStore

LEADERSHIP: Final = "schedule"
_UPKEEP_EVERY: Final = timedelta(hours=1)
_CLOCK_SECONDS: Final = 60.0
# A timer that fires a moment early would find nothing due, and wait for the next slot.
_LATE: Final = timedelta(milliseconds=20)


class Scheduler:
    """One per process. Any number of processes share a database, and one of them leads."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        job_writer: JobWriter,
        *,
        costs: Costs,
        duties: Sequence[Duty] = (),
    ) -> None:
        self.groups = groups_of(settings)
        # Containers may share host names and process ids.
        self.holder = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(3)}"
        self._settings = settings
        self._costs = costs
        self._database = database
        self._store = StoreSchedule(database, job_writer)
        self._tracking_store = TrackingStore(database, job_writer)
        self._duties = [
            Duty(name="upkeep of the schedule", every=_UPKEEP_EVERY, run=self._maintain),
            *duties,
        ]
        self._warned_of: set[str] = set()
        self._outage = OutageLog()
        self._leadership = Leadership(
            StoreLeaders(database),
            name=LEADERSHIP,
            holder=self.holder,
            lease=timedelta(seconds=settings.leader_lease_seconds),
            clock=database.clock,
            lead=self._lead,
            outage=self._outage,
        )

    @property
    def leads(self) -> bool:
        return self._leadership.term is not None

    async def run(self) -> None:
        """Run until cancelled. Then resign, so that another process leads at once."""
        if not self._settings.scheduler_enabled:
            logger.info("accounts are not updated automatically: scheduler_enabled is off")
        clock = asyncio.create_task(self._keep_time(), name="clock")
        try:
            await self._leadership.run()
        finally:
            clock.cancel()

    async def _keep_time(self) -> None:
        """The leader compares leases with its own time, which must not drift away from the database's."""
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            try:
                await self._database.correct_clock()
            except DatabaseError as error:
                logger.debug("cannot read the database's time: {problem}", problem=str(error))

    async def _lead(self, term: LeaderTerm) -> None:
        ticker = Ticker(self._database.clock, self._outage)
        for duty in self._duties:
            ticker.add(duty.name, Interval(duty.every), duty.run)
        store, clock = self._store, self._database.clock
        for group in self.groups if self._settings.scheduler_enabled else ():
            ticks: SlotTicks | BudgetTicks = SlotTicks(group=group, term=term, store=store, clock=clock)
            if group.day_credits is not None:
                ticks = BudgetTicks(
                    group=group,
                    term=term,
                    store=store,
                    rates=PostingRateStore(self._database),
                    clock=clock,
                    day_credits=group.day_credits,
                    look=self._costs.least * (2 if self._settings.x_reposts else 1),
                    post=self._costs.post,
                )
            ticker.add(f"tick of {group.name}", group.slots, ticks.make_due)
        await ticker.run()

    async def _maintain(self) -> None:
        """Delete old ticks. Track the accounts that groups name, or warn once why they cannot be tracked."""
        if before := kept_since(self._database.clock.now(), self._settings.history_days):
            await self._store.prune(before=before)
        for group in self.groups if self._settings.scheduler_enabled else ():
            unknown = await unknown_handles(self._store, group)
            if not unknown:
                continue
            new = [NewSuggestion(handle=handle, labels={"group": group.name}) for handle in unknown]
            now = self._database.clock.now()
            suggested = await self._tracking_store.suggest_first(new, job=args.suggestion, now=now)
            for handle in suggested:
                logger.info("group {group} names @{handle}: it will be tracked", group=group.name, handle=handle)
            waiting = {each.handle.lower() for each in await self._tracking_store.suggestions()}
            for handle in unknown:
                if handle in self._warned_of or handle in suggested or handle in waiting:
                    continue
                self._warned_of.add(handle)
                refused = await Refusals(self._database).of_handle(handle)
                why = f"it was refused, {refused.reason}" if refused else "it was untracked, or has another handle now"
                logger.warning(
                    "group {group} names @{handle}, which is not tracked: {why}; `mistnet track {handle}` tries again",
                    group=group.name,
                    handle=handle,
                    why=why,
                )


class Ticker:
    """Calls actions at their slots. Calls of one action never overlap: slots that pass meanwhile become one call."""

    def __init__(self, clock: Clock, outage: OutageLog | None = None) -> None:
        self._clock = clock
        self._outage = outage or OutageLog()
        self._actions: dict[str, tuple[Slots, Callable[[], Awaitable[object]]]] = {}
        self._running: set[asyncio.Task[Any]] = set()

    def add(self, name: str, slots: Slots, action: Callable[[], Awaitable[object]]) -> None:
        """The action is called at once, then at every slot."""
        if name in self._actions:
            raise ValueError(f"two actions are called {name!r}")
        self._actions[name] = slots, action

    async def run(self) -> None:
        """Run until cancelled. Then cancel the actions that are running, and wait for them."""
        log = logging.getLogger("apscheduler")
        # Its lines may hold secrets; what matters is logged here.
        log.propagate = False
        log.addHandler(logging.NullHandler())
        timers = AsyncIOScheduler(
            timezone=UTC, job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
        )
        timers.add_listener(_log_failure, EVENT_JOB_ERROR)
        for name, (slots, action) in self._actions.items():
            trigger = SlotTrigger(slots, self._clock)
            timers.add_job(self._call, trigger, args=(name, action), id=name, next_run_time=datetime.now(UTC))
        timers.start()
        try:
            await asyncio.Event().wait()
        finally:
            timers.shutdown(wait=False)
            # It shuts down in the loop's next turn.
            await asyncio.sleep(0)
            running = [task for task in self._running if task is not asyncio.current_task()]
            for task in running:
                task.cancel()
            if running:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait(running)

    async def _call(self, name: str, action: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (we are a coroutine that runs)
        self._running.add(task)
        try:
            await action()
        except DatabaseError as error:
            # It is called again at its next slot.
            self._outage.failed(name, error)
        else:
            self._outage.answered(name)
        finally:
            self._running.discard(task)


class SlotTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Fires at the slots by the database's clock. The machine's own clock may be wrong."""

    def __init__(self, slots: Slots, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime | None:
        ours = self._clock.now()
        slot = self._slots.after(ours)
        return None if slot is None else now + (slot - ours) + _LATE


def _log_failure(event: JobExecutionEvent) -> None:
    """The action is called again at its next slot."""
    if not isinstance(event.exception, asyncio.CancelledError):
        logger.error(
            "{name} failed: {problem}",
            name=event.job_id,
            problem=f"{type(event.exception).__name__}: {event.exception}",
        )
        logger.debug("{traceback}", traceback=event.traceback)


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group, its rhythm, its handles that are not tracked, its latest tick and its next slot."""

    name: str
    rhythm: str
    unknown: Sequence[str]
    last_tick: Tick | None
    next_at: datetime | None


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the scheduler is enabled, which process leads, and the status of each group."""

    enabled: bool
    leader: Leader | None
    groups: Sequence[GroupStatus]


async def schedule_status(settings: Settings, database: Database, job_writer: JobWriter) -> ScheduleStatus:
    """The schedule as any process sees it."""
    store, now = StoreSchedule(database, job_writer), database.clock.now()
    last = await store.last_ticks()
    leading = [each for each in await StoreLeaders(database).all() if each.name == LEADERSHIP and each.leads_at(now)]
    return ScheduleStatus(
        enabled=settings.scheduler_enabled,
        leader=leading[0] if leading else None,
        groups=[
            GroupStatus(
                name=group.name,
                rhythm=group.rhythm,
                unknown=await unknown_handles(store, group),
                last_tick=last.get(group.name),
                next_at=group.slots.after(now) if settings.scheduler_enabled else None,
            )
            for group in groups_of(settings)
        ],
    )


async def unknown_handles(store: StoreSchedule, group: AccountGroup) -> Sequence[str]:
    """The handles of a group that no tracked account has."""
    if group.members.all_others or not group.members.handles:
        return []
    return sorted(group.members.handles - await store.tracked(group.members.handles))
