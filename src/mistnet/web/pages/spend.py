"""What calls have cost: the budgets that are left, and money by day, source, account and endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from mistnet.operations.overview import By, CallLedger, Spent
from mistnet.sources.controls import costs_credits, source_statuses
from mistnet.sources.x.client import CREDITS_PER_DOLLAR
from mistnet.web.pages.plots import Plot, bar_plot
from mistnet.web.pages.render import ReaderPage

router = APIRouter(include_in_schema=False)
_LISTED: Final = 15
_DAY: Final = timedelta(days=1)


class SpendSpan(StrEnum):
    TODAY = "today"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"

    @property
    def days(self) -> int:
        return {SpendSpan.TODAY: 1, SpendSpan.WEEK: 7, SpendSpan.MONTH: 31, SpendSpan.YEAR: 366}[self]


@router.get("/spend")
async def spend(page: ReaderPage, span: SpendSpan = SpendSpan.MONTH) -> Response:
    app = page.app
    midnight = page.now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight - (span.days - 1) * _DAY
    ledger = CallLedger(app.database)
    sums = {by: await ledger.spent(by, since=since) for by in By}
    return page.render(
        "spend.html",
        spans=list(SpendSpan),
        chosen=span,
        paid=[each for each in await source_statuses(app) if costs_credits(app, each)],
        plot=_plot(sums[By.DAY], since, span),
        total=sum(each.credits for each in sums[By.SOURCE]),
        calls=sum(each.calls for each in sums[By.SOURCE]),
        tables=_tables(sums),
        listed=_LISTED,
    )


def _plot(days: Sequence[Spent], since: datetime, span: SpendSpan) -> Plot | None:
    """One bar for each day; a single day needs no drawing."""
    if span is SpendSpan.TODAY:
        return None
    spent = {each.name: each.credits / CREDITS_PER_DOLLAR for each in days}
    edges = [since + place * _DAY for place in range(span.days + 1)]
    amounts = [spent.get(f"{day:%Y-%m-%d}", 0) for day in edges[:-1]]
    return bar_plot(edges, amounts, lambda amount: f"${amount:,.2f}")


def _tables(sums: Mapping[By, Sequence[Spent]]) -> Sequence[tuple[str, Sequence[Spent]]]:
    return [(str(by), sums[by]) for by in (By.SOURCE, By.ACCOUNT, By.ENDPOINT)]
