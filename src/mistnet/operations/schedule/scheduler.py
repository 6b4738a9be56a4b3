"""The scheduler: whoever leads makes the ticks of every group, and does the duties of one process for all."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from loguru import logger

from mistnet.governor.model import Costs
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import OutageLog
from mistnet.operations.retention import kept_since
from mistnet.operations.schedule.groups import AccountGroup, groups_of
from mistnet.operations.schedule.posting_rates import StorePaces
from mistnet.operations.schedule.slots import Interval, Ticker
from mistnet.operations.schedule.store import StoreSchedule, Tick
from mistnet.operations.schedule.ticks import BudgetTicks, SlotTicks
from mistnet.queue.leader import Duty, Leader, Leadership, LeaderTerm, StoreLeaders
from mistnet.queue.store.enqueue import JobWriter
from mistnet.settings import Settings
from mistnet.social.jobs import args
from mistnet.social.store.tracking import NewSuggestion, Refusals, TrackingStore

LEADERSHIP: Final = "schedule"
_LOOK_AFTER: Final = timedelta(hours=1)
_CLOCK_SECONDS: Final = 60.0


class Scheduler:
    """One per process. Any number of them share a database, and one of them leads."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        job_writer: JobWriter,
        *,
        costs: Costs,
        holder: str | None = None,
        duties: Sequence[Duty] = (),
    ) -> None:
        self.groups = groups_of(settings)
        self.holder = holder or holder_name()
        self._settings = settings
        self._costs = costs
        self._database = database
        self._store = StoreSchedule(database, job_writer)
        self._tracking_store = TrackingStore(database, job_writer)
        self._duties = [
            Duty(name="upkeep of the schedule", every=_LOOK_AFTER, run=self._look_after),
            *duties,
        ]
        self._told_of: set[str] = set()
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
        """Until cancelled; then it resigns, so that another process leads at once."""
        if not self._settings.scheduler_enabled:
            logger.info("new posts are not looked for by themselves: scheduler_enabled is off")
        clock = asyncio.create_task(self._keep_time(), name="clock")
        try:
            await self._leadership.run()
        finally:
            clock.cancel()

    async def _keep_time(self) -> None:
        """Whoever decides on leases must not drift away from the database's time."""
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            try:
                await self._database.correct_clock()
            except DatabaseError as error:
                logger.debug("cannot ask for the time: {problem}", problem=str(error))

    async def _lead(self, term: LeaderTerm) -> None:
        ticker = Ticker(self._database.clock, self._outage)
        for duty in self._duties:
            ticker.add(duty.name, Interval(duty.every), duty.run)
        for group in self.groups if self._settings.scheduler_enabled else ():
            ticker.add(f"tick of {group.name}", group.slots, self._ticks(group, term))
        await ticker.run()

    def _ticks(self, group: AccountGroup, term: LeaderTerm) -> Callable[[], Awaitable[None]]:
        clock = self._database.clock
        if group.day_credits is None:
            return SlotTicks(group=group, term=term, store=self._store, clock=clock).look
        return BudgetTicks(
            group=group,
            term=term,
            store=self._store,
            paces=StorePaces(self._database),
            clock=clock,
            day_credits=group.day_credits,
            look=self._costs.least * (2 if self._settings.x_reposts else 1),
            post=self._costs.post,
        ).look

    async def _look_after(self) -> None:
        """Old ticks go; accounts that groups name are tracked from now on, or it is told why they are not, once."""
        if before := kept_since(self._database.clock.now(), self._settings.history_days):
            await self._store.prune(before=before)
        for group in self.groups if self._settings.scheduler_enabled else ():
            unknown = await unknown_handles(self._store, group)
            begun = await self._track(group, unknown)
            waiting = {each.handle.lower() for each in await self._tracking_store.suggestions()} if unknown else set()
            for handle in unknown:
                if handle not in self._told_of and handle not in begun and handle not in waiting:
                    self._told_of.add(handle)
                    await self._warn(group, handle)

    async def _track(self, group: AccountGroup, handles: Sequence[str]) -> Sequence[str]:
        wanted = [NewSuggestion(handle=handle, labels={"group": group.name}) for handle in handles]
        if not wanted:
            return []
        begun = await self._tracking_store.suggest_first(wanted, job=args.suggestion, now=self._database.clock.now())
        for handle in begun:
            logger.info("group {group} names @{handle}: it will be tracked", group=group.name, handle=handle)
        return begun

    async def _warn(self, group: AccountGroup, handle: str) -> None:
        """Why an account that a group names is not tracked, and what helps."""
        refused = await Refusals(self._database).of_handle(handle)
        why = f"it was refused, {refused.reason}" if refused else "it was untracked, or goes by another handle now"
        logger.warning(
            "group {group} names @{handle}, which is not tracked: {why}; `mistnet track {handle}` tries again",
            group=group.name,
            handle=handle,
            why=why,
        )


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group, its rhythm, handles in it that nobody tracks, its latest tick and its next slot."""

    name: str
    rhythm: str
    unknown: Sequence[str]
    last_tick: Tick | None
    next_at: datetime | None


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether new posts are looked for, who leads, and how the groups stand."""

    enabled: bool
    leader: Leader | None
    groups: Sequence[GroupStatus]


async def schedule_status(settings: Settings, database: Database, job_writer: JobWriter) -> ScheduleStatus:
    """What there is to see of the schedule, from any process."""
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
    """Handles a group names that no tracked account goes by."""
    if group.members.all_others or not group.members.handles:
        return []
    return sorted(group.members.handles - await store.tracked(group.members.handles))


def holder_name() -> str:
    """A name that no other process has, not even one of the same name in another container."""
    return f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(3)}"


__all__ = ["Duty", "GroupStatus", "ScheduleStatus", "Scheduler", "holder_name", "schedule_status"]
