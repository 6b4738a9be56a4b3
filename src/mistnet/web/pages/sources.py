"""Sources: their status, costs, limits and pauses."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.kit.text import read_number
from mistnet.operations.overview import By, CallLedger
from mistnet.sources import controls
from mistnet.sources.controls import Caps
from mistnet.sources.status import costs_credits, known_source, source_statuses
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.pages.dashboard import CurrentDashboard
from mistnet.web.pages.render import page

router = APIRouter(include_in_schema=False)
_MOST_RATE: Final = 100_000_000.0
_MOST_MINUTES: Final = 525_600.0
Written = Annotated[str, Form(max_length=40)]


@router.get("/sources")
async def sources(request: Request, caller: Reader, app: Mistnet, dashboard: CurrentDashboard) -> HTMLResponse:
    return await _render(request, caller, app, dashboard)


async def _render(
    request: Request, caller: Reader, app: App, dashboard: CurrentDashboard, *, problem: str | None = None
) -> HTMLResponse:
    now = dashboard.now
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    statuses = await source_statuses(app)
    return page(
        request,
        "sources.html",
        caller,
        status=400 if problem else 200,
        sources=statuses,
        charging={status.name for status in statuses if costs_credits(app, status)},
        declared=app.sources,
        shared=await app.sources.states(),
        endpoints=await CallLedger(app.database).spent(By.ENDPOINT, since=midnight),
        waits=(await dashboard.queue()).waits,
        problem=problem,
    )


@router.post("/sources/{name}/pause")
async def pause(
    caller: Operator, app: Mistnet, name: str, reason: Annotated[str, Form(max_length=500)] = ""
) -> RedirectResponse:
    source = await known_source(app, name)
    reason = reason.replace("\x00", "").strip() or f"paused on the dashboard by {caller.name}"
    await controls.pause(app, source, reason, by=caller.name)
    return RedirectResponse("/sources?did=paused", 303)


@router.post("/sources/{name}/resume")
async def resume(caller: Operator, app: Mistnet, name: str) -> RedirectResponse:
    await controls.resume(app, await known_source(app, name), by=caller.name)
    return RedirectResponse("/sources?did=resumed", 303)


@router.post("/sources/{name}/breaker/open")
async def open_breaker(
    request: Request,
    caller: Operator,
    app: Mistnet,
    dashboard: CurrentDashboard,
    name: str,
    minutes: Written = "",
    reason: Annotated[str, Form(max_length=500)] = "",
) -> Response:
    source = await known_source(app, name)
    try:
        span = timedelta(minutes=_number(minutes, most=_MOST_MINUTES, what="minutes", example="5") or 5.0)
    except ValueError as error:
        return await _render(request, caller, app, dashboard, problem=str(error))
    reason = reason.replace("\x00", "").strip() or "on the dashboard"
    await controls.open_breaker(app, source, span, reason, by=caller.name)
    return RedirectResponse("/sources?did=breaker-opened", 303)


@router.post("/sources/{name}/breaker/close")
async def close_breaker(caller: Operator, app: Mistnet, name: str) -> RedirectResponse:
    await controls.close_breaker(app, await known_source(app, name), by=caller.name)
    return RedirectResponse("/sources?did=breaker-closed", 303)


@router.post("/sources/{name}/forget")
async def forget(caller: Operator, app: Mistnet, name: str) -> RedirectResponse:
    await controls.forget_answers(app, await known_source(app, name), by=caller.name)
    return RedirectResponse("/sources?did=forgotten", 303)


@router.post("/sources/{name}/limits")
async def set_limits(
    request: Request,
    caller: Operator,
    app: Mistnet,
    dashboard: CurrentDashboard,
    name: str,
    rate: Written = "",
    day: Written = "",
    month: Written = "",
) -> Response:
    """An empty rate does not change; an empty cap is removed, so that the settings apply again."""
    source = await known_source(app, name)
    try:
        per_minute = _number(rate, most=_MOST_RATE, what="calls a minute", example="900")
        day_cap, month_cap = _cap(day), _cap(month)
    except ValueError as error:
        return await _render(request, caller, app, dashboard, problem=str(error))
    lifted = [word for word, cap in (("day", day_cap), ("month", month_cap)) if cap is None]
    caps = Caps(day=day_cap, month=month_cap, lifted=lifted)
    await controls.set_limits(app, source, rate=per_minute, caps=caps, by=caller.name)
    return RedirectResponse("/sources?did=limits", 303)


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
