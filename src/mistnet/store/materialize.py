"""Works segments out: who is in them now, who came and went, all in the transaction of the job that asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, insert, literal, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.errors import WriteRefused
from mistnet.domain.events import EventKind, NewEvent
from mistnet.domain.segments import Materialized, Segment, Snapshot, SnapshotId, What
from mistnet.store.database import STEADY_PLANS
from mistnet.store.events import write_events
from mistnet.store.segment_rows import SNAPSHOT, all_segments, snapshot_of
from mistnet.store.segment_rules import Known, members_of
from mistnet.store.tables import segment_events, segment_members, segment_snapshots, segments
from mistnet.store.types import BigId, UtcTime

TOLD: Final = 100
"""How many ids an event names; the rest is to be asked for."""

# The queue's statements are held to their indexes; these read large parts of tables, and the planner knows best how.
_FREE: Final = {"plan_cache_mode": "auto", **dict.fromkeys(STEADY_PLANS.keys() - {"plan_cache_mode"}, "on")}


async def write_materialized(connection: AsyncConnection, given: Sequence[Materialized], now: datetime) -> None:
    """In the order given: what others build on comes first. Others who work them out wait until this one is over."""
    wanted = list({each.segment_id: each for each in given}.values())
    await _lock(connection, wanted)
    known = Known(segments=await all_segments(connection), dialect=connection.dialect.name, now=now)
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


async def _work_out(connection: AsyncConnection, segment: Segment, asked: Materialized, known: Known) -> None:
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
