"""Jobs: list them, show the errors of one, retry, cancel and accept them; and the page for monitoring."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from mistnet.operations.monitoring import Monitor
from mistnet.queue.errors import JobNotFound
from mistnet.queue.model import GAP_STATES, LIVE_STATES, JobId, JobState, KindName
from mistnet.queue.store.inspect import FINISHED_STATES, JobFilter
from mistnet.queue.store.operations import GapFilter
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.fields import LARGEST_ID
from mistnet.web.pages.accounts import BeforeId, LargestId
from mistnet.web.pages.dashboard import SHOWN_STATES, CurrentDashboard
from mistnet.web.pages.overview import remedy
from mistnet.web.pages.render import page

router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
JobPath = Annotated[int, Path(ge=1, le=LargestId)]
Kind = Annotated[str, Query(max_length=100)]


@router.get("/jobs")
async def jobs(
    request: Request,
    caller: Reader,
    app: Mistnet,
    dashboard: CurrentDashboard,
    state: Annotated[str, Query(max_length=20)] = "",
    kind: Kind = "",
    error: Annotated[str, Query(max_length=500)] = "",
    before: BeforeId = None,
) -> HTMLResponse:
    chosen: tuple[JobState, ...] = (JobState(state),) if state in set(JobState) else ()
    if state == "gaps":
        chosen = tuple(GAP_STATES)
    of_kind, words = kind.replace("\x00", "") or None, _words(error)
    listed = await app.inspector.list_jobs(
        JobFilter(kind=of_kind, states=chosen, error=words, before_id=before, limit=_PAGE)
    )
    queue = await dashboard.queue()
    return page(
        request,
        "jobs.html",
        caller,
        jobs=listed,
        queue=queue,
        kinds=sorted({*app.kinds, *queue.kinds}),
        states=[*SHOWN_STATES, *FINISHED_STATES],
        chosen=state if chosen else "",
        kind=kind,
        error=error,
        before=before,
        gaps=queue.gap_count,
        alike=await app.inspector.gaps(GapFilter(kind=of_kind, error=words)) if of_kind or words else 0,
        more=listed[-1].id if len(listed) == _PAGE else None,
    )


def _words(error: str) -> str | None:
    return error.replace("\x00", "").strip() or None


@router.get("/jobs/{job_id}")
async def job(request: Request, caller: Reader, app: Mistnet, job_id: JobPath) -> HTMLResponse:
    found = await app.inspector.job(JobId(job_id))
    if found is None:
        raise JobNotFound(job_id)
    args = bytes(found.args)
    with suppress(msgspec.DecodeError):
        args = msgspec.json.format(args, indent=2)
    return page(
        request,
        "job.html",
        caller,
        job=found,
        args=args.decode("utf-8", "replace"),
        is_gap=found.state in GAP_STATES,
        is_live=found.state in LIVE_STATES,
        remedy=remedy(found.state, found.last_error) if found.state in GAP_STATES else None,
    )


@router.post("/jobs/{job_id}/retry")
async def retry(_caller: Operator, app: Mistnet, job_id: JobPath) -> RedirectResponse:
    (change,) = await app.operations.retry([JobId(job_id)], now=app.database.clock.now())
    return RedirectResponse(f"/jobs/{job_id}?did={'retried' if change.changed else 'not-retried'}", 303)


@router.post("/jobs/{job_id}/cancel")
async def cancel(_caller: Operator, app: Mistnet, job_id: JobPath) -> RedirectResponse:
    (change,) = await app.operations.cancel([JobId(job_id)], now=app.database.clock.now())
    return RedirectResponse(f"/jobs/{job_id}?did={'cancelled' if change.changed else 'not-cancelled'}", 303)


@router.post("/jobs/requeue")
async def requeue(_caller: Operator, app: Mistnet, kind: Annotated[str, Form(max_length=100)] = "") -> RedirectResponse:
    """Requeue all failed and dead jobs, or those of one kind."""
    await app.operations.requeue(now=app.database.clock.now(), kind=KindName(kind) if kind else None)
    return RedirectResponse("/jobs?did=requeued", 303)


@router.post("/jobs/accept")
async def accept(
    _caller: Operator,
    app: Mistnet,
    kind: Annotated[str, Form(max_length=100)] = "",
    error: Annotated[str, Form(max_length=500)] = "",
) -> RedirectResponse:
    """Accept the gaps of one kind or with one error. Without either, nothing is changed."""
    gaps = GapFilter(kind=kind or None, error=_words(error))
    if gaps.kind is None and gaps.error is None:
        return RedirectResponse("/jobs?did=not-accepted", 303)
    accepted = await app.operations.accept(gaps, now=app.database.clock.now())
    return RedirectResponse(f"/jobs?did={'accepted' if accepted else 'not-accepted'}", 303)


monitoring_router = APIRouter(include_in_schema=False)
_MONITORING_PAGE: Final = 20
_MOST_STUCK: Final = 50


@monitoring_router.get("/monitoring")
async def monitoring(
    request: Request,
    caller: Reader,
    app: Mistnet,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
) -> HTMLResponse:
    monitor = Monitor(app.database)
    recent = await monitor.recent_jobs(before=None if before is None else JobId(before), limit=_MONITORING_PAGE)
    return page(
        request,
        "monitoring.html",
        caller,
        jobs=recent.items,
        sources=await monitor.source_health(),
        stuck=await monitor.stuck_jobs(limit=_MOST_STUCK),
        odd=await monitor.odd_listings(),
        before=before,
        more=recent.next,
    )
