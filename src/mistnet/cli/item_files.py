"""Reads items from files, row by row: CSV with a header, or JSON lines. A bad row is told, and spoils no other."""

import csv
import io
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import typer

from mistnet.cli.input_files import STANDARD_INPUT
from mistnet.desk.wishes import KNOWN_COLUMNS, Problem, field_called, told, wish_of
from mistnet.domain.errors import BadItem, did_you_mean
from mistnet.domain.items import Wish

_DELIMITERS: Final = ",;\t"
_BOM: Final = b"\xef\xbb\xbf"
_WIDE_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")


class FileFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


_BY_ENDING: Final = {
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one row says, or why it cannot be read. `line` is where it begins."""

    line: int
    cells: dict[str, Any] = {}
    problem: str | None = None


class BadRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with one row."""

    line: int
    field: str
    value: str
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: " + (told((self.field, self.value, self.problem)) if self.field else self.problem)


def format_of(file: str, given: FileFormat | None) -> FileFormat:
    """As it is told, or as the file's name ends."""
    known = given or _BY_ENDING.get(Path(file).suffix.lower())
    if known is None:
        name = "standard input" if file == STANDARD_INPUT else repr(file)
        raise typer.BadParameter(f"{name} does not say what it is; add --format csv or --format jsonl")
    return known


def rows_of(stream: BinaryIO, format_: FileFormat, file: str) -> Iterator[Row]:
    return _csv_rows(stream, file) if format_ is FileFormat.CSV else _json_rows(stream)


class Checker:
    """Makes wishes of rows, and remembers what was wrong with the others."""

    def __init__(self, sources: Collection[str]) -> None:
        self._sources = sources
        self._refs: dict[str, int] = {}
        self.rows = 0
        self.bad_rows = 0
        self.bad: list[BadRow] = []

    def wishes(self, rows: Iterator[Row], seen: Callable[[int], object]) -> Iterator[Wish]:
        for row in rows:
            self.rows += 1
            seen(row.line)
            try:
                yield self._wish(row)
            except BadItem as error:
                self._refuse(row, error.problems)

    def _wish(self, row: Row) -> Wish:
        if row.problem is not None:
            raise BadItem([("", "", row.problem)])
        wish = wish_of(row.cells, sources=self._sources)
        if wish.ref is not None:
            first = self._refs.setdefault(wish.ref, row.line)
            if first != row.line:
                raise BadItem([("ref", wish.ref, f"line {first} has it already; give each item a ref of its own")])
        return wish

    def _refuse(self, row: Row, problems: Sequence[Problem]) -> None:
        self.bad_rows += 1
        self.bad += [
            BadRow(line=row.line, field=field, value=value, problem=problem) for field, value, problem in problems
        ]


def _csv_rows(stream: BinaryIO, file: str) -> Iterator[Row]:
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    try:
        first = text.readline()
        if first.encode("utf-8", "surrogateescape").startswith(_WIDE_BOMS):
            raise typer.BadParameter(f"{file} is UTF-16; save it as UTF-8")
        delimiter = max(_DELIMITERS, key=first.count)
        reader = csv.reader(chain([first], text), delimiter=delimiter, strict=True)
        try:
            header = _header(next(reader, []), file)
        except csv.Error as error:
            raise typer.BadParameter(f"{file} line 1 is no header of a CSV file: {error}") from None
        yield from _csv_cells(reader, header)
    finally:
        text.detach()  # whoever opened the stream closes it


def _csv_cells(reader: Any, header: Sequence[str]) -> Iterator[Row]:
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            why = f"it cannot be read as CSV: {error}; is a double quote missing, or one too many?"
            yield Row(line=line, problem=f"{why} Nothing after it was read")
            return
        if any(cell.strip() for cell in cells):
            yield _csv_row(line, header, cells)


def _csv_row(line: int, header: Sequence[str], cells: Sequence[str]) -> Row:
    over = [cell for cell in cells[len(header) :] if cell.strip()]
    if over:
        why = f"it has {len(cells)} cells and the header {len(header)}; put a cell with commas in it in double quotes"
        return Row(line=line, problem=why)
    named = zip(header, cells, strict=False)
    unnamed = next((cell for name, cell in zip(header, cells, strict=False) if not name and cell.strip()), None)
    if unnamed is not None:
        return Row(line=line, problem=f"{unnamed[:80]!r} stands in a column without a name; name it in the header")
    return Row(line=line, cells={name: cell for name, cell in named if name})


def _header(cells: Sequence[str], file: str) -> Sequence[str]:
    names = [field_called(cell) for cell in cells]
    if not any(names):
        raise typer.BadParameter(f"{file} has no rows: the first line names the columns, such as title,year,currency")
    if "title" not in names:
        guess = did_you_mean("title", [name for name in names if name not in KNOWN_COLUMNS and name])
        listed = ", ".join(name for name in names if name)[:200]
        raise typer.BadParameter(f"{file} has no column called title.{guess} Its columns: {listed}")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise typer.BadParameter(f"{file} has several columns called {', '.join(twice)}; leave one of each")
    return names


def _json_rows(stream: BinaryIO) -> Iterator[Row]:
    for line, raw in enumerate(stream, 1):
        written = raw.removeprefix(_BOM).strip() if line == 1 else raw.strip()
        if written:
            yield _json_row(line, written)


def _json_row(line: int, written: bytes) -> Row:
    try:
        read = msgspec.json.decode(written)
    except (msgspec.DecodeError, UnicodeError) as error:
        return Row(line=line, problem=f"it is no JSON: {error}; write one object per line, in UTF-8")
    if not isinstance(read, dict):
        return Row(line=line, problem='it is no object; write one such as {"title": "1909-S VDB cent", "year": 1909}')
    return Row(line=line, cells=read)
