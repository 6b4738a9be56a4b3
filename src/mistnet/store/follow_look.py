"""Answers what a follow sync looks up: what is known of a list, and who is missing from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, Select, func, or_, select, text

from mistnet.domain.follows import Cause, FollowKind, Known, Side, Sync, SyncMode
from mistnet.domain.ingests import IngestId, IngestStatus
from mistnet.domain.jobs import JobId
from mistnet.domain.social import Platform, UserId
from mistnet.store.accounts import StoreLook
from mistnet.store.database import Database
from mistnet.store.follows import other_end, own_end
from mistnet.store.tables import follow_events, follows, ingest_events, users
from mistnet.store.tables.graph import OPEN_INGEST


class StoreFollowLook:
    """Reads for handlers: each question stands for itself."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.stalest_users = StoreLook(database).stalest_users

    async def last_sync(self, platform: Platform, side: Side, subject_id: UserId) -> Known | None:
        """The whole list as last read to its end; what has been added to it since counts as well."""
        asked = _believed(platform, side, subject_id)
        async with self._database.peek() as connection:
            full = (await connection.execute(asked.where(ingest_events.c.mode == SyncMode.FULL))).first()
            latest = (await connection.execute(asked)).first() if full else None
        if full is None or latest is None:
            return None
        return Known(ingest_id=IngestId(latest.id), started_at=full.started_at, finished_at=latest.finished_at)

    async def known_edges(
        self, platform: Platform, side: Side, subject_id: UserId, ids: Collection[UserId], known: Known
    ) -> set[UserId]:
        asked = select(other_end(side)).where(
            *_of(platform, side, subject_id),
            other_end(side).in_(sorted(ids)),
            follows.c.first_seen_at <= known.finished_at,
            follows.c.last_seen_at >= known.started_at,
        )
        return {UserId(each) for each in await self._column(asked)}

    async def seen(self, sync: Sync) -> int:
        asked = select(func.count()).where(
            *_of(sync.platform, sync.side, sync.subject_id),
            or_(follows.c.last_seen_at >= sync.since, follows.c.seen_in == _ingest_of(sync.job_id)),
        )
        return int((await self._column(asked))[0])

    async def missed(self, sync: Sync, *, after: UserId | None, limit: int) -> Sequence[UserId]:
        other = other_end(sync.side)
        asked = select(other).where(*_unseen(sync), follows.c.missed_in.is_not(None)).order_by(other).limit(limit)
        asked = asked if after is None else asked.where(other > after)
        return [UserId(each) for each in await self._column(asked)]

    async def unseen(self, sync: Sync, *, after: UserId | None, limit: int) -> Sequence[UserId]:
        other = other_end(sync.side)
        asked = select(other).where(*_unseen(sync)).order_by(other).limit(limit)
        asked = asked if after is None else asked.where(other > after)
        return [UserId(each) for each in await self._column(asked)]

    async def hidden(self, sync: Sync) -> int:
        told = follow_events.c
        asked = (
            select(func.count())
            .select_from(follow_events)
            .join(
                follows,
                (follows.c.platform == told.platform)
                & (follows.c.follower_id == told.follower_id)
                & (follows.c.followed_id == told.followed_id)
                & (follows.c.ended_at == told.at),
            )
            .where(
                told.platform == sync.platform,
                told[own_end(sync.side).name] == sync.subject_id,
                told.kind == FollowKind.UNFOLLOWED,
                told.cause.in_([Cause.SUSPENDED, Cause.VANISHED]),
            )
        )
        return int((await self._column(asked))[0])

    async def newly_missed(self, sync: Sync) -> bool:
        asked = select(other_end(sync.side)).where(*_unseen(sync), follows.c.missed_in.is_(None)).limit(1)
        return bool(await self._column(asked))

    async def handle(self, platform: Platform, user_id: UserId) -> str | None:
        asked = select(users.c.handle).where(users.c.platform == platform, users.c.id == user_id)
        return next(iter(await self._column(asked)), None)

    async def _column(self, asked: Select[Any]) -> Sequence[Any]:
        async with self._database.peek() as connection:
            return list((await connection.execute(asked)).scalars())


def _believed(platform: Platform, side: Side, subject_id: UserId) -> Select[tuple[int, datetime, datetime]]:
    return (
        select(ingest_events.c.id, ingest_events.c.started_at, ingest_events.c.finished_at)
        .where(
            ingest_events.c.platform == platform,
            ingest_events.c.kind == side.ingest_kind,
            ingest_events.c.subject_id == subject_id,
            ingest_events.c.status == IngestStatus.SUCCESS,
            ingest_events.c.plausible,
        )
        .order_by(ingest_events.c.id.desc())
        .limit(1)
    )


def _of(platform: Platform, side: Side, subject_id: UserId) -> tuple[ColumnElement[bool], ...]:
    """The edges of one list that live."""
    return follows.c.platform == platform, own_end(side) == subject_id, follows.c.ended_at.is_(None)


def _unseen(sync: Sync) -> tuple[ColumnElement[bool], ...]:
    """Those that nobody has seen since the sync began. Without its open ingest there are none: better no doubt at all
    than a wrong one."""
    return (
        *_of(sync.platform, sync.side, sync.subject_id),
        follows.c.last_seen_at < sync.since,
        follows.c.seen_in != _ingest_of(sync.job_id),
    )


def _ingest_of(job_id: JobId) -> ScalarSelect[Any]:
    asked = select(ingest_events.c.id).where(ingest_events.c.job_id == job_id, text(OPEN_INGEST))
    return asked.scalar_subquery()
