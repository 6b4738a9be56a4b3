"""Materializes segments: rules as queries; members, events and snapshots in the transaction that settles the job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, assert_never

import msgspec
from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    cast,
    delete,
    exists,
    false,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.graph.follows.model import SyncMode
from mistnet.graph.follows.store import full_syncs
from mistnet.graph.segments.model import (
    MATERIALIZE,
    Difference,
    Followed,
    Followers,
    Intersection,
    Materialized,
    Mutuals,
    Need,
    PostsWhere,
    Segment,
    SegmentId,
    SegmentName,
    SnapshotId,
    SpecifiedUsers,
    SyncStatus,
    Union,
    UnreciprocatedFollowed,
    What,
)
from mistnet.graph.segments.rules import hosts_of
from mistnet.graph.segments.store import ENTERED, LEFT, all_segments, last_snapshot
from mistnet.graph.tables import follows, segment_events, segment_inputs, segment_members, segment_snapshots, segments
from mistnet.kit.database import STEADY_PLANS, Database, Store
from mistnet.kit.errors import WriteRefused
from mistnet.kit.types import BigId, UtcTime
from mistnet.kit.view import columns_of, record_of
from mistnet.queue.events import EventKind, NewEvent
from mistnet.queue.model import NewJob
from mistnet.queue.outbox import write_events
from mistnet.queue.tables import GAP, LIVE_KEY, jobs
from mistnet.social.ingests import IngestId, IngestStatus
from mistnet.social.model import UserId, X
from mistnet.social.search_query import parse
from mistnet.social.store.accounts import SubjectJob
from mistnet.social.store.post_listing import has_words
from mistnet.social.tables import ingest_events, posts

Members: TypeAlias = Select[Any]
"""Rows of `platform` and `id`, without duplicates."""

_BACK: Final = follows.alias("back")


class RuleContext(msgspec.Struct, frozen=True, kw_only=True):
    """What rules are evaluated with: all segments, the database's dialect, the time."""

    segments: Mapping[SegmentName, Segment]
    dialect: str
    now: datetime


def members_of(segment: Segment, known: RuleContext) -> Members:
    """Everything that matches the segment's rule now."""
    rule = segment.rule
    match rule:
        case SpecifiedUsers():
            return select(segment_inputs.c.platform, segment_inputs.c.user_id.label("id")).where(
                segment_inputs.c.segment_id == segment.id
            )
        case Followers() | Mutuals():
            followers = _edges(follows.c.follower_id, follows.c.followed_id == rule.subject_id)
            back = _edge_back(rule.subject_id, follows.c.follower_id)
            return followers if isinstance(rule, Followers) else followers.join_from(follows, _BACK, back)
        case Followed() | UnreciprocatedFollowed():
            followed = _edges(follows.c.followed_id, follows.c.follower_id == rule.subject_id)
            if isinstance(rule, Followed):
                return followed
            back = _edge_back(follows.c.followed_id, rule.subject_id)
            return followed.join_from(follows, _BACK, back, isouter=True).where(_BACK.c.follower_id.is_(None))
        case PostsWhere():
            return _posts(rule, known)
        case Union() | Intersection() | Difference():
            return _combined(rule, segment.what, known)
        case _:
            assert_never(rule)


def _edges(member: ColumnElement[int], of_subject: ColumnElement[bool]) -> Members:
    return select(follows.c.platform, member.label("id")).where(
        follows.c.platform == X, of_subject, follows.c.ended_at.is_(None)
    )


def _edge_back(follower: ColumnElement[Any] | UserId, followed: ColumnElement[Any] | UserId) -> ColumnElement[bool]:
    """The edge in the other direction, by primary key. A join: not every planner turns EXISTS into one."""
    back = _BACK.c
    return and_(back.platform == X, back.follower_id == follower, back.followed_id == followed, back.ended_at.is_(None))


def _combined(rule: Union | Intersection | Difference, what: What, known: RuleContext) -> Members:
    """Candidates are read from the segments that can contribute any, and looked up in the others by key."""
    own = segment_members.alias("candidate")
    name = "user_id" if what is What.USERS else "post_id"
    member = own.c[name]
    first, *others = [known.segments[SegmentName(each)].id for each in rule.of]
    query = select(own.c.platform, member.label("id")).where(member.is_not(None))
    if isinstance(rule, Union):
        return query.where(own.c.segment_id.in_([first, *others])).distinct()
    query = query.where(own.c.segment_id == first)
    for segment_id in others:
        its = segment_members.alias().c
        is_in = exists().where(its.segment_id == segment_id, its.platform == own.c.platform, its[name] == member)
        query = query.where(is_in if isinstance(rule, Intersection) else ~is_in)
    return query


def _posts(rule: PostsWhere, known: RuleContext) -> Members:
    query = select(posts.c.platform, posts.c.id.label("id"))
    if rule.authors_in is not None:
        authors = segment_members.alias("author")
        own = (authors.c.platform == posts.c.platform) & (authors.c.user_id == posts.c.author_id)
        query = query.join_from(posts, authors, own).where(
            authors.c.segment_id == known.segments[SegmentName(rule.authors_in)].id
        )
    if rule.query is not None:
        query = query.where(has_words(known.dialect, parse(rule.query)))
    if rule.link is not None:
        query = query.where(_has_link(hosts_of(rule.link), known.dialect))
    if rule.since is not None:
        query = query.where(posts.c.created_at >= rule.since)
    if rule.until is not None:
        query = query.where(posts.c.created_at < rule.until)
    if rule.within_seconds is not None:
        query = query.where(posts.c.created_at >= known.now - timedelta(seconds=rule.within_seconds))
    return query


def _has_link(hosts: Sequence[str], dialect: str) -> ColumnElement[bool]:
    """A link whose host is one of these or a subdomain. The LIKE on the whole text skips most posts without parsing."""
    if dialect == "postgresql":
        url = literal_column("coalesce(link.value ->> 'expanded_url', link.value ->> 'url')", Text)
        pattern = r"^[a-z][a-z0-9+.-]*://(?:[^/?#]*@)?([^/?#:]+)"
        host: ColumnElement[str] = func.substring(func.lower(url), pattern, type_=Text)
        links = func.json_array_elements(posts.c.links)
    else:
        url = literal_column(
            "lower(coalesce(json_extract(link.value, '$.expanded_url'), json_extract(link.value, '$.url')))", Text
        )
        # The part after `://` and `@`, up to `/`, `?`, `#` or `:`.
        rest = func.substr(url, func.instr(url, "://") + 3)
        slashed = func.replace(func.replace(rest, "?", "/"), "#", "/").op("||")("/")
        authority = func.substr(slashed, 1, func.instr(slashed, "/") - 1)
        named = func.substr(authority, func.instr(authority, "@") + 1).op("||")(":")
        host, links = func.substr(named, 1, func.instr(named, ":") - 1, type_=Text), func.json_each(posts.c.links)
    fits = or_(*(or_(host == each, host.like(f"%.{each}")) for each in hosts))
    each = links.table_valued("value", name="link")
    return and_(
        posts.c.links.is_not(None),
        or_(*(func.lower(cast(posts.c.links, Text)).like(f"%{each}%") for each in hosts)),
        exists(select(1).select_from(each).where(fits)) if hosts else false(),
    )


IDS_IN_EVENT: Final = 100
"""How many ids an event contains. Subscribers read the rest through the API."""

# The queue's statements are bound to their indexes. These read large parts of tables, so the planner decides.
_FREE_PLANS: Final = {"plan_cache_mode": "auto", **dict.fromkeys(STEADY_PLANS.keys() - {"plan_cache_mode"}, "on")}


async def write_materialized(connection: AsyncConnection, given: Sequence[Materialized], now: datetime) -> None:
    """In the given order: dependencies come first."""
    requested = list({each.segment_id: each for each in given}.values())
    ids = sorted(each.segment_id for each in requested)
    # One materialization of a segment at a time: two would both insert its new members. In the order of ids, so that
    # two jobs that share segments cannot deadlock.
    lock = select(segments.c.id).where(segments.c.id.in_(ids)).order_by(segments.c.id).with_for_update()
    await connection.execute(lock)
    context = RuleContext(segments=await all_segments(connection), dialect=connection.dialect.name, now=now)
    by_id = {each.id: each for each in context.segments.values()}
    async with _free_plans(connection):
        for each in requested:
            segment = by_id.get(each.segment_id)
            # Needs that were met for one rule must not be used for another.
            if segment is None or segment.changed_at != each.changed_at:
                raise WriteRefused(f"segment {each.segment_id} was changed meanwhile; the job runs again")
            await _materialize(connection, segment, each, context)


@asynccontextmanager
async def _free_plans(connection: AsyncConnection) -> AsyncIterator[None]:
    if connection.dialect.name != "postgresql":
        yield
        return
    await connection.execute(text(_set_plans(_FREE_PLANS)))
    yield
    # The job is settled in the same transaction, by statements that are bound to their indexes.
    await connection.execute(text(_set_plans(STEADY_PLANS)))


def _set_plans(plans: Mapping[str, str]) -> str:
    """For the rest of the transaction."""
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in sorted(plans.items()))


async def _materialize(
    connection: AsyncConnection, segment: Segment, request: Materialized, context: RuleContext
) -> None:
    before = await last_snapshot(connection, segment.id)
    # Never at or before the last one, even if the clock went back: the members as of that time must not change.
    at = context.now if before is None or before.at < context.now else before.at + timedelta(microseconds=1)
    ingests = msgspec.json.encode([str(each) for each in request.ingests])
    row = {"segment_id": segment.id, "at": at, "members": 0, "entered": 0, "departed": 0, "ingests": ingests}
    snapshot = insert(segment_snapshots).values(row).returning(segment_snapshots.c.id)
    snapshot_id = SnapshotId((await connection.execute(snapshot)).scalar_one())
    last_event = select(func.max(segment_events.c.id)).where(segment_events.c.segment_id == segment.id)
    after = (await connection.execute(last_event)).scalar() or 0
    run = _Run(segment=segment, snapshot_id=snapshot_id, at=at, after=after)
    matching = members_of(segment, context)
    # By the database itself, so that a million ids never pass through a worker.
    departed = await _insert_events(connection, run, LEFT, run.gone(matching))
    entered = await _insert_events(connection, run, ENTERED, run.new(matching))
    if departed:
        await connection.execute(run.delete_members())
    if entered:
        await connection.execute(run.insert_members())
    counts = {
        "members": (before.members if before else 0) + entered - departed,
        # The first time is a baseline: when its members entered is unknown.
        "entered": entered if before else 0,
        "departed": departed,
    }
    own = segment_snapshots.c.id == run.snapshot_id
    await connection.execute(update(segment_snapshots).where(own).values(counts))
    await connection.execute(update(segments).where(segments.c.id == segment.id).values(materialized_at=at))
    await _publish(connection, run, EventKind.SEGMENT_LEFT, LEFT, departed)
    await _publish(connection, run, EventKind.SEGMENT_ENTERED, ENTERED, counts["entered"])


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """One materialization of one segment: its snapshot, its time, and the last event before it."""

    segment: Segment
    snapshot_id: SnapshotId
    at: datetime
    after: int

    @property
    def member(self) -> str:
        return "user_id" if self.segment.what is What.USERS else "post_id"

    def new(self, matching: Select[Any]) -> Select[Any]:
        """Those that match the rule and are not members yet."""
        found, own = matching.subquery("matching"), segment_members.c
        is_in = and_(
            own.segment_id == self.segment.id, own.platform == found.c.platform, own[self.member] == found.c.id
        )
        query = select(found.c.platform, found.c.id).join_from(found, segment_members, is_in, isouter=True)
        return query.where(own.id.is_(None))

    def gone(self, matching: Select[Any]) -> Select[Any]:
        """Members that no longer match the rule."""
        found = matching.subquery("matching")
        own = segment_members.c
        fits = exists(
            select(literal(1))
            .select_from(found)
            .where(found.c.platform == own.platform, found.c.id == own[self.member])
        )
        return select(own.platform, own[self.member].label("id")).where(own.segment_id == self.segment.id, ~fits)

    def own_events(self, kind: str) -> ColumnElement[bool]:
        """The events of this run, found by the index on the segment's events."""
        own = segment_events.c
        return (own.segment_id == self.segment.id) & (own.id > self.after) & (own.kind == kind)

    def delete_members(self) -> Any:
        own, event = segment_members.c, segment_events.c
        gone = select(event.platform, event[self.member]).where(self.own_events(LEFT))
        return delete(segment_members).where(
            own.segment_id == self.segment.id, tuple_(own.platform, own[self.member]).in_(gone)
        )

    def insert_members(self) -> Any:
        event = segment_events.c
        columns = ["segment_id", "platform", self.member, "since"]
        come = select(event.segment_id, event.platform, event[self.member], event.at).where(self.own_events(ENTERED))
        return insert(segment_members).from_select(columns, come.order_by(event.id))


async def _insert_events(connection: AsyncConnection, run: _Run, kind: str, members: Select[Any]) -> int:
    """Returns how many. Inserted by the database itself, because there may be millions."""
    found = members.subquery("found")
    columns = ["segment_id", "snapshot_id", "platform", run.member, "kind", "at"]
    rows = select(
        literal(run.segment.id, BigId),
        literal(run.snapshot_id, BigId),
        found.c.platform,
        found.c.id,
        literal(kind),
        literal(run.at, UtcTime()),
    ).order_by(found.c.platform, found.c.id)
    return (await connection.execute(insert(segment_events).from_select(columns, rows))).rowcount


async def _publish(connection: AsyncConnection, run: _Run, kind: EventKind, word: str, count: int) -> None:
    """One event for all members that entered or left, with the first of them by id."""
    if not count:
        return
    own = segment_events.c
    query = select(own[run.member]).where(run.own_events(word)).order_by(own.id).limit(IDS_IN_EVENT)
    ids = [str(each) for each in (await connection.execute(query)).scalars()]
    payload = {
        "segment_id": str(run.segment.id),
        "segment": run.segment.name,
        "what": str(run.segment.what),
        "snapshot_id": str(run.snapshot_id),
        "count": count,
        "ids": ids,
        "more": count > len(ids),
    }
    await write_events(connection, [NewEvent(kind=kind, subject=run.segment.name, payload=payload)], run.at)


class MaterializationReads(Store):
    """What the handler of materializations reads. Nothing is locked and no transaction is held between reads."""

    async def all(self) -> Mapping[SegmentName, Segment]:
        async with self._database.read() as connection:
            return await all_segments(connection)

    async def sync_statuses(self, syncs: Mapping[Need, NewJob], *, since: datetime) -> Mapping[Need, SyncStatus]:
        """The state of the jobs that would meet these needs, and what became of others since then."""
        found: dict[Need, SyncStatus] = {}
        async with self._database.read() as connection:
            for need, job in syncs.items():
                own = (jobs.c.kind == job.kind) & (jobs.c.key == job.key)
                alive = select(jobs.c.id).where(own, text(LIVE_KEY)).limit(1)
                if (await connection.execute(alive)).first() is not None:
                    found[need] = SyncStatus(alive=True)
                    continue
                sync = ingest_events.c
                last = (
                    select(sync.mode, sync.status, sync.plausible, sync.problem)
                    .where(sync.platform == need.platform, sync.kind == need.side.ingest_kind)
                    .where(sync.subject_id == need.subject_id, sync.finished_at >= since)
                    .order_by(sync.id.desc())
                    .limit(1)
                )
                ended = (await connection.execute(last)).first()
                gap = select(jobs.c.last_error).where(own, text(GAP), jobs.c.run_at >= since)
                error = (await connection.execute(gap.order_by(jobs.c.id.desc()).limit(1))).scalar() or ""
                problem = next((line.strip()[:300] for line in reversed(error.strip().splitlines())), None)
                lesser = ended is not None and ended.mode != SyncMode.FULL
                if ended and not lesser and not (ended.status == IngestStatus.SUCCESS and ended.plausible):
                    problem = ended.problem or "it ended without a complete list"
                found[need] = SyncStatus(alive=False, problem=problem, lesser=lesser)
        return found

    async def complete_ingest(self, need: Need, *, since: datetime | None) -> IngestId | None:
        """The last plausible full sync that began at or after `since`. Later failures do not matter."""
        own = ingest_events.c
        query = select(own.id).where(*full_syncs(need.platform, need.side), own.subject_id == need.subject_id)
        if since is not None:
            query = query.where(own.started_at >= since)
        found: IngestId | None = await self._database.fetch_value(query.order_by(own.id.desc()).limit(1))
        return found


async def job_of(database: Database, segment_id: SegmentId) -> SubjectJob | None:
    """The live job, or else the last one that failed. None: not requested, or done."""
    query = select(*columns_of(SubjectJob, jobs)).where(jobs.c.kind == MATERIALIZE, jobs.c.key == str(segment_id))
    # One query for each: both have a partial index, and a condition on either would use none.
    for condition in (LIVE_KEY, GAP):
        row = await database.fetch_row(query.where(text(condition)).order_by(jobs.c.id.desc()).limit(1))
        if row:
            return record_of(SubjectJob, row)
    return None
