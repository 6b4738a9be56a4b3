"""Sources: their status, costs, limits and pauses."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Form
from fastapi.responses import Response

from mistnet.kit.text import read_number
from mistnet.operations.overview import By, CallLedger
from mistnet.sources import controls
from mistnet.sources.controls import Caps, costs_credits, known_source, source_statuses
from mistnet.web.fields import without_nul
from mistnet.web.pages.render import OperatorPage, PageRequest, ReaderPage, redirect_to

router = APIRouter(include_in_schema=False)
_MOST_RATE: Final = 100_000_000.0
_MOST_MINUTES: Final = 525_600.0
Written = Annotated[str, Form(max_length=40)]
Why = Annotated[str, Form(max_length=500), without_nul]


@router.get("/sources")
async def sources(page: ReaderPage) -> Response:
    return await _render(page)


async def _render(page: PageRequest, problem: str | None = None) -> Response:
    app, midnight = page.app, page.now.replace(hour=0, minute=0, second=0, microsecond=0)
    statuses = await source_statuses(app)
    return page.render(
        "sources.html",
        status=400 if problem else 200,
        sources=statuses,
        charging={status.name for status in statuses if costs_credits(app, status)},
        declared=app.sources,
        shared=await app.sources.states(),
        endpoints=await CallLedger(app.database).spent(By.ENDPOINT, since=midnight),
        waits=(await page.dashboard.queue.get()).waits,
        problem=problem,
    )


@router.post("/sources/{name}/pause")
async def pause(page: OperatorPage, name: str, reason: Why = "") -> Response:
    source = await known_source(page.app, name)
    reason = reason.strip() or f"paused on the dashboard by {page.caller.name}"
    await controls.pause(page.app, source, reason, by=page.caller.name)
    return redirect_to("/sources", "paused")


@router.post("/sources/{name}/resume")
async def resume(page: OperatorPage, name: str) -> Response:
    await controls.resume(page.app, await known_source(page.app, name), by=page.caller.name)
    return redirect_to("/sources", "resumed")


@router.post("/sources/{name}/breaker/open")
async def open_breaker(page: OperatorPage, name: str, minutes: Written = "", reason: Why = "") -> Response:
    source = await known_source(page.app, name)
    try:
        span = timedelta(minutes=_number(minutes, most=_MOST_MINUTES, what="minutes", example="5") or 5.0)
    except ValueError as error:
        return await _render(page, str(error))
    reason = reason.strip() or "on the dashboard"
    await controls.open_breaker(page.app, source, span, reason, by=page.caller.name)
    return redirect_to("/sources", "breaker-opened")


@router.post("/sources/{name}/breaker/close")
async def close_breaker(page: OperatorPage, name: str) -> Response:
    await controls.close_breaker(page.app, await known_source(page.app, name), by=page.caller.name)
    return redirect_to("/sources", "breaker-closed")


@router.post("/sources/{name}/forget")
async def forget(page: OperatorPage, name: str) -> Response:
    await controls.forget_answers(page.app, await known_source(page.app, name), by=page.caller.name)
    return redirect_to("/sources", "forgotten")


@router.post("/sources/{name}/limits")
async def set_limits(
    page: OperatorPage, name: str, rate: Written = "", day: Written = "", month: Written = ""
) -> Response:
    """An empty rate does not change; an empty cap is removed, so that the settings apply again."""
    source = await known_source(page.app, name)
    try:
        per_minute = _number(rate, most=_MOST_RATE, what="calls a minute", example="900")
        day_cap, month_cap = _cap(day), _cap(month)
    except ValueError as error:
        return await _render(page, str(error))
    lifted = [word for word, cap in (("day", day_cap), ("month", month_cap)) if cap is None]
    caps = Caps(day=day_cap, month=month_cap, lifted=lifted)
    await controls.set_limits(page.app, source, rate=per_minute, caps=caps, by=page.caller.name)
    return redirect_to("/sources", "limits")


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
