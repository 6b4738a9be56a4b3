"""Writes who follows whom: edges as they are seen, doubted and ended, and the events that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import Column, ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.errors import WriteRefused
from mistnet.domain.follows import Cause, FollowKind, FollowsEnded, FollowsSeen, Side, SyncEnded, SyncMode
from mistnet.domain.ingests import IngestId, IngestStatus
from mistnet.domain.social import Platform, UserId
from mistnet.store.ingest_steps import open_ingests
from mistnet.store.statements import command, statement
from mistnet.store.tables import follows, ingest_events

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
