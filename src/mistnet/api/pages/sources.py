"""Sources: how each stands, what it may cost, and the switch that stops it."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.api.auth import Operator, Reader
from mistnet.api.errors import NotFound
from mistnet.api.pages.accounts import LargestId
from mistnet.api.pages.dashboard import Shown
from mistnet.api.pages.render import page
from mistnet.api.parts import Mistnet
from mistnet.app import App
from mistnet.desk.standings import KNOWN, standings, state_of
from mistnet.domain.sources import SourceName
from mistnet.harvest import keys_of
from mistnet.store.ledger import By, Ledger

router = APIRouter(include_in_schema=False)
_MOST_RATE: Final = 10_000_000.0
Written = Annotated[str, Form(max_length=40)]


@router.get("/sources")
async def sources(request: Request, visitor: Reader, app: Mistnet, dashboard: Shown) -> HTMLResponse:
    return await _shown(request, visitor, app, dashboard)


async def _shown(
    request: Request, visitor: Reader, app: App, dashboard: Shown, *, problem: str | None = None
) -> HTMLResponse:
    now = dashboard.now
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return page(
        request,
        "sources.html",
        visitor,
        status=400 if problem else 200,
        sources=await standings(app),
        shared={name: await state_of(app, name) for name in KNOWN},
        endpoints=await Ledger(app.database).spent(By.ENDPOINT, since=midnight),
        waits=(await dashboard.queue()).waits,
        problem=problem,
    )


@router.post("/sources/{name}/pause")
async def pause(
    visitor: Operator, app: Mistnet, name: str, reason: Annotated[str, Form(max_length=500)] = ""
) -> RedirectResponse:
    source = _known(name)
    told = reason.replace("\x00", "").strip() or f"paused on the dashboard by {visitor.name}"
    await app.harvest.book.pause(source, told, now=app.database.clock.now())
    return RedirectResponse("/sources?did=paused", 303)


@router.post("/sources/{name}/resume")
async def resume(_visitor: Operator, app: Mistnet, name: str) -> RedirectResponse:
    await app.harvest.book.resume(_known(name), now=app.database.clock.now())
    return RedirectResponse("/sources?did=resumed", 303)


@router.post("/sources/{name}/limits")
async def set_limits(
    request: Request,
    visitor: Operator,
    app: Mistnet,
    dashboard: Shown,
    name: str,
    rate: Written = "",
    day: Written = "",
    month: Written = "",
) -> Response:
    """What is left empty: a rate stays as it is, a cap is taken off so that the settings count again."""
    source, book = _known(name), app.harvest.book
    try:
        per_minute, day_cap, month_cap = _rate(rate), _cap(day), _cap(month)
    except ValueError as error:
        return await _shown(request, visitor, app, dashboard, problem=str(error))
    if per_minute is not None:
        await book.set_rate(source, per_minute, keys_of(app.settings))
    await book.set_caps(source, day=day_cap, month=month_cap)
    await book.lift_caps(source, day=day_cap is None, month=month_cap is None)
    await book.wake_for_budget(source, now=app.database.clock.now())
    return RedirectResponse("/sources?did=limits", 303)


def _known(name: str) -> SourceName:
    if name not in KNOWN:
        raise NotFound(f"source {name!r}")
    return SourceName(name)


def _rate(written: str) -> float | None:
    if not written.strip():
        return None
    try:
        rate = float(written.replace(",", ""))
    except ValueError:
        raise ValueError(f"{written!r} is not a number of calls a minute, such as 900") from None
    if not 0.01 <= rate <= _MOST_RATE:
        raise ValueError("calls a minute must be between 0.01 and 10,000,000")
    return rate


def _cap(written: str) -> int | None:
    plain = written.replace(",", "").strip()
    if not plain:
        return None
    if not plain.isascii() or not plain.isdecimal() or int(plain) > LargestId:
        raise ValueError(f"{written!r} is not a number of credits, such as 200000; 100,000 are one US dollar")
    return int(plain)
