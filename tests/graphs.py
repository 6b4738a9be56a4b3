"""Small graphs put straight into a database: people, who follows whom, segments with their members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import bindparam, insert, text

from mistnet.kit.database import Database
from mistnet.kit.types import UtcTime
from mistnet.social.model import Detail, Post, PostId, User, UserId, X
from mistnet.social.store.posts import write_posts, write_users
from tests import schema as tables
from tests.support import START

DAY = timedelta(days=1)


def person(user_id: int, handle: str | None = None, **about: Any) -> User:
    own = {"platform": X, "detail": Detail.PROFILE, "raw": b"{}"}
    return User(**{**own, "id": UserId(user_id), "handle": handle or f"user{user_id}", **about})


def answer(post_id: int, author: int, to: int | None, *, parent: int | None = None, at: datetime = START) -> Post:
    return Post(
        platform=X,
        id=PostId(post_id),
        author_id=UserId(author),
        text="words",
        created_at=at,
        in_reply_to_id=PostId(parent) if parent else None,
        in_reply_to_user_id=UserId(to) if to else None,
        raw=b"{}",
    )


async def people(database: Database, given: Iterable[User]) -> None:
    async with database.transaction() as connection:
        await write_users(connection, list(given), START)


async def written(database: Database, given: Sequence[Post]) -> None:
    async with database.transaction() as connection:
        await write_posts(connection, given, START)


async def follow(database: Database, *pairs: tuple[int, int], at: datetime = START, **about: Any) -> None:
    """Each follows the other; with `ended_at`, no more."""
    common = {"platform": "x", "first_seen_at": at, "last_seen_at": at + DAY, "seen_in": 1, **about}
    async with database.transaction() as connection:
        rows = [{**common, "follower_id": one, "followed_id": other} for one, other in pairs]
        await connection.execute(insert(tables.follows), rows)


async def follow_event(database: Database, one: int, other: int, kind: str, cause: str, at: datetime = START) -> None:
    """An event is of an edge: where there is none yet, it is made."""
    row = {"platform": "x", "follower_id": one, "followed_id": other, "kind": kind, "cause": cause, "at": at}
    edge = (
        "INSERT INTO follows (platform, follower_id, followed_id, first_seen_at, last_seen_at, seen_in) "
        "VALUES (:platform, :one, :other, :at, :at, 1) ON CONFLICT DO NOTHING"
    )
    binds = {"platform": "x", "one": one, "other": other, "at": at}
    async with database.transaction() as connection:
        await connection.execute(text(edge).bindparams(bindparam("at", type_=UtcTime())), binds)
        await connection.execute(insert(tables.follow_events), row)


async def synced(database: Database, subject: int, side: str, counts: Mapping[datetime, int]) -> None:
    """Complete, plausible syncs of one side, and how many each saw."""
    common = {"platform": "x", "status": "success", "mode": "full", "asked_by": "a test", "plausible": True}
    own = {**common, "kind": f"{side}_sync", "subject_id": subject}
    async with database.transaction() as connection:
        rows = [{**own, "started_at": at, "finished_at": at, "items": count} for at, count in counts.items()]
        await connection.execute(insert(tables.ingest_events), rows)


async def segment(
    database: Database,
    name: str,
    members: Sequence[int] = (),
    *,
    rule: Any = None,
    what: str = "users",
    materialized: bool = True,
    at: datetime = START,
) -> int:
    """A segment with these members, as one materialization would leave it."""
    told = msgspec.json.encode(rule or {"kind": "specified_users"})
    row: dict[str, Any] = {
        "name": name,
        "what": what,
        "rule": told,
        "enabled": True,
        "created_at": at,
        "changed_at": at,
    }
    async with database.transaction() as connection:
        asked = insert(tables.segments).returning(tables.segments.c.id)
        row["materialized_at"] = at if materialized else None
        own = (await connection.execute(asked, row)).scalar_one()
        if materialized:
            await connection.execute(insert(tables.segment_snapshots), _snapshot(own, at, members, (), len(members)))
        if members:
            rows = [{"segment_id": own, "platform": "x", "user_id": each, "since": at} for each in members]
            await connection.execute(insert(tables.segment_members), rows)
    return int(own)


async def turn(
    database: Database, segment_id: int, *, entered: Sequence[int], left: Sequence[int], members: int, at: datetime
) -> None:
    """One more materialization: who came, who went, how many there are now."""
    own = tables.segment_members.c
    async with database.transaction() as connection:
        asked = insert(tables.segment_snapshots).returning(tables.segment_snapshots.c.id)
        row = _snapshot(segment_id, at, entered, left, members)
        snapshot_id = (await connection.execute(asked, row)).scalar_one()
        events = [(each, "entered") for each in entered] + [(each, "left") for each in left]
        common = {"segment_id": segment_id, "snapshot_id": snapshot_id, "platform": "x", "at": at}
        if events:
            rows = [{**common, "user_id": user_id, "kind": kind} for user_id, kind in events]
            await connection.execute(insert(tables.segment_events), rows)
        gone = tables.segment_members.delete().where(own.segment_id == segment_id, own.user_id.in_(left))
        await connection.execute(gone)
        if entered:
            come = [{"segment_id": segment_id, "platform": "x", "user_id": each, "since": at} for each in entered]
            await connection.execute(insert(tables.segment_members), come)
        done = tables.segments.update().where(tables.segments.c.id == segment_id)
        await connection.execute(done.values(materialized_at=at))


def _snapshot(
    segment_id: int, at: datetime, entered: Sequence[int], left: Sequence[int], members: int
) -> dict[str, Any]:
    counts = {"members": members, "entered": len(entered), "departed": len(left)}
    return {"segment_id": segment_id, "at": at, "ingests": b"[]", **counts}
