"""Works segments out: who is in them now, who came and went, all in the transaction of the job that asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, insert, literal, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.graph.follows.model import SyncMode
from mistnet.graph.segments.model import (
    MATERIALIZE,
    Materialized,
    Need,
    Segment,
    SegmentId,
    SegmentName,
    Snapshot,
    SnapshotId,
    SyncStatus,
    What,
)
from mistnet.graph.segments.rule_sql import RuleContext, members_of
from mistnet.graph.segments.store import SNAPSHOT, all_segments, snapshot_of
from mistnet.graph.tables import segment_events, segment_members, segment_snapshots, segments
from mistnet.kit.database import STEADY_PLANS, Database
from mistnet.kit.errors import WriteRefused
from mistnet.kit.types import BigId, UtcTime
from mistnet.queue.events import EventKind, NewEvent
from mistnet.queue.model import LIVE_STATES, JobId, JobState, NewJob
from mistnet.queue.outbox import write_events
from mistnet.queue.tables import GAP, LIVE_KEY, jobs
from mistnet.social.ingests.model import IngestId, IngestStatus
from mistnet.social.store.account_jobs import cancel
from mistnet.social.tables import ingest_events

TOLD: Final = 100
"""How many ids an event names; the rest is to be asked for."""

# The queue's statements are held to their indexes; these read large parts of tables, and the planner knows best how.
_FREE: Final = {"plan_cache_mode": "auto", **dict.fromkeys(STEADY_PLANS.keys() - {"plan_cache_mode"}, "on")}


async def write_materialized(connection: AsyncConnection, given: Sequence[Materialized], now: datetime) -> None:
    """In the order given: what others build on comes first. Others who work them out wait until this one is over."""
    wanted = list({each.segment_id: each for each in given}.values())
    await _lock(connection, wanted)
    known = RuleContext(segments=await all_segments(connection), dialect=connection.dialect.name, now=now)
    by_id = {each.id: each for each in known.segments.values()}
    async with _free_plans(connection):
        for each in wanted:
            segment = by_id.get(each.segment_id)
            if segment is None or segment.changed_at != each.changed_at:
                raise WriteRefused(f"segment {each.segment_id} was changed meanwhile; it is looked at anew")
            await _work_out(connection, segment, each, known)


async def _lock(connection: AsyncConnection, wanted: Sequence[Materialized]) -> None:
    ids = sorted(each.segment_id for each in wanted)
    await connection.execute(
        select(segments.c.id).where(segments.c.id.in_(ids)).order_by(segments.c.id).with_for_update()
    )


@asynccontextmanager
async def _free_plans(connection: AsyncConnection) -> AsyncIterator[None]:
    if connection.dialect.name != "postgresql":
        yield
        return
    await connection.execute(text(_setting(_FREE)))
    yield
    await connection.execute(text(_setting(STEADY_PLANS)))


def _setting(plans: Mapping[str, str]) -> str:
    """Until the end of the transaction."""
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in sorted(plans.items()))


async def _work_out(connection: AsyncConnection, segment: Segment, asked: Materialized, known: RuleContext) -> None:
    before = await _last_snapshot(connection, segment)
    at = _moment(before, known.now)
    snapshot_id = await _begin_snapshot(connection, segment, asked, at)
    last = await _last_event(connection, segment)
    turn = _Turn(segment=segment, snapshot_id=snapshot_id, at=at, after=last)
    fresh = members_of(segment, known)
    departed = await _note(connection, turn, "left", turn.gone(fresh))
    entered = await _note(connection, turn, "entered", turn.come(fresh))
    if departed:
        await connection.execute(turn.taking_out())
    if entered:
        await connection.execute(turn.putting_in())
    members = (before.members if before else 0) + entered - departed
    came = entered if before else 0  # the first time is a baseline: who is in it then has not come
    await _end_snapshot(connection, turn, members=members, entered=came, departed=departed)
    await _tell(connection, turn, came, departed)


class _Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One segment being worked out: its snapshot, its time, and the last event there was before."""

    segment: Segment
    snapshot_id: SnapshotId
    at: datetime
    after: int

    @property
    def member(self) -> str:
        return "user_id" if self.segment.what is What.USERS else "post_id"

    def come(self, fresh: Select[Any]) -> Select[Any]:
        """Who fits the rule and is not in it yet."""
        found, own = fresh.subquery("fresh"), segment_members.c
        is_in = and_(
            own.segment_id == self.segment.id, own.platform == found.c.platform, own[self.member] == found.c.id
        )
        asked = select(found.c.platform, found.c.id).join_from(found, segment_members, is_in, isouter=True)
        return asked.where(own.id.is_(None))

    def gone(self, fresh: Select[Any]) -> Select[Any]:
        """Who is in it and does not fit the rule any more."""
        found = fresh.subquery("fresh")
        own = segment_members.c
        fits = exists(
            select(literal(1))
            .select_from(found)
            .where(found.c.platform == own.platform, found.c.id == own[self.member])
        )
        return select(own.platform, own[self.member].label("id")).where(own.segment_id == self.segment.id, ~fits)

    def noted(self, kind: str) -> ColumnElement[bool]:
        """Of this turn alone, by the index on the segment's events."""
        own = segment_events.c
        return (own.segment_id == self.segment.id) & (own.id > self.after) & (own.kind == kind)

    def taking_out(self) -> Any:
        own, noted = segment_members.c, segment_events.c
        gone = select(noted.platform, noted[self.member]).where(self.noted("left"))
        return delete(segment_members).where(
            own.segment_id == self.segment.id, tuple_(own.platform, own[self.member]).in_(gone)
        )

    def putting_in(self) -> Any:
        noted = segment_events.c
        columns = ["segment_id", "platform", self.member, "since"]
        come = select(noted.segment_id, noted.platform, noted[self.member], noted.at).where(self.noted("entered"))
        return insert(segment_members).from_select(columns, come.order_by(noted.id))


async def _last_snapshot(connection: AsyncConnection, segment: Segment) -> Snapshot | None:
    own = segment_snapshots.c
    asked = SNAPSHOT.where(own.segment_id == segment.id).order_by(own.at.desc()).limit(1)
    row = (await connection.execute(asked)).mappings().first()
    return snapshot_of(row) if row else None


def _moment(before: Snapshot | None, now: datetime) -> datetime:
    """Never before the last one, whatever clocks do: what was as of then must stay so."""
    return now if before is None or before.at < now else before.at + timedelta(microseconds=1)


async def _begin_snapshot(
    connection: AsyncConnection, segment: Segment, asked: Materialized, at: datetime
) -> SnapshotId:
    ingests = msgspec.json.encode([str(each) for each in asked.ingests])
    row = {"segment_id": segment.id, "at": at, "members": 0, "entered": 0, "departed": 0, "ingests": ingests}
    added = await connection.execute(insert(segment_snapshots).values(row).returning(segment_snapshots.c.id))
    return SnapshotId(added.scalar_one())


async def _last_event(connection: AsyncConnection, segment: Segment) -> int:
    asked = select(func.max(segment_events.c.id)).where(segment_events.c.segment_id == segment.id)
    last: int | None = (await connection.execute(asked)).scalar()
    return last or 0


async def _note(connection: AsyncConnection, turn: _Turn, kind: str, whom: Select[Any]) -> int:
    """Events of those the question finds, by id. None of them passes through this process, however many there are."""
    found = whom.subquery("found")
    columns = ["segment_id", "snapshot_id", "platform", turn.member, "kind", "at"]
    rows = select(
        literal(turn.segment.id, BigId),
        literal(turn.snapshot_id, BigId),
        found.c.platform,
        found.c.id,
        literal(kind),
        literal(turn.at, UtcTime()),
    ).order_by(found.c.platform, found.c.id)
    return (await connection.execute(insert(segment_events).from_select(columns, rows))).rowcount


async def _end_snapshot(connection: AsyncConnection, turn: _Turn, **counts: int) -> None:
    await connection.execute(update(segment_snapshots).where(segment_snapshots.c.id == turn.snapshot_id).values(counts))
    done = update(segments).where(segments.c.id == turn.segment.id).values(materialized_at=turn.at)
    await connection.execute(done)


async def _tell(connection: AsyncConnection, turn: _Turn, entered: int, departed: int) -> None:
    """One event for all who came and one for all who went, with the first of them by id."""
    for kind, word, count in (
        (EventKind.SEGMENT_LEFT, "left", departed),
        (EventKind.SEGMENT_ENTERED, "entered", entered),
    ):
        if count:
            own = segment_events.c
            first = select(own[turn.member]).where(turn.noted(word)).order_by(own.id).limit(TOLD)
            ids = [str(each) for each in (await connection.execute(first)).scalars()]
            await write_events(connection, [_news(kind, turn, count, ids)], turn.at)


def _news(kind: EventKind, turn: _Turn, count: int, ids: Sequence[str]) -> NewEvent:
    payload = {
        "segment_id": str(turn.segment.id),
        "segment": turn.segment.name,
        "what": str(turn.segment.what),
        "snapshot_id": str(turn.snapshot_id),
        "count": count,
        "ids": ids,
        "more": count > len(ids),
    }
    return NewEvent(kind=kind, subject=turn.segment.name, payload=payload)


UNTOLD: Final = "it ended without a complete list"


class StoreSegmentLook:
    """The port's look on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> Mapping[SegmentName, Segment]:
        async with self._database.read() as connection:
            return await all_segments(connection)

    async def standings(self, syncs: Mapping[Need, NewJob], *, since: datetime) -> Mapping[Need, SyncStatus]:
        async with self._database.read() as connection:
            return {need: await _standing(connection, need, job, since) for need, job in syncs.items()}

    async def complete_ingest(self, need: Need, *, since: datetime | None) -> IngestId | None:
        own = ingest_events.c
        asked = (
            select(own.id)
            .where(*_about(need), own.status == IngestStatus.SUCCESS, own.plausible, own.mode == SyncMode.FULL)
            .order_by(own.id.desc())
            .limit(1)
        )
        if since is not None:
            asked = asked.where(own.started_at >= since)
        async with self._database.read() as connection:
            found = (await connection.execute(asked)).scalar()
        return None if found is None else IngestId(found)


async def _standing(connection: AsyncConnection, need: Need, job: NewJob, since: datetime) -> SyncStatus:
    own = (jobs.c.kind == job.kind) & (jobs.c.key == job.key)
    alive = (await connection.execute(select(jobs.c.id).where(own, text(LIVE_KEY)).limit(1))).first()
    if alive is not None:
        return SyncStatus(alive=True)
    ended = await _last_ended(connection, need, since)
    gap = select(jobs.c.last_error).where(own, text(GAP), jobs.c.run_at >= since).order_by(jobs.c.id.desc()).limit(1)
    died = (await connection.execute(gap)).scalar()
    lesser = ended is not None and ended.mode != SyncMode.FULL
    bad = ended is not None and not lesser and not (ended.status == IngestStatus.SUCCESS and ended.plausible)
    problem = (ended.problem or UNTOLD) if ended and bad else _last_line(died)
    return SyncStatus(alive=False, problem=problem, lesser=lesser)


async def _last_ended(connection: AsyncConnection, need: Need, since: datetime) -> Any:
    own = ingest_events.c
    asked = select(own.mode, own.status, own.plausible, own.problem).where(*_about(need), own.finished_at >= since)
    return (await connection.execute(asked.order_by(own.id.desc()).limit(1))).first()


def _about(need: Need) -> tuple[ColumnElement[bool], ...]:
    own = ingest_events.c
    return own.platform == need.platform, own.kind == need.side.ingest_kind, own.subject_id == need.subject_id


def _last_line(error: str | None) -> str | None:
    lines = (error or "").strip().splitlines()
    return lines[-1].strip()[:300] if lines else None


class MaterializationJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job that works a segment out, or the one that could not."""

    id: JobId
    state: JobState
    wait_reason: str | None
    last_error: str | None

    @property
    def alive(self) -> bool:
        return self.state in LIVE_STATES


async def job_of(database: Database, segment_id: SegmentId) -> MaterializationJob | None:
    """The latest that is not over. None: nobody has asked, or it was done."""
    names = MaterializationJob.__struct_fields__
    asked = select(*(jobs.c[name] for name in names)).where(jobs.c.kind == MATERIALIZE, jobs.c.key == str(segment_id))
    async with database.read() as connection:
        row = (await connection.execute(asked.order_by(jobs.c.id.desc()).limit(1))).mappings().first()
    return MaterializationJob(**{**row, "state": JobState(row["state"])}) if row else None


async def put_away_gaps(connection: AsyncConnection, segment_ids: Sequence[SegmentId], now: datetime) -> None:
    """Those that could not be worked out are to be tried anew: what failed before goes to the history."""
    keys = [str(each) for each in segment_ids]
    failed = select(jobs.c.id).where(jobs.c.kind == MATERIALIZE, jobs.c.key.in_(keys), text(GAP)).order_by(jobs.c.id)
    await cancel(connection, [JobId(each) for each in (await connection.execute(failed)).scalars()], now)
