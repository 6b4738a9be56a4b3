"""Prints results of commands as JSON, tables or plain columns, and errors as one line on stderr."""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from mistnet.kit.text import printable, redact

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mistnet.app import App

R = TypeVar("R")
_WORKER_SEEN_WITHIN = timedelta(minutes=2)

_ID_FIELDS: Final = {"id", "ingests", "leads_to", "place", "next_after", "next_before"}
"""Names of ids, and of lists of them, besides those that end in `_id`."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table: a title, named columns, rows, and the text to print when there are none.

    A cell is shown as `str` writes it; a time as UTC, and None as nothing. A column of numbers is aligned to the right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str | None = None
    empty: str | None = None
    brief: bool = False
    """Leave out columns in which every cell is empty, as on a terminal, also where scripts may read it."""
    cut: bool = False
    """On a terminal, cut cells that do not fit, so that each row is one line. Else they are broken into lines."""

    @classmethod
    def of(
        cls,
        records: Iterable[R],
        columns: str,
        *,
        heading: str | None = None,
        empty: str | None = None,
        **cells: Callable[[R], object] | str,
    ) -> "Grid":
        """A row for each record. `columns` are the titles, separated by commas.

        A cell is the field of the record that is named like the column: `last_seen_at` for "last seen (UTC)". `cells`
        names another field, or makes the cell, under the column's name without `_at`; no title is `untitled`.
        """
        titles = columns.split(", ")
        names = [each.removesuffix(" (UTC)").replace(" ", "_") or "untitled" for each in titles]
        rows = [[_cell_of(each, cells.get(name, name)) for name in names] for each in records]
        return cls(columns=titles, rows=rows, title=heading, empty=empty)

    def cells(self, *, brief: bool) -> tuple[list[str], list[list[str]], list[bool]]:
        """Titles of columns, rows of text, and which columns are aligned to the right."""
        rows = [
            [at(each) if isinstance(each, datetime) else "" if each is None else str(each) for each in row]
            for row in self.rows
        ]
        shown = [place for place in range(len(self.columns)) if not brief or any(row[place] for row in rows)]
        chosen = [[row[place] for place in shown] for row in rows]
        right = [
            any(column) and all(_NUMBER.fullmatch(each) for each in column if each)
            for column in ([row[place] for row in rows] for place in shown)
        ]
        return [self.columns[place] for place in shown], chosen, right


def _cell_of(record: Any, cell: Callable[[Any], object] | str) -> object:
    if isinstance(cell, str):
        return getattr(record, f"{cell}_at" if hasattr(record, f"{cell}_at") else cell)
    return cell(record)


_NUMBER: Final = re.compile(r"-?(US)?\$? ?[\d,]+(\.\d+)?(e[+-]?\d+)?( ?%| [A-Z]{3})?")

Block: TypeAlias = Grid | str


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """How a command prints."""

    as_json: bool

    @property
    def on_terminal(self) -> bool:
        return sys.stdout.isatty() and not self.as_json

    @property
    def can_draw(self) -> bool:
        """Whether this is a terminal that a screen can be drawn on."""
        if not self.on_terminal:
            return False
        from rich.console import Console  # noqa: PLC0415 (only people at a terminal wait for it)

        return not Console().is_dumb_terminal and "utf" in (sys.stdout.encoding or "").lower()

    def show(self, document: object, *blocks: Block) -> None:
        """Print one result: its document as JSON, or its blocks for people."""
        if self.as_json:
            sys.stdout.write(to_json(document) + "\n")
        elif self.on_terminal:
            from rich.console import Console  # noqa: PLC0415 (only people at a terminal wait for it)

            console = Console()
            console.print(tables(blocks, console.width))
        else:
            sys.stdout.write("\n\n".join(map(plain, blocks)) + "\n")
        sys.stdout.flush()


def tables(blocks: Sequence[Block], width: int) -> "RenderableType":
    """The blocks as rich draws them on a terminal of this width."""
    from rich import box  # noqa: PLC0415 (only people at a terminal wait for it)
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn: list[RenderableType] = []
    for block in blocks:
        if drawn:
            drawn.append(Text())
        if isinstance(block, str):
            drawn.append(Text(printable(block)))
        elif not block.rows and block.empty:
            drawn.append(Text(block.empty, style="dim", no_wrap=block.cut, overflow="ellipsis"))
        else:
            columns, rows, right = block.cells(brief=True)
            texts = [[printable(each, one_line=block.cut) for each in row] for row in rows]
            widths = [
                max(cell_len(line) for text in (name, *column) for line in text.split("\n") or [""])
                for name, *column in zip(columns, *texts, strict=True)
            ]
            widths = fit(widths, [not is_number for is_number in right], width - _GAP * (len(widths) - 1))
            if block.title:
                # Not as the title of the table: that would be broken into lines of the table's width.
                drawn.append(Text(block.title, style="italic", no_wrap=block.cut, overflow="ellipsis"))
            table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, _GAP - 1, 0, 0), pad_edge=False)
            table.show_edge, table.show_header = False, any(columns)
            for column, is_number, wide in zip(columns, right, widths, strict=True):
                table.add_column(
                    column,
                    width=wide,
                    no_wrap=block.cut,
                    overflow="ellipsis" if block.cut else "fold",
                    justify="right" if is_number else "left",
                )
            for row in texts:
                table.add_row(*map(Text, row))
            drawn.append(table)
    return Group(*drawn)


_GAP: Final = 2
_DAY: Final = len("2027-01-31")


def fit(widths: Sequence[int], may_shrink: Sequence[bool], room: int) -> list[int]:
    """The widths of columns that together have this much room: the widest texts give way first, numbers last."""
    fitted = [min(each, room) for each in widths]
    texts = [place for place, allowed in enumerate(may_shrink) if allowed]
    every = range(len(fitted))
    for places, least in ((texts, 20), (texts, _DAY), (every, _DAY), (every, 6), (every, 1)):
        while places and sum(fitted) > room and max(fitted[place] for place in places) > least:
            fitted[max(places, key=fitted.__getitem__)] -= 1
    return fitted


def to_json(document: object) -> str:
    """One JSON document: ids and amounts as strings, times in UTC."""
    return msgspec.json.format(msgspec.json.encode(_jsonable(document), enc_hook=str), indent=2).decode()


def to_json_line(document: object) -> str:
    """The same on one line."""
    return msgspec.json.encode(_jsonable(document), enc_hook=str).decode()


def _jsonable(value: object, name: str = "") -> object:
    if isinstance(value, msgspec.Struct):
        value = fields_of(value)
    match value:
        # Readers that take numbers for floats would change the last digits of ids and amounts.
        case int() if not isinstance(value, bool) and (name in _ID_FIELDS or name.endswith("_id")):
            return str(value)
        case Decimal():
            # str() may write an exponent.
            return f"{value:f}"
        case Mapping():
            return {str(key): _jsonable(each, str(key)) for key, each in value.items()}
        case list() | tuple():
            return [_jsonable(each, name) for each in value]
        case datetime():
            return value.astimezone(UTC)
        case _:
            return value


def plain(block: Block) -> str:
    """Aligned columns without boxes or colours."""
    if isinstance(block, str):
        return printable(block)
    if not block.rows and block.empty:
        return block.empty
    columns, below, right = block.cells(brief=block.brief)
    rows = [columns, *([printable(each, one_line=True) for each in row] for row in below)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*([block.title] if block.title else []), *lines])


def at(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if moment else ""


def span(duration: timedelta) -> str:
    """A duration in its largest unit with at least two of it: 12s, 5m, 3h, 2d."""
    seconds = max(int(duration.total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def last_line(text: str | None, width: int = 100) -> str:
    """The last line of a traceback, which says what happened."""
    lines = (text or "").strip().splitlines()
    line = lines[-1] if lines else ""
    return line if len(line) <= width else line[: width - 1] + "…"


def document(**facts: Any) -> dict[str, Any]:
    return facts


def next_page(place: object, option: str = "--before") -> list[str]:
    """The hint how to see the next page, if there is one."""
    return [f"more: {option} {place}"] if place else []


def fields_of(record: msgspec.Struct, *without: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__ if name not in without}


KEY_HINT: Final = "workers will need a key for X: `mistnet init --key KEY` stores one (`mistnet demo` needs none)"


async def worker_hints(app: "App") -> list[str]:
    """What to do if no worker was seen recently: jobs wait for one."""
    now = app.database.clock.now()
    if any(now - each.seen_at <= _WORKER_SEEN_WITHIN for each in await app.inspector.workers()):
        return []
    return ["no worker was seen recently: `mistnet work` starts one"]


@contextmanager
def progress_bar(what: str, total: int | None = None, *, hidden: bool = False) -> Iterator[Callable[[int], object]]:
    """A bar on stderr, if that is a terminal. It is moved on by the number of finished rows."""
    if hidden or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress  # noqa: PLC0415 (only people at a terminal wait for it)
    from rich.console import Console  # noqa: PLC0415

    counts = (progress.MofNCompleteColumn(), progress.TimeElapsedColumn())
    columns = (progress.TextColumn(what), progress.BarColumn(), *counts)
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda rows: bar.advance(task, rows)


PIPE_CLOSED: Final = 141
"""How a shell reports death by SIGPIPE."""
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def abandon_output(error: OSError) -> int | None:
    """The exit code, if stdout does not take what is written to it; None if the error is about something else."""
    closed = isinstance(error, BrokenPipeError)
    if not closed and (error.errno not in _NO_ROOM or error.filename is not None):
        return None
    # Python flushes what is still buffered when it exits, and would report the same fault again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    if closed:
        return PIPE_CLOSED
    complain(f"the output cannot be written: {error.strerror}")
    return 1


_LONG_WORD: Final = re.compile(r"\S{401,}")


def complain(problem: str, secrets: Sequence[str] = ()) -> None:
    # A word of thousands of characters, from a typing error or an attack, would hide the message about it.
    problem = _LONG_WORD.sub(lambda found: f"{found[0][:80]}…", problem)
    sys.stderr.write(f"mistnet: error: {printable(redact(problem, secrets), one_line=True)}\n")
