"""Prints what commands found: JSON for programs, tables for a terminal, plain columns elsewhere."""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ID_FIELDS = {"id", "job_id", "before_id", "user_id", "oldest_post_id", "newest_post_id"}


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table to show: a title, named columns, rows of text, and what to say when there are none."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None = None
    empty: str | None = None


Block: TypeAlias = Grid | str


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command prints, and in which of the three ways."""

    as_json: bool

    @property
    def on_terminal(self) -> bool:
        return sys.stdout.isatty() and not self.as_json

    def show(self, document: object, *blocks: Block) -> None:
        """The same facts twice: as a document for programs, as blocks for people."""
        if self.as_json:
            sys.stdout.write(to_json(document) + "\n")
        elif self.on_terminal:
            Console().print(rendered(blocks))
        else:
            sys.stdout.write("\n\n".join(map(plain, blocks)) + "\n")
        sys.stdout.flush()


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


def rendered(blocks: Sequence[Block]) -> RenderableType:
    return Group(*(_rich(block) for block in blocks))


def _rich(block: Block) -> RenderableType:
    if isinstance(block, str):
        return Text(printable(block))
    if not block.rows and block.empty:
        return Text(block.empty, style="dim")
    table = Table(title=block.title, title_justify="left", header_style="bold")
    for column in block.columns:
        table.add_column(column, overflow="fold")
    for row in block.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


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


def printable(text: str, *, one_line: bool = False) -> str:
    """Text of unknown origin must not steer a terminal, nor break out of its line."""
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.encode("utf-8", "replace").decode())
    return " ".join(shown.split()) if one_line else shown


def at(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if moment else ""


def span(duration: timedelta) -> str:
    """A duration as people say it: 12s, 5m, 3h, 2d."""
    seconds = max(int(duration.total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def last_line(text: str | None, width: int = 100) -> str:
    """The last line of an error says what happened; the rest is how one got there."""
    lines = (text or "").strip().splitlines()
    line = lines[-1] if lines else ""
    return line if len(line) <= width else line[: width - 1] + "…"


def document(**facts: Any) -> dict[str, Any]:
    return facts
