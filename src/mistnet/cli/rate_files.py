"""Reads rates from files, row by row: CSV with or without a header, or JSON lines. A bad row is told, not guessed."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, BinaryIO, Final

import msgspec

from mistnet.domain.errors import UnreadableFile
from mistnet.pricing.exchange import DatedRate, wrong_with

COLUMNS: Final = ("day", "base", "quote", "rate")
_SHAPE: Final = "write day,base,quote,rate such as 2026-11-01,EUR,USD,1.08"
_BOM: Final = "\ufeff"
_LONGEST_CELL: Final = 80
_decode = msgspec.json.Decoder(float_hook=Decimal).decode  # a float would change digits


class BadRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one row; `line` is where it stands."""

    line: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


class RateRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says: rates that can be taken, and rows that cannot."""

    good: Sequence[DatedRate]
    bad: Sequence[BadRow]

    @property
    def rows(self) -> int:
        return len(self.good) + len(self.bad)


def read_rates(stream: BinaryIO, file: str, *, today: date) -> RateRows:
    """CSV or JSON lines, whichever the first row is."""
    try:
        text = stream.read().decode("utf-8").removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise UnreadableFile(file, f"it is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    rows = _json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text)
    good: dict[tuple[str, str, date], DatedRate] = {}
    bad: list[BadRow] = []
    for line, cells in rows:
        read = cells if isinstance(cells, str) else rate_of(cells, today=today)
        if isinstance(read, str):
            bad.append(BadRow(line=line, problem=read))
            continue
        other = good.setdefault((read.base, read.quote, read.day), read)
        if other.rate != read.rate:
            twice = f"{read.base}/{read.quote} of {read.day} is {other.rate} in an earlier row; leave one of them"
            bad.append(BadRow(line=line, problem=twice))
    return RateRows(good=list(good.values()), bad=bad)


def rate_of(cells: Mapping[str, Any], *, today: date) -> DatedRate | str:
    """The rate a row states, or why it states none."""
    missing = [name for name in COLUMNS if cells.get(name) in (None, "")]
    if missing:
        return f"{' and '.join(missing)} missing; {_SHAPE}"
    texts = {name: str(cells[name]).strip() for name in COLUMNS}
    day, rate = _day(texts["day"]), _number(texts["rate"])
    if day is None:
        return f"{texts['day'][:_LONGEST_CELL]!r} is no day; write it as 2026-11-01"
    if rate is None:
        return f"{texts['rate'][:_LONGEST_CELL]!r} is no number; write it with a point and no blanks, such as 1.08"
    read = DatedRate(base=texts["base"].upper(), quote=texts["quote"].upper(), day=day, rate=rate)
    return wrong_with(read, today=today) or read


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text) if text.isascii() and "_" not in text else None
    except InvalidOperation:
        return None


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """A header may name the columns in any order; without one they stand as day, base, quote, rate."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: Sequence[str] = COLUMNS
    first = True
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, f"it cannot be read as CSV: {error}; nothing after it was read"
            return
        if not any(cell.strip() for cell in cells):
            continue
        called = [cell.strip().lower() for cell in cells]
        if first and set(called) >= set(COLUMNS):
            names = called
        elif len(cells) != len(names):
            yield line, f"it has {len(cells)} cells, not {len(names)}; {_SHAPE}"
        else:
            yield line, dict(zip(names, cells, strict=True))
        first = False


def _json_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    for line, written in enumerate(text.split("\n"), 1):
        if not written.strip():
            continue
        try:
            read = _decode(written.strip())
        except (msgspec.DecodeError, UnicodeError) as error:
            yield line, f"it is no JSON: {error}"
            continue
        yield line, read if isinstance(read, dict) else 'it is no object; write {"day", "base", "quote", "rate"}'
