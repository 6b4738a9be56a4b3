"""Defines segments, switches them on and off, keeps their inputs, and reads their members, events and snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import Select, Subquery, delete, exists, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.expression import Join

from mistnet.graph.segments.model import (
    AnyRule,
    BadSegment,
    Member,
    MemberEvent,
    Segment,
    SegmentId,
    SegmentName,
    SegmentNotFound,
    Snapshot,
    SpecifiedUsers,
    What,
)
from mistnet.graph.segments.rules import check_rhythm, check_rule, handles_in, parts_of, read_name, what_of
from mistnet.graph.tables import segment_events, segment_inputs, segment_members, segment_snapshots, segments
from mistnet.kit.database import Store
from mistnet.kit.statements import insert_of
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import ListPage, View, columns_of, record_of, records_of
from mistnet.social.model import UserId, X
from mistnet.social.store.accounts import slices
from mistnet.social.tables import posts, users

ENTERED, LEFT = "entered", "left"
_DEFINE_LOCK: Final = 0x73656773


class SegmentInput(msgspec.Struct, frozen=True, kw_only=True):
    """A user of a segment of `specified_users`."""

    user_id: UserId
    handle: str | None
    added_at: datetime


class Defined(msgspec.Struct, frozen=True, kw_only=True):
    """A segment after a definition. `created`: there was none of that name. `changed`: it had another rule before."""

    segment: Segment
    created: bool
    changed: bool


SEGMENTS: Final = View(Segment, select(*columns_of(Segment, segments)), segments.c.id, descending=False)
SNAPSHOTS: Final = View(Snapshot, select(*columns_of(Snapshot, segment_snapshots)), segment_snapshots.c.id)
_INPUTS: Final = View(
    SegmentInput,
    select(segment_inputs.c.user_id, users.c.handle, segment_inputs.c.added_at)
    .join_from(
        segment_inputs,
        users,
        (users.c.platform == segment_inputs.c.platform) & (users.c.id == segment_inputs.c.user_id),
    )
    .where(segment_inputs.c.platform == X),
    segment_inputs.c.user_id,
    descending=False,
)


async def all_segments(connection: AsyncConnection) -> Mapping[SegmentName, Segment]:
    """Every segment, by name. They are few: people name them."""
    rows = await connection.execute(select(*columns_of(Segment, segments)).order_by(segments.c.id))
    return {each.name: each for each in records_of(Segment, rows.mappings().all())}


async def last_snapshot(connection: AsyncConnection, segment_id: SegmentId) -> Snapshot | None:
    own = segment_snapshots.c
    query = select(*columns_of(Snapshot, segment_snapshots)).where(own.segment_id == segment_id)
    row = (await connection.execute(query.order_by(own.at.desc()).limit(1))).mappings().first()
    return record_of(Snapshot, row) if row else None


def members_at(segment: Segment, at: datetime | None, *, after: int, limit: int) -> Select[Any]:
    """The current members, or at an earlier time those who had entered and not left again, as they entered."""
    if at is None:
        now = segment_members.c
        query = select(now.id.label("place"), now.platform, now.user_id, now.post_id, now.since)
        query = query.where(now.segment_id == segment.id, now.id > after).order_by(now.id)
    else:
        own, later = segment_events.c, segment_events.alias("later").c
        member = "user_id" if segment.what is What.USERS else "post_id"
        left = exists().where(
            later.segment_id == segment.id,
            later.platform == own.platform,
            later[member] == own[member],
            later.id > own.id,
            later.kind == LEFT,
            later.at <= at,
        )
        query = select(own.id.label("place"), own.platform, own.user_id, own.post_id, own.at.label("since"))
        query = query.where(own.segment_id == segment.id, own.id > after, own.kind == ENTERED, own.at <= at, ~left)
        query = query.order_by(own.id)
    # Names are joined after the limit: they are looked up for one page only.
    few = query.limit(limit).subquery("chosen")
    names = [users.c.handle, users.c.name, *([posts.c.text] if segment.what is What.POSTS else [])]
    return select(few, *names).select_from(_with_users(segment, few)).order_by("place")


def changes(segment: Segment, *, baseline: int, before: int, limit: int, kind: str | None) -> Select[Any]:
    """Who entered and left since the baseline, the latest first."""
    own = segment_events.c
    query = select(*columns_of(MemberEvent, segment_events)).where(
        own.segment_id == segment.id, own.id < before, own.snapshot_id != baseline
    )
    if kind is not None:
        query = query.where(own.kind == kind)
    chosen = query.order_by(own.id.desc()).limit(limit).subquery("chosen")
    return select(chosen, users.c.handle).select_from(_with_users(segment, chosen)).order_by(chosen.c.id.desc())


def baseline_of(segment_id: SegmentId) -> Select[Any]:
    """The first snapshot. Its members entered before anyone knew, so its events are not changes."""
    own = segment_snapshots.c
    return select(own.id).where(own.segment_id == segment_id).order_by(own.at).limit(1)


def _with_users(segment: Segment, few: Subquery) -> Join:
    if segment.what is What.USERS:
        return few.join(users, (users.c.platform == few.c.platform) & (users.c.id == few.c.user_id))
    its_post = few.join(posts, (posts.c.platform == few.c.platform) & (posts.c.id == few.c.post_id))
    return its_post.join(users, (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id))


class Segments(Store):
    """All segments of a database. Their names are unique."""

    async def define(
        self,
        name: str,
        rule: AnyRule,
        *,
        every_seconds: float | None = None,
        fresh_seconds: float | None = None,
        now: datetime,
    ) -> Defined:
        """Create a segment, or change the rule of the existing one. Its history stays."""
        segment_name = read_name(name)
        check_rule(segment_name, rule)
        check_rhythm(segment_name, every_seconds=every_seconds, fresh_seconds=fresh_seconds)
        if handles := handles_in(rule):
            raise BadSegment(name, f"@{handles[0]} is not an id; rules are stored with ids only")
        new = {"rule": rule, "every_seconds": every_seconds, "fresh_seconds": fresh_seconds}
        async with self._database.transaction() as connection:
            if connection.dialect.name == "postgresql":
                # One definition at a time: two concurrent ones could together form a cycle that neither contains.
                await connection.execute(text(f"SELECT pg_advisory_xact_lock({_DEFINE_LOCK})"))
            known = await all_segments(connection)
            found = known.get(segment_name)
            if found and all(getattr(found, field) == value for field, value in new.items()):
                return Defined(segment=found, created=False, changed=False)
            what = what_of(segment_name, {**{each.name: each.rule for each in known.values()}, segment_name: rule})
            if found and found.what is not what:
                raise BadSegment(name, f"its members are {found.what}, not {what}; choose another name")
            scheduled = every_seconds is not None and (found is None or found.enabled)
            changed = {"changed_at": _changed_at(found, now), "next_at": now if scheduled else None}
            row = {**new, **changed, "name": name, "what": what, "rule": msgspec.json.encode(rule)}
            if found is None:
                await connection.execute(insert(segments).values(**row, enabled=True, created_at=now))
            else:
                await connection.execute(update(segments).where(segments.c.id == found.id).values(row))
            segment = (await all_segments(connection))[segment_name]
        return Defined(segment=segment, created=found is None, changed=found is not None)

    async def get(self, name: str) -> Segment:
        """Raises SegmentNotFound, which suggests similar names."""
        segment = await SEGMENTS.first(self._database, segments.c.name == name)
        if segment is None:
            rows = await self._database.fetch_rows(select(segments.c.name).limit(1_000))
            raise SegmentNotFound(name, [row["name"] for row in rows])
        return segment

    async def list(self, *, after: int | None = None, limit: int = 200) -> ListPage[Segment]:
        """In the order in which they were created."""
        return await SEGMENTS.page(self._database, after=after, limit=limit)

    async def used_by(self, name: str) -> Sequence[SegmentName]:
        """The segments whose own rules name this one."""
        async with self._database.read() as connection:
            known = await all_segments(connection)
        return [each.name for each in known.values() if name in parts_of(each.rule)]

    async def enable(self, name: str, *, now: datetime) -> Segment:
        """Materialize it again on its schedule and on request."""
        segment = await self.get(name)
        return await self._switch(segment, enabled=True, next_at=now if segment.every_seconds else None, now=now)

    async def disable(self, name: str, *, now: datetime) -> Segment:
        """It keeps its members. Segments that build on it continue with those."""
        return await self._switch(await self.get(name), enabled=False, next_at=None, now=now)

    async def _switch(self, segment: Segment, *, enabled: bool, next_at: datetime | None, now: datetime) -> Segment:
        values = {"enabled": enabled, "next_at": next_at, "changed_at": _changed_at(segment, now)}
        own = (segments.c.id == segment.id) & (segments.c.enabled != enabled)
        async with self._database.transaction() as connection:
            await connection.execute(update(segments).where(own).values(values))
        return await self.get(segment.name)

    async def add_inputs(self, name: str, user_ids: Sequence[UserId], *, now: datetime) -> int:
        """Returns how many are new. All must be stored users, or nothing is written."""
        segment = await self._with_inputs(name)
        added = 0
        async with self._database.transaction() as connection:
            new = insert_of(connection.dialect.name)
            for each in slices(sorted(set(user_ids))):
                rows = [
                    {"segment_id": segment.id, "platform": X, "user_id": user_id, "added_at": now} for user_id in each
                ]
                adding = new(segment_inputs).values(rows).on_conflict_do_nothing()
                added += (await connection.execute(adding)).rowcount
        return added

    async def remove_inputs(self, name: str, user_ids: Sequence[UserId]) -> int:
        """Returns how many there were. They leave the segment when it is materialized next."""
        segment = await self._with_inputs(name)
        own, removed = segment_inputs.c, 0
        async with self._database.transaction() as connection:
            for each in slices(sorted(set(user_ids))):
                gone = delete(segment_inputs).where(own.segment_id == segment.id, own.user_id.in_(each))
                removed += (await connection.execute(gone)).rowcount
        return removed

    async def inputs(self, name: str, *, after: int = 0, limit: int = 200) -> ListPage[SegmentInput]:
        """By id."""
        own = segment_inputs.c.segment_id == (await self._with_inputs(name)).id
        return await _INPUTS.page(self._database, own, after=after, limit=limit)

    async def _with_inputs(self, name: str) -> Segment:
        segment = await self.get(name)
        if not isinstance(segment.rule, SpecifiedUsers):
            raise BadSegment(name, "its rule takes no inputs; only a segment of specified_users does")
        return segment

    async def members(
        self, name: str, *, as_of_: datetime | None = None, after: int = 0, limit: int = 200
    ) -> ListPage[Member]:
        """The current members, or those of an earlier time, in the order in which they entered."""
        segment = await self.get(name)
        rows = await self._database.fetch_rows(members_at(segment, as_of_, after=after, limit=limit + 1))
        return ListPage.cut(records_of(Member, rows), limit, lambda member: member.place)

    async def events(
        self, name: str, *, before: int | None = None, limit: int = 200, kind: str | None = None
    ) -> ListPage[MemberEvent]:
        """Who entered and left since the segment was first materialized, the latest first."""
        segment = await self.get(name)
        baseline = await self._database.fetch_value(baseline_of(segment.id)) or 0
        before = LARGEST_ID if before is None else before
        query = changes(segment, baseline=baseline, before=before, limit=limit + 1, kind=kind)
        rows = await self._database.fetch_rows(query)
        return ListPage.cut(records_of(MemberEvent, rows), limit, lambda event: event.id)

    async def snapshots(self, name: str, *, before: int | None = None, limit: int = 200) -> ListPage[Snapshot]:
        """The latest first."""
        own = segment_snapshots.c.segment_id == (await self.get(name)).id
        return await SNAPSHOTS.page(self._database, own, after=before, limit=limit)

    async def known_since(self, name: str) -> datetime | None:
        """When the segment was first materialized: its members at that time are not reported as changes."""
        own = segment_snapshots.c
        query = select(func.min(own.at)).where(own.segment_id == (await self.get(name)).id)
        first: datetime | None = await self._database.fetch_value(query)
        return first

    async def latest(self, ids: Sequence[SegmentId]) -> Mapping[SegmentId, Snapshot]:
        """The last snapshot of each."""
        own = segment_snapshots.c
        newest = select(func.max(own.id)).where(own.segment_id.in_(ids)).group_by(own.segment_id)
        return {each.segment_id: each for each in await SNAPSHOTS.rows(self._database, own.id.in_(newest))}


def _changed_at(segment: Segment | None, now: datetime) -> datetime:
    """Each change has its own time: a materialization checks by it that the rule is still the one it planned for."""
    return now if segment is None else max(now, segment.changed_at + timedelta(microseconds=1))


async def due_segments(connection: AsyncConnection, *, now: datetime) -> Sequence[SegmentId]:
    """Scheduled segments that are due. Not locked here, because their materialization locks jobs first."""
    own = segments.c
    due = select(own.id).where(own.next_at <= now, own.enabled, own.every_seconds.is_not(None)).order_by(own.id)
    return [SegmentId(each) for each in (await connection.execute(due)).scalars()]


async def set_next(connection: AsyncConnection, due: Sequence[SegmentId], *, now: datetime) -> None:
    """Schedule them again, counted from now: missed times are not made up for."""
    own = segments.c
    query = select(own.id, own.every_seconds).where(own.id.in_(due), own.every_seconds.is_not(None)).order_by(own.id)
    for row in (await connection.execute(query)).all():
        next_at = now + timedelta(seconds=row.every_seconds)
        still_due = (own.id == row.id) & (own.next_at <= now)
        await connection.execute(update(segments).where(still_due).values(next_at=next_at))
