"""The rates commands: import, set and list exchange rates."""

import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, BinaryIO, Final

import msgspec
import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.input import LimitOption, argument, csv_rows, flag, json_rows, lines_of, option
from mistnet.cli.output import Grid, document, next_page, progress_bar
from mistnet.kit.database import Database
from mistnet.kit.errors import UnreadableFile
from mistnet.kit.text import counted, printable
from mistnet.prices.model import BadRates
from mistnet.prices.store.valuations import RateStore, items_affected_by, revalue
from mistnet.prices.valuation import DatedRate, wrong_with

COLUMNS: Final = ("day", "base", "quote", "rate")
_SHAPE: Final = "write day,base,quote,rate such as 2026-11-01,EUR,USD,1.08"
_BOM: Final = "\ufeff"
_LONGEST_CELL: Final = 80
# A float would change digits.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class BadRateRow(msgspec.Struct, frozen=True, kw_only=True):
    """The problem of one row, and its line."""

    line: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


def read_rates(stream: BinaryIO, file: str, *, today: date) -> tuple[Sequence[DatedRate], Sequence[BadRateRow]]:
    """The rates of CSV or JSON lines, as the first row says, and the rows that are none."""
    try:
        text = stream.read().decode("utf-8").removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise UnreadableFile(file, f"it is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    rows: Iterator[tuple[int, Any]] = csv_rows(csv.reader(io.StringIO(text, newline=""), strict=True))
    if text.lstrip().startswith("{"):
        rows = json_rows(text.split("\n"), _decode, example='{"day", "base", "quote", "rate"}')
    good: dict[tuple[str, str, date], DatedRate] = {}
    bad: list[BadRateRow] = []
    names: Sequence[str] = COLUMNS
    for place, (line, cells) in enumerate(rows):
        match cells:
            case csv.Error():
                read: DatedRate | str = f"it cannot be read as CSV: {cells}; nothing after it was read"
            # A header may name the columns in any order; without one they stand as day, base, quote, rate.
            case list() if not place and set(called := [cell.strip().lower() for cell in cells]) >= set(COLUMNS):
                names = called
                continue
            case list() if len(cells) != len(names):
                read = f"it has {len(cells)} cells, not {len(names)}; {_SHAPE}"
            case list():
                read = rate_of(dict(zip(names, cells, strict=True)), today=today)
            case _:
                read = cells if isinstance(cells, str) else rate_of(cells, today=today)
        if isinstance(read, str):
            bad.append(BadRateRow(line=line, problem=read))
            continue
        # The same rate twice does no harm; two rates for one day cannot both be right.
        other = good.setdefault((read.base, read.quote, read.day), read)
        if other.rate != read.rate:
            twice = f"{read.base}/{read.quote} of {read.day} is {other.rate} in an earlier row; leave one of them"
            bad.append(BadRateRow(line=line, problem=twice))
    return list(good.values()), bad


def rate_of(cells: Mapping[str, Any], *, today: date) -> DatedRate | str:
    """The rate of a row, or why it is not valid."""
    missing = [name for name in COLUMNS if cells.get(name) in (None, "")]
    if missing:
        return f"{' and '.join(missing)} missing; {_SHAPE}"
    texts = {name: str(cells[name]).strip() for name in COLUMNS}
    try:
        day = date.fromisoformat(texts["day"])
    except ValueError:
        return f"{texts['day'][:_LONGEST_CELL]!r} is no day; write it as 2026-11-01"
    rate = None
    if texts["rate"].isascii() and "_" not in texts["rate"]:
        with suppress(InvalidOperation):
            rate = Decimal(texts["rate"])
    if rate is None:
        return f"{texts['rate'][:_LONGEST_CELL]!r} is no number; write it with a point and no blanks, such as 1.08"
    read = DatedRate(base=texts["base"].upper(), quote=texts["quote"].upper(), day=day, rate=rate)
    return wrong_with(read, today=today) or read


_LISTED_BAD: Final = 20

Code = Annotated[str | None, typer.Option(metavar="CODE", help="Only rates of this currency.")]


@shared_options
async def import_rates(
    invocation: Invocation,
    file: Annotated[str, argument("FILE", "CSV or JSON lines; - reads standard input.")],
    *,
    skip_bad: Annotated[bool, flag("--skip-bad", "Import the valid rows and skip the invalid ones.")] = False,
    origin: Annotated[str | None, option("--origin", "TEXT", "Where they come from; else the file's name.")] = None,
) -> None:
    """Import exchange rates: rows of day, base, quote, rate. Affected items are valued again.

    One unit of `base` was worth `rate` units of `quote` on that day. If any row is invalid, nothing is written.
    Importing rates again is safe.
    """
    with lines_of(file) as stream:
        rates, bad = read_rates(stream, file, today=datetime.now(UTC).date())
    if bad and not skip_bad:
        raise BadRates(file, len(rates) + len(bad), [str(each) for each in bad])
    for each in bad[:_LISTED_BAD]:
        sys.stderr.write(f"left out: {printable(str(each), one_line=True)}\n")
    if len(bad) > _LISTED_BAD:
        sys.stderr.write(f"left out: {len(bad) - _LISTED_BAD:,} more; --json names them all\n")
    async with open_database(invocation.settings) as database:
        saved = await _save(database, rates, origin or file)
    left = f"; bad rows left out: {len(bad):,}" if bad else ""
    invocation.out.show(document(**saved, skipped=bad), _summary(saved) + left)


@shared_options
async def set_rate(
    invocation: Invocation,
    base: Annotated[str, argument("BASE", "One unit of this currency ...")],
    quote: Annotated[str, argument("QUOTE", "... in this one ...")],
    rate: Annotated[str, argument("RATE", "... was so many, such as 1.08.")],
    *,
    on: Annotated[str | None, option("--on", "DAY", "On this day; else today (UTC).")] = None,
    origin: Annotated[str | None, option("--origin", "TEXT", "Where it comes from.")] = None,
) -> None:
    """Set one exchange rate. Affected items are valued again."""
    today = datetime.now(UTC).date()
    cells = dict(zip(COLUMNS, (on or today.isoformat(), base, quote, rate), strict=True))
    read = rate_of(cells, today=today)
    if isinstance(read, str):
        raise typer.BadParameter(read)
    async with open_database(invocation.settings) as database:
        saved = await _save(database, [read], origin or "rates set")
    line = f"on {read.day} one {read.base} was worth {read.rate:f} {read.quote}"
    invocation.out.show(document(**saved), f"{line}; {_summary(saved)}")


@shared_options
async def list_rates(
    invocation: Invocation,
    *,
    base: Code = None,
    quote: Code = None,
    limit: LimitOption = 100,
    after: Annotated[
        str | None, option("--after", "BASE/QUOTE/DAY", "Only those after this one: the next page.")
    ] = None,
) -> None:
    """Show exchange rates by currency and day."""
    place = None
    if after is not None:
        try:
            one, other, day = after.strip().split("/")
            place = one.upper(), other.upper(), date.fromisoformat(day).isoformat()
        except ValueError:
            problem = "--after names the last line of the page before, such as EUR/USD/2026-11-01"
            raise typer.BadParameter(problem) from None
    async with open_database(invocation.settings) as database:
        codes = {"base": base and base.strip().upper(), "quote": quote and quote.strip().upper()}
        page = await RateStore(database).page(**codes, after=place, limit=limit)
    last = "/".join(page.next) if page.next else None
    grid = Grid(
        columns=("day", "one", "is worth", "from", "told (UTC)"),
        rows=[(each.day, each.base, f"{each.rate:f} {each.quote}", each.origin, each.told_at) for each in page.items],
        empty="no rates yet: `mistnet rates import FILE` or `mistnet rates set EUR USD 1.08` adds some",
    )
    invocation.out.show(document(rates=page.items, next_after=last), grid, *next_page(last, "--after"))


async def _save(database: Database, rates: Sequence[DatedRate], origin: str) -> dict[str, Any]:
    """Rates first, then the items they affect. After an interruption, the same command again finishes the work."""
    await RateStore(database).save(rates, origin=origin, now=database.clock.now())
    touched = await items_affected_by(database, rates)
    with progress_bar("valuing items", len(touched)) as on_done:
        changed = await revalue(database, touched, on_done=on_done)
    return {"told": len(rates), "items_valued": len(touched), "items_changed": changed}


def _summary(saved: dict[str, Any]) -> str:
    summary, valued = f"{counted(saved['told'], 'rate')} saved", saved["items_valued"]
    if not valued:
        return f"{summary}; no item is affected"
    changed = f"{saved['items_changed']:,} of them with another result"
    return f"{summary}; {counted(valued, 'item')} valued again, {changed}"
