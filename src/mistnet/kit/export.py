"""Writes rows to files and streams: JSON lines, CSV, Parquet, SQLite."""

from __future__ import annotations

import importlib
import os
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from mistnet.kit.errors import UsageError
from mistnet.kit.extras import require_extra
from mistnet.kit.sqlite import make_private

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
_QUOTED: Final = re.compile('[",\r\n]')


def csv_cell(value: Any) -> str:
    """RFC 4180. None is an empty cell, an empty text is a pair of quotes."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case bytes() | str():
            text = str(as_text(value))
            return text if text and not _QUOTED.search(text) else '"' + text.replace('"', '""') + '"'
        case _:
            return str(value)


def safe_csv_cell(value: Any) -> str:
    """Text that a spreadsheet would run as a formula gets an apostrophe before it, which makes it text."""
    text = as_text(value)
    return csv_cell(f"'{text}" if isinstance(text, str) and text.startswith(_FORMULAS) else value)


def as_text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


class BadExport(UsageError):
    """An export that cannot be made, or cannot be written to its target."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"cannot export {what}: {problem}")
        self.what, self.problem = what, problem


_GROUP_ROWS: Final = 50_000
_GROUP_BYTES: Final = 32 * 1024 * 1024

Row: TypeAlias = Sequence[Any]
Write: TypeAlias = Callable[[Sequence[Row]], object]


class ForSpreadsheets(msgspec.Struct, frozen=True):
    """The target of a CSV whose cells no spreadsheet takes for formulas. Other formats cannot be written there."""

    target: Path | BinaryIO


Target: TypeAlias = Path | BinaryIO | ForSpreadsheets


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    SQLITE = "sqlite"


class ColumnShape(StrEnum):
    """What a column holds in an export: ids, times and amounts are text."""

    TEXT = "text"
    JSON = "json"
    WHOLE = "whole"
    REAL = "real"
    FLAG = "flag"


_ARROW_TYPES: Final = {
    ColumnShape.TEXT: "string",
    ColumnShape.JSON: "string",
    ColumnShape.WHOLE: "int64",
    ColumnShape.REAL: "float64",
    ColumnShape.FLAG: "bool_",
}
_SQLITE_TYPES: Final = {
    ColumnShape.TEXT: "TEXT",
    ColumnShape.JSON: "TEXT",
    ColumnShape.WHOLE: "INTEGER",
    ColumnShape.REAL: "REAL",
    ColumnShape.FLAG: "INTEGER",
}


class Field(msgspec.Struct, frozen=True):
    """A column as it is exported."""

    name: str
    shape: ColumnShape = ColumnShape.TEXT


async def export_pages(
    what: str,
    fields: Sequence[Field],
    pages: AsyncGenerator[Sequence[Row], None],
    format_: Format,
    target: Target,
    on_page: Callable[[int], object] = lambda _rows: None,
) -> int:
    """Write all rows, one page of them in memory at a time. Returns how many there are."""
    with FORMATS[format_](what, fields, target) as write:
        return await write_pages(pages, lambda page: write([export_row(row, fields) for row in page]), on_page)


async def write_pages(
    pages: AsyncGenerator[Sequence[Row], None], write: Write, on_page: Callable[[int], object] = lambda _rows: None
) -> int:
    rows = 0
    # Without aclosing, a write that fails would leave the generator, and the connection it holds, open.
    async with aclosing(pages):
        async for page in pages:
            write(page)
            rows += len(page)
            on_page(len(page))
    return rows


def export_row(row: Row, fields: Sequence[Field]) -> Row:
    """Values as every format takes them: ids, times and amounts as text, JSON as bytes."""
    return [
        value if value is None or field.shape not in _CELLS else _CELLS[field.shape](value)
        for value, field in zip(row, fields, strict=True)
    ]


def _text_cell(value: Any) -> str:
    if type(value) is str:  # nearly all are
        return value
    if isinstance(value, datetime):
        return instant(value)
    # Amounts as their digits: a float would change them, and str() may write an exponent.
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


_CELLS: Final[Mapping[ColumnShape, Callable[[Any], Any]]] = {
    ColumnShape.TEXT: _text_cell,
    ColumnShape.JSON: lambda value: value.encode() if isinstance(value, str) else value,
}


def instant(moment: datetime) -> str:
    """Always of the same length, so that text sorts as time does."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


@contextmanager
def whole_file(what: str, path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary file beside the path. It gets the path's name once it is complete, and is removed otherwise."""
    part = path.parent / f"{path.name}.part"
    try:
        if path.exists() and not force:
            raise BadExport(what, f"{path} already exists; --force replaces it")
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
    """Write all of it: standard output without a buffer may take less than it is given, without an error."""
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
    """Pages are too small to be row groups, so they are collected until there are enough of them."""
    require_extra("parquet", f"a Parquet file of {what}")
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
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


@contextmanager
def _sqlite(what: str, fields: Sequence[Field], target: Target) -> Iterator[Write]:
    """One transaction on a file that nothing else has open: no journal is needed, and the commit makes it durable."""
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
