"""Writes rows to files and streams: JSON lines, CSV, Parquet, SQLite."""

from __future__ import annotations

import importlib
import io
import os
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from mistnet.kit.columns import ArrowTable, ColumnShape, Field, as_json, as_text, instant
from mistnet.kit.errors import UsageError
from mistnet.kit.sqlite import make_private

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
_QUOTED: Final = re.compile('[",\r\n]')
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SQLITE_TYPES: Final = {
    ColumnShape.ID: "INTEGER",
    ColumnShape.WHOLE: "INTEGER",
    ColumnShape.FLAG: "INTEGER",
    ColumnShape.REAL: "REAL",
}


class BadExport(UsageError):
    """An export that cannot be made, or cannot be written to its target."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"cannot export {what}: {problem}")
        self.what, self.problem = what, problem


_GROUP_ROWS: Final = 50_000
_GROUP_BYTES: Final = 32 * 1024 * 1024

Row: TypeAlias = Sequence[Any]
Write: TypeAlias = Callable[[Sequence[Row]], object]


class ExportTarget(msgspec.Struct, frozen=True):
    """A target, and who reads it: `safe_cells` and `byte_order_mark` are of CSV, for spreadsheets.

    Ids as text keep their digits in programs whose numbers have fewer than 64 bits. In CSV, where a column has no
    type, they get an apostrophe.
    """

    target: Path | BinaryIO
    safe_cells: bool = False
    ids_as_text: bool = False
    byte_order_mark: bool = False

    @classmethod
    def of(cls, target: Target) -> ExportTarget:
        return target if isinstance(target, ExportTarget) else cls(target)


Target: TypeAlias = Path | BinaryIO | ExportTarget


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    SQLITE = "sqlite"


async def export_pages(
    what: str,
    fields: Sequence[Field],
    pages: AsyncGenerator[Sequence[Row], None],
    format_: Format,
    target: Target,
    on_page: Callable[[int], object] = lambda _rows: None,
) -> int:
    """Write all rows, one page of them in memory at a time. Returns how many there are."""
    with open_export(what, fields, format_, target) as write:
        return await write_pages(pages, write, on_page)


async def stream_pages(
    what: str,
    fields: Sequence[Field],
    pages: AsyncGenerator[Sequence[Row], None],
    format_: Format,
    output: Callable[[BinaryIO], ExportTarget] = ExportTarget,
) -> AsyncGenerator[bytes, None]:
    """The same as a stream of bytes, for a response."""
    written = _Written()
    with open_export(what, fields, format_, output(written)) as write:
        async with aclosing(pages):
            async for page in pages:
                write(page)
                if some := written.take():
                    yield some
    yield written.take()


class _Written(io.RawIOBase, BinaryIO):
    """Keeps what was written until it is taken. Its place only grows, as Parquet's footer needs it."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._parts.append(bytes(content))
        self._length += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._length

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


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
    """Values as JSON and text formats take them: ids, times and amounts as text, JSON as bytes."""
    return [
        value if value is None or field.shape not in _CELLS else _CELLS[field.shape](value)
        for value, field in zip(row, fields, strict=True)
    ]


_TEXTS: Final = (ColumnShape.TEXT, ColumnShape.ID, ColumnShape.TIME, ColumnShape.AMOUNT)
_CELLS: Final[Mapping[ColumnShape, Callable[[Any], Any]]] = {
    **dict.fromkeys(_TEXTS, as_text),
    **dict.fromkeys((ColumnShape.JSON, ColumnShape.LIST), as_json),
    ColumnShape.TIME: instant,
}


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
def stream_to(target: Path | BinaryIO) -> Iterator[BinaryIO]:
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
def _json_lines(_what: str, fields: Sequence[Field], output: ExportTarget) -> Iterator[Write]:
    names = [field.name for field in fields]
    encode = msgspec.json.Encoder().encode_lines

    def write(rows: Sequence[Row]) -> None:
        lines = [dict(zip(names, export_row(row, fields), strict=True)) for row in rows]
        for line in lines:
            for name, value in line.items():
                if isinstance(value, bytes):
                    # JSON inside JSON, on one line.
                    is_broken = b"\n" in value or b"\r" in value
                    line[name] = msgspec.Raw(msgspec.json.format(value, indent=-1) if is_broken else value)
        put(file, encode(lines))

    with stream_to(output.target) as file:
        yield write


@contextmanager
def _csv(_what: str, fields: Sequence[Field], output: ExportTarget) -> Iterator[Write]:
    """RFC 4180. Nothing known is an empty cell, an empty text is a pair of quotes."""
    cells: list[Callable[[Any], str]] = []
    for field in fields:
        match field.shape:
            case ColumnShape.ID:
                cells.append(lambda value: f"'{value}" if output.ids_as_text else str(value))
            case ColumnShape.FLAG:
                cells.append(lambda value: "true" if value else "false")
            case ColumnShape.TEXT if output.safe_cells:
                cells.append(
                    lambda value: _quoted(f"'{text}" if (text := as_text(value)).startswith(_FORMULAS) else text)
                )
            case ColumnShape.TEXT:
                cells.append(lambda value: _quoted(as_text(value)))
            case ColumnShape.JSON | ColumnShape.LIST:
                cells.append(lambda value: _quoted(value.decode() if isinstance(value, bytes) else str(value)))
            case _:
                cells.append(as_text)

    def write(rows: Sequence[Row]) -> None:
        lines = (
            ",".join(["" if value is None else cell(value) for cell, value in zip(cells, row, strict=True)])
            for row in rows
        )
        put(file, "".join(f"{line}\r\n" for line in lines).encode())

    with stream_to(output.target) as file:
        mark = _BYTE_ORDER_MARK if output.byte_order_mark else b""
        put(file, mark + (",".join(field.name for field in fields) + "\r\n").encode())
        yield write


def _quoted(text: str) -> str:
    return text if text and not _QUOTED.search(text) else '"' + text.replace('"', '""') + '"'


@contextmanager
def _parquet(what: str, fields: Sequence[Field], output: ExportTarget) -> Iterator[Write]:
    """Pages are too small to be row groups, so they are collected until there are enough of them."""
    table = ArrowTable(f"a Parquet file of {what}", fields, ids_as_text=output.ids_as_text)
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    held: list[Any] = []

    def write(rows: Sequence[Row]) -> None:
        held.append(table.batch(rows))
        if sum(each.num_rows for each in held) >= _GROUP_ROWS or sum(each.nbytes for each in held) >= _GROUP_BYTES:
            finish_group()

    def finish_group() -> None:
        if held:
            writer.write_table(arrow.Table.from_batches(held))
            held.clear()

    with stream_to(output.target) as file, parquet.ParquetWriter(file, table.schema, compression="zstd") as writer:
        yield write
        finish_group()


@contextmanager
def _sqlite(what: str, fields: Sequence[Field], output: ExportTarget) -> Iterator[Write]:
    """One transaction on a file that nothing else has open: no journal is needed, and the commit makes it durable."""
    kinds = {**_SQLITE_TYPES, **({ColumnShape.ID: "TEXT"} if output.ids_as_text else {})}
    columns = ", ".join(f'"{field.name}" {kinds.get(field.shape, "TEXT")}' for field in fields)
    adding = f'INSERT INTO "{what}" VALUES ({", ".join("?" * len(fields))})'

    def write(rows: Sequence[Row]) -> None:
        # An id as text becomes a number in its column, with all 64 bits.
        values = (export_row(row, fields) for row in rows)
        file.executemany(adding, [[v.decode() if isinstance(v, bytes) else v for v in row] for row in values])

    make_private(Path(str(output.target)))
    with closing(sqlite3.connect(str(output.target), isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode = OFF")
        file.execute("BEGIN")
        file.execute(f'CREATE TABLE "{what}" ({columns})')
        yield write
        file.execute("COMMIT")


_WRITERS: Final[Mapping[Format, Callable[[str, Sequence[Field], ExportTarget], AbstractContextManager[Write]]]] = {
    Format.JSONL: _json_lines,
    Format.CSV: _csv,
    Format.PARQUET: _parquet,
    Format.SQLITE: _sqlite,
}


def open_export(what: str, fields: Sequence[Field], format_: Format, target: Target) -> AbstractContextManager[Write]:
    """A function that writes rows, until the end of the block."""
    return _WRITERS[format_](what, fields, ExportTarget.of(target))
