"""Sources: their status, limits and pauses, what their calls have cost. Lanes in words, and what passes through."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Form
from fastapi.responses import Response

from mistnet.governor.model import SourceName
from mistnet.kit.text import counted, read_number
from mistnet.operations.monitoring import Monitor
from mistnet.operations.overview import By
from mistnet.queue.model import GAP_STATES, JobState
from mistnet.sources import controls
from mistnet.sources.controls import Caps, costs_credits, known_source, source_statuses
from mistnet.sources.x.client import CREDITS_PER_DOLLAR
from mistnet.web.dependencies import Checks
from mistnet.web.fields import ShortText, without_nul
from mistnet.web.pages.cached_counts import ChartSpan
from mistnet.web.pages.overview import reason_words, work_words
from mistnet.web.pages.plots import bar_plot
from mistnet.web.pages.render import (
    Confirmed,
    OperatorPage,
    PageRequest,
    ReaderPage,
    dollars,
    lasting,
    number,
    redirect_to,
    span,
)

router = APIRouter(include_in_schema=False)
_MOST_RATE: Final = 100_000_000.0
_MOST_MINUTES: Final = 525_600.0
Written = Annotated[str, Form(max_length=40)]
Why = Annotated[str, Form(max_length=500), without_nul]


@router.get("/sources")
async def sources(page: ReaderPage, source: ShortText = "") -> Response:
    """All sources. `source` opens one in a drawer."""
    return await _render(page, source)


async def _render(page: PageRequest, name: str, problem: str | None = None) -> Response:
    app = page.app
    statuses, shared = await source_statuses(app), (await app.sources.states()).get(SourceName(name))
    return page.render(
        "sources.html",
        status=400 if problem else 200,
        sources=statuses,
        source=next((each for each in statuses if each.name == name), None),
        caps=(shared.day_cap, shared.month_cap) if shared else (None, None),
        charging={status.name for status in statuses if costs_credits(app, status)},
        declared=app.sources,
        problem=problem,
    )


@router.post("/sources/{name}/pause")
async def pause(page: OperatorPage, name: str, reason: Why = "", confirmed: Confirmed = "") -> Response:
    source = await known_source(page.app, name)
    if not confirmed:
        text = "No call is made on any machine until it is resumed. What waits for it is not lost."
        return await page.ask(f"Pause {source}?", text, button=f"Pause {source}", back=_drawer(source))
    reason = reason.strip() or f"paused on the dashboard by {page.caller.name}"
    await controls.pause(page.app, source, reason, by=page.caller.name)
    return redirect_to("/sources", "paused")


@router.post("/sources/{name}/resume")
async def resume(page: OperatorPage, name: str) -> Response:
    await controls.resume(page.app, await known_source(page.app, name), by=page.caller.name)
    return redirect_to("/sources", "resumed")


@router.post("/sources/{name}/breaker/open")
async def open_breaker(
    page: OperatorPage, name: str, minutes: Written = "", reason: Why = "", confirmed: Confirmed = ""
) -> Response:
    source = await known_source(page.app, name)
    try:
        span = timedelta(minutes=_number(minutes, most=_MOST_MINUTES, what="minutes", example="5") or 5.0)
    except ValueError as error:
        return await _render(page, source, str(error))
    if not confirmed:
        text = f"No call is made on any machine for {lasting(span)}; then one call tests the source."
        question = f"Open the breaker of {source}?"
        return await page.ask(question, text, button="Open breaker", back=_drawer(source))
    reason = reason.strip() or "on the dashboard"
    await controls.open_breaker(page.app, source, span, reason, by=page.caller.name)
    return redirect_to("/sources", "breaker-opened")


@router.post("/sources/{name}/breaker/close")
async def close_breaker(page: OperatorPage, name: str) -> Response:
    await controls.close_breaker(page.app, await known_source(page.app, name), by=page.caller.name)
    return redirect_to("/sources", "breaker-closed")


@router.post("/sources/{name}/forget")
async def forget(page: OperatorPage, name: str, confirmed: Confirmed = "") -> Response:
    source = await known_source(page.app, name)
    if not confirmed:
        text = "Its cached answers are deleted. Asking again costs calls, and money where calls cost any."
        return await page.ask(f"Forget what {source} answered?", text, button="Forget answers", back=_drawer(source))
    await controls.forget_answers(page.app, source, by=page.caller.name)
    return redirect_to("/sources", "forgotten")


@router.post("/sources/{name}/limits")
async def set_limits(
    page: OperatorPage,
    name: str,
    *,
    rate: Written = "",
    day: Written = "",
    month: Written = "",
    confirmed: Confirmed = "",
) -> Response:
    """An empty rate does not change; an empty cap is removed, so that the settings apply again."""
    source = await known_source(page.app, name)
    try:
        per_minute = _number(rate, most=_MOST_RATE, what="calls a minute", example="900")
        caps = {"day": _cap(day), "month": _cap(month)}
    except ValueError as error:
        return await _render(page, source, str(error))
    before = await controls.status_of_source(page.app, source)
    shared = await page.app.sources.state(source)
    question = _question("day", shared.day_cap, before.day_cap, caps["day"])
    question = question or _question("month", shared.month_cap, before.month_cap, caps["month"])
    if question and not confirmed:
        text = f"{source} may then spend more than before, on every machine."
        return await page.ask(question, text, button="Set the limits", back=_drawer(source))
    lifted = [word for word, cap in caps.items() if cap is None]
    await controls.set_limits(
        page.app,
        source,
        rate=per_minute,
        caps=Caps(day=caps["day"], month=caps["month"], lifted=lifted),
        by=page.caller.name,
    )
    return redirect_to("/sources", "limits")


def _question(word: str, shared: int | None, before: int | None, cap: int | None) -> str | None:
    """What to ask if more may be spent than before."""
    if cap is None:
        return f"Remove the limit of a {word}?" if shared is not None else None
    if before is None or cap <= before:
        return None
    return f"Allow {dollars(cap)} a {word}, instead of {dollars(before)}?"


def _drawer(source: SourceName) -> str:
    return f"/sources?source={quote(source)}"


def _number(written: str, *, most: float, what: str, example: str) -> float | None:
    if not written.strip():
        return None
    try:
        number = float(written.replace(",", ""))
    except ValueError:
        raise ValueError(f"{written!r} is not a number of {what}, such as {example}") from None
    if not 0.01 <= number <= most:
        raise ValueError(f"{what} must be between 0.01 and {most:,.0f}")
    return number


def _cap(written: str) -> int | None:
    plain = written.replace(",", "").strip()
    if not plain:
        return None
    cap = read_number(plain)
    if cap is None:
        raise ValueError(f"{written!r} is not a number of credits, such as 200000; 100,000 are one US dollar")
    return cap


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
    since, sums = await page.dashboard.spent(span.days)
    spent = {each.name: each.credits / CREDITS_PER_DOLLAR for each in sums[By.DAY]}
    edges = [since + place * _DAY for place in range(span.days + 1)]
    amounts = [spent.get(f"{day:%Y-%m-%d}", 0) for day in edges[:-1]]
    return page.render(
        "spend.html",
        spans=list(SpendSpan),
        chosen=span,
        paid=[each for each in await source_statuses(app) if costs_credits(app, each)],
        # A single day needs no drawing.
        plot=None if span is SpendSpan.TODAY else bar_plot(edges, amounts, lambda amount: f"${amount:,.2f}"),
        total=sum(each.credits for each in sums[By.SOURCE]),
        calls=sum(each.calls for each in sums[By.SOURCE]),
        tables=[(str(by), sums[by]) for by in (By.SOURCE, By.ACCOUNT, By.ENDPOINT)],
        listed=_LISTED,
    )


_MOST_STUCK: Final = 50
_NO_WORKER: Final = "due: waits for a free worker"


@router.get("/lanes")
async def lanes(page: ReaderPage, lane: ShortText = "") -> Response:
    """What is due, running and waiting on each lane. `lane` shows one."""
    statuses, queue = await page.dashboard.lanes(), await page.dashboard.queue.get()
    rows = []
    for each in statuses:
        if lane and each.lane != lane:
            continue
        failed = each.failed + each.dead
        half, most = lasting(each.wait_p50), lasting(each.wait_p95)
        visits = f"half of the links crawled within {half}, 95 % within {most}"
        if half == most:
            visits = f"links crawled within {most}"
        lately = [
            *([counted(each.succeeded, "job") + " done"] if each.succeeded else []),
            *([f"{each.jobs_per_second:.1f} a second now"] if each.jobs_per_second >= 0.1 else []),
            *([f"{each.retried:,} retried"] if each.retried else []),
            *([f"{failed:,} failed"] if failed else []),
            *([visits] if each.crawled else []),
        ]
        oldest = f", the oldest for {span(each.oldest_due_at, page.now)}" if each.oldest_due_at else ""
        waits = [wait for wait in queue.waits if wait.lane == each.lane and wait.reason != _NO_WORKER]
        row = {
            "status": each,
            "running": each.states.get(JobState.RUNNING, 0),
            "gaps": sum(each.states.get(state, 0) for state in GAP_STATES),
            "due": f"{counted(each.due, 'job')} due{oldest}" if each.due else None,
            "waits": [(work_words(wait), wait) for wait in waits],
            # What went through in an hour.
            "lately": ", ".join(lately) if each.succeeded or each.retried or failed or each.crawled else "",
        }
        rows.append(row)
    reasons = await reason_words(page.app, [each.reason for each in queue.waits])
    return page.render("lanes.html", lane=lane, rows=rows, reasons=reasons)


@router.get("/monitoring")
async def monitoring(page: ReaderPage, health: Checks, span: ChartSpan = ChartSpan.DAY) -> Response:
    monitor, activity = Monitor(page.app.database), await page.dashboard.activity(span)
    queue = await page.dashboard.queue.get()
    plots = [(title, name, bar_plot(bars.edges, bars.amounts, number)) for name, (title, bars) in activity.items()]
    return page.render(
        "monitoring.html",
        spans=list(ChartSpan),
        chosen=span,
        # Those with something to draw first, so that no row is half empty.
        plots=sorted(plots, key=lambda each: each[2] is None),
        database=await health.database(),
        served=await health.queue(),
        workers=queue.workers,
        held=queue.held,
        stuck=await monitor.stuck_jobs(limit=_MOST_STUCK),
        odd=await monitor.odd_listings(),
    )
