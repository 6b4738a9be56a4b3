"""Writes a table out row by row, whatever its size: as JSON lines, CSV, Parquet or a SQLite file."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from enum import StrEnum
from operator import itemgetter
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Float,
    Integer,
    Select,
    Table,
    Text,
    cast,
    func,
    literal,
    select,
    tuple_,
)

from mistnet.kit.database import Database
from mistnet.kit.export import BadExport, Field, Format, Target, export_pages
from mistnet.kit.export import ColumnShape as Shape
from mistnet.kit.types import RawJson
from mistnet.kit.view import merge_pages
from mistnet.operations import schema as tables
from mistnet.social.store.post_listing import handle_key, holders

_NOT_SHOWN: Final = {"handle_key", "search_text", "raw"}


class Exported(StrEnum):
    POSTS = "posts"
    USERS = "users"
    ACCOUNTS = "accounts"
    USER_VERSIONS = "user_versions"
    SUGGESTIONS = "suggestions"
    MISSING = "missing"
    CALLS = "calls"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of which table. The span has its beginning in it, and its end not."""

    what: Exported
    author: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    stored_since: datetime | None = None
    stored_until: datetime | None = None
    raw: bool = False


class _Source(msgspec.Struct, frozen=True):
    """A table, the column that says when, the one that says whose, and the order of its rows if not by their key."""

    table: Table
    when: str
    whose: str | None
    order: Sequence[str] = ()


_SOURCES: Final = {
    Exported.POSTS: _Source(tables.posts, "created_at", "author_id", ("created_at", "platform", "id")),
    Exported.USERS: _Source(tables.users, "first_seen_at", "id"),
    Exported.ACCOUNTS: _Source(tables.accounts, "tracked_at", "user_id"),
    Exported.USER_VERSIONS: _Source(tables.user_versions, "until", "user_id"),
    Exported.SUGGESTIONS: _Source(tables.suggestions, "suggested_at", "handle_key"),
    Exported.MISSING: _Source(tables.missing, "asked_at", None),
    Exported.CALLS: _Source(tables.calls, "at", "account_id"),
}


class Exporter:
    """Reads a page at a time by an index, so that nothing grows with the table and no snapshot is held."""

    def __init__(self, database: Database, *, page_rows: int = 1_000) -> None:
        self._database = database
        self._page_rows = page_rows

    async def count(self, selection: Selection) -> int:
        table = _SOURCES[selection.what].table
        counted = 0
        for pins in await self._pins(selection):
            asked = _narrowed(select(func.count()).select_from(table), selection, pins)
            async with self._database.read() as connection:
                counted += (await connection.execute(asked)).scalar_one()
        return counted

    async def export(
        self, selection: Selection, format_: Format, target: Target, told: Callable[[int], object] = lambda _: None
    ) -> int:
        """All rows, posts by time and others by their key; `told` hears of each page. Answers how many there were."""
        all_pins = await self._pins(selection)
        fields = fields_of(selection)
        names = [field.name for field in fields]
        key = itemgetter(*(names.index(column.name) for column in _order(_SOURCES[selection.what])))
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(aclosing(self._pages(selection, fields, pins))) for pins in all_pins
            ]
            return await export_pages(selection.what, fields, merge_pages(streams, key), format_, target, told)

    async def _pins(self, selection: Selection) -> Sequence[Mapping[str, Any]]:
        """What is fixed by an author: for each user of that name, a value for some columns."""
        source = _SOURCES[selection.what]
        if selection.author is None:
            return [{}]
        if source.whose is None:
            raise BadExport(selection.what, "it knows no authors; leave out --author")
        if source.whose == "handle_key":
            return [{"handle_key": handle_key(selection.author)}]
        async with self._database.read() as connection:
            found = await holders(connection, selection.author)
        if not found:
            raise BadExport(selection.what, f"no stored user has the handle {selection.author!r}; check its spelling")
        every = [{"platform": platform, source.whose: user_id} for platform, user_id in found]
        return [{name: value for name, value in pins.items() if name in source.table.c} for pins in every]

    async def _pages(
        self, selection: Selection, fields: Sequence[Field], pins: Mapping[str, Any]
    ) -> AsyncGenerator[Sequence[Any], None]:
        source = _SOURCES[selection.what]
        table = source.table
        keys = [key for key in _order(source) if key.name not in pins]
        # JSON as the text it is: a driver would parse it, and lose how it was written.
        columns: list[ColumnElement[Any]] = [
            cast(column, Text).label(column.name) if isinstance(column.type, RawJson) else column
            for column in (table.c[field.name] for field in fields)
        ]
        asked = _narrowed(select(*columns), selection, pins).order_by(*keys).limit(self._page_rows)
        after = asked
        async with self._database.read() as connection:
            while page := (await connection.execute(after)).all():
                yield page
                if len(page) < self._page_rows:
                    return
                last = tuple_(*(literal(getattr(page[-1], key.name), key.type) for key in keys))
                after = asked.where(tuple_(*keys) > last)


def _order(source: _Source) -> Sequence[Column[Any]]:
    return [source.table.c[name] for name in source.order] or list(source.table.primary_key.columns)


def fields_of(selection: Selection) -> Sequence[Field]:
    """The table's columns in their order, without those that only serve look-ups; payloads last, if asked for."""
    columns = _SOURCES[selection.what].table.columns
    if selection.raw and "raw" not in columns:
        raise BadExport(selection.what, "it keeps no payloads; leave out --raw")
    if (selection.stored_since or selection.stored_until) and "first_seen_at" not in columns:
        raise BadExport(
            selection.what, "it does not say when its rows were stored; leave out --stored-since and --stored-until"
        )
    shown = [column for column in columns if column.name not in _NOT_SHOWN]
    return [_field(column) for column in (*shown, *([columns["raw"]] if selection.raw else []))]


def _field(column: Column[Any]) -> Field:
    is_id = column.name == "id" or column.name.endswith("_id")
    match column.type:
        case RawJson():
            return Field(column.name, Shape.JSON)
        case Boolean():
            return Field(column.name, Shape.FLAG)
        case Float():
            return Field(column.name, Shape.REAL)
        case Integer() if not is_id:
            return Field(column.name, Shape.WHOLE)
        case _:
            return Field(column.name)


def _narrowed(asked: Select[Any], selection: Selection, pins: Mapping[str, Any]) -> Select[Any]:
    source = _SOURCES[selection.what]
    when = source.table.c[source.when]
    if selection.since is not None:
        asked = asked.where(when >= selection.since)
    if selection.until is not None:
        asked = asked.where(when < selection.until)
    if selection.stored_since is not None:
        asked = asked.where(source.table.c.first_seen_at >= selection.stored_since)
    if selection.stored_until is not None:
        asked = asked.where(source.table.c.first_seen_at < selection.stored_until)
    return asked.where(*(source.table.c[name] == value for name, value in pins.items()))
