"""Puts segments together: their job, their schedule, and what must be fetched before one can be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mistnet.governor.errors import NoKey
from mistnet.governor.model import CallPurpose
from mistnet.graph.errors import BadSegment, SegmentDisabled
from mistnet.graph.segments.jobs import Materializer
from mistnet.graph.segments.materialize import StoreSegmentLook, put_away_gaps, write_materialized
from mistnet.graph.segments.model import LANE, MATERIALIZE, AnyRule, MaterializeArgs, Materialized, Segment, materialize
from mistnet.graph.segments.rules import check_rhythm, handles_in, read_name, with_ids
from mistnet.graph.segments.store import Defined, Segments, due_segments, set_next
from mistnet.kit.database import Database
from mistnet.queue.kinds import Kind, single
from mistnet.queue.leader import Duty
from mistnet.queue.model import JobClass
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer, Writers
from mistnet.social.ingests.model import Hydrated
from mistnet.social.model import User, UserId
from mistnet.social.store.account_pages import People
from mistnet.social.store.posts import write_users

if TYPE_CHECKING:
    from mistnet.governor.source import Source
    from mistnet.settings import Settings
    from mistnet.sources.x.hydration import Hydration


LOOK_EVERY: Final = timedelta(seconds=15)
SCHEDULE: Final = "schedule"


class InputsAdded(msgspec.Struct, frozen=True, kw_only=True):
    """What became of inputs: how many are new, and what had to be fetched for that."""

    added: int
    hydrated: Hydrated


class RequestedMaterialization(msgspec.Struct, frozen=True, kw_only=True):
    """A materialization that will be done. `created`: nobody had asked for it before."""

    segment: Segment
    created: bool


class SegmentService(Feature):
    """All about segments for one process. Ids that enter here are hydrated first, or do not enter."""

    def __init__(self, settings: Settings, database: Database, *, x: Source, hydration: Hydration) -> None:
        self.store = Segments(database)
        self._settings = settings
        self._database = database
        self._x = x
        self._hydration = hydration
        materializer = Materializer(look=StoreSegmentLook(database), clock=database.clock)
        self.kinds: Sequence[Kind] = [
            single(MATERIALIZE, materializer.materialize, MaterializeArgs, job_class=JobClass.WALK, lanes=(LANE,))
        ]

    async def define(
        self, name: str, rule: AnyRule, *, every_seconds: float | None = None, fresh_seconds: float | None = None
    ) -> Defined:
        """With ids in the place of handles: one that is not stored is asked for, if all else is in order."""
        check_rhythm(read_name(name), every_seconds=every_seconds, fresh_seconds=fresh_seconds)
        found = {handle: await self._id_of(name, handle) for handle in handles_in(rule)}
        return await self.store.define(
            name,
            with_ids(rule, found),
            every_seconds=every_seconds,
            fresh_seconds=fresh_seconds,
            now=self._database.clock.now(),
        )

    async def _id_of(self, name: str, handle: str) -> UserId:
        known = await People(self._database).called(handle)
        if known is not None:
            return known.id
        if not self._settings.x_api_key:
            raise NoKey
        async with self._x.opened():
            user: User | None = await self._x.client.user(handle, purpose=CallPurpose())
        if user is None:
            raise BadSegment(name, f"X knows nobody called @{handle}; check its spelling, or give the id")
        own: Sequence[Writer[Any]] = [Writer(User, write_users)]
        writers = Writers(own)
        prepared = writers.prepare([user])
        async with self._database.transaction() as connection:
            await writers.write(connection, prepared, self._database.clock.now())
        return user.id

    async def add_inputs(self, name: str, user_ids: Sequence[UserId], *, asked_by: str) -> InputsAdded:
        """Those that are not stored are fetched first, all of them: if one is not to be had, nothing is written."""
        await self.store.inputs(name, limit=1)  # a segment that takes none is told so before anything is paid for
        lacking = set(user_ids) - await self._hydration.present("users", user_ids)
        if lacking and not self._settings.x_api_key:
            raise NoKey
        async with self._x.opened() if lacking else nullcontext():
            hydrated = await self._hydration.hydrate("users", user_ids, asked_by=asked_by)
        added = await self.store.add_inputs(name, user_ids, now=self._database.clock.now())
        return InputsAdded(added=added, hydrated=hydrated)

    async def materialize(self, name: str, *, asked_by: str, job_writer: JobWriter) -> RequestedMaterialization:
        """Leaves it to the workers; whoever has asked already is joined."""
        segment = await self.store.get(name)
        if not segment.enabled:
            raise SegmentDisabled(name)
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            await put_away_gaps(connection, [segment.id], now)
            made = await job_writer.write(connection, [materialize(segment.id, asked_by=asked_by)], now)
        return RequestedMaterialization(segment=segment, created=bool(made.created))

    def writers(self, _jobs: JobWriter) -> Sequence[Writer[Any]]:
        return [Writer(Materialized, write_materialized)]

    def duties(self, jobs: JobWriter) -> Sequence[Duty]:
        async def materialize_due() -> int:
            return await self.make_due(jobs)

        return [Duty(name="materialize segments", every=LOOK_EVERY, run=materialize_due)]

    async def make_due(self, job_writer: JobWriter) -> int:
        """Makes the jobs of segments whose time has come; returns how many."""
        now = self._database.clock.now()
        async with self._database.read() as connection:
            due = await due_segments(connection, now=now)
        if not due:
            return 0
        async with self._database.transaction() as connection:
            await put_away_gaps(connection, due, now)
            await job_writer.write(connection, [materialize(each, asked_by=SCHEDULE) for each in due], now)
            await set_next(connection, due, now=now)
        return len(due)


def shown_rule(rule: AnyRule) -> Mapping[str, Any]:
    """As JSON has it."""
    shown: Mapping[str, Any] = msgspec.to_builtins(rule)
    return shown
