"""Reads a graph out, who follows or answers whom: its people, then its edges, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import ColumnElement, Select, func, literal, null, select

from mistnet.graph.gexf import gexf
from mistnet.graph.graph_selection import GRAPH, UserSet
from mistnet.graph.tables import follows
from mistnet.kit.database import Database
from mistnet.kit.export import (
    BadExport,
    ColumnShape,
    Field,
    Format,
    ForSpreadsheets,
    Row,
    export_pages,
    export_row,
    write_pages,
)
from mistnet.kit.types import BigId, UtcTime
from mistnet.social.model import X
from mistnet.social.tables import posts, users

Told: TypeAlias = Callable[[int], object]
Pages: TypeAlias = AsyncGenerator[Sequence[Row], None]

NODE_FIELDS: Final = (
    Field("id"),
    Field("handle"),
    Field("name"),
    Field("followers_count", ColumnShape.WHOLE),
    Field("following_count", ColumnShape.WHOLE),
    Field("posts_count", ColumnShape.WHOLE),
    Field("verified", ColumnShape.FLAG),
    Field("created_at"),
)
EDGE_FIELDS: Final = (
    Field("source"),
    Field("target"),
    Field("weight", ColumnShape.WHOLE),
    Field("first_at"),
    Field("last_at"),
    Field("ended_at"),
)


class Edges(StrEnum):
    """What an edge means. It goes from who follows or answers to who is followed or answered."""

    FOLLOWS = "follows"
    REPLIES = "replies"


class GraphFormat(StrEnum):
    GEXF = "gexf"
    CSV = "csv"
    PARQUET = "parquet"


class GraphSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which edges among whom. `ended` is for follows, a span of time for replies."""

    circle: UserSet
    edges: Edges
    ended: bool = False
    since: datetime | None = None
    until: datetime | None = None


class GraphSize(msgspec.Struct, frozen=True):
    """How much was written."""

    nodes: int
    edges: int


class GraphExporter:
    """Nothing grows with the graph: members are read by id, edges by whom they come from, and no snapshot is held."""

    def __init__(self, database: Database, *, page_rows: int = 2_000, safe_cells: bool = False) -> None:
        self._database = database
        self._safe_cells = safe_cells
        self._page_rows = page_rows

    async def export(
        self,
        selection: GraphSelection,
        format_: GraphFormat,
        edges: Path,
        nodes: Path | None = None,
        told: Told = lambda _: None,
    ) -> GraphSize:
        """GEXF has all in one file; elsewhere nodes have one of their own."""
        if format_ is GraphFormat.GEXF:
            return await self._as_gexf(selection, edges, told)
        if nodes is None:
            raise BadExport(GRAPH, f"{format_} has its nodes in a file of their own; name one")
        targets = [ForSpreadsheets(path) if self._safe_cells else path for path in (nodes, edges)]
        form = Format(format_)
        people = await export_pages(GRAPH, NODE_FIELDS, self.nodes(selection), form, targets[0], told)
        return GraphSize(people, await export_pages(GRAPH, EDGE_FIELDS, self.edges(selection), form, targets[1], told))

    async def _as_gexf(self, selection: GraphSelection, path: Path, told: Told) -> GraphSize:
        about = f"{selection.edges} among {selection.circle.name}"
        now, dynamic = self._database.clock.now(), selection.edges is Edges.FOLLOWS
        with gexf(path, about, (NODE_FIELDS, EDGE_FIELDS), now=now, dynamic=dynamic) as writer:
            people = await write_pages(self.nodes(selection), writer.nodes, told)
            return GraphSize(people, await write_pages(self.edges(selection), writer.edges, told))

    async def nodes(self, selection: GraphSelection) -> Pages:
        """All members, also those without an edge, by id."""
        wanted = [users.c[field.name] for field in NODE_FIELDS]
        async for ids in self._members(selection.circle):
            asked = select(*wanted).where(users.c.platform == X, users.c.id.between(ids[0], ids[-1]))
            asked = asked.where(users.c.id.in_(ids)).order_by(users.c.id)
            async with self._database.read() as connection:
                yield [export_row(row, NODE_FIELDS) for row in await connection.execute(asked)]

    async def edges(self, selection: GraphSelection) -> Pages:
        """By whom they come from, then by whom they lead to."""
        async for ids in self._members(selection.circle):
            async with aclosing(self._from(selection, ids)) as pages:
                async for page in pages:
                    yield page

    async def _members(self, circle: UserSet) -> AsyncGenerator[Sequence[int], None]:
        after = 0
        while ids := await self._ids(circle, after):
            yield ids
            after = ids[-1]

    async def _ids(self, circle: UserSet, after: int) -> Sequence[int]:
        async with self._database.read() as connection:
            return list((await connection.execute(circle.ids(after, self._page_rows))).scalars())

    async def _from(self, selection: GraphSelection, ids: Sequence[int]) -> Pages:
        """Edges from some people. Who has more of them than a page holds is read to his end alone, by the index."""
        waiting, after = ids, 0
        while waiting:
            page = await self._page(selection, waiting[:1] if after else waiting, after)
            if page:
                yield [export_row(row, EDGE_FIELDS) for row in page]
            if len(page) == self._page_rows:
                waiting = [each for each in waiting if each >= page[-1].source]
                after = page[-1].target
            else:
                waiting, after = waiting[1:] if after else [], 0

    async def _page(self, selection: GraphSelection, sources: Sequence[int], after: int) -> Sequence[Any]:
        asked = _QUESTIONS[selection.edges](selection, sources, after).limit(self._page_rows)
        async with self._database.read() as connection:
            found: Sequence[Any] = (await connection.execute(asked)).all()
            return found


def _follows(selection: GraphSelection, sources: Sequence[int], after: int) -> Select[Any]:
    own = follows.c
    asked = select(
        own.follower_id.label("source"),
        own.followed_id.label("target"),
        literal(1).label("weight"),
        own.first_seen_at.label("first_at"),
        own.last_seen_at.label("last_at"),
        own.ended_at,
    ).where(own.platform == X, own.follower_id.in_(sources), own.followed_id > after)
    asked = asked.where(own.follower_id.between(min(sources), max(sources)))  # where in the index to begin and end
    if not selection.ended:
        asked = asked.where(own.ended_at.is_(None))
    return asked.where(selection.circle.holds(own.followed_id)).order_by(own.follower_id, own.followed_id)


def _replies(selection: GraphSelection, sources: Sequence[int], after: int) -> Select[Any]:
    """Counted first, so that each of those answered is looked for once. Who answers himself is left out."""
    counted = _counted(selection, sources, after).subquery()
    asked = select(counted, null().cast(UtcTime()).label("ended_at"))
    return asked.where(selection.circle.holds(counted.c.target)).order_by(counted.c.source, counted.c.target)


def _counted(selection: GraphSelection, sources: Sequence[int], after: int) -> Select[Any]:
    given = _answers(selection, sources).subquery()
    return (
        select(
            given.c.source,
            given.c.target,
            func.count().label("weight"),
            func.min(given.c.created_at).label("first_at"),
            func.max(given.c.created_at).label("last_at"),
        )
        .where(given.c.target > after, given.c.target != given.c.source)
        .group_by(given.c.source, given.c.target)
    )


def _answers(selection: GraphSelection, sources: Sequence[int]) -> Select[Any]:
    """Each post with whom it answers; the answered post is looked up only where the payload does not tell."""
    own, answered = posts.c, posts.alias("answered")
    author = select(answered.c.author_id).where(
        answered.c.platform == own.platform, answered.c.id == own.in_reply_to_id
    )
    target: ColumnElement[int] = func.coalesce(
        own.in_reply_to_user_id, author.correlate(posts).scalar_subquery(), type_=BigId
    )
    asked = select(own.author_id.label("source"), target.label("target"), own.created_at).where(
        own.platform == X, own.author_id.in_(sources), own.author_id.between(min(sources), max(sources))
    )
    if selection.since is not None:
        asked = asked.where(own.created_at >= selection.since)
    if selection.until is not None:
        asked = asked.where(own.created_at < selection.until)
    return asked


_QUESTIONS: Final[dict[Edges, Callable[[GraphSelection, Sequence[int], int], Select[Any]]]] = {
    Edges.FOLLOWS: _follows,
    Edges.REPLIES: _replies,
}
