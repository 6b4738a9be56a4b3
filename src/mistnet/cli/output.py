"""Prints results of commands as JSON, tables or plain columns, and errors as one line on stderr."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from mistnet.kit.text import printable, redact

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mistnet.app import App

_WORKER_SEEN_WITHIN = timedelta(minutes=2)

_ID_FIELDS = {
    *("id", "job_id", "before_id", "user_id", "post_id", "oldest_post_id", "newest_post_id"),
    *("follower_id", "followed_id", "ingest_id", "ingests", "snapshot_id"),
    *("place", "next_after", "next_before", "next_before_id"),
}


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table: a title, named columns, rows of text, and the text to print when there are none."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None = None
    empty: str | None = None


Block: TypeAlias = Grid | str


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """How a command prints."""

    as_json: bool

    @property
    def on_terminal(self) -> bool:
        return sys.stdout.isatty() and not self.as_json

    def show(self, document: object, *blocks: Block) -> None:
        """Print one result: its document as JSON, or its blocks for people."""
        if self.as_json:
            sys.stdout.write(to_json(document) + "\n")
        elif self.on_terminal:
            from rich.console import Console  # noqa: PLC0415 (only people at a terminal wait for it)

            Console().print(tables(blocks))
        else:
            sys.stdout.write("\n\n".join(map(plain, blocks)) + "\n")
        sys.stdout.flush()


def tables(blocks: Sequence[Block]) -> "RenderableType":
    """The blocks as rich draws them on a terminal."""
    from rich.console import Group  # noqa: PLC0415 (only people at a terminal wait for it)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn: list[RenderableType] = []
    for block in blocks:
        if isinstance(block, str):
            drawn.append(Text(printable(block)))
        elif not block.rows and block.empty:
            drawn.append(Text(block.empty, style="dim"))
        else:
            table = Table(title=block.title, title_justify="left", header_style="bold")
            for column in block.columns:
                table.add_column(column, overflow="fold")
            for row in block.rows:
                table.add_row(*(Text(printable(cell)) for cell in row))
            drawn.append(table)
    return Group(*drawn)


def to_json(document: object) -> str:
    """One JSON document: ids as strings, times in UTC."""
    return msgspec.json.format(msgspec.json.encode(_jsonable(document), enc_hook=str), indent=2).decode()


def _jsonable(value: object, *, is_id: bool = False) -> object:
    match value:
        case int() if is_id and not isinstance(value, bool):
            return str(value)
        case msgspec.Struct():
            return _jsonable({name: getattr(value, name) for name in value.__struct_fields__})
        case Mapping():
            return {str(key): _jsonable(each, is_id=key in _ID_FIELDS) for key, each in value.items()}
        case list() | tuple():
            return [_jsonable(each, is_id=is_id) for each in value]
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
    rows = [list(block.columns), *([printable(cell, one_line=True) for cell in row] for row in block.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(block.columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
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


def record_fields(record: msgspec.Struct, *without: str) -> dict[str, Any]:
    """The fields of a record as the API returns them: ids and amounts as strings."""
    return {name: _field(name, getattr(record, name)) for name in record.__struct_fields__ if name not in without}


def exact(fields: Mapping[str, object]) -> dict[str, Any]:
    """The same for fields that are no record."""
    return {name: _field(name, value) for name, value in fields.items()}


def _field(name: str, value: object) -> object:
    match value:
        case Mapping():
            return exact(value)
        case msgspec.Struct():
            return record_fields(value)
        case list() | tuple():
            return [_field(name, each) for each in value]
        case Decimal():
            return f"{value:f}"  # str() may write an exponent
        case int() if not isinstance(value, bool) and (name == "id" or name.endswith("_id")):
            return str(value)
        case _:
            return value


async def worker_hints(app: "App") -> list[str]:
    """What to do if no worker was seen recently: jobs wait for one."""
    now = app.database.clock.now()
    if any(now - each.seen_at <= _WORKER_SEEN_WITHIN for each in await app.inspector.workers()):
        return []
    return ["no worker was seen recently: `mistnet work` starts one"]


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """A bar on stderr that is moved on by the number of finished rows. Without a total there is none."""
    if not total:
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 (only people at a terminal wait for it)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda rows: bar.advance(task, rows)


_LONG_WORD: Final = re.compile(r"\S{401,}")


def complain(problem: str, secrets: Sequence[str] = ()) -> None:
    # A word of thousands of characters, from a typing error or an attack, would hide the message about it.
    problem = _LONG_WORD.sub(lambda found: f"{found[0][:80]}…", problem)
    sys.stderr.write(f"mistnet: error: {printable(redact(problem, secrets), one_line=True)}\n")
