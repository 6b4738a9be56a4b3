"""Sets of users whose graph is drawn or exported: a segment's members, or an account with all around it."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import ColumnElement, Select, exists, literal, or_, select, union

from mistnet.graph.tables import follows, segment_members, segments
from mistnet.kit.database import Database
from mistnet.kit.export import BadExport
from mistnet.kit.text import read_id
from mistnet.kit.types import BigId
from mistnet.social.model import UserId, X
from mistnet.social.store.search import holders
from mistnet.social.tables import users

GRAPH: Final = "graph"


class UserSet(Protocol):
    """Who belongs to a graph, in the order of ids and one by one."""

    @property
    def name(self) -> str: ...

    def ids(self, after: int, limit: int) -> Select[Any]:
        """The next members, by id, as a column `id`."""

    def holds(self, user_id: ColumnElement[int]) -> ColumnElement[bool]:
        """Whether a user is one of them."""


class SegmentUsers(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a segment as it was last materialized."""

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

    def holds(self, user_id: ColumnElement[int]) -> ColumnElement[bool]:
        own = segment_members.alias().c
        return exists().where(own.segment_id == self.segment_id, own.platform == X, own.user_id == user_id)


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """One user, all who follow him and all whom he follows; if `ended`, also those of former times."""

    user_id: UserId
    name: str
    ended: bool = False

    def ids(self, after: int, limit: int) -> Select[Any]:
        """Both lists are in the order of ids in an index: no more of either is read than fits the page."""
        own = follows.c
        followers = select(own.follower_id.label("id")).where(own.followed_id == self.user_id, own.follower_id > after)
        followed = select(own.followed_id.label("id")).where(own.follower_id == self.user_id, own.followed_id > after)
        himself = select(literal(self.user_id, BigId).label("id")).where(literal(self.user_id, BigId) > after)
        sides = (
            followers.where(own.platform == X, *self._alive(own)).order_by(own.follower_id).limit(limit),
            followed.where(own.platform == X, *self._alive(own)).order_by(own.followed_id).limit(limit),
        )
        every = union(himself, *(select(side.subquery().c.id) for side in sides)).subquery()
        return select(every.c.id).order_by(every.c.id).limit(limit)

    def holds(self, user_id: ColumnElement[int]) -> ColumnElement[bool]:
        """Asked one by one, by the index: the offset keeps PostgreSQL from reading both lists whole for each page."""
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


async def users_of_segment(database: Database, name: str) -> SegmentUsers:
    """The segment of that name, if its members are people."""
    asked = select(segments.c.id, segments.c.what, segments.c.materialized_at).where(segments.c.name == name)
    async with database.read() as connection:
        found = (await connection.execute(asked)).first()
    if found is None:
        raise BadExport(GRAPH, f"there is no segment {name!r}; `mistnet segments list` shows them")
    if found.what != "users":
        raise BadExport(GRAPH, f"{name} holds posts, and a graph is made of people; name a segment of users")
    if found.materialized_at is None:
        raise BadExport(GRAPH, f"{name} has no members yet; run `mistnet segments materialize {name}` first")
    return SegmentUsers(segment_id=found.id, name=name)


async def neighbourhood_of(database: Database, account: str, *, ended: bool = False) -> Neighbourhood:
    """Around whoever goes by a handle now, or has an id."""
    async with database.read() as connection:
        if account.isascii() and account.isdecimal():
            asked = select(users.c.id).where(users.c.platform == X, users.c.id == (read_id(account) or 0))
            found = list((await connection.execute(asked)).scalars())
        else:
            found = [user_id for platform, user_id in await holders(connection, account) if platform == X]
    if not found:
        raise BadExport(GRAPH, f"no stored user is {account!r}; check its spelling, or `mistnet hydrate users` first")
    if len(found) > 1:
        some = ", ".join(map(str, found))
        raise BadExport(GRAPH, f"several stored users go by {account!r}; give one of their ids instead: {some}")
    return Neighbourhood(user_id=UserId(found[0]), name=account, ended=ended)
