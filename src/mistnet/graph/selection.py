"""Sets of users whose graph is exported or drawn, and a sample of a large one for a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import ColumnElement, Select, exists, func, literal, or_, select, union

from mistnet.graph.segments.model import SegmentId
from mistnet.graph.tables import follows, segment_members, segments
from mistnet.kit.database import Database
from mistnet.kit.export import BadExport
from mistnet.kit.text import read_id
from mistnet.kit.types import BigId
from mistnet.social.model import UserId, X
from mistnet.social.store.post_listing import holders
from mistnet.social.tables import posts, users

GRAPH: Final = "graph"


class Edges(StrEnum):
    """What an edge means. It leads from the user who follows or replies to the other one."""

    FOLLOWS = "follows"
    REPLIES = "replies"


class SegmentUsers(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a segment as of its last materialization."""

    segment_id: int
    name: str

    def ids(self, after: int, limit: int) -> Select[Any]:
        own = segment_members.c
        return (
            select(own.user_id.label("id"))
            .where(own.segment_id == self.segment_id, own.platform == X, own.user_id > after)
            .order_by(own.user_id)
            .limit(limit)
        )

    def contains(self, user_id: ColumnElement[int]) -> ColumnElement[bool]:
        own = segment_members.alias().c
        return exists().where(own.segment_id == self.segment_id, own.platform == X, own.user_id == user_id)


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """A user with all followers and followings; if `ended`, also former ones."""

    user_id: UserId
    name: str
    ended: bool = False

    def ids(self, after: int, limit: int) -> Select[Any]:
        """Both lists are read in the order of an index, no more of either than fits the page."""
        own = follows.c
        followers = select(own.follower_id.label("id")).where(own.followed_id == self.user_id, own.follower_id > after)
        followed = select(own.followed_id.label("id")).where(own.follower_id == self.user_id, own.followed_id > after)
        center = select(literal(self.user_id, BigId).label("id")).where(literal(self.user_id, BigId) > after)
        sides = (
            followers.where(own.platform == X, *self._alive(own)).order_by(own.follower_id).limit(limit),
            followed.where(own.platform == X, *self._alive(own)).order_by(own.followed_id).limit(limit),
        )
        every = union(center, *(select(side.subquery().c.id) for side in sides)).subquery()
        return select(every.c.id).order_by(every.c.id).limit(limit)

    def contains(self, user_id: ColumnElement[int]) -> ColumnElement[bool]:
        """Looked up one by one, by the index: the OFFSET keeps PostgreSQL from reading both lists for each page."""
        sides = [follows.alias(), follows.alias()]
        pairs = [(user_id, self.user_id), (self.user_id, user_id)]
        found = [
            select(literal(1))
            .where(edge.c.platform == X, edge.c.follower_id == one, edge.c.followed_id == other, *self._alive(edge.c))
            .correlate_except(edge)
            .limit(1)
            .offset(0)
            for edge, (one, other) in zip(sides, pairs, strict=True)
        ]
        return or_(user_id == self.user_id, *(exists(each) for each in found))

    def _alive(self, edge: Any) -> list[ColumnElement[bool]]:
        return [] if self.ended else [edge.ended_at.is_(None)]


UserSet: TypeAlias = SegmentUsers | Neighbourhood
"""The users of a graph: `ids` has them page by page in a column `id`, `contains` whether a user is one of them."""


async def users_of_segment(database: Database, name: str) -> SegmentUsers:
    """The segment of this name. Raises BadExport unless it has users as members."""
    query = select(segments.c.id, segments.c.what, segments.c.materialized_at).where(segments.c.name == name)
    async with database.read() as connection:
        found = (await connection.execute(query)).first()
    if found is None:
        raise BadExport(GRAPH, f"there is no segment {name!r}; run `mistnet segments list` to see all")
    if found.what != "users":
        raise BadExport(GRAPH, f"{name} contains posts; a graph needs a segment of users")
    if found.materialized_at is None:
        raise BadExport(GRAPH, f"{name} has no members yet; run `mistnet segments materialize {name}` first")
    return SegmentUsers(segment_id=found.id, name=name)


async def neighbourhood_of(database: Database, account: str, *, ended: bool = False) -> Neighbourhood:
    """The neighbourhood of the user with this handle or id."""
    async with database.read() as connection:
        if account.isascii() and account.isdecimal():
            query = select(users.c.id).where(users.c.platform == X, users.c.id == (read_id(account) or 0))
            found = list((await connection.execute(query)).scalars())
        else:
            found = [user_id for platform, user_id in await holders(connection, account) if platform == X]
    if not found:
        raise BadExport(
            GRAPH, f"no stored user is {account!r}; check the spelling, or run `mistnet hydrate users` first"
        )
    if len(found) > 1:
        some = ", ".join(map(str, found))
        raise BadExport(
            GRAPH, f"several stored users have the handle {account!r}; give one of their ids instead: {some}"
        )
    return Neighbourhood(user_id=UserId(found[0]), name=account, ended=ended)


CANDIDATES: Final = 2_000
MOST_NODES: Final = 150
# Bounds the memory and the time that one picture takes.
_MOST_EDGES: Final = 50_000


class GraphDot(msgspec.Struct, frozen=True, kw_only=True):
    """One member in a picture."""

    user_id: UserId
    handle: str | None
    name: str | None


class GraphLine(msgspec.Struct, frozen=True, kw_only=True):
    """One user follows another, or replies to them `weight` times."""

    source: UserId
    target: UserId
    weight: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a graph that is drawn. `candidates`: how many members it was chosen from."""

    dots: Sequence[GraphDot]
    lines: Sequence[GraphLine]
    candidates: int


async def sample(database: Database, segment_id: SegmentId, edges: Edges) -> Sample:
    """The most connected of the latest members, by degree, then by id. Bounded for segments of any size."""
    async with database.read() as connection:
        own = segment_members.c
        # Only the latest members: to choose among all by degree, every edge of a huge segment would be read.
        latest = select(own.user_id).where(own.segment_id == segment_id, own.user_id.is_not(None), own.platform == X)
        ids: list[UserId] = list((await connection.execute(latest.order_by(own.id.desc()).limit(CANDIDATES))).scalars())
        if edges is Edges.FOLLOWS:
            source, target = follows.c.follower_id, follows.c.followed_id
            among = select(literal(1).label("weight")).where(follows.c.platform == X, follows.c.ended_at.is_(None))
        else:
            source, target = posts.c.author_id, posts.c.in_reply_to_user_id
            among = select(func.count().label("weight")).where(posts.c.platform == X, source != target)
            among = among.group_by(source, target)
        among = among.add_columns(source.label("source"), target.label("target")).order_by(source, target)
        among = among.where(source.in_(ids), target.in_(ids))
        found = [GraphLine(**row) for row in (await connection.execute(among.limit(_MOST_EDGES))).mappings()]
        degrees = Counter(end for line in found for end in (line.source, line.target))
        chosen = sorted(ids, key=lambda each: (-degrees[each], each))[:MOST_NODES]
        query = select(users.c.id.label("user_id"), users.c.handle, users.c.name)
        rows = await connection.execute(query.where(users.c.platform == X, users.c.id.in_(chosen)))
        known = {row["user_id"]: GraphDot(**row) for row in rows.mappings()}
    kept = set(chosen)
    lines = [line for line in found if line.source in kept and line.target in kept]
    return Sample(dots=[known[each] for each in chosen if each in known], lines=lines, candidates=len(ids))
