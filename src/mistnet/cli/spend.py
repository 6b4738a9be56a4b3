"""The spend command: what calls have cost, and what was set aside."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.bills import reconcile
from mistnet.cli.output import Grid, at, document
from mistnet.cli.search import Since, Until
from mistnet.cli.shared import Invocation, shared_options
from mistnet.domain.plural import counted
from mistnet.domain.sources import SourceName
from mistnet.store.ledger import By, Ledger, Spent
from mistnet.upstream.x.prices import CREDITS_PER_DOLLAR, shown_dollars

SHARED: Final = "shared by several"
_BAR_CELLS: Final = 40
_DAYS_DRAWN: Final = 60
_HOW_TO_TELL: Final = " (`mistnet spend --reconcile` tells)"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


class Today(msgspec.Struct, frozen=True, kw_only=True):
    """What one source has promised for today, beside what its calls have cost."""

    source: SourceName
    committed: int
    in_ledger: int

    @property
    def difference(self) -> int:
        return self.committed - self.in_ledger


@shared_options
async def spend(
    invocation: Invocation,
    *,
    by: Annotated[By, typer.Option("--by", metavar="|".join(By), help="What to sum up for.")] = By.DAY,
    since: Since = None,
    until: Until = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--reconcile",
            help="Compare the ledger with what X billed, by the balance of each key; book the difference.",
        ),
    ] = False,
) -> int:
    """Show what calls have cost: calls, items, credits, dollars and failures."""
    if compare:
        if since or until:
            raise typer.BadParameter("--reconcile compares since the last time: leave out --since and --until")
        return await reconcile(invocation)
    async with open_app(invocation.settings) as app:
        rows = await Ledger(app.database).spent(by, since=since, until=until)
        today = await today_of(app)
    total = _total(rows)
    shown = document(
        by=by,
        since=since,
        until=until,
        rows=[_fields(row, by) for row in rows],
        total=_fields(total, None),
        today=[{**msgspec.structs.asdict(each), "difference": each.difference} for each in today],
    )
    grid = Grid(
        title=f"spent by {by}{_bounds(since, until)}",
        columns=(str(by), "calls", "items", "credits", "dollars", "failures"),
        rows=[_row(row, by) for row in rows],
        empty=f"no calls{_bounds(since, until)}",
    )
    said = (
        [f"in all: {counted(total.calls, 'call')}, {counted(total.credits, 'credit')}, {_dollars(total.credits)}"]
        if rows
        else []
    )
    drawn = [plot(_heights(rows, by), fine=invocation.out.on_terminal)] if total.credits else []
    invocation.out.show(shown, grid, *drawn, *said, *map(_told, today))
    return 0


async def today_of(app: App) -> Sequence[Today]:
    now = app.database.clock.now()
    day = now.astimezone(UTC).date().isoformat()
    costs = await Ledger(app.database).credits_on(now)
    committed = {state.name: state.day_credits for state in await app.harvest.book.states() if state.day == day}
    return [
        Today(source=name, committed=committed.get(name, 0), in_ledger=costs.get(name, 0))
        for name in sorted({*costs, *committed})
        if costs.get(name) or committed.get(name)
    ]


def plot(heights: Sequence[tuple[str, int]], *, fine: bool) -> str:
    """A bar for each name, the longest for the largest: finely cut on a terminal, plain elsewhere."""
    width = max(len(name) for name, _ in heights)
    largest = max(1, *(value for _, value in heights))
    return "\n".join(
        f"{name.ljust(width)}  {_bar(max(value, 0) / largest, fine=fine).ljust(_BAR_CELLS)}  {value:,}"
        for name, value in heights
    )


def _bar(share: float, *, fine: bool) -> str:
    if not fine:
        return "#" * round(share * _BAR_CELLS)
    whole, rest = divmod(round(share * _BAR_CELLS * 8), 8)
    return "█" * whole + _EIGHTHS[rest].strip()


def _heights(rows: Sequence[Spent], by: By) -> Sequence[tuple[str, int]]:
    """Credits by name. Days without calls have their place too; only the last ones are drawn."""
    if by is not By.DAY:
        return [(_shown_name(row, by), row.credits) for row in rows]
    spent = {row.name or "": row.credits for row in rows}
    first, last = date.fromisoformat(min(spent)), date.fromisoformat(max(spent))
    days = [(first + timedelta(days=place)).isoformat() for place in range((last - first).days + 1)]
    return [(day, spent.get(day, 0)) for day in days[-_DAYS_DRAWN:]]


def _total(rows: Sequence[Spent]) -> Spent:
    return Spent(
        name="total",
        calls=sum(row.calls for row in rows),
        items=sum(row.items for row in rows),
        credits=sum(row.credits for row in rows),
        failures=sum(row.failures for row in rows),
    )


def _fields(row: Spent, by: By | None) -> Mapping[str, Any]:
    sums = {name: getattr(row, name) for name in ("calls", "items", "credits", "failures")}
    sums["dollars"] = round(row.credits / CREDITS_PER_DOLLAR, 5)
    match by:
        case None:
            return sums
        case By.ACCOUNT:
            return {"account_id": str(row.account_id) if row.account_id else None, "handle": row.name, **sums}
        case By.DAY | By.ENDPOINT | By.SOURCE:
            return {str(by): row.name, **sums}


def _row(row: Spent, by: By) -> Sequence[str]:
    return (
        _shown_name(row, by),
        f"{row.calls:,}",
        f"{row.items:,}",
        f"{row.credits:,}",
        _dollars(row.credits),
        f"{row.failures:,}" if row.failures else "",
    )


def _shown_name(row: Spent, by: By) -> str:
    if by is not By.ACCOUNT:
        return row.name or ""
    if row.account_id is None:
        return SHARED
    return f"@{row.name}" if row.name else f"user {row.account_id}"


def _dollars(spent: int) -> str:
    return shown_dollars(spent)


def _bounds(since: datetime | None, until: datetime | None) -> str:
    return (f" since {at(since)}" if since else "") + (f" until {at(until)}" if until else "")


def _told(today: Today) -> str:
    said = f"{today.source} today: {counted(today.committed, 'credit')} committed, {today.in_ledger:,} in the ledger"
    if today.difference > 0:
        return f"{said}; {today.difference:,} are set aside, or were spent by workers that died{_HOW_TO_TELL}"
    if today.difference < 0:
        return f"{said}; {-today.difference:,} of them were set aside before midnight"
    return said
