"""What operators do with segments, their job kind, and their schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mistnet.governor.errors import NoKey
from mistnet.governor.model import CallPurpose
from mistnet.graph.segments.jobs import Materializer
from mistnet.graph.segments.materialize import MaterializationReads, write_materialized
from mistnet.graph.segments.model import (
    LANE,
    MATERIALIZE,
    AnyRule,
    BadSegment,
    MaterializeArgs,
    Materialized,
    Segment,
    SegmentDisabled,
    materialize,
)
from mistnet.graph.segments.rules import check_rhythm, handles_in, in_words, read_name, with_ids
from mistnet.graph.segments.store import Defined, Segments, due_segments, set_next
from mistnet.kit.database import Database
from mistnet.queue.kinds import Kind, single
from mistnet.queue.leader import Duty
from mistnet.queue.model import JobClass
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer, Writers
from mistnet.social.ingests import Hydrated
from mistnet.social.model import User, UserId
from mistnet.social.store.account_pages import People
from mistnet.social.store.accounts import renew_jobs
from mistnet.social.store.posts import write_users

if TYPE_CHECKING:
    from mistnet.governor.source import Source
    from mistnet.settings import Settings
    from mistnet.sources.x.source import Hydration


CHECK_EVERY: Final = timedelta(seconds=15)
SCHEDULE: Final = "schedule"


class InputsAdded(msgspec.Struct, frozen=True, kw_only=True):
    """How many inputs are new, and which users were fetched for them."""

    added: int
    hydrated: Hydrated


class RequestedMaterialization(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is false if a live job is shared."""

    segment: Segment
    created: bool


class SegmentService(Feature):
    """Segments for one process. Users are fetched before their ids are stored."""

    def __init__(self, settings: Settings, database: Database, *, x: Source, hydration: Hydration) -> None:
        self.store = Segments(database)
        self._settings = settings
        self._database = database
        self._x = x
        self._hydration = hydration
        materializer = Materializer(reads=MaterializationReads(database), clock=database.clock)
        self.kinds: Sequence[Kind] = [
            single(MATERIALIZE, materializer.materialize, MaterializeArgs, job_class=JobClass.WALK, lanes=(LANE,))
        ]

    async def define(
        self, name: str, rule: AnyRule, *, every_seconds: float | None = None, fresh_seconds: float | None = None
    ) -> Defined:
        """Handles become ids. An unknown one is looked up on X, once the rest of the definition is valid."""
        # Checked first: an unknown handle costs a call.
        check_rhythm(read_name(name), every_seconds=every_seconds, fresh_seconds=fresh_seconds)
        found: dict[str, UserId] = {}
        for handle in handles_in(rule):
            known = await People(self._database).called(handle)
            if known is not None:
                found[handle] = known.id
                continue
            if not self._settings.x_api_key:
                raise NoKey
            async with self._x.opened():
                user: User | None = await self._x.client.user(handle, purpose=CallPurpose())
            if user is None:
                raise BadSegment(name, f"X has no user @{handle}; check the spelling, or give the id")
            user_writers: Sequence[Writer[Any]] = [Writer(User, write_users)]
            await Writers(user_writers).store(self._database, [user])
            found[handle] = user.id
        return await self.store.define(
            name,
            with_ids(rule, found),
            every_seconds=every_seconds,
            fresh_seconds=fresh_seconds,
            now=self._database.clock.now(),
        )

    async def add_inputs(self, name: str, user_ids: Sequence[UserId], *, asked_by: str) -> InputsAdded:
        """Unknown users are fetched first. If one of them is not available, nothing is written."""
        # Refuses a segment without inputs before anything is paid for.
        await self.store.inputs(name, limit=1)
        missing = set(user_ids) - await self._hydration.present("users", user_ids)
        if missing and not self._settings.x_api_key:
            raise NoKey
        async with self._x.opened() if missing else nullcontext():
            hydrated = await self._hydration.hydrate("users", user_ids, asked_by=asked_by)
        added = await self.store.add_inputs(name, user_ids, now=self._database.clock.now())
        return InputsAdded(added=added, hydrated=hydrated)

    async def materialize(self, name: str, *, asked_by: str, job_writer: JobWriter) -> RequestedMaterialization:
        """Leave it to the workers. A live job is shared."""
        segment = await self.store.get(name)
        if not segment.enabled:
            raise SegmentDisabled(name)
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            made = await renew_jobs(connection, job_writer, [materialize(segment.id, asked_by=asked_by)], now)
        return RequestedMaterialization(segment=segment, created=bool(made.created))

    def writers(self, _jobs: JobWriter) -> Sequence[Writer[Any]]:
        return [Writer(Materialized, write_materialized)]

    def duties(self, jobs: JobWriter) -> Sequence[Duty]:
        return [Duty(name="materialize segments", every=CHECK_EVERY, run=partial(self.make_due, jobs))]

    async def make_due(self, job_writer: JobWriter) -> int:
        """Create the jobs of segments that are due. Returns how many."""
        now = self._database.clock.now()
        # Usually nothing is due. A transaction would take SQLite's only write lock to find that out.
        async with self._database.read() as connection:
            due = await due_segments(connection, now=now)
        if not due:
            return 0
        async with self._database.transaction() as connection:
            await renew_jobs(connection, job_writer, [materialize(each, asked_by=SCHEDULE) for each in due], now)
            await set_next(connection, due, now=now)
        return len(due)


def segment_fields(segment: Segment) -> Mapping[str, Any]:
    """A segment as API and commands show it: its fields, with the rule as JSON and in words."""
    fields = {name: getattr(segment, name) for name in segment.__struct_fields__}
    return {**fields, "rule": msgspec.to_builtins(segment.rule), "in_words": in_words(segment.rule)}
