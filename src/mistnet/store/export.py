"""Writes a table out row by row, whatever its size: as JSON lines, CSV, Parquet or a SQLite file."""

from __future__ import annotations

import importlib
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, closing, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

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

from mistnet.domain.errors import BadExport
from mistnet.store import tables
from mistnet.store.csv_cells import as_text, csv_cell, safe_csv_cell
from mistnet.store.database import Database
from mistnet.store.merging import merge_pages
from mistnet.store.private_files import make_private
from mistnet.store.search import handle_key, holders
from mistnet.store.types import RawJson, UtcTime

_GROUP_ROWS: Final = 50_000
_GROUP_BYTES: Final = 32 * 1024 * 1024
_NOT_SHOWN: Final = {"handle_key", "search_text", "raw"}

Row: TypeAlias = Sequence[Any]
Write: TypeAlias = Callable[[Sequence[Row]], object]


class ForSpreadsheets(msgspec.Struct, frozen=True):
    """Where a CSV goes whose cells no spreadsheet takes for formulas. Other formats cannot be written there."""

    target: Path | BinaryIO


Target: TypeAlias = Path | BinaryIO | ForSpreadsheets


class Exported(StrEnum):
    POSTS = "posts"
    USERS = "users"
    ACCOUNTS = "accounts"
    USER_VERSIONS = "user_versions"
    SUGGESTIONS = "suggestions"
    MISSING = "missing"
    CALLS = "calls"


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    SQLITE = "sqlite"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of which table. The span has its beginning in it, and its end not."""

    what: Exported
    author: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    stored_since: datetime | None = None
    stored_until: datetime | None = None
    raw: bool = False


class Shape(StrEnum):
    """What a column holds once it has left the database: ids and times are text."""

    TEXT = "text"
    JSON = "json"
    WHOLE = "whole"
    REAL = "real"
    FLAG = "flag"


_ARROW_TYPES: Final = {
    Shape.TEXT: "string",
    Shape.JSON: "string",
    Shape.WHOLE: "int64",
    Shape.REAL: "float64",
    Shape.FLAG: "bool_",
}
_SQLITE_TYPES: Final = {
    Shape.TEXT: "TEXT",
    Shape.JSON: "TEXT",
    Shape.WHOLE: "INTEGER",
    Shape.REAL: "REAL",
    Shape.FLAG: "INTEGER",
}


class Field(msgspec.Struct, frozen=True):
    """A column as it is exported. `told` turns a value into what is shown, where they differ."""

    name: str
    shape: Shape
    told: Callable[[Any], Any] | None


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
        rows = 0
        with FORMATS[format_](selection.what, fields, target) as write:
            async with AsyncExitStack() as stack:
                streams = [
                    await stack.enter_async_context(aclosing(self._pages(selection, fields, pins))) for pins in all_pins
                ]
                async for page in merge_pages(streams, key):
                    write([told_row(row, fields) for row in page])
                    rows += len(page)
                    told(len(page))
        return rows

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
        columns = [_as_stored(table.c[field.name]) for field in fields]
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


def _as_stored(column: Column[Any]) -> ColumnElement[Any]:
    """JSON as the text it is: one driver would parse it, and lose how it was written."""
    return cast(column, Text).label(column.name) if isinstance(column.type, RawJson) else column


def _field(column: Column[Any]) -> Field:
    is_id = column.name == "id" or column.name.endswith("_id")
    match column.type:
        case UtcTime():
            return Field(column.name, Shape.TEXT, instant)
        case Integer() if is_id:
            return Field(column.name, Shape.TEXT, str)
        case RawJson():
            return Field(column.name, Shape.JSON, str.encode)
        case _:
            return Field(column.name, _shape(column), None)


def _shape(column: Column[Any]) -> Shape:
    match column.type:
        case Boolean():
            return Shape.FLAG
        case Float():
            return Shape.REAL
        case Integer():
            return Shape.WHOLE
        case _:
            return Shape.TEXT


def instant(moment: datetime) -> str:
    """Always as long, so that text sorts as time does."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def told_row(row: Sequence[Any], fields: Sequence[Field]) -> Row:
    return [
        value if value is None or field.told is None else field.told(value)
        for value, field in zip(row, fields, strict=True)
    ]


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


@contextmanager
def whole_file(what: str, path: Path, *, force: bool) -> Iterator[Path]:
    """A place to write to beside the path. Only what is complete gets its name; the rest goes."""
    part = path.parent / f"{path.name}.part"
    try:
        if path.exists() and not force:
            raise BadExport(what, f"{path} is there already; --force replaces it")
        part.unlink(missing_ok=True)
        try:
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadExport(what, f"{path} cannot be written: {problem}") from error


@contextmanager
def stream_to(target: Target) -> Iterator[BinaryIO]:
    if isinstance(target, ForSpreadsheets):
        raise TypeError("only CSV is written for spreadsheets")
    if not isinstance(target, Path):
        yield target
        target.flush()
        return
    with target.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def put(file: BinaryIO, content: bytes) -> None:
    """Writes all of it: standard output without a buffer may take less than it is given, and not complain."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


@contextmanager
def _json_lines(_what: str, fields: Sequence[Field], target: Target) -> Iterator[Write]:
    names = [field.name for field in fields]
    encode = msgspec.json.Encoder().encode_lines
    with stream_to(target) as file:
        yield lambda rows: put(file, encode([dict(zip(names, map(_nested, row), strict=True)) for row in rows]))


def _nested(value: Any) -> Any:
    """JSON inside JSON, on one line."""
    if not isinstance(value, bytes):
        return value
    return msgspec.Raw(msgspec.json.format(value, indent=-1) if b"\n" in value or b"\r" in value else value)


@contextmanager
def _csv(_what: str, fields: Sequence[Field], target: Target) -> Iterator[Write]:
    cell = csv_cell
    if isinstance(target, ForSpreadsheets):
        cell, target = safe_csv_cell, target.target
    with stream_to(target) as file:
        put(file, (",".join(field.name for field in fields) + "\r\n").encode())
        yield lambda rows: put(file, "".join(",".join(map(cell, row)) + "\r\n" for row in rows).encode())


@contextmanager
def _parquet(what: str, fields: Sequence[Field], target: Target) -> Iterator[Write]:
    """Pages are too small to be row groups: they are held, packed, until there are enough of them."""
    arrow, parquet = _pyarrow(what)
    schema = arrow.schema([(field.name, getattr(arrow, _ARROW_TYPES[field.shape])()) for field in fields])
    held: list[Any] = []

    def write(rows: Sequence[Row]) -> None:
        columns = ([as_text(row[place]) for row in rows] for place in range(len(fields)))
        arrays = [arrow.array(column, type_) for column, type_ in zip(columns, schema.types, strict=True)]
        held.append(arrow.Table.from_arrays(arrays, schema=schema))
        if sum(each.num_rows for each in held) >= _GROUP_ROWS or sum(each.nbytes for each in held) >= _GROUP_BYTES:
            finish_group()

    def finish_group() -> None:
        if held:
            writer.write_table(arrow.concat_tables(held))
            held.clear()

    with stream_to(target) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        yield write
        finish_group()


def _pyarrow(what: str) -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise BadExport(what, "Parquet needs pyarrow: pip install 'mistnet[parquet]'") from None


@contextmanager
def _sqlite(what: str, fields: Sequence[Field], target: Target) -> Iterator[Write]:
    """One transaction on a file nobody knows yet: no journal is needed, and a commit makes it lasting."""
    columns = ", ".join(f'"{field.name}" {_SQLITE_TYPES[field.shape]}' for field in fields)
    adding = f'INSERT INTO "{what}" VALUES ({", ".join("?" * len(fields))})'
    make_private(Path(str(target)))
    with closing(sqlite3.connect(str(target), isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode = OFF")
        file.execute("BEGIN")
        file.execute(f'CREATE TABLE "{what}" ({columns})')
        yield lambda rows: file.executemany(adding, [[as_text(value) for value in row] for row in rows])
        file.execute("COMMIT")


FORMATS: Final[Mapping[Format, Callable[[str, Sequence[Field], Target], AbstractContextManager[Write]]]] = {
    Format.JSONL: _json_lines,
    Format.CSV: _csv,
    Format.PARQUET: _parquet,
    Format.SQLITE: _sqlite,
}
