"""Writes who follows whom: edges as they are seen, doubted and ended, and the events that tell of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import Column, ColumnElement, ScalarSelect, Select, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.graph.follows.model import (
    BelievedSync,
    Cause,
    FollowKind,
    FollowsEnded,
    FollowsSeen,
    Side,
    Sync,
    SyncEnded,
    SyncMode,
)
from mistnet.graph.tables import follow_events, follows
from mistnet.kit.database import Database
from mistnet.kit.errors import WriteRefused
from mistnet.kit.statements import command, statement
from mistnet.queue.model import JobId
from mistnet.social.ingests.model import IngestId, IngestStatus
from mistnet.social.ingests.store import open_ingests
from mistnet.social.model import Platform, UserId
from mistnet.social.store.accounts import StoreLook
from mistnet.social.tables import OPEN_INGEST, ingest_events, users

Edge: TypeAlias = tuple[int, int]
"""Who follows, and whom."""

_OWN: Final[dict[Side, Column[Any]]] = {Side.FOLLOWERS: follows.c.followed_id, Side.FOLLOWINGS: follows.c.follower_id}
_OTHER: Final[dict[Side, Column[Any]]] = {
    Side.FOLLOWERS: follows.c.follower_id,
    Side.FOLLOWINGS: follows.c.followed_id,
}


def own_end(side: Side) -> Column[Any]:
    """The column that holds whose list it is."""
    return _OWN[side]


def other_end(side: Side) -> Column[Any]:
    """The column that holds who is on it."""
    return _OTHER[side]


def edges_of(side: Side, subject_id: UserId, ids: Sequence[UserId]) -> list[Edge]:
    """Each once, in an order that all writers share."""
    ours = ((each, subject_id) if side is Side.FOLLOWERS else (subject_id, each) for each in set(ids))
    return sorted(ours)


async def write_follows_seen(connection: AsyncConnection, given: Sequence[FollowsSeen], now: datetime) -> None:
    """Comes after the users themselves. What is new, or comes back, is an event; the rest was seen once more.

    The first complete list is a baseline: how long those on it have been there is not known, and no event.
    """
    for each in given:
        edges = edges_of(each.side, each.subject_id, each.ids)
        if not edges:
            continue
        ingest_id = await _ingest(connection, each)
        told = {"platform": each.platform, "ingest_id": ingest_id, "now": now}
        added = await _turned(connection, "add_follows", edges, told)
        known = [edge for edge in edges if edge not in added]
        back = await _turned(connection, "reopen_follows", known, told) if known else set()
        still = [edge for edge in known if edge not in back]
        if still:
            await connection.execute(
                command("refresh_follows", connection.dialect.name), _binds(connection, still, told)
            )
        news = await _began(connection, each, added) | back
        await _note(connection, sorted(news), FollowKind.FOLLOWED, each.cause, told)


async def write_follows_ended(connection: AsyncConnection, given: Sequence[FollowsEnded], now: datetime) -> None:
    """Only what an earlier sync has missed already can end, and only what this one has not seen either."""
    for each in given:
        edges = edges_of(each.side, each.subject_id, each.ids)
        if not edges:
            continue
        told = {"platform": each.platform, "ingest_id": await _ingest(connection, each), "now": now}
        ended = await _turned(connection, "end_follows", edges, {**told, "since": each.since})
        await _note(connection, sorted(ended), FollowKind.UNFOLLOWED, each.cause, told)


async def write_syncs_ended(connection: AsyncConnection, given: Sequence[SyncEnded], _now: datetime) -> None:
    """Comes before the ingest itself is ended."""
    for each in given:
        ingest_id = await _ingest(connection, each)
        doubted = update(follows).where(
            follows.c.platform == each.platform,
            own_end(each.side) == each.subject_id,
            follows.c.ended_at.is_(None),
            follows.c.missed_in.is_(None),
            follows.c.last_seen_at < each.since,
            follows.c.seen_in != ingest_id,
        )
        await connection.execute(doubted.values(missed_in=ingest_id))


async def _began(connection: AsyncConnection, seen: FollowsSeen, added: set[Edge]) -> set[Edge]:
    """The new edges that a complete list of one of their ends would have shown before, had they been there."""
    if seen.cause is not Cause.SEEN or not added:
        return added
    if await _known_lists(connection, seen.platform, seen.side, [seen.subject_id]):
        return added
    others = {one if seen.side is Side.FOLLOWERS else two for one, two in added}
    known = await _known_lists(connection, seen.platform, seen.side.opposite, sorted(others))
    return {(one, two) for one, two in added if (one if seen.side is Side.FOLLOWERS else two) in known}


async def _known_lists(connection: AsyncConnection, platform: Platform, side: Side, of: Sequence[int]) -> set[int]:
    """Whose list was read to its end once, and believed."""
    asked = select(ingest_events.c.subject_id).where(*read_lists(platform, side), ingest_events.c.subject_id.in_(of))
    return set((await connection.execute(asked.distinct())).scalars())


def read_lists(platform: Platform, side: Side) -> tuple[ColumnElement[bool], ...]:
    """Syncs of one side that read the whole list and could be believed."""
    own = ingest_events.c
    return (
        own.platform == platform,
        own.kind == side.ingest_kind,
        own.status == IngestStatus.SUCCESS,
        own.mode == SyncMode.FULL,
        own.plausible.is_(True),
    )


async def _ingest(connection: AsyncConnection, of: FollowsSeen | FollowsEnded | SyncEnded) -> IngestId:
    if isinstance(of, FollowsSeen) and of.ingest_id is not None:
        return of.ingest_id
    if of.job_id is not None:
        found = (await open_ingests(connection, [of.job_id])).get(of.job_id)
        if found is not None:
            return found
    raise WriteRefused(f"follows of user {of.subject_id} belong to no ingest that is open: begin one with them")


async def _turned(connection: AsyncConnection, name: str, edges: Sequence[Edge], told: dict[str, Any]) -> set[Edge]:
    """The edges a statement really changed."""
    asked = statement(name, connection.dialect.name)
    rows = await connection.execute(asked, _binds(connection, edges, told))
    return {(row.follower_id, row.followed_id) for row in rows}


async def _note(
    connection: AsyncConnection, edges: Sequence[Edge], kind: FollowKind, cause: Cause, told: dict[str, Any]
) -> None:
    if edges:
        binds = _binds(connection, edges, {**told, "kind": kind, "cause": cause})
        await connection.execute(command("note_follows", connection.dialect.name), binds)


def _binds(connection: AsyncConnection, edges: Sequence[Edge], told: dict[str, Any]) -> dict[str, Any]:
    if connection.dialect.name != "postgresql":
        return {**told, "pairs": msgspec.json.encode(edges).decode()}
    followers, followed = zip(*edges, strict=True)
    return {**told, "follower_ids": list(followers), "followed_ids": list(followed)}


__all__ = [
    "edges_of",
    "other_end",
    "own_end",
    "read_lists",
    "write_follows_ended",
    "write_follows_seen",
    "write_syncs_ended",
]


class StoreFollowLook:
    """Reads for handlers: each question stands for itself."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.stalest_users = StoreLook(database).stalest_users

    async def last_sync(self, platform: Platform, side: Side, subject_id: UserId) -> BelievedSync | None:
        """The whole list as last read to its end; what has been added to it since counts as well."""
        asked = _believed(platform, side, subject_id)
        async with self._database.read_quickly() as connection:
            full = (await connection.execute(asked.where(ingest_events.c.mode == SyncMode.FULL))).first()
            latest = (await connection.execute(asked)).first() if full else None
        if full is None or latest is None:
            return None
        return BelievedSync(ingest_id=IngestId(latest.id), started_at=full.started_at, finished_at=latest.finished_at)

    async def known_edges(
        self, platform: Platform, side: Side, subject_id: UserId, ids: Collection[UserId], known: BelievedSync
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
        async with self._database.read_quickly() as connection:
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
