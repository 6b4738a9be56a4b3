"""A list that a command, an API route and a page share: its columns, its order, its filters and its pages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Float,
    FromClause,
    Select,
    TableClause,
    Text,
    column,
    func,
    literal,
    select,
    table,
    tuple_,
)

from mistnet.kit.columns import ColumnShape, fields_of
from mistnet.kit.database import Database
from mistnet.kit.types import BigId, UtcTime

R = TypeVar("R")
Place: TypeAlias = Any
"""The key of a row: its one value, or a tuple where several columns make the order."""


class ListPage(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """Some rows of a list. `next` is the place of the last one if more follow, else None."""

    items: Sequence[R]
    next: Place | None

    @classmethod
    def cut(cls, rows: Sequence[R], limit: int, place: Callable[[R], Place]) -> ListPage[R]:
        """The first `limit` of these rows. One row more means that there is a next page."""
        items = rows[:limit]
        return cls(items=items, next=place(items[-1]) if len(rows) > limit else None)


class View(Generic[R]):
    """One list of records.

    Pages are keyset pages: each begins after the place where the page before ended, so rows that are added or removed
    meanwhile neither repeat nor hide any other. `key` must be unique and not null, and an index must serve its order.
    """

    def __init__(
        self,
        record: type[R],
        query: Select[Any],
        *key: ColumnElement[Any],
        descending: bool = True,
        make: Callable[[Mapping[Any, Any]], R] | None = None,
    ) -> None:
        self._query = query
        self._key = key
        self._descending = descending
        self._order = [column.desc() for column in key] if descending else list(key)
        self._names = [column.key or "" for column in key]
        self._record = record
        self._make = make

    async def page(
        self, database: Database, *conditions: ColumnElement[bool], after: Place | None = None, limit: int
    ) -> ListPage[R]:
        """The rows that follow this place, `limit` at most."""
        rows = await database.fetch_rows(self._select(conditions, after).limit(limit + 1))
        place: Place | None = None
        if len(rows) > limit:
            values = tuple(rows[limit - 1][name] for name in self._names)
            place = values if len(values) > 1 else values[0]
        return ListPage(items=self._records(rows[:limit]), next=place)

    async def rows(
        self, database: Database, *conditions: ColumnElement[bool], after: Place | None = None, limit: int | None = None
    ) -> Sequence[R]:
        """Like `page`, for a list that has no next page."""
        return self._records(await database.fetch_rows(self._select(conditions, after).limit(limit)))

    async def first(self, database: Database, *conditions: ColumnElement[bool]) -> R | None:
        found = await self.rows(database, *conditions, limit=1)
        return found[0] if found else None

    async def count(self, database: Database, *conditions: ColumnElement[bool], most: int) -> int:
        """How many rows there are, counted no further than `most`."""
        some = self._query.where(*conditions).with_only_columns(literal(1)).order_by(None).limit(most)
        return int(await database.fetch_value(select(func.count()).select_from(some.subquery())))

    async def pages(
        self, database: Database, *conditions: ColumnElement[bool], size: int
    ) -> AsyncGenerator[Sequence[R], None]:
        """All rows, one page of them in memory at a time."""
        place: Place | None = None
        while True:
            page = await self.page(database, *conditions, after=place, limit=size)
            if page.items:
                yield page.items
            if (place := page.next) is None:
                return

    def _select(self, conditions: Sequence[ColumnElement[bool]], after: Place | None) -> Select[Any]:
        query = self._query.where(*conditions).order_by(*self._order)
        if after is None:
            return query
        places = after if isinstance(after, tuple) else (after,)
        values = [literal(value, column.type) for value, column in zip(places, self._key, strict=True)]
        # A comparison of rows, not of columns one by one: an index serves it.
        here, there = (tuple_(*self._key), tuple_(*values)) if len(values) > 1 else (self._key[0], values[0])
        return query.where(here < there if self._descending else here > there)

    def _records(self, rows: Sequence[Mapping[Any, Any]]) -> list[R]:
        return records_of(self._record, rows) if self._make is None else [self._make(row) for row in rows]


def record_of(record: type[R], row: Mapping[Any, Any]) -> R:
    """A record made of a row: enums by their value, truth values and parsed JSON as its fields say."""
    parsed = _parsed_fields(record)  # type: ignore[arg-type]  # a type can be hashed
    # From a dict: msgspec reads a row's columns as attributes, and `items` of a row is a method.
    values = {
        str(name): msgspec.json.decode(value) if isinstance(value, bytes) and name in parsed else value
        for name, value in row.items()
    }
    return msgspec.convert(values, record, strict=False)


def records_of(record: type[R], rows: Sequence[Mapping[Any, Any]]) -> list[R]:
    """Records made of the rows of one statement, as `record_of` makes them, but with less work per row."""
    if not rows:
        return []
    names = [str(name) for name in rows[0]]
    values = [dict(zip(names, row.values(), strict=True)) for row in rows]
    for name in _parsed_fields(record).intersection(names):  # type: ignore[arg-type]  # a type can be hashed
        for each in values:
            if isinstance(each[name], bytes):
                each[name] = msgspec.json.decode(each[name])
    return msgspec.convert(values, list[record], strict=False)  # type: ignore[valid-type]  # a type made at run time


@cache
def _parsed_fields(record: Any) -> frozenset[str]:
    """The fields that hold what a JSON column says. Fields of bytes take it, or a binary column, as it is stored."""
    raw = {bytes, msgspec.Raw}
    hints = get_type_hints(record).items()
    return frozenset(name for name, hint in hints if not raw & {hint, *get_args(hint)})


def view_table(name: str, record: type[Any]) -> TableClause:
    """A view of the database, with a column for each field of the record that its rows become."""
    kinds: dict[ColumnShape, Any] = {
        ColumnShape.ID: BigId,
        ColumnShape.WHOLE: BigId,
        ColumnShape.REAL: Float(),
        ColumnShape.FLAG: Boolean(),
        ColumnShape.TIME: UtcTime(),
    }
    return table(name, *(column(each.name, kinds.get(each.shape, Text())) for each in fields_of(record)))


def columns_of(record: type[Any], table: FromClause, *, without: Sequence[str] = ()) -> list[Column[Any]]:
    """The columns of a table that a record has fields for, in the order of the fields."""
    return [table.c[name] for name in record.__struct_fields__ if name in table.c and name not in without]


async def merge_pages(
    streams: Sequence[AsyncGenerator[Sequence[Any], None]], key: Callable[[Any], Any]
) -> AsyncGenerator[Sequence[Any], None]:
    """Merge streams of pages, each in the order of `key`, into one, with one page of each in memory.

    The caller closes the streams.
    """
    waiting = await _next_pages([(stream, ()) for stream in streams])
    while len(waiting) > 1:
        # All rows up to the page that ends first are known: no stream can still bring an earlier one.
        end = min(key(page[-1]) for _, page in waiting)
        yield sorted((row for _, page in waiting for row in page if key(row) <= end), key=key)
        waiting = await _next_pages([(stream, [row for row in page if key(row) > end]) for stream, page in waiting])
    for stream, page in waiting:
        yield page
        async for rest in stream:
            yield rest


async def _next_pages(
    waiting: Sequence[tuple[AsyncGenerator[Sequence[Any], None], Sequence[Any]]],
) -> list[tuple[AsyncGenerator[Sequence[Any], None], Sequence[Any]]]:
    """The rest of each page, or the page after it; finished streams are left out."""
    found = [(stream, page or await anext(stream, [])) for stream, page in waiting]
    return [(stream, page) for stream, page in found if page]
