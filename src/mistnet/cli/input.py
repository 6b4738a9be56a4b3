"""Reads the input of commands: arguments, files or standard input, as rows, ids or jobs."""

import csv
import io
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Generic, TypeVar

import msgspec
import typer

from mistnet.cli.output import complain
from mistnet.kit import text as numbers
from mistnet.kit.errors import UnreadableFile, UsageError
from mistnet.kit.text import split_addresses, split_list
from mistnet.queue.errors import BadArgs
from mistnet.queue.kinds import KindRegistry
from mistnet.queue.model import Lane, NewJob
from mistnet.social.model import Platform, read_handle

STANDARD_INPUT = "-"


def option(name: str, metavar: str | None, text: str, **more: Any) -> Any:
    """An option of a command: its name, what it takes (words of an enum need none), and what it is for."""
    return typer.Option(name, metavar=metavar, help=text, **more)


def flag(name: str, text: str, **more: Any) -> Any:
    """An option that takes nothing."""
    return typer.Option(name, help=text, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, **more)


LimitOption = Annotated[int, option("--limit", "N", "How many at most.", min=1, max=1000)]
BeforeOption = Annotated[
    int | None, option("--before", "ID", "Only those before: the next page.", min=1, max=numbers.LARGEST_ID)
]
PlatformOption = Annotated[str | None, option("--platform", "PLATFORM", "Only on this platform, such as x.")]


def read_platform(given: str | None, known: Sequence[Platform]) -> Platform | None:
    if given is not None and given not in known:
        raise typer.BadParameter(f"--platform {given!r} is not one of {', '.join(known)}.")
    return None if given is None else Platform(given)


def moment(given: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(given)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter("the time must be like 2027-01-31 or 2027-01-31T12:00:00Z") from None


Author = Annotated[str | None, option("--author", "HANDLE", "Only posts of the user with this handle now.")]
Since = Annotated[
    datetime | None, option("--since", "TIME", "From this time on, in ISO 8601; UTC if no zone.", parser=moment)
]
Until = Annotated[datetime | None, option("--until", "TIME", "Before this time.", parser=moment)]


_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def seconds(given: str) -> float:
    """90s, 15m, 6h, 1d, 2w."""
    read = _SPAN.fullmatch(given.strip().lower())
    if read is None:
        raise typer.BadParameter(f"{given[:40]!r} is not a time span; write 15m, 6h, 1d or 2w")
    return float(read[1]) * _UNITS[read[2]]


@contextmanager
def lines_of(file: str) -> Iterator[BinaryIO]:
    """The lines of a file or of standard input, as they arrive."""
    if file == STANDARD_INPUT:
        # It is not ours to close.
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 (closed below, once it is known to be there)
    except OSError as error:
        raise UnreadableFile(file, error.strerror or str(error)) from None
    with stream:
        yield stream


def bytes_of(file: str) -> bytes:
    """The whole file."""
    try:
        with lines_of(file) as stream:
            return stream.read()
    except OSError as error:
        raise UnreadableFile(file, error.strerror or str(error)) from None


def csv_rows(reader: Any) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """The rows that are not empty, each with the line on which it begins. An error ends them."""
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, error
            return
        if any(cell.strip() for cell in cells):
            yield line, cells


def json_rows(
    lines: Iterable[str | bytes], decode: Callable[[str | bytes], Any], *, example: str, hint: str = ""
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The lines that are not empty, by number: the object of each, or why it is none."""
    for line, written in enumerate(lines, 1):
        if not written.strip():
            continue
        try:
            read = decode(written.strip())
        except (msgspec.DecodeError, UnicodeError) as error:
            yield line, f"it is no JSON: {error}{hint}"
        else:
            yield line, read if isinstance(read, dict) else f"it is no object; write {example}"


class JobLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line. The command's options are the defaults."""

    args: msgspec.Raw = msgspec.Raw(b"{}")
    key: str | None = None
    lane: str | None = None
    run_at: datetime | None = None


def read_jobs(
    kinds: KindRegistry, kind: str, source: Path, *, lane: str | None = None, run_at: datetime | None = None
) -> list[NewJob]:
    """Every line as a job, or an error that names the line."""
    found: list[NewJob] = []
    for number, line in enumerate(_content(source).splitlines(), start=1):
        if line.strip():
            try:
                read = msgspec.json.decode(line, type=JobLine)
                storable("key", read.key)
                due, own_lane = read.run_at or run_at, read.lane or lane
                due = due if due is None or due.tzinfo else due.replace(tzinfo=UTC)
                named_lane = Lane(own_lane) if own_lane else None
                found.append(kinds.new_job(kind, bytes(read.args), key=read.key, lane=named_lane, run_at=due))
            except (BadArgs, msgspec.DecodeError, UnicodeDecodeError, typer.BadParameter) as error:
                raise typer.BadParameter(f"{source} line {number}: {error}; nothing was stored") from None
    if not found:
        raise typer.BadParameter(f"{source} has no lines; nothing was stored")
    return found


def storable(name: str, text: str | None) -> None:
    """Refuse NUL and broken characters by name: databases refuse them without it."""
    if text is None:
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{name} is not valid Unicode text") from None
    if "\x00" in text:
        raise typer.BadParameter(f"{name} contains a NUL character, which databases refuse")


T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

FileOption = Annotated[
    Path | None,
    option(
        "--file", "FILE", "More of them, with line ends, commas or blanks between, or CSV with a header; - is stdin."
    ),
]
_COLUMN_NAMES: Final = frozenset(
    {"id", "handle", "username", "user", "user_id", "name", "wallet", "label", "note", "url"}
)
_IDS: Final = re.compile(r"[0-9,\s]+")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the input. `place` is empty for an argument."""

    place: str
    value: str
    cells: Mapping[str, str] = {}


class BadRow(msgspec.Struct, frozen=True, kw_only=True):
    """An invalid row, and why."""

    place: str
    value: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.place else self.problem


class Sorted(msgspec.Struct, Generic[T], frozen=True):
    """The valid and the invalid rows."""

    good: Sequence[T]
    bad: Sequence[BadRow]

    def complain(self) -> int:
        """Print each invalid row. Return the exit code."""
        for each in self.bad:
            complain(str(each))
        return 2 if self.bad else 0


def sort_rows(given: Sequence[str] | None, source: Path | None, column: str, read: Callable[[Row], T]) -> Sorted[T]:
    """Read every row. An invalid one does not affect the others."""
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


def read_values(given: Sequence[str] | None, source: Path | None, column: str) -> list[str]:
    """All values of arguments and a file, as they were written. At least one is required."""
    return list(sort_rows(given, source, column, lambda row: row.value).good)


def read_ids(given: Sequence[str] | None, source: Path | None = None, *, spoilt: str) -> list[int]:
    """Each id once. One invalid id is an error for all; `spoilt` says what that means."""
    return read_all(given, source, read_id, spoilt=spoilt)


def read_users(given: Sequence[str] | None, source: Path | None = None, *, spoilt: str) -> list[str]:
    """The same for users, by id or @handle."""
    return read_all(given, source, read_user, spoilt=spoilt)


def read_all(given: Sequence[str] | None, source: Path | None, read: Callable[[Row], H], *, spoilt: str) -> list[H]:
    found = sort_rows(given, source, "id", read)
    if found.bad:
        more = f" (and {len(found.bad) - 1} more)" if len(found.bad) > 1 else ""
        raise typer.BadParameter(f"{found.bad[0]}{more}; {spoilt}")
    return unique(found.good)


def unique(values: Iterable[H]) -> list[H]:
    return list(dict.fromkeys(values))


def read_links(given: Sequence[str] | None, source: Path | None) -> list[str]:
    """Ids and URLs. Commas and blanks separate ids; a URL may contain commas."""
    lines = [each.strip() for each in _text(source).splitlines()] if source else []
    if source and not any(lines):
        raise typer.BadParameter(f"{source} names nothing; --file FILE takes one id or URL per line")
    return unique(
        part
        for each in (*(given or ()), *lines)
        for part in (split_list(each) if _IDS.fullmatch(each) else split_addresses(each))
        if part
    )


def read_attributes(given: Sequence[str] | None) -> Mapping[str, str]:
    """The values of --attribute, by their names."""
    found: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise typer.BadParameter(f"--attribute {each[:80]!r}: write it as NAME=VALUE, such as color=red")
        if name in found:
            raise typer.BadParameter(f"--attribute {name}: it is given twice; give it once")
        found[name] = value
    return found


def read_user(row: Row) -> str:
    """A user by id or @handle."""
    given = row.value.strip()
    if given.isascii() and given.isdecimal():
        user_id = numbers.read_id(given)
        if user_id is None:
            raise typer.BadParameter(f"{given[:80]!r} is not a user id")
        return str(user_id)
    return f"@{read_handle(given)}"


def read_id(row: Row) -> int:
    """An id of a user or post."""
    found = numbers.read_id(row.value.strip())
    if found is None:
        raise typer.BadParameter(f"{row.value[:80]!r} is not an id; ids are whole numbers such as 1585841080431321088")
    return found


def _rows(given: Sequence[str], source: Path | None, column: str) -> Iterator[Row]:
    for value in split_list(*given):
        yield Row(place="", value=value)
    if source is None:
        return
    lines = _text(source).splitlines(keepends=True)
    try:
        header = [cell.strip().lower() for cell in next(csv.reader(lines[:1]), [])]
        if column in header:
            reader = csv.reader(io.StringIO("".join(lines[1:]), newline=""))
            # A cell may span lines: a row begins on the line after the last one of the row before.
            begun = 2
            for cells in reader:
                place, begun = f"{source} line {begun}", reader.line_num + 2
                if any(cell.strip() for cell in cells):
                    named = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if name}
                    over = {"": ",".join(cells[len(header) :])} if len(cells) > len(header) else {}
                    yield Row(place=place, value=named.pop(column, ""), cells={**named, **over})
            return
    except csv.Error as error:
        raise typer.BadParameter(f"{source} cannot be read as CSV: {error}") from None
    if len(header) > 1 and not _COLUMN_NAMES.isdisjoint(header):
        # Each cell would be taken for a name, and paid for.
        raise typer.BadParameter(f"{source} looks like CSV without a column {column!r}: name that column so")
    for number, line in enumerate(lines, start=1):
        for value in split_list(line):
            yield Row(place=f"{source} line {number}", value=value)


def require_plain(row: Row) -> None:
    """Refuse a row whose cells cannot be stored, are too many, or span lines."""
    if "" in row.cells:
        raise typer.BadParameter("it has more cells than the header; put a cell with commas in double quotes")
    # A line end inside a cell is usually a lost quote, which makes one cell of many rows.
    for name, cell in row.cells.items():
        storable(name, cell)
        if "\n" in cell or "\r" in cell:
            raise typer.BadParameter(f"{name} runs over several lines; is a closing quote missing?")


def _legible(text: str) -> str:
    return text[:200].encode("utf-8", "replace").decode()


def _text(source: Path) -> str:
    """The text of a file. Invalid UTF-8 stays in it, so that its rows can be reported."""
    return _content(source).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _content(source: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(source) == STANDARD_INPUT else source.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror}") from None
