"""The spend command: what calls have cost, what is reserved, and the comparison with the source's bill."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, assert_never

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import Since, Until, flag, option
from mistnet.cli.output import Grid, at, document, span
from mistnet.cli.sources import NOT_ANSWERED, ask_balances
from mistnet.governor.bills import Bill, Bills, BillVerdict, Committed, Reconciled
from mistnet.governor.model import X_SOURCE, SourceName
from mistnet.kit.text import are, counted
from mistnet.operations.events import silence_of
from mistnet.operations.overview import By, CallLedger, Spent
from mistnet.sources.x.client import CREDITS_PER_DOLLAR, format_dollars


async def reconcile(invocation: Invocation) -> int:
    """Fetch each key's balance, compare, book the differences if no worker may be calling, and show the result."""
    settings = invocation.settings
    lag, silence = timedelta(seconds=settings.x_balance_lag_seconds), silence_of(settings)
    async with open_app(settings) as app:
        problems = await ask_balances(app, X_SOURCE)
        answered = [label for label in app.sources[X_SOURCE].keys if label not in problems]
        done = await Bills(app.database).reconcile(X_SOURCE, answered, lag=lag, silence=silence) if answered else None
        now = app.database.clock.now()
    complaints = [f"{label}: {problem}" for label, problem in problems.items()]
    if done is None:
        shown = document(source=X_SOURCE, is_booked=False, keys=[], problems=problems)
        invocation.out.show(shown, "Nothing was compared: no key told its balance.", *complaints)
    else:
        grid = Grid(
            title="billed by X and booked in the ledger",
            columns=("key", "since", "balance then", "balance now", "billed", "booked", "difference"),
            rows=[
                (
                    bill.label,
                    f"{at(bill.since)} UTC",
                    f"{bill.balance_before:,}",
                    f"{bill.balance:,}",
                    *(
                        "not known" if each is None else f"{each:,} ({format_dollars(abs(each))})" if each else 0
                        for each in _amounts(bill).values()
                    ),
                )
                for bill in done.bills
            ],
        )
        texts = [*describe(done, now, silence), *complaints]
        shown = document(
            source=X_SOURCE,
            is_booked=done.is_booked,
            keys=[_bill_fields(bill) for bill in done.bills],
            day=done.day,
            month=done.month,
            workers=done.workers,
            bill_complete_at=done.complete_at,
            problems=problems,
        )
        invocation.out.show(shown, grid, "\n".join(texts))
    return NOT_ANSWERED if problems else 0


def describe(done: Reconciled, now: datetime, silence: timedelta) -> Sequence[str]:
    """The result for each key, why nothing was booked if so, and what the caps are compared with."""
    lines = []
    for bill in done.bills:
        lines.append(f"{bill.label}: {_finding(bill, is_booked=done.is_booked)}")
        if bill.is_known and bill.shown_late:
            late = f"{_money(bill.shown_late)} of the bill {are(bill.shown_late)} for calls made shortly before"
            lines.append(f"{bill.label}: {late} {at(bill.since)} UTC; the balance of then did not show them yet.")
    if done.workers:
        number = len(done.workers)
        seen = ", ".join(f"{name}, seen {span(now - seen_at)} ago" for name, seen_at in done.workers.items())
        why = f"{counted(number, 'worker')} {are(number)} alive ({seen}) and may have made calls that are not in the"
        stop = f"Stop {'it' if number == 1 else 'them'} and run this again"
        killed = f"one that was killed counts as alive for {span(silence)}"
        lines.append(f"Nothing was booked: {why} ledger yet. {stop}; {killed}.")
    elif done.complete_at:
        why = "X was called a moment ago, and a balance shows calls late"
        lines.append(f"Nothing was booked: {why}. Run this again after {at(done.complete_at)} UTC.")
    return [
        *lines,
        _describe_cap("today's", "midnight (UTC)", done.day, is_booked=done.is_booked),
        _describe_cap("this month's", "the end of the month (UTC)", done.month, is_booked=done.is_booked),
    ]


def _finding(bill: Bill, *, is_booked: bool) -> str:
    amount, are_they = _money(abs(bill.difference)), "it is" if abs(bill.difference) == 1 else "they are"
    match bill.verdict:
        case BillVerdict.FIRST:
            return "this is the first balance that is known. From now on bill and ledger are compared."
        case BillVerdict.EQUAL:
            return "the ledger agrees with the bill."
        case BillVerdict.TOO_LITTLE:
            booked = f" Now {are_they} booked." if is_booked else ""
            return (
                f"X billed {amount} that the ledger did not have, "
                f"for calls of workers that died or of others who use this key.{booked}"
            )
        case BillVerdict.TOO_MUCH:
            booked = " The ledger is corrected." if is_booked else ""
            return f"X billed {amount} less than was booked for calls that failed.{booked}"
        case BillVerdict.NOT_YET:
            lacking = bill.booked - bill.billed
            return f"{_money(lacking)} of what was booked {are(lacking)} not on the bill yet."
        case BillVerdict.CREDITS_ADDED:
            begins = " From now on bill and ledger are compared with this balance." if is_booked else ""
            least = _money(bill.booked - bill.booked_for_failures)
            fell = f"the balance fell by {_money(bill.billed)}, and calls cost {least} at least: credits were added, "
            added = f"{fell}or X charges less than the price table says."
            if bill.billed < 0:
                added = f"the balance rose by {_money(-bill.billed)}: credits were added."
            return f"{added} Nothing is booked for it: what was billed cannot be told.{begins}"
    assert_never(bill.verdict)


def _describe_cap(whose: str, end: str, cap: Committed, *, is_booked: bool) -> str:
    said = f"Counted against {whose} cap: {counted(cap.after, 'credit')}"
    said += f" (before: {cap.before:,})" if cap.after != cap.before else ""
    rest = cap.after - cap.in_ledger
    if rest <= 0:
        return f"{said}, as the ledger says."
    said += f"; the ledger has {cap.in_ledger:,}. The other {rest:,} {'was' if rest == 1 else 'were'} set aside"
    if not is_booked:
        return f"{said}; {'it' if rest == 1 else 'they'} may be spent already."
    why = f"because it is not known what {' and '.join(cap.not_known)} spent" if cap.not_known else "to be safe"
    return f"{said} and {'stays' if rest == 1 else 'stay'} counted until {end}, {why}."


def _bill_fields(bill: Bill) -> Mapping[str, Any]:
    amounts = _amounts(bill)
    named = ("label", "verdict", "since", "until", "balance_before", "balance")
    dollars = {
        f"{name}_dollars": None if amount is None else round(amount / CREDITS_PER_DOLLAR, 5)
        for name, amount in amounts.items()
    }
    return {**{name: getattr(bill, name) for name in named}, **amounts, **dollars}


def _amounts(bill: Bill) -> Mapping[str, int | None]:
    """In credits; None where the two balances do not determine it."""
    billed = None if bill.verdict is BillVerdict.CREDITS_ADDED else bill.billed
    return {"billed": billed, "booked": bill.booked, "difference": bill.difference if bill.is_known else None}


def _money(credits_: int) -> str:
    return f"{counted(credits_, 'credit')} ({format_dollars(credits_)})"


SHARED: Final = "shared by several"
_SUMS: Final = ("calls", "items", "credits", "failures")
_BAR_CELLS: Final = 40
_DAYS_DRAWN: Final = 60
_HOW_TO_TELL: Final = " (`mistnet spend --reconcile` tells)"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


class Today(msgspec.Struct, frozen=True, kw_only=True):
    """What one source has committed for today, and what its calls have cost."""

    source: SourceName
    committed: int
    in_ledger: int

    @property
    def difference(self) -> int:
        return self.committed - self.in_ledger

    def __str__(self) -> str:
        said = f"{self.source} today: {counted(self.committed, 'credit')} committed, {self.in_ledger:,} in the ledger"
        if self.difference > 0:
            return f"{said}; {self.difference:,} are set aside, or were spent by workers that died{_HOW_TO_TELL}"
        if self.difference < 0:
            return f"{said}; {-self.difference:,} of them were set aside before midnight"
        return said


@shared_options
async def spend(
    invocation: Invocation,
    *,
    by: Annotated[By, option("--by", "|".join(By), "What to sum up for.")] = By.DAY,
    since: Since = None,
    until: Until = None,
    compare: Annotated[
        bool,
        flag("--reconcile", "Compare the ledger with what X billed, by the balance of each key; book the difference."),
    ] = False,
) -> int:
    """Show what calls cost: calls, items, credits, dollars and failures."""
    if compare:
        if since or until:
            raise typer.BadParameter("--reconcile compares since the last time: leave out --since and --until")
        return await reconcile(invocation)
    async with open_app(invocation.settings) as app:
        rows = await CallLedger(app.database).spent(by, since=since, until=until)
        today = await today_of(app)
    sums = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
    total = Spent(name="total", **sums)
    shown = document(
        by=by,
        since=since,
        until=until,
        rows=[_spend_fields(row, by) for row in rows],
        total=_spend_fields(total, None),
        today=[{**msgspec.structs.asdict(each), "difference": each.difference} for each in today],
    )
    grid = Grid(
        title=f"spent by {by}{_bounds(since, until)}",
        columns=(str(by), "calls", "items", "credits", "dollars", "failures"),
        rows=[
            (
                _shown_name(row, by),
                f"{row.calls:,}",
                f"{row.items:,}",
                f"{row.credits:,}",
                format_dollars(row.credits),
                f"{row.failures:,}" if row.failures else None,
            )
            for row in rows
        ],
        empty=f"no calls{_bounds(since, until)}",
    )
    costs = f"{counted(total.credits, 'credit')}, {format_dollars(total.credits)}"
    said = [f"in all: {counted(total.calls, 'call')}, {costs}"] if rows else []
    drawn = [plot(_heights(rows, by), fine=invocation.out.on_terminal)] if total.credits else []
    invocation.out.show(shown, grid, *drawn, *said, *map(str, today))
    return 0


async def today_of(app: App) -> Sequence[Today]:
    now = app.database.clock.now()
    day = now.astimezone(UTC).date().isoformat()
    costs = await CallLedger(app.database).credits_on(now)
    committed = {state.name: state.day_credits for state in (await app.sources.states()).values() if state.day == day}
    return [
        Today(source=name, committed=committed.get(name, 0), in_ledger=costs.get(name, 0))
        for name in sorted({*costs, *committed})
        if costs.get(name) or committed.get(name)
    ]


def plot(heights: Sequence[tuple[str, int]], *, fine: bool) -> str:
    """A bar chart: block characters on a terminal, `#` elsewhere."""
    width = max(len(name) for name, _ in heights)
    largest = max(1, *(value for _, value in heights))
    lines = []
    for name, value in heights:
        share = max(value, 0) / largest
        whole, eighths = divmod(round(share * _BAR_CELLS * 8), 8)
        bar = "█" * whole + _EIGHTHS[eighths].strip() if fine else "#" * round(share * _BAR_CELLS)
        lines.append(f"{name.ljust(width)}  {bar.ljust(_BAR_CELLS)}  {value:,}")
    return "\n".join(lines)


def _heights(rows: Sequence[Spent], by: By) -> Sequence[tuple[str, int]]:
    """Credits by name. Days without calls are included; only the last days are drawn."""
    if by is not By.DAY:
        return [(_shown_name(row, by), row.credits) for row in rows]
    spent = {row.name or "": row.credits for row in rows}
    first, last = date.fromisoformat(min(spent)), date.fromisoformat(max(spent))
    days = [(first + timedelta(days=place)).isoformat() for place in range((last - first).days + 1)]
    return [(day, spent.get(day, 0)) for day in days[-_DAYS_DRAWN:]]


def _spend_fields(row: Spent, by: By | None) -> Mapping[str, Any]:
    sums = {name: getattr(row, name) for name in _SUMS}
    sums["dollars"] = round(row.credits / CREDITS_PER_DOLLAR, 5)
    match by:
        case None:
            return sums
        case By.ACCOUNT:
            return {"account_id": row.account_id or None, "handle": row.name, **sums}
        case By.DAY | By.ENDPOINT | By.SOURCE:
            return {str(by): row.name, **sums}


def _shown_name(row: Spent, by: By) -> str:
    if by is not By.ACCOUNT:
        return row.name or ""
    if row.account_id is None:
        return SHARED
    return f"@{row.name}" if row.name else f"user {row.account_id}"


def _bounds(since: datetime | None, until: datetime | None) -> str:
    return (f" since {at(since)}" if since else "") + (f" until {at(until)}" if until else "")
