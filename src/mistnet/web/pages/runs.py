"""Runs: start one, list them, and show the result of each."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.operations.runs.model import DEFAULT_LIMIT, LARGEST_LIMIT, BadRun, RunInProgress, read_handles
from mistnet.social.errors import BadHandles
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.pages.render import page
from mistnet.web.tokens import Caller

router = APIRouter(include_in_schema=False)
_PAGE: Final = 30


@router.get("/runs")
async def list_runs(
    request: Request, caller: Reader, app: Mistnet, before: Annotated[str | None, Query(max_length=40)] = None
) -> HTMLResponse:
    return await _list_page(request, caller, app, before=before)


async def _list_page(
    request: Request, caller: Caller, app: App, *, before: str | None = None, **form: Any
) -> HTMLResponse:
    runs = await app.runs.page(app.database.clock.now(), before=before, limit=_PAGE)
    empty = {"problem": None, "given": "", "limit": str(DEFAULT_LIMIT), "most": LARGEST_LIMIT}
    return page(request, "runs.html", caller, runs=runs.items, more=runs.next, before=before, **{**empty, **form})


@router.post("/runs")
async def start(
    request: Request,
    caller: Operator,
    app: Mistnet,
    usernames: Annotated[str, Form(max_length=20_000)] = "",
    limit: Annotated[str, Form(max_length=10)] = str(DEFAULT_LIMIT),
) -> Response:
    """Start a run. If that is refused, show the form again with the reason."""
    try:
        handles = read_handles(usernames.replace("\n", ",").replace(" ", ","))
        run = await app.runs.start(handles, _read_limit(limit), asked_by=caller.name, now=app.database.clock.now())
    except (BadHandles, BadRun, RunInProgress) as error:
        status = 409 if isinstance(error, RunInProgress) else 400
        form: dict[str, Any] = {"problem": str(error), "given": usernames, "limit": limit, "status": status}
        return await _list_page(request, caller, app, **form)
    return RedirectResponse(f"/runs/{run.id}?did=started", 303)


def _read_limit(text: str) -> int:
    if not text.isascii() or not text.strip().isdecimal():
        raise BadRun("limit", f"must be a number of posts, such as {DEFAULT_LIMIT}")
    return int(text)


@router.post("/runs/{run_id}/cancel")
async def cancel(_caller: Operator, app: Mistnet, run_id: str) -> RedirectResponse:
    """End a run. What it has collected stays."""
    cancelled = await app.runs.cancel(run_id, app.database.clock.now())
    return RedirectResponse(f"/runs/{cancelled.id}?did=run-cancelled", 303)


@router.get("/runs/{run_id}")
async def show(request: Request, caller: Reader, app: Mistnet, run_id: str) -> HTMLResponse:
    run = await app.runs.show(run_id, app.database.clock.now())
    return page(request, "run.html", caller, run=run, report=run.report)
