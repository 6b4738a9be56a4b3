"""Exports a graph of follows or replies as GEXF, CSV or Parquet: its users, then its edges, a page at a time."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias
from xml.sax.saxutils import escape, quoteattr

import msgspec
from sqlalchemy import ColumnElement, Select, func, literal, null, select

from mistnet import __version__
from mistnet.graph.selection import GRAPH, Edges, UserSet
from mistnet.graph.tables import follows
from mistnet.kit.columns import ColumnShape, Field, fields_of
from mistnet.kit.database import Database
from mistnet.kit.export import (
    BadExport,
    ExportTarget,
    Format,
    Row,
    export_pages,
    export_row,
    put,
    stream_to,
    write_pages,
)
from mistnet.kit.types import BigId, UtcTime
from mistnet.social.model import Profile, X
from mistnet.social.tables import posts, users

_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML excludes, even as numeric references."""

_TEXT: Final = "string"
_TYPES: Final = {ColumnShape.WHOLE: "long", ColumnShape.REAL: "double", ColumnShape.FLAG: "boolean"}
"""What is no number is text in GEXF, ids and times too."""

_OWN: Final = {"id", "source", "target", "weight"}
"""Fields that GEXF writes as its own attributes."""

_OPENING: Final = """<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="http://gexf.net/1.3" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://gexf.net/1.3 http://gexf.net/1.3/gexf.xsd" version="1.3">
<meta lastmodifieddate="{day}">
<creator>mistnet {version}</creator>
<description>{about}</description>
</meta>
<graph defaultedgetype="directed" idtype="string" {mode}>
{attributes}<nodes>
"""
_STATIC: Final = 'mode="static"'
_DYNAMIC: Final = 'mode="dynamic" timeformat="dateTime" timerepresentation="interval"'


class GexfWriter:
    """GEXF 1.3, which Gephi reads: nodes first, then edges, as the format requires."""

    def __init__(self, file: BinaryIO, fields: tuple[Sequence[Field], Sequence[Field]], *, dynamic: bool) -> None:
        self._file = file
        self._dynamic = dynamic
        self._node_fields, self._edge_fields = fields
        self._in_nodes = True

    def nodes(self, rows: Sequence[Row]) -> None:
        lines = []
        for row in rows:
            known = export_row(row, self._node_fields)
            values = _by_name(self._node_fields, known)
            label = _quoted(values["handle"] or values["name"] or values["id"])
            lines.append(f'<node id="{values["id"]}" label={label}>{_values(self._node_fields, known)}</node>\n')
        put(self._file, "".join(lines).encode())

    def edges(self, rows: Sequence[Row]) -> None:
        self.end_nodes()
        lines = []
        for row in rows:
            known = export_row(row, self._edge_fields)
            values = _by_name(self._edge_fields, known)
            one, other, weight = values["source"], values["target"], values["weight"]
            span = ""
            if self._dynamic:
                end = f' end="{values["ended_at"]}"' if values["ended_at"] else ""
                span = f' start="{values["first_at"]}"{end}'
            own = f'id="{one}-{other}" source="{one}" target="{other}" weight="{weight}"{span}'
            lines.append(f"<edge {own}>{_values(self._edge_fields, known)}</edge>\n")
        put(self._file, "".join(lines).encode())

    def end_nodes(self) -> None:
        if self._in_nodes:
            self._in_nodes = False
            put(self._file, b"</nodes>\n<edges>\n")


@contextmanager
def gexf(
    path: Path, about: str, fields: tuple[Sequence[Field], Sequence[Field]], *, now: datetime, dynamic: bool
) -> Iterator[GexfWriter]:
    """A file that is complete at the end of the block. If `dynamic`, edges have start and end times."""
    opening = _OPENING.format(
        day=f"{now:%Y-%m-%d}",
        version=__version__,
        about=escape(_clean(about)),
        mode=_DYNAMIC if dynamic else _STATIC,
        attributes=_attributes("node", fields[0]) + _attributes("edge", fields[1]),
    )
    with stream_to(path) as file:
        put(file, opening.encode())
        writer = GexfWriter(file, fields, dynamic=dynamic)
        yield writer
        writer.end_nodes()
        put(file, b"</edges>\n</graph>\n</gexf>\n")


def _attributes(of: str, fields: Sequence[Field]) -> str:
    declared = "".join(
        f'<attribute id="{field.name}" title="{field.name}" type="{_TYPES.get(field.shape, _TEXT)}"/>\n'
        for field in fields
        if field.name not in _OWN
    )
    return f'<attributes class="{of}" mode="static">\n{declared}</attributes>\n'


def _values(fields: Sequence[Field], row: Row) -> str:
    """Unknown values are left out."""
    known = ""
    for field, value in zip(fields, row, strict=True):
        if value is None or field.name in _OWN:
            continue
        written = str(value).lower() if field.shape is ColumnShape.FLAG else value
        # Only text that people wrote can contain special characters; ids, times and numbers cannot.
        quoted = _quoted(written) if field.shape is ColumnShape.TEXT else f'"{written}"'
        known += f'<attvalue for="{field.name}" value={quoted}/>'
    return f"<attvalues>{known}</attvalues>" if known else ""


def _by_name(fields: Sequence[Field], row: Row) -> dict[str, Any]:
    return {field.name: value for field, value in zip(fields, row, strict=True)}


def _quoted(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    return text if text.isprintable() else _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


OnPage: TypeAlias = Callable[[int], object]
Pages: TypeAlias = AsyncGenerator[Sequence[Row], None]

_OF_USER: Final = {each.name: each for each in fields_of(Profile)}
_NODE: Final = ("id", "handle", "name", "followers_count", "following_count", "posts_count", "verified", "created_at")
NODE_FIELDS: Final = tuple(_OF_USER[name] for name in _NODE)
EDGE_FIELDS: Final = (
    Field("source", ColumnShape.ID),
    Field("target", ColumnShape.ID),
    Field("weight", ColumnShape.WHOLE),
    Field("first_at", ColumnShape.TIME),
    Field("last_at", ColumnShape.TIME),
    Field("ended_at", ColumnShape.TIME),
)


class GraphFormat(StrEnum):
    GEXF = "gexf"
    CSV = "csv"
    PARQUET = "parquet"


class GraphSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The edges among these users. `ended` applies to follows, a time span to replies."""

    users_of: UserSet
    edges: Edges
    ended: bool = False
    since: datetime | None = None
    until: datetime | None = None


class GraphSize(msgspec.Struct, frozen=True):
    """How many users and edges were written."""

    nodes: int
    edges: int


class GraphExporter:
    """Exports graphs of any size in constant memory: users by id, edges by source, and no transaction held open."""

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
        on_page: OnPage = lambda _: None,
    ) -> GraphSize:
        """GEXF is one file; the other formats have a second file for nodes."""
        if format_ is GraphFormat.GEXF:
            about = f"{selection.edges} among {selection.users_of.name}"
            now, dynamic = self._database.clock.now(), selection.edges is Edges.FOLLOWS
            with gexf(edges, about, (NODE_FIELDS, EDGE_FIELDS), now=now, dynamic=dynamic) as writer:
                people = await write_pages(self.nodes(selection), writer.nodes, on_page)
                return GraphSize(people, await write_pages(self.edges(selection), writer.edges, on_page))
        if nodes is None:
            raise BadExport(GRAPH, f"{format_} needs a second file for nodes")
        targets = [ExportTarget(path, safe_cells=self._safe_cells) for path in (nodes, edges)]
        form = Format(format_)
        people = await export_pages(GRAPH, NODE_FIELDS, self.nodes(selection), form, targets[0], on_page)
        return GraphSize(
            people, await export_pages(GRAPH, EDGE_FIELDS, self.edges(selection), form, targets[1], on_page)
        )

    async def nodes(self, selection: GraphSelection) -> Pages:
        """All users, including those without edges, by id."""
        columns = [users.c[field.name] for field in NODE_FIELDS]
        async for ids in self._members(selection.users_of):
            query = select(*columns).where(users.c.platform == X, users.c.id.between(ids[0], ids[-1]))
            query = query.where(users.c.id.in_(ids)).order_by(users.c.id)
            async with self._database.read() as connection:
                yield (await connection.execute(query)).all()

    async def edges(self, selection: GraphSelection) -> Pages:
        """By source, then by target."""
        query_of = _follows if selection.edges is Edges.FOLLOWS else _replies
        async for ids in self._members(selection.users_of):
            waiting, after = ids, 0
            while waiting:
                # A user with more edges than a page is read alone to the end first, so that edges stay in order.
                sources = waiting[:1] if after else waiting
                query = query_of(selection, sources, after).limit(self._page_rows)
                async with self._database.read() as connection:
                    page = (await connection.execute(query)).all()
                if page:
                    yield page
                if len(page) == self._page_rows:
                    waiting = [each for each in waiting if each >= page[-1].source]
                    after = page[-1].target
                else:
                    waiting, after = waiting[1:] if after else [], 0

    async def _members(self, users_of: UserSet) -> AsyncGenerator[Sequence[int], None]:
        after = 0
        # A page at a time: no transaction is held open while a disk or a client takes the rows.
        while rows := await self._database.fetch_rows(users_of.ids(after, self._page_rows)):
            yield [row["id"] for row in rows]
            after = rows[-1]["id"]


def _follows(selection: GraphSelection, sources: Sequence[int], after: int) -> Select[Any]:
    own = follows.c
    query = select(
        own.follower_id.label("source"),
        own.followed_id.label("target"),
        literal(1).label("weight"),
        own.first_seen_at.label("first_at"),
        own.last_seen_at.label("last_at"),
        own.ended_at,
    ).where(own.platform == X, own.follower_id.in_(sources), own.followed_id > after)
    # Bounds, so that the index is read in one piece.
    query = query.where(own.follower_id.between(min(sources), max(sources)))
    if not selection.ended:
        query = query.where(own.ended_at.is_(None))
    return query.where(selection.users_of.contains(own.followed_id)).order_by(own.follower_id, own.followed_id)


def _replies(selection: GraphSelection, sources: Sequence[int], after: int) -> Select[Any]:
    """Counted first, so that each target is looked up once. Replies to oneself are left out."""
    own, answered = posts.c, posts.alias("answered")
    author = select(answered.c.author_id).where(
        answered.c.platform == own.platform, answered.c.id == own.in_reply_to_id
    )
    # The answered post is looked up if the payload does not name its author.
    target: ColumnElement[int] = func.coalesce(
        own.in_reply_to_user_id, author.correlate(posts).scalar_subquery(), type_=BigId
    )
    replies = select(own.author_id.label("source"), target.label("target"), own.created_at).where(
        own.platform == X, own.author_id.in_(sources), own.author_id.between(min(sources), max(sources))
    )
    if selection.since is not None:
        replies = replies.where(own.created_at >= selection.since)
    if selection.until is not None:
        replies = replies.where(own.created_at < selection.until)
    given = replies.subquery()
    counted = (
        select(
            given.c.source,
            given.c.target,
            func.count().label("weight"),
            func.min(given.c.created_at).label("first_at"),
            func.max(given.c.created_at).label("last_at"),
        )
        .where(given.c.target > after, given.c.target != given.c.source)
        .group_by(given.c.source, given.c.target)
        .subquery()
    )
    query = select(counted, null().cast(UtcTime()).label("ended_at"))
    return query.where(selection.users_of.contains(counted.c.target)).order_by(counted.c.source, counted.c.target)
