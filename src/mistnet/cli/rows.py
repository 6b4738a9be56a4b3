"""Reads what a command is about: its arguments, then the lines of a file, plain or CSV with a header."""

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec
import typer

from mistnet.cli.faults import complain
from mistnet.cli.joblines import storable
from mistnet.cli.jobs import LARGEST_ID
from mistnet.domain.errors import UsageError

T = TypeVar("T")

FileOption = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="More of them, one per line, or CSV with a header; - is stdin."),
]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was asked for. `place` is empty for an argument."""

    place: str
    value: str
    cells: Mapping[str, str] = {}


class BadRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that cannot be taken, and why."""

    place: str
    value: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.place else self.problem


class Sorted(msgspec.Struct, Generic[T], frozen=True):
    """What could be read, and what not."""

    good: Sequence[T]
    bad: Sequence[BadRow]

    def complain(self) -> int:
        """Tells of each bad row; the answer is the exit code."""
        for each in self.bad:
            complain(str(each))
        return 2 if self.bad else 0


def sort_rows(given: Sequence[str] | None, source: Path | None, column: str, read: Callable[[Row], T]) -> Sorted[T]:
    """Takes every row that `read` can make something of; one bad row spoils nothing but itself."""
    good: list[T] = []
    bad: list[BadRow] = []
    for row in _rows(given or (), source, column):
        try:
            good.append(read(row))
        except (UsageError, typer.BadParameter) as error:
            bad.append(BadRow(place=_legible(row.place), value=_legible(row.value), problem=str(error)))
    if not good and not bad:
        named = f"{source} names nothing" if source else f"name at least one {column}"
        raise typer.BadParameter(f"{named}; --file FILE takes one {column} per line")
    return Sorted(good, bad)


def read_id(row: Row) -> int:
    """An id of a user or post."""
    given = row.value.strip()
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:20]) <= LARGEST_ID):
        raise typer.BadParameter(f"{row.value[:80]!r} is not an id; ids are whole numbers such as 1585841080431321088")
    return int(given)


def _rows(given: Sequence[str], source: Path | None, column: str) -> Iterator[Row]:
    for value in given:
        yield Row(place="", value=value)
    if source is None:
        return
    lines = _content(source).splitlines(keepends=True)
    try:
        header = [cell.strip().lower() for cell in next(csv.reader(lines[:1]), [])]
        if column in header:
            yield from _csv_rows(lines, source, header, column)
            return
    except csv.Error as error:
        raise typer.BadParameter(f"{source} cannot be read as CSV: {error}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield Row(place=f"{source} line {number}", value=line.strip())


def _csv_rows(lines: Sequence[str], source: Path, header: Sequence[str], column: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO("".join(lines[1:]), newline=""))
    begun = 2
    for cells in reader:
        place, begun = f"{source} line {begun}", reader.line_num + 2
        if any(cell.strip() for cell in cells):
            named = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if name}
            over = {"": ",".join(cells[len(header) :])} if len(cells) > len(header) else {}
            yield Row(place=place, value=named.pop(column, ""), cells={**named, **over})


def require_plain(row: Row) -> None:
    """Cells that can be stored, as many as the header has, each on its line."""
    if "" in row.cells:
        raise typer.BadParameter("it has more cells than the header; put a cell with commas in double quotes")
    for name, cell in row.cells.items():
        storable(name, cell)
        if "\n" in cell or "\r" in cell:
            raise typer.BadParameter(f"{name} runs over several lines; is a closing quote missing?")


def _legible(text: str) -> str:
    return text[:200].encode("utf-8", "replace").decode()


def _content(source: Path) -> str:
    """What is not UTF-8 is told row by row."""
    try:
        content = sys.stdin.buffer.read() if str(source) == "-" else source.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror}") from None
    return content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
