"""A small part of a segment's graph for a picture: the members with the most edges among themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Select, func, literal, select

from mistnet.graph.export import Edges
from mistnet.graph.segments.model import SegmentId
from mistnet.graph.tables import follows, segment_members
from mistnet.kit.database import Database
from mistnet.social.model import UserId, X
from mistnet.social.tables import posts, users

CANDIDATES: Final = 2_000
MOST_NODES: Final = 150
_MOST_EDGES: Final = 50_000


class GraphDot(msgspec.Struct, frozen=True, kw_only=True):
    """One member in a picture."""

    user_id: UserId
    handle: str | None
    name: str | None


class GraphLine(msgspec.Struct, frozen=True, kw_only=True):
    """Who follows or answers whom, and how often."""

    source: UserId
    target: UserId
    weight: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn, and of how many it was chosen."""

    dots: Sequence[GraphDot]
    lines: Sequence[GraphLine]
    candidates: int


async def sample(database: Database, segment_id: SegmentId, edges: Edges) -> Sample:
    """Bounded whatever the segment's size: of its latest members those with the most edges, by degree, then by id."""
    async with database.read() as connection:
        ids: list[UserId] = list((await connection.execute(_candidates(segment_id))).scalars())
        among = _follows(ids) if edges is Edges.FOLLOWS else _replies(ids)
        found = [GraphLine(**row) for row in (await connection.execute(among.limit(_MOST_EDGES))).mappings()]
        chosen = _most_connected(ids, found)
        asked = select(users.c.id.label("user_id"), users.c.handle, users.c.name)
        rows = await connection.execute(asked.where(users.c.platform == X, users.c.id.in_(chosen)))
        known = {row["user_id"]: GraphDot(**row) for row in rows.mappings()}
    kept = set(chosen)
    lines = [line for line in found if line.source in kept and line.target in kept]
    return Sample(dots=[known[each] for each in chosen if each in known], lines=lines, candidates=len(ids))


def _most_connected(ids: Sequence[UserId], lines: Sequence[GraphLine]) -> Sequence[UserId]:
    degrees = Counter(end for line in lines for end in (line.source, line.target))
    return sorted(ids, key=lambda each: (-degrees[each], each))[:MOST_NODES]


def _candidates(segment_id: SegmentId) -> Select[Any]:
    own = segment_members.c
    asked = select(own.user_id).where(own.segment_id == segment_id, own.user_id.is_not(None), own.platform == X)
    return asked.order_by(own.id.desc()).limit(CANDIDATES)


def _follows(ids: Sequence[UserId]) -> Select[Any]:
    own = follows.c
    asked = select(own.follower_id.label("source"), own.followed_id.label("target"), literal(1).label("weight"))
    alive = asked.where(own.platform == X, own.ended_at.is_(None))
    return alive.where(own.follower_id.in_(ids), own.followed_id.in_(ids)).order_by(own.follower_id, own.followed_id)


def _replies(ids: Sequence[UserId]) -> Select[Any]:
    own = posts.c
    return (
        select(own.author_id.label("source"), own.in_reply_to_user_id.label("target"), func.count().label("weight"))
        .where(own.platform == X, own.author_id.in_(ids), own.in_reply_to_user_id.in_(ids))
        .where(own.author_id != own.in_reply_to_user_id)
        .group_by(own.author_id, own.in_reply_to_user_id)
        .order_by(own.author_id, own.in_reply_to_user_id)
    )
