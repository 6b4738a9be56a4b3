"""Writes follow edges as they are seen, missed and ended, with the events of each change; reads what a sync needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import Column, ColumnElement, func, or_, select, text, update
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
from mistnet.kit.errors import WriteRefused
from mistnet.kit.statements import run_directly
from mistnet.social.ingests import IngestId, IngestStatus
from mistnet.social.model import Platform, UserId
from mistnet.social.store.accounts import StoreLook
from mistnet.social.store.ingests import open_ingests
from mistnet.social.tables import OPEN_INGEST, ingest_events, users

Edge: TypeAlias = tuple[int, int]
"""The follower, then the followed user."""

_ingest: Final = ingest_events.c

OWN_END: Final[Mapping[Side, Column[Any]]] = {
    Side.FOLLOWERS: follows.c.followed_id,
    Side.FOLLOWINGS: follows.c.follower_id,
}
"""The column of the user whose list it is."""

OTHER_END: Final[Mapping[Side, Column[Any]]] = {side: OWN_END[side.opposite] for side in Side}
"""The column of the users on the list."""


async def write_follows_seen(connection: AsyncConnection, given: Sequence[FollowsSeen], now: datetime) -> None:
    """Runs after the users are written. New and returning edges become events, the others are refreshed.

    The first complete list is a baseline without events: how long its edges have existed is unknown.
    """
    for each in given:
        edges = _edges_of(each)
        if not edges:
            continue
        ingest_id = await _ingest_of(connection, each)
        values = {"platform": each.platform, "ingest_id": ingest_id, "now": now}
        # An edge that another writer added or reopened meanwhile makes no second event: it is only refreshed.
        added = await _change_edges(connection, "add_follows", edges, values)
        known = [edge for edge in edges if edge not in added]
        reopened = await _change_edges(connection, "reopen_follows", known, values)
        live = [edge for edge in known if edge not in reopened]
        if live:
            await run_directly(connection, "refresh_follows", {**values, "edges": live})
        changed = await _without_baseline(connection, each, added) | reopened
        await _write_events(connection, changed, {**values, "kind": FollowKind.FOLLOWED, "cause": each.cause})


async def write_follows_ended(connection: AsyncConnection, given: Sequence[FollowsEnded], now: datetime) -> None:
    """End only edges that an earlier sync and this one have both missed."""
    for each in given:
        edges = _edges_of(each)
        if not edges:
            continue
        values = {"platform": each.platform, "ingest_id": await _ingest_of(connection, each), "now": now}
        ended = await _change_edges(connection, "end_follows", edges, {**values, "since": each.since})
        await _write_events(connection, ended, {**values, "kind": FollowKind.UNFOLLOWED, "cause": each.cause})


async def write_syncs_ended(connection: AsyncConnection, given: Sequence[SyncEnded], _now: datetime) -> None:
    """Runs before the ingest itself is ended."""
    for each in given:
        ingest_id = await _ingest_of(connection, each)
        doubted = update(follows).where(
            *_live_edges(each.platform, each.side, each.subject_id),
            follows.c.missed_in.is_(None),
            follows.c.last_seen_at < each.since,
            follows.c.seen_in != ingest_id,
        )
        await connection.execute(doubted.values(missed_in=ingest_id))


def full_syncs(platform: Platform, side: Side) -> tuple[ColumnElement[bool], ...]:
    """Plausible syncs of one side that read the whole list."""
    return *_plausible_syncs(platform, side), _ingest.mode == SyncMode.FULL


def _plausible_syncs(platform: Platform, side: Side) -> tuple[ColumnElement[bool], ...]:
    return (
        _ingest.platform == platform,
        _ingest.kind == side.ingest_kind,
        _ingest.status == IngestStatus.SUCCESS,
        _ingest.plausible.is_(True),
    )


def _edges_of(each: FollowsSeen | FollowsEnded) -> list[Edge]:
    """Each edge once. All writers share this order, so that two of them cannot deadlock."""
    own = each.subject_id
    return sorted((other, own) if each.side is Side.FOLLOWERS else (own, other) for other in set(each.ids))


async def _without_baseline(connection: AsyncConnection, seen: FollowsSeen, added: set[Edge]) -> set[Edge]:
    """The new edges that a complete list of one of their ends would have shown earlier, had they existed."""
    if seen.cause is not Cause.SEEN or not added:
        return added
    if await _users_with_full_list(connection, seen.platform, seen.side, [seen.subject_id]):
        return added
    other = 0 if seen.side is Side.FOLLOWERS else 1
    others = sorted({edge[other] for edge in added})
    known = await _users_with_full_list(connection, seen.platform, seen.side.opposite, others)
    return {edge for edge in added if edge[other] in known}


async def _users_with_full_list(
    connection: AsyncConnection, platform: Platform, side: Side, ids: Sequence[int]
) -> set[int]:
    query = select(ingest_events.c.subject_id).where(*full_syncs(platform, side), ingest_events.c.subject_id.in_(ids))
    return set((await connection.execute(query.distinct())).scalars())


async def _ingest_of(connection: AsyncConnection, of: FollowsSeen | FollowsEnded | SyncEnded) -> IngestId:
    if isinstance(of, FollowsSeen) and of.ingest_id is not None:
        return of.ingest_id
    if of.job_id is not None:
        found = (await open_ingests(connection, [of.job_id])).get(of.job_id)
        if found is not None:
            return found
    raise WriteRefused(f"follows of user {of.subject_id} need an open ingest: begin one in the same settlement")


async def _change_edges(
    connection: AsyncConnection, name: str, edges: Sequence[Edge], values: Mapping[str, Any]
) -> set[Edge]:
    """Run a statement for these edges. Returns those it changed: another writer may have changed the rest before."""
    if not edges:
        return set()
    rows = await run_directly(connection, name, {**values, "edges": edges})
    return {(follower, followed) for follower, followed in rows}


async def _write_events(connection: AsyncConnection, edges: set[Edge], values: Mapping[str, Any]) -> None:
    if edges:
        await run_directly(connection, "note_follows", {**values, "edges": sorted(edges)})


class SyncReads(StoreLook):
    """What the handler of follow syncs reads."""

    async def last_sync(self, platform: Platform, side: Side, subject_id: UserId) -> BelievedSync | None:
        """The last full sync, extended to the end of the last incremental one after it."""
        own = ingest_events.c
        query = (
            select(own.id, own.started_at, own.finished_at)
            .where(*_plausible_syncs(platform, side), own.subject_id == subject_id)
            .order_by(own.id.desc())
            .limit(1)
        )
        async with self._database.read_quickly() as connection:
            full = (await connection.execute(query.where(own.mode == SyncMode.FULL))).first()
            latest = (await connection.execute(query)).first() if full else None
        if full is None or latest is None:
            return None
        return BelievedSync(ingest_id=IngestId(latest.id), started_at=full.started_at, finished_at=latest.finished_at)

    async def known_edges(
        self, platform: Platform, side: Side, subject_id: UserId, ids: Collection[UserId], known: BelievedSync
    ) -> set[UserId]:
        """Users whose edge is live, existed when that sync ended, and was seen by it or later."""
        query = select(OTHER_END[side]).where(
            *_live_edges(platform, side, subject_id),
            OTHER_END[side].in_(sorted(ids)),
            # An edge that appeared since then is new, even if a webhook has stored it already.
            follows.c.first_seen_at <= known.finished_at,
            follows.c.last_seen_at >= known.started_at,
        )
        return {UserId(each) for each in await self.fetch_ids(query)}

    async def seen(self, sync: Sync) -> int:
        """How many different users were seen since the sync began."""
        query = select(func.count()).where(
            *_live_edges(sync.platform, sync.side, sync.subject_id),
            or_(follows.c.last_seen_at >= sync.since, follows.c.seen_in == _ingest_id(sync)),
        )
        return int((await self.fetch_ids(query))[0])

    async def missed(self, sync: Sync, *, after: UserId | None, limit: int) -> Sequence[UserId]:
        """Users whom an earlier sync and this one missed, by id."""
        return await self._fetch_unseen(sync, after, limit, follows.c.missed_in.is_not(None))

    async def unseen(self, sync: Sync, *, after: UserId | None, limit: int) -> Sequence[UserId]:
        """Users whom this sync missed, whether or not an earlier one did, by id."""
        return await self._fetch_unseen(sync, after, limit)

    async def newly_missed(self, sync: Sync) -> bool:
        """Whether this sync is the first to miss some user."""
        return bool(await self._fetch_unseen(sync, None, 1, follows.c.missed_in.is_(None)))

    async def hidden(self, sync: Sync) -> int:
        """How many edges have ended because the other user became unavailable."""
        event = follow_events.c
        query = (
            select(func.count())
            .select_from(follow_events)
            .join(
                follows,
                (follows.c.platform == event.platform)
                & (follows.c.follower_id == event.follower_id)
                & (follows.c.followed_id == event.followed_id)
                & (follows.c.ended_at == event.at),
            )
            .where(
                event.platform == sync.platform,
                event[OWN_END[sync.side].name] == sync.subject_id,
                event.kind == FollowKind.UNFOLLOWED,
                event.cause.in_([Cause.SUSPENDED, Cause.VANISHED]),
            )
        )
        return int((await self.fetch_ids(query))[0])

    async def handle(self, platform: Platform, user_id: UserId) -> str | None:
        query = select(users.c.handle).where(users.c.platform == platform, users.c.id == user_id)
        return next(iter(await self.fetch_ids(query)), None)

    async def _fetch_unseen(
        self, sync: Sync, after: UserId | None, limit: int, *conditions: ColumnElement[bool]
    ) -> Sequence[UserId]:
        """Live edges not seen since the sync began. Without an open ingest there are none, because a missing `seen_in`
        compares as unknown: no doubt is better than a wrong one."""
        other = OTHER_END[sync.side]
        query = select(other).where(
            *_live_edges(sync.platform, sync.side, sync.subject_id),
            follows.c.last_seen_at < sync.since,
            follows.c.seen_in != _ingest_id(sync),
            *conditions,
        )
        if after is not None:
            query = query.where(other > after)
        return [UserId(each) for each in await self.fetch_ids(query.order_by(other).limit(limit))]


def _live_edges(platform: Platform, side: Side, subject_id: UserId) -> tuple[ColumnElement[bool], ...]:
    return follows.c.platform == platform, OWN_END[side] == subject_id, follows.c.ended_at.is_(None)


def _ingest_id(sync: Sync) -> Any:
    return select(ingest_events.c.id).where(ingest_events.c.job_id == sync.job_id, text(OPEN_INGEST)).scalar_subquery()
