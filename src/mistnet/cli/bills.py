"""`spend --reconcile`: what X billed beside what the ledger has booked, key by key."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, assert_never

from mistnet.app import open_app
from mistnet.cli.balances import NOT_ANSWERED, ask_balances
from mistnet.cli.output import Grid, at, document, span
from mistnet.cli.shared import Invocation
from mistnet.domain.bills import Bill, Verdict
from mistnet.domain.plural import are, counted
from mistnet.domain.sources import X_SOURCE, KeyLabel
from mistnet.harvest import keys_of
from mistnet.store.bills import Bills, Committed, Reconciled
from mistnet.upstream.x.prices import CREDITS_PER_DOLLAR, shown_dollars
from mistnet.watch import silence_of


async def reconcile(invocation: Invocation) -> int:
    """Ask for each key's balance, compare, book the differences if nobody is calling, and show all of it."""
    settings = invocation.settings
    lag, silence = timedelta(seconds=settings.x_balance_lag_seconds), silence_of(settings)
    async with open_app(settings) as app:
        problems = await ask_balances(app)
        answered = [label for label in keys_of(settings) if label not in problems]
        done = await Bills(app.database).reconcile(X_SOURCE, answered, lag=lag, silence=silence) if answered else None
        now = app.database.clock.now()
    complaints = [f"{label}: {problem}" for label, problem in problems.items()]
    if done is None:
        shown = document(source=X_SOURCE, is_booked=False, keys=[], problems=problems)
        invocation.out.show(shown, "Nothing was compared: no key told its balance.", *complaints)
    else:
        texts = [*tell(done, now, silence), *complaints]
        invocation.out.show(_document(done, problems), _grid(done.bills), "\n".join(texts))
    return NOT_ANSWERED if problems else 0


def tell(done: Reconciled, now: datetime, silence: timedelta) -> Sequence[str]:
    """What was found for each key, why nothing was booked if so, and what the caps are compared with."""
    return [
        *(line for bill in done.bills for line in _about_key(bill, is_booked=done.is_booked)),
        *_about_hindrance(done, now, silence),
        _about_cap("today's", "midnight (UTC)", done.day, is_booked=done.is_booked),
        _about_cap("this month's", "the end of the month (UTC)", done.month, is_booked=done.is_booked),
    ]


def _about_key(bill: Bill, *, is_booked: bool) -> Sequence[str]:
    found = [f"{bill.label}: {_finding(bill, is_booked=is_booked)}"]
    if bill.is_known and bill.shown_late:
        late = f"{_money(bill.shown_late)} of the bill {are(bill.shown_late)} for calls made shortly before"
        found.append(f"{bill.label}: {late} {at(bill.since)} UTC; the balance of then did not show them yet.")
    return found


def _finding(bill: Bill, *, is_booked: bool) -> str:
    amount, are_they = _money(abs(bill.difference)), "it is" if abs(bill.difference) == 1 else "they are"
    match bill.verdict:
        case Verdict.FIRST:
            return "this is the first balance that is known. From now on bill and ledger are compared."
        case Verdict.EQUAL:
            return "the ledger agrees with the bill."
        case Verdict.TOO_LITTLE:
            booked = f" Now {are_they} booked." if is_booked else ""
            return (
                f"X billed {amount} that the ledger did not have, "
                f"for calls of workers that died or of others who use this key.{booked}"
            )
        case Verdict.TOO_MUCH:
            booked = " The ledger is corrected." if is_booked else ""
            return f"X billed {amount} less than was booked for calls that failed.{booked}"
        case Verdict.NOT_YET:
            lacking = bill.booked - bill.billed
            return f"{_money(lacking)} of what was booked {are(lacking)} not on the bill yet."
        case Verdict.CREDITS_ADDED:
            begins = " From now on bill and ledger are compared with this balance." if is_booked else ""
            return f"{_about_added(bill)} Nothing is booked for it: what was billed cannot be told.{begins}"
    assert_never(bill.verdict)


def _about_added(bill: Bill) -> str:
    if bill.billed < 0:
        return f"the balance rose by {_money(-bill.billed)}: credits were added."
    least = bill.booked - bill.booked_for_failures
    return (
        f"the balance fell by {_money(bill.billed)}, and calls cost {_money(least)} at least: "
        "credits were added, or X charges less than the price table says."
    )


def _about_hindrance(done: Reconciled, now: datetime, silence: timedelta) -> Sequence[str]:
    if done.workers:
        one = len(done.workers) == 1
        seen = ", ".join(f"{name}, seen {span(now - seen_at)} ago" for name, seen_at in done.workers.items())
        said = (
            f"Nothing was booked: {counted(len(done.workers), 'worker')} {are(len(done.workers))} alive ({seen}) "
            f"and may have made calls that are not in the ledger yet. Stop {'it' if one else 'them'} and run this "
            f"again; one that was killed counts as alive for {span(silence)}."
        )
        return [said]
    if done.complete_at:
        why = "X was called a moment ago, and a balance shows calls late"
        return [f"Nothing was booked: {why}. Run this again after {at(done.complete_at)} UTC."]
    return []


def _about_cap(whose: str, end: str, cap: Committed, *, is_booked: bool) -> str:
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


def _grid(bills: Sequence[Bill]) -> Grid:
    return Grid(
        title="billed by X and booked in the ledger",
        columns=("key", "since", "balance then", "balance now", "billed", "booked", "difference"),
        rows=[
            (
                bill.label,
                f"{at(bill.since)} UTC",
                f"{bill.balance_before:,}",
                f"{bill.balance:,}",
                *("not known" if each is None else _amount(each) for each in _amounts(bill).values()),
            )
            for bill in bills
        ],
    )


def _document(done: Reconciled, problems: Mapping[KeyLabel, str]) -> Mapping[str, Any]:
    return document(
        source=X_SOURCE,
        is_booked=done.is_booked,
        keys=[_fields(bill) for bill in done.bills],
        day=done.day,
        month=done.month,
        workers=done.workers,
        bill_complete_at=done.complete_at,
        problems=problems,
    )


def _fields(bill: Bill) -> Mapping[str, Any]:
    amounts = _amounts(bill)
    dollars = {
        f"{name}_dollars": None if amount is None else round(amount / CREDITS_PER_DOLLAR, 5)
        for name, amount in amounts.items()
    }
    return {
        "label": bill.label,
        "verdict": bill.verdict,
        "since": bill.since,
        "until": bill.until,
        "balance_before": bill.balance_before,
        "balance": bill.balance,
        **amounts,
        **dollars,
    }


def _amounts(bill: Bill) -> Mapping[str, int | None]:
    """In credits; None where the two balances do not tell."""
    billed = None if bill.verdict is Verdict.CREDITS_ADDED else bill.billed
    return {"billed": billed, "booked": bill.booked, "difference": bill.difference if bill.is_known else None}


def _money(credits_: int) -> str:
    return f"{counted(credits_, 'credit')} ({shown_dollars(credits_)})"


def _amount(credits_: int) -> str:
    return f"{credits_:,} ({shown_dollars(abs(credits_))})" if credits_ else "0"
