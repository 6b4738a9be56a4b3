"""Tells what collecting accounts is likely to cost, before anything is collected."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from mistnet.app import App
from mistnet.cli.faults import complain
from mistnet.cli.output import Grid, document
from mistnet.cli.shared import Invocation
from mistnet.domain.errors import NoKey, WorkError
from mistnet.domain.plural import counted
from mistnet.quotes import ASSUMPTION, Bill, Quote, Quoter
from mistnet.upstream.x import prices

_COLUMNS = ("account", "posts", "for posts", "for threads", "for people", "credits", "dollars", "")


async def show_quotes(invocation: Invocation, app: App, handles: Sequence[str]) -> int:
    """One paid call per handle. What was paid for is shown even if a later call fails."""
    if not app.settings.x_api_key:
        raise NoKey
    quotes: list[Quote] = []
    failure: WorkError | None = None
    quoter = Quoter(app.settings, app.harvest)
    async with app.harvest.opened():
        try:
            for handle in {each.lower(): each for each in handles}.values():
                quotes.append(await quoter.quote(handle))  # noqa: PERF401 (what came before a failure is kept)
        except WorkError as error:
            failure = error
        bill = await quoter.bill(quotes)
    if quotes or invocation.out.as_json:
        invocation.out.show(_document(quotes, bill), _grid(quotes), *_said(bill))
    if failure:
        complain(f"{failure}; nothing is tracked", app.secrets)
    return 1 if failure else 0


def _document(quotes: Sequence[Quote], bill: Bill) -> object:
    listed = [
        {**msgspec.structs.asdict(each), "credits": each.credits, "dollars": _dollars(each.credits)} for each in quotes
    ]
    total = msgspec.structs.asdict(bill)
    total["at_rate_seconds"] = total.pop("at_rate").total_seconds()
    return document(quotes=listed, total=total, assumption=ASSUMPTION)


def _grid(quotes: Sequence[Quote]) -> Grid:
    return Grid(columns=_COLUMNS, rows=[_row(each) for each in quotes])


def _row(quote: Quote) -> Sequence[str]:
    if quote.problem:
        return (f"@{quote.handle}", *[""] * 6, quote.problem)
    amounts = (quote.posts, quote.post_credits, quote.thread_credits, quote.user_credits, quote.credits)
    return (f"@{quote.handle}", *(f"{each:,}" for each in amounts), prices.shown_dollars(quote.credits), "")


def _dollars(amount: int) -> float:
    return amount / prices.CREDITS_PER_DOLLAR


def _said(bill: Bill) -> list[str]:
    dollars = prices.shown_dollars(bill.credits)
    money = f"about {counted(bill.credits, 'credit')} ({dollars}) in {counted(bill.calls, 'call')}"
    lines = [f"{money}; at the rate of your keys at least {_lasting(bill.at_rate)}"]
    if bill.days_under_day_cap:
        lines.append(f"the cap on a day's credits stretches it to about {counted(bill.days_under_day_cap, 'day')}")
    if bill.months_under_month_cap:
        lines.append(f"the cap on a month's credits stretches it to about {bill.months_under_month_cap:,} months")
    return ["\n".join([*lines, ASSUMPTION, "Nothing is tracked yet: leave out --quote to begin."])]


def _lasting(span: timedelta) -> str:
    days = span / timedelta(days=1)
    if days >= 0.1:
        return f"{days:,.1f} days"
    return f"{max(span.total_seconds() / 60, 0.1):,.1f} minutes"
