"""Runs: what somebody asked for together, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.operations.errors import BadRun, RunInProgress, RunNotFound
from mistnet.operations.runs.model import DEFAULT_LIMIT, LARGEST_LIMIT, Run, read_handles
from mistnet.operations.runs.store import RunService
from mistnet.social.errors import BadHandles
from mistnet.web.auth import Operator, Reader
from mistnet.web.pages.render import page
from mistnet.web.parts import Mistnet
from mistnet.web.tokens import Caller

router = APIRouter(include_in_schema=False)
_PAGE: Final = 30


async def _run_service(app: App) -> RunService:
    """Runs whose jobs ended without telling are shown as what they are."""
    await app.runs.settle(app.database.clock.now())
    return app.runs


@router.get("/runs")
async def runs(
    request: Request, visitor: Reader, app: Mistnet, before: Annotated[str | None, Query(max_length=40)] = None
) -> HTMLResponse:
    return _listed(request, visitor, await (await _run_service(app)).list(_PAGE, before), before=before)


def _listed(request: Request, visitor: Caller, found: Sequence[Run], **shown: Any) -> HTMLResponse:
    more = found[-1].id if len(found) == _PAGE else None
    usual = {"before": None, "problem": None, "given": "", "limit": str(DEFAULT_LIMIT), "most": LARGEST_LIMIT}
    return page(request, "runs.html", visitor, runs=found, more=more, **{**usual, **shown})


@router.post("/runs")
async def start(
    request: Request,
    visitor: Operator,
    app: Mistnet,
    usernames: Annotated[str, Form(max_length=20_000)] = "",
    limit: Annotated[str, Form(max_length=10)] = str(DEFAULT_LIMIT),
) -> Response:
    """Begins a run; while another one is not finished, says which."""
    run_service = app.runs
    try:
        handles = read_handles(usernames.replace("\n", ",").replace(" ", ","))
        run = await run_service.start(handles, _limit(limit), asked_by=visitor.name, now=app.database.clock.now())
    except (BadHandles, BadRun, RunInProgress) as error:
        status = 409 if isinstance(error, RunInProgress) else 400
        shown = {"problem": str(error), "given": usernames, "limit": limit, "status": status}
        return _listed(request, visitor, await run_service.list(_PAGE), **shown)
    return RedirectResponse(f"/runs/{run.id}?did=started", 303)


def _limit(written: str) -> int:
    if not written.isascii() or not written.strip().isdecimal():
        raise BadRun("limit", f"must be a number of posts, such as {DEFAULT_LIMIT}")
    return int(written)


@router.post("/runs/{run_id}/cancel")
async def cancel(_visitor: Operator, app: Mistnet, run_id: str) -> RedirectResponse:
    """Ends a run where it stands; what it has collected stays."""
    cancelled = await app.runs.cancel(run_id, app.database.clock.now())
    return RedirectResponse(f"/runs/{cancelled.id}?did=run-cancelled", 303)


@router.get("/runs/{run_id}")
async def run(request: Request, visitor: Reader, app: Mistnet, run_id: str) -> HTMLResponse:
    found = await (await _run_service(app)).get(run_id)
    if found is None:
        raise RunNotFound(run_id)
    return page(request, "run.html", visitor, run=found, report=found.report)
