"""Imports items from CSV with a header or from JSON lines. A bad row is reported, and spoils no other."""

import csv
import io
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, Final, TypeAlias

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import STANDARD_INPUT, argument, csv_rows, flag, json_rows, lines_of, option
from mistnet.cli.output import complain, document, progress_bar
from mistnet.kit.errors import did_you_mean
from mistnet.kit.text import are, counted
from mistnet.prices.item_validation import KNOWN_COLUMNS, field_called, item_request_of, problem_text
from mistnet.prices.model import BadItem, ItemRequest
from mistnet.prices.service import items_of, sources_of
from mistnet.prices.store.items import ItemOutcome

_DELIMITERS: Final = ",;\t"
_BOM: Final = b"\xef\xbb\xbf"
# How a file in UTF-16 begins, which some programs write as "Unicode text".
_WIDE_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
_EXAMPLE: Final = 'one such as {"title": "1909-S VDB cent", "year": 1909}'
Cells: TypeAlias = dict[str, Any] | str
"""The cells of one row, or why it cannot be read."""


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


class BadItemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of one row."""

    line: int
    field: str
    value: str
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: " + (
            problem_text((self.field, self.value, self.problem)) if self.field else self.problem
        )


def format_of(file: str, given: FileFormat | None) -> FileFormat:
    """The given format, or the one that the file's name says."""
    known = given or _BY_ENDING.get(Path(file).suffix.lower())
    if known is None:
        name = "standard input" if file == STANDARD_INPUT else repr(file)
        raise typer.BadParameter(f"{name} does not say what it is; add --format csv or --format jsonl")
    return known


class Checker:
    """Turns rows into requests, and collects the problems of the others."""

    def __init__(self, sources: Collection[str]) -> None:
        self._sources = sources
        self._refs: dict[str, int] = {}
        self.rows = 0
        self.bad_rows = 0
        self.bad: list[BadItemRow] = []

    def requests(self, rows: Iterator[tuple[int, Cells]], seen: Callable[[int], object]) -> Iterator[ItemRequest]:
        for line, cells in rows:
            self.rows += 1
            seen(1)
            if isinstance(cells, str):
                problems: Sequence[tuple[str, str, str]] = [("", "", cells)]
            else:
                try:
                    request = item_request_of(cells, sources=self._sources)
                    first = self._refs.setdefault(request.ref, line) if request.ref is not None else line
                    if first == line:
                        yield request
                        continue
                    taken = f"line {first} has it already; give each item a ref of its own"
                    problems = [("ref", str(request.ref), taken)]
                except BadItem as error:
                    problems = error.problems
            self.bad_rows += 1
            self.bad += [
                BadItemRow(line=line, field=field, value=value, problem=problem) for field, value, problem in problems
            ]


def _csv_rows(stream: BinaryIO, file: str) -> Iterator[tuple[int, Cells]]:
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    try:
        first = text.readline()
        if first.encode("utf-8", "surrogateescape").startswith(_WIDE_BOMS):
            raise typer.BadParameter(f"{file} is UTF-16; save it as UTF-8")
        # Spreadsheets write semicolons where the comma is the decimal sign.
        delimiter = max(_DELIMITERS, key=first.count)
        reader = csv.reader(chain([first], text), delimiter=delimiter, strict=True)
        try:
            header = _header(next(reader, []), file)
        except csv.Error as error:
            raise typer.BadParameter(f"{file} line 1 is no header of a CSV file: {error}") from None
        for line, cells in csv_rows(reader):
            if isinstance(cells, csv.Error):
                why = f"it cannot be read as CSV: {cells}; is a double quote missing, or one too many?"
                yield line, f"{why} Nothing after it was read"
                continue
            named = list(zip(header, cells, strict=False))
            unnamed = next((cell for name, cell in named if not name and cell.strip()), None)
            if any(cell.strip() for cell in cells[len(header) :]):
                lengths = f"it has {len(cells)} cells and the header {len(header)}"
                yield line, f"{lengths}; put a cell with commas in it in double quotes"
            elif unnamed is not None:
                yield line, f"{unnamed[:80]!r} stands in a column without a name; name it in the header"
            else:
                yield line, {name: cell for name, cell in named if name}
    finally:
        # The caller that opened the stream closes it.
        text.detach()


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


SOME_BAD: Final = 3
_NOTHING_WRITTEN: Final = 2
# One transaction each: a longer one would keep other writers waiting.
_AT_ONCE: Final = 1_000
_IN_MEMORY: Final = 16 * 1024 * 1024
_DECODER: Final = msgspec.json.Decoder(ItemRequest)


@shared_options
async def import_items(
    invocation: Invocation,
    file: Annotated[str, argument("FILE", "CSV or JSON lines; - is standard input.")],
    *,
    format_: Annotated[
        FileFormat | None, option("--format", "|".join(FileFormat), "The format, if the name does not say it.")
    ] = None,
    skip_bad: Annotated[bool, flag("--skip-bad", "Import the valid rows; exit with 3 if there are others.")] = False,
    check: Annotated[bool, flag("--check", "Only report problems; write nothing.")] = False,
) -> int:
    """Import items from rows. Columns are named like the fields; any other column is an attribute.

    Each invalid row is reported with its line, its column, the problem and what to do. Then nothing is written, unless
    --skip-bad takes the valid ones. A repeated import changes only new values.
    """
    form = format_of(file, format_)
    async with open_app(invocation.settings) as app:
        checker = Checker(sources_of(app))
        bar = progress_bar("checking")
        # All rows are checked before the first is written. A large file does not fit into memory meanwhile.
        with lines_of(file) as stream, tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool, bar as seen:
            if form is FileFormat.CSV:
                rows = _csv_rows(stream, file)
            else:
                lines = chain([stream.readline().removeprefix(_BOM)], stream)
                rows = json_rows(
                    lines, msgspec.json.decode, example=_EXAMPLE, hint="; write one object per line, in UTF-8"
                )
            for request in checker.requests(rows, seen):
                spool.write(msgspec.json.encode(request) + b"\n")
            written = not check and (skip_bad or not checker.bad)
            outcomes = await _write(app, spool, checker.rows - checker.bad_rows) if written else Counter()
    for each in checker.bad:
        complain(f"{file} {each}")
    shown = document(
        file=file,
        rows=checker.rows,
        bad_rows=checker.bad_rows,
        written=written,
        **{outcome: outcomes[outcome] for outcome in ItemOutcome},
        problems=checker.bad,
    )
    if check:
        said = f"{counted(checker.rows, 'row')} checked, {checker.bad_rows:,} bad; nothing was written"
    elif written:
        bad = f", {checker.bad_rows:,} bad and left out" if checker.bad_rows else ""
        said = f"{counted(checker.rows, 'row')}: {', '.join(f'{outcomes[each]:,} {each}' for each in ItemOutcome)}{bad}"
    else:
        some = f"{checker.bad_rows:,} of {counted(checker.rows, 'row')} {are(checker.bad_rows)} bad"
        said = f"nothing was written: {some}; correct them, or take the others with --skip-bad"
    invocation.out.show(shown, said)
    if not checker.bad:
        return 0
    return SOME_BAD if skip_bad and not check else _NOTHING_WRITTEN


async def _write(app: App, spool: IO[bytes], rows: int) -> Counter[ItemOutcome]:
    """A part at a time. After an interruption, the same command again continues."""
    items, outcomes = items_of(app), Counter[ItemOutcome]()
    spool.seek(0)
    with progress_bar("writing", rows) as on_done:
        while lines := list(islice(spool, _AT_ONCE)):
            kept = await items.add([_DECODER.decode(line) for line in lines], app.database.clock.now())
            outcomes.update(each.outcome for each in kept)
            on_done(len(lines))
    return outcomes
