"""Export a table of any size row by row, as JSON lines, CSV, Parquet or a SQLite file."""

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

from mistnet.governor.tables import calls
from mistnet.kit.columns import ColumnShape as Shape
from mistnet.kit.columns import Field, is_id
from mistnet.kit.database import Database
from mistnet.kit.export import BadExport, Format, Target, export_pages
from mistnet.kit.types import RawJson, UtcTime
from mistnet.kit.view import merge_pages
from mistnet.social.store.post_listing import handle_key, holders
from mistnet.social.tables import accounts, missing, posts, suggestions, user_versions, users

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
    """Which rows of which table. A span includes its beginning and not its end."""

    what: Exported
    author: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    stored_since: datetime | None = None
    stored_until: datetime | None = None
    raw: bool = False


class _Source(msgspec.Struct, frozen=True):
    """A table, its columns of time and of author, and the order of its rows if it is not that of the primary key."""

    table: Table
    when: str
    whose: str | None
    order: Sequence[str] = ()


_SOURCES: Final = {
    Exported.POSTS: _Source(posts, "created_at", "author_id", ("created_at", "platform", "id")),
    Exported.USERS: _Source(users, "first_seen_at", "id"),
    Exported.ACCOUNTS: _Source(accounts, "tracked_at", "user_id"),
    Exported.USER_VERSIONS: _Source(user_versions, "until", "user_id"),
    Exported.SUGGESTIONS: _Source(suggestions, "suggested_at", "handle_key"),
    Exported.MISSING: _Source(missing, "asked_at", None),
    Exported.CALLS: _Source(calls, "at", "account_id"),
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
            counted += await self._database.fetch_value(
                _filter(select(func.count()).select_from(table), selection, pins)
            )
        return counted

    async def export(
        self, selection: Selection, format_: Format, target: Target, on_page: Callable[[int], object] = lambda _: None
    ) -> int:
        """Export all rows, posts by time and others by their key, and return how many there were."""
        all_pins = await self._pins(selection)
        fields = fields_of(selection)
        names = [field.name for field in fields]
        key = itemgetter(*(names.index(column.name) for column in _order(_SOURCES[selection.what])))
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(aclosing(self._pages(selection, fields, pins))) for pins in all_pins
            ]
            return await export_pages(selection.what, fields, merge_pages(streams, key), format_, target, on_page)

    async def _pins(self, selection: Selection) -> Sequence[Mapping[str, Any]]:
        """The values that an author fixes, by column, for each user with that handle."""
        source = _SOURCES[selection.what]
        if selection.author is None:
            return [{}]
        if source.whose is None:
            raise BadExport(selection.what, "it knows no authors; leave out --author")
        if source.whose == "handle_key":
            return [{"handle_key": handle_key(selection.author)}]
        async with self._database.read() as connection:
            authors = await holders(connection, selection.author)
        if not authors:
            raise BadExport(selection.what, f"no stored user has the handle {selection.author!r}; check its spelling")
        every = [{"platform": platform, source.whose: user_id} for platform, user_id in authors]
        return [{name: value for name, value in pins.items() if name in source.table.c} for pins in every]

    async def _pages(
        self, selection: Selection, fields: Sequence[Field], pins: Mapping[str, Any]
    ) -> AsyncGenerator[Sequence[Any], None]:
        source = _SOURCES[selection.what]
        table = source.table
        keys = [key for key in _order(source) if key.name not in pins]
        # JSON as text: a driver would parse it, and its exact form would be lost.
        columns: list[ColumnElement[Any]] = [
            cast(column, Text).label(column.name) if isinstance(column.type, RawJson) else column
            for column in (table.c[field.name] for field in fields)
        ]
        first_page = _filter(select(*columns), selection, pins).order_by(*keys).limit(self._page_rows)
        query = first_page
        async with self._database.read() as connection:
            while page := (await connection.execute(query)).all():
                yield page
                if len(page) < self._page_rows:
                    return
                last = tuple_(*(literal(getattr(page[-1], key.name), key.type) for key in keys))
                query = first_page.where(tuple_(*keys) > last)


def _order(source: _Source) -> Sequence[Column[Any]]:
    return [source.table.c[name] for name in source.order] or list(source.table.primary_key.columns)


def fields_of(selection: Selection) -> Sequence[Field]:
    """The table's columns in their order, without those that only serve look-ups; payloads last, if selected."""
    columns = _SOURCES[selection.what].table.columns
    if selection.raw and "raw" not in columns:
        raise BadExport(selection.what, "it keeps no payloads; leave out --raw")
    if (selection.stored_since or selection.stored_until) and "first_seen_at" not in columns:
        raise BadExport(
            selection.what, "it does not say when its rows were stored; leave out --stored-since and --stored-until"
        )
    fields = []
    shown = [column for column in columns if column.name not in _NOT_SHOWN]
    for column in (*shown, *([columns["raw"]] if selection.raw else [])):
        match column.type:
            case RawJson():
                shape = Shape.JSON
            case Boolean():
                shape = Shape.FLAG
            case Float():
                shape = Shape.REAL
            case Integer():
                shape = Shape.ID if is_id(column.name) else Shape.WHOLE
            case UtcTime():
                shape = Shape.TIME
            case _:
                shape = Shape.TEXT
        fields.append(Field(column.name, shape))
    return fields


def _filter(query: Select[Any], selection: Selection, pins: Mapping[str, Any]) -> Select[Any]:
    source = _SOURCES[selection.what]
    when = source.table.c[source.when]
    if selection.since is not None:
        query = query.where(when >= selection.since)
    if selection.until is not None:
        query = query.where(when < selection.until)
    if selection.stored_since is not None:
        query = query.where(source.table.c.first_seen_at >= selection.stored_since)
    if selection.stored_until is not None:
        query = query.where(source.table.c.first_seen_at < selection.stored_until)
    return query.where(*(source.table.c[name] == value for name, value in pins.items()))
