"""Segments as somebody defines them, switches them on and off, names their inputs, and looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import Select, delete, exists, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.expression import Join, Subquery

from mistnet.graph.errors import BadSegment, SegmentNotFound
from mistnet.graph.segments.model import (
    AnyRule,
    Member,
    MemberEvent,
    Segment,
    SegmentId,
    SegmentName,
    Snapshot,
    SpecifiedUsers,
    What,
)
from mistnet.graph.segments.rules import check, check_rhythm, handles_in, parts_of, read_name, what_of
from mistnet.graph.tables import segment_events, segment_inputs, segment_members, segment_snapshots, segments
from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of
from mistnet.social.ingests.model import IngestId
from mistnet.social.model import UserId, X
from mistnet.social.store.account_jobs import slices
from mistnet.social.tables import posts, users

SEGMENT: Final = select(*(segments.c[name] for name in Segment.__struct_fields__))
SNAPSHOT: Final = select(*(segment_snapshots.c[name] for name in Snapshot.__struct_fields__))


async def all_segments(connection: AsyncConnection) -> Mapping[SegmentName, Segment]:
    """Every segment, by its name. There are as many as people have given names to."""
    rows = (await connection.execute(SEGMENT.order_by(segments.c.id))).mappings()
    found = [segment_of(row) for row in rows]
    return {each.name: each for each in found}


def segment_of(row: Mapping[Any, Any]) -> Segment:
    rule: AnyRule = msgspec.json.decode(row["rule"], type=AnyRule)
    return Segment(**{**row, "what": What(row["what"]), "rule": rule})


def snapshot_of(row: Mapping[Any, Any]) -> Snapshot:
    ingests = [IngestId(int(each)) for each in msgspec.json.decode(row["ingests"], type=list[str])]
    return Snapshot(**{**row, "ingests": ingests})


ENTERED, LEFT = "entered", "left"
LARGEST_ID: Final = 2**63 - 1


def present(segment: Segment, *, after: int, limit: int) -> Select[Any]:
    """The members as of the last time it was worked out, in the order in which they came."""
    own = segment_members.c
    asked = select(own.id.label("place"), own.platform, own.user_id, own.post_id, own.since)
    chosen = asked.where(own.segment_id == segment.id, own.id > after).order_by(own.id).limit(limit)
    return _shown(segment, chosen).order_by("place")


def as_of(segment: Segment, at: datetime, *, after: int, limit: int) -> Select[Any]:
    """The members as they were then: who had entered, and had not left since."""
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
    asked = select(own.id.label("place"), own.platform, own.user_id, own.post_id, own.at.label("since")).where(
        own.segment_id == segment.id, own.id > after, own.kind == ENTERED, own.at <= at, ~left
    )
    return _shown(segment, asked.order_by(own.id).limit(limit)).order_by("place")


def changes(segment: Segment, *, baseline: int, before: int, limit: int, kind: str | None) -> Select[Any]:
    """Who came and went since it was worked out first, the latest first."""
    own = segment_events.c
    asked = select(*(own[name] for name in MemberEvent.__struct_fields__ if name != "handle")).where(
        own.segment_id == segment.id, own.id < before, own.snapshot_id != baseline
    )
    if kind is not None:
        asked = asked.where(own.kind == kind)
    chosen = asked.order_by(own.id.desc()).limit(limit).subquery("chosen")
    shown = select(chosen, users.c.handle).select_from(_with_people(segment, chosen))
    return shown.order_by(chosen.c.id.desc())


def baseline_of(segment_id: SegmentId) -> Select[Any]:
    """The snapshot of the first time. Its events say who is in the segment since then, and are no changes."""
    own = segment_snapshots.c
    return select(own.id).where(own.segment_id == segment_id).order_by(own.at).limit(1)


def _shown(segment: Segment, chosen: Select[Any]) -> Select[Any]:
    """Names are looked up for the few that are shown."""
    few = chosen.subquery("chosen")
    told = (
        [users.c.handle, users.c.name] if segment.what is What.USERS else [users.c.handle, users.c.name, posts.c.text]
    )
    return select(few, *told).select_from(_with_people(segment, few))


def _with_people(segment: Segment, few: Subquery) -> Join:
    if segment.what is What.USERS:
        return few.join(users, (users.c.platform == few.c.platform) & (users.c.id == few.c.user_id))
    its_post = few.join(posts, (posts.c.platform == few.c.platform) & (posts.c.id == few.c.post_id))
    return its_post.join(users, (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id))


def member_of(row: Mapping[Any, Any]) -> Member:
    return Member(**{**row, "platform": row["platform"]})


def event_of(row: Mapping[Any, Any]) -> MemberEvent:
    return MemberEvent(**{**row, "platform": row["platform"]})


_DEFINE_LOCK: Final = 0x73656773  # definitions go one at a time, so that no two of them make a circle together


class SegmentInput(msgspec.Struct, frozen=True, kw_only=True):
    """A user whom somebody named."""

    user_id: UserId
    handle: str | None
    added_at: datetime


class Defined(msgspec.Struct, frozen=True, kw_only=True):
    """A segment as it stands now; `created` if there was none of that name, `changed` if it was another before."""

    segment: Segment
    created: bool
    changed: bool


class Segments:
    """All segments of a database. They are told apart by their names."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def define(
        self,
        name: str,
        rule: AnyRule,
        *,
        every_seconds: float | None = None,
        fresh_seconds: float | None = None,
        now: datetime,
    ) -> Defined:
        """Makes a segment, or gives the one of this name another rule. Its history stays."""
        _require_storable(read_name(name), rule, every_seconds, fresh_seconds)
        new = {"rule": rule, "every_seconds": every_seconds, "fresh_seconds": fresh_seconds}
        async with self._database.transaction() as connection:
            await _alone(connection)
            known = await all_segments(connection)
            found = known.get(SegmentName(name))
            if found and all(getattr(found, field) == value for field, value in new.items()):
                return Defined(segment=found, created=False, changed=False)
            row = {**new, "rule": msgspec.json.encode(rule), "what": _what(SegmentName(name), rule, known)}
            await _put(connection, found, {**row, "name": name}, now)
            segment = (await all_segments(connection))[SegmentName(name)]
        return Defined(segment=segment, created=found is None, changed=found is not None)

    async def get(self, name: str) -> Segment:
        """Raises SegmentNotFound, which knows of names that are alike."""
        async with self._database.read() as connection:
            row = (await connection.execute(SEGMENT.where(segments.c.name == name))).mappings().first()
            if row is None:
                names = (await connection.execute(select(segments.c.name).limit(1_000))).scalars()
                raise SegmentNotFound(name, list(names))
        return segment_of(row)

    async def by_id(self, segment_id: int) -> Segment | None:
        async with self._database.read() as connection:
            row = (await connection.execute(SEGMENT.where(segments.c.id == segment_id))).mappings().first()
        return segment_of(row) if row else None

    async def list(self, *, after: int = 0, limit: int = 200) -> Sequence[Segment]:
        """In the order in which they were made."""
        asked = SEGMENT.where(segments.c.id > after).order_by(segments.c.id).limit(limit)
        async with self._database.read() as connection:
            return [segment_of(row) for row in (await connection.execute(asked)).mappings()]

    async def users_of(self, name: str) -> Sequence[SegmentName]:
        """The segments that build on this one by themselves."""
        async with self._database.read() as connection:
            known = await all_segments(connection)
        return [each.name for each in known.values() if name in parts_of(each.rule)]

    async def enable(self, name: str, *, now: datetime) -> Segment:
        """From now on it is worked out again, at its times and when somebody asks."""
        segment = await self.get(name)
        return await self._switch(segment, enabled=True, next_at=now if segment.every_seconds else None, now=now)

    async def disable(self, name: str, *, now: datetime) -> Segment:
        """It keeps the members it has. Segments that build on it go on with those."""
        return await self._switch(await self.get(name), enabled=False, next_at=None, now=now)

    async def _switch(self, segment: Segment, *, enabled: bool, next_at: datetime | None, now: datetime) -> Segment:
        told = {"enabled": enabled, "next_at": next_at, "changed_at": _after(segment, now)}
        own = (segments.c.id == segment.id) & (segments.c.enabled != enabled)
        async with self._database.transaction() as connection:
            await connection.execute(update(segments).where(own).values(told))
        return await self.get(segment.name)

    async def add_inputs(self, name: str, user_ids: Sequence[UserId], *, now: datetime) -> int:
        """Returns how many are new. All of them are stored users, or nothing is written."""
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
        """Returns how many were there. Who is not an input any more leaves the segment when it is worked out next."""
        segment = await self._with_inputs(name)
        own, removed = segment_inputs.c, 0
        async with self._database.transaction() as connection:
            for each in slices(sorted(set(user_ids))):
                gone = delete(segment_inputs).where(own.segment_id == segment.id, own.user_id.in_(each))
                removed += (await connection.execute(gone)).rowcount
        return removed

    async def inputs(self, name: str, *, after: int = 0, limit: int = 200) -> Sequence[SegmentInput]:
        """Whom somebody named, by id."""
        segment, own = await self._with_inputs(name), segment_inputs.c
        person = (users.c.platform == own.platform) & (users.c.id == own.user_id)
        asked = (
            select(own.user_id, users.c.handle, own.added_at)
            .join_from(segment_inputs, users, person)
            .where(own.segment_id == segment.id, own.platform == X, own.user_id > after)
        )
        async with self._database.read() as connection:
            rows = await connection.execute(asked.order_by(own.user_id).limit(limit))
            return [SegmentInput(**row) for row in rows.mappings()]

    async def _with_inputs(self, name: str) -> Segment:
        segment = await self.get(name)
        if not isinstance(segment.rule, SpecifiedUsers):
            raise BadSegment(name, "its rule takes no inputs; only a segment of specified_users does")
        return segment

    async def members(
        self, name: str, *, as_of_: datetime | None = None, after: int = 0, limit: int = 200
    ) -> Sequence[Member]:
        """Now, or as they were at a time before. The last one's `place` is where the next page begins."""
        segment = await self.get(name)
        place = {"after": after, "limit": limit}
        asked = present(segment, **place) if as_of_ is None else as_of(segment, as_of_, **place)
        async with self._database.read() as connection:
            return [member_of(row) for row in (await connection.execute(asked)).mappings()]

    async def events(
        self, name: str, *, before: int = LARGEST_ID, limit: int = 200, kind: str | None = None
    ) -> Sequence[MemberEvent]:
        """Who came and went since it was worked out first, the latest first."""
        segment = await self.get(name)
        async with self._database.read() as connection:
            first: int = (await connection.execute(baseline_of(segment.id))).scalar() or 0
            asked = changes(segment, baseline=first, before=before, limit=limit, kind=kind)
            rows = await connection.execute(asked)
            return [event_of(row) for row in rows.mappings()]

    async def snapshots(self, name: str, *, before: int = LARGEST_ID, limit: int = 200) -> Sequence[Snapshot]:
        """Each time it was worked out, the latest first."""
        own = segment_snapshots.c
        asked = SNAPSHOT.where(own.segment_id == (await self.get(name)).id, own.id < before)
        async with self._database.read() as connection:
            rows = await connection.execute(asked.order_by(own.id.desc()).limit(limit))
            return [snapshot_of(row) for row in rows.mappings()]

    async def known_since(self, name: str) -> datetime | None:
        """When it was worked out first: who was in it then has not come."""
        own = segment_snapshots.c
        asked = select(func.min(own.at)).where(own.segment_id == (await self.get(name)).id)
        async with self._database.read() as connection:
            first: datetime | None = (await connection.execute(asked)).scalar_one()
        return first

    async def latest(self, ids: Sequence[SegmentId]) -> Mapping[SegmentId, Snapshot]:
        """The last snapshot of each."""
        own = segment_snapshots.c
        newest = select(func.max(own.id)).where(own.segment_id.in_(ids)).group_by(own.segment_id)
        async with self._database.read() as connection:
            rows = await connection.execute(SNAPSHOT.where(own.id.in_(newest)))
            return {row["segment_id"]: snapshot_of(row) for row in rows.mappings()}


def _what(name: SegmentName, rule: AnyRule, known: Mapping[SegmentName, Segment]) -> What:
    """Raises BadSegment for what cannot be among the segments there are."""
    what = what_of(name, {**{each.name: each.rule for each in known.values()}, name: rule})
    if name in known and known[name].what is not what:
        raise BadSegment(name, f"it has {known[name].what} for members, not {what}; choose another name")
    return what


async def _put(connection: AsyncConnection, found: Segment | None, row: Mapping[str, Any], now: datetime) -> None:
    at_once = row["every_seconds"] is not None and (found is None or found.enabled)
    told = {**row, "changed_at": _after(found, now), "next_at": now if at_once else None}
    if found is None:
        await connection.execute(insert(segments).values(**told, enabled=True, created_at=now))
    else:
        await connection.execute(update(segments).where(segments.c.id == found.id).values(told))


def _after(segment: Segment | None, now: datetime) -> datetime:
    """Each change has a time of its own: whoever works a segment out knows by it that the rule is still the same."""
    return now if segment is None else max(now, segment.changed_at + timedelta(microseconds=1))


async def due_segments(connection: AsyncConnection, *, now: datetime) -> Sequence[SegmentId]:
    """Segments whose time has come. Nothing is locked: whoever works them out locks jobs first, then these."""
    own = segments.c
    due = select(own.id).where(own.next_at <= now, own.enabled, own.every_seconds.is_not(None)).order_by(own.id)
    return [SegmentId(each) for each in (await connection.execute(due)).scalars()]


async def set_next(connection: AsyncConnection, due: Sequence[SegmentId], *, now: datetime) -> None:
    """Their next times, counted from now: times that were missed are not made up for."""
    own = segments.c
    asked = select(own.id, own.every_seconds).where(own.id.in_(due), own.every_seconds.is_not(None)).order_by(own.id)
    for row in (await connection.execute(asked)).all():
        next_at = now + timedelta(seconds=row.every_seconds)
        still_due = (own.id == row.id) & (own.next_at <= now)
        await connection.execute(update(segments).where(still_due).values(next_at=next_at))


def _require_storable(
    name: SegmentName, rule: AnyRule, every_seconds: float | None, fresh_seconds: float | None
) -> None:
    check(name, rule)
    check_rhythm(name, every_seconds=every_seconds, fresh_seconds=fresh_seconds)
    if handles := handles_in(rule):
        raise BadSegment(name, f"@{handles[0]} is no id; a rule is stored with ids alone")


async def _alone(connection: AsyncConnection) -> None:
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_DEFINE_LOCK})"))
