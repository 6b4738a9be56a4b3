"""The rates commands: tell what currencies were worth in each other on a day, and list what was told."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final

import typer

from mistnet.cli.input_files import lines_of
from mistnet.cli.opening import open_database
from mistnet.cli.output import Grid, at, document
from mistnet.cli.printable import printable
from mistnet.cli.rate_files import COLUMNS, RateRows, rate_of, read_rates
from mistnet.cli.shared import Invocation, shared_options
from mistnet.domain.errors import BadRates
from mistnet.pricing.exchange import DatedRate
from mistnet.store.database import Database
from mistnet.store.rates import RateBook, RateFilter, RateLine
from mistnet.store.revaluing import revalue, touched_by

_TOLD_BAD: Final = 20

Code = Annotated[str | None, typer.Option(metavar="CODE", help="Only rates of this currency.")]


@shared_options
async def import_rates(
    invocation: Invocation,
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV or JSON lines; - reads standard input.")],
    *,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Take the good rows and leave out the bad ones.")
    ] = False,
    origin: Annotated[
        str | None, typer.Option("--origin", metavar="TEXT", help="Where they come from; else the file's name.")
    ] = None,
) -> None:
    """Tell many rates at once: rows of day, base, quote, rate. Items they touch are valued anew.

    One unit of `base` was worth `rate` units of `quote` on that day. If any row is bad, nothing is written. Telling
    rates again does no harm.
    """
    with lines_of(file) as stream:
        found = read_rates(stream, file, today=datetime.now(UTC).date())
    if found.bad and not skip_bad:
        raise BadRates(file, found.rows, [str(each) for each in found.bad])
    _tell_of_bad(found)
    async with open_database(invocation.settings) as database:
        told = await _tell(database, found.good, origin or file)
    skipped = [{"line": each.line, "problem": each.problem} for each in found.bad]
    left = f"; bad rows left out: {len(found.bad):,}" if found.bad else ""
    invocation.out.show(document(**told, skipped=skipped), _said(told) + left)


@shared_options
async def set_rate(
    invocation: Invocation,
    base: Annotated[str, typer.Argument(metavar="BASE", help="One unit of this currency ...")],
    quote: Annotated[str, typer.Argument(metavar="QUOTE", help="... in this one ...")],
    rate: Annotated[str, typer.Argument(metavar="RATE", help="... was so many, such as 1.08.")],
    *,
    on: Annotated[str | None, typer.Option("--on", metavar="DAY", help="On this day; else today (UTC).")] = None,
    origin: Annotated[str | None, typer.Option("--origin", metavar="TEXT", help="Where it comes from.")] = None,
) -> None:
    """Tell one rate. Items it touches are valued anew."""
    today = datetime.now(UTC).date()
    cells = dict(zip(COLUMNS, (on or today.isoformat(), base, quote, rate), strict=True))
    read = rate_of(cells, today=today)
    if isinstance(read, str):
        raise typer.BadParameter(read)
    async with open_database(invocation.settings) as database:
        told = await _tell(database, [read], origin or "rates set")
    line = f"on {read.day} one {read.base} was worth {read.rate:f} {read.quote}"
    invocation.out.show(document(**told), f"{line}; {_said(told)}")


@shared_options
async def list_rates(
    invocation: Invocation,
    *,
    base: Code = None,
    quote: Code = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="How many at most.")] = 100,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="BASE/QUOTE/DAY", help="Only those after this one: the next page."),
    ] = None,
) -> None:
    """Show the rates that were told, by currency and day."""
    wanted = RateFilter(base=_code(base), quote=_code(quote), after=_place(after), limit=limit + 1)
    async with open_database(invocation.settings) as database:
        found = await RateBook(database).page(wanted)
    shown, more = found[:limit], len(found) > limit
    last = f"{shown[-1].base}/{shown[-1].quote}/{shown[-1].day}" if more else None
    grid = Grid(
        columns=("day", "one", "is worth", "from", "told (UTC)"),
        rows=[(str(e.day), e.base, f"{e.rate:f} {e.quote}", e.origin or "", at(e.told_at)) for e in shown],
        empty="no rates yet: `mistnet rates import FILE` or `mistnet rates set EUR USD 1.08` tells some",
    )
    lines = [f"more: --after {last}"] if last else []
    invocation.out.show(document(rates=[_fields(each) for each in shown], next_after=last), grid, *lines)


async def _tell(database: Database, rates: Sequence[DatedRate], origin: str) -> dict[str, Any]:
    """The rates first, then all they touch: whoever is stopped in between tells them again."""
    await RateBook(database).tell(rates, origin=origin, now=database.clock.now())
    touched = await touched_by(database, rates)
    with _progress(len(touched)) as on_done:
        changed = await revalue(database, touched, on_done=on_done)
    return {"told": len(rates), "items_valued": len(touched), "items_changed": changed}


def _said(told: dict[str, Any]) -> str:
    rates, touched, changed = told["told"], told["items_valued"], told["items_changed"]
    what = f"{rates:,} rate{'s' if rates != 1 else ''} told"
    if not touched:
        return f"{what}; no item is touched by that"
    items = f"{touched:,} item{'s' if touched != 1 else ''}"
    return f"{what}; {items} valued anew, {changed:,} of them worth something else now"


def _tell_of_bad(found: RateRows) -> None:
    for each in found.bad[:_TOLD_BAD]:
        sys.stderr.write(f"left out: {printable(str(each), one_line=True)}\n")
    if len(found.bad) > _TOLD_BAD:
        sys.stderr.write(f"left out: {len(found.bad) - _TOLD_BAD:,} more; --json names them all\n")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    """On a terminal only, and there on stderr."""
    from rich.console import Console  # noqa: PLC0415 (only those who value items wait for it)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("valuing items"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not sys.stderr.isatty() or not total
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("valuing", total=total)
        yield lambda count: bar.advance(task, count)


def _code(given: str | None) -> str | None:
    return given.strip().upper() if given else None


def _place(given: str | None) -> tuple[str, str, str] | None:
    if given is None:
        return None
    parts = given.strip().split("/")
    try:
        base, quote, day = parts
        return base.upper(), quote.upper(), date.fromisoformat(day).isoformat()
    except ValueError:
        raise typer.BadParameter("--after names the last line of the page before, such as EUR/USD/2026-11-01") from None


def _fields(line: RateLine) -> dict[str, Any]:
    told = {name: getattr(line, name) for name in line.__struct_fields__}
    return {**told, "rate": f"{line.rate:f}", "day": line.day.isoformat()}
