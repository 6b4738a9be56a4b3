"""Jobs: list them, show the errors of one, retry, cancel and accept them. Lanes, monitoring, and runs."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Form, Path, Query
from fastapi.responses import Response

from mistnet.kit.view import ListPage
from mistnet.operations.monitoring import LaneStore, Monitor
from mistnet.operations.runs.model import DEFAULT_LIMIT, LARGEST_LIMIT, BadRun, RunInProgress, read_handles
from mistnet.queue.errors import JobNotFound
from mistnet.queue.model import GAP_STATES, LIVE_STATES, JobId, JobState, KindName, Lane
from mistnet.queue.store.inspect import FINISHED_STATES, JobFilter
from mistnet.queue.store.operations import GapFilter
from mistnet.social.errors import BadHandles
from mistnet.web.api.jobs import find_lane
from mistnet.web.fields import BeforeId, NumberPath, QueryText, ShortText, Word, without_nul
from mistnet.web.pages.dashboard import SHOWN_STATES
from mistnet.web.pages.overview import parts_of, remedy
from mistnet.web.pages.render import OperatorPage, PageRequest, ReaderPage, redirect_to

router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
KindForm = Annotated[str, Form(max_length=100)]


@router.get("/jobs")
async def jobs(
    page: ReaderPage, state: Word = "", kind: ShortText = "", error: QueryText = "", before: BeforeId = None
) -> Response:
    chosen: tuple[JobState, ...] = (JobState(state),) if state in set(JobState) else ()
    if state == "gaps":
        chosen = tuple(GAP_STATES)
    of_kind, words, inspector = kind or None, error.strip() or None, page.app.inspector
    # One row too many shows whether another page follows.
    asked = JobFilter(kind=of_kind, states=chosen, error=words, before_id=before, limit=_PAGE + 1)
    listed = ListPage.cut(await inspector.list_jobs(asked), _PAGE, lambda row: row.id)
    queue = await page.dashboard.queue.get()
    return page.render(
        "jobs.html",
        jobs=listed.items,
        queue=queue,
        kinds=sorted({*page.app.kinds, *queue.kinds}),
        states=[*SHOWN_STATES, *FINISHED_STATES],
        chosen=state if chosen else "",
        kind=kind,
        error=error,
        before=before,
        gaps=queue.gap_count,
        alike=await inspector.gaps(GapFilter(kind=of_kind, error=words)) if of_kind or words else 0,
        more=listed.next,
    )


@router.get("/jobs/{job_id}")
async def job(page: ReaderPage, job_id: NumberPath) -> Response:
    found = await page.app.inspector.job(JobId(job_id))
    if found is None:
        raise JobNotFound(job_id)
    args = bytes(found.args)
    with suppress(msgspec.DecodeError):
        args = msgspec.json.format(args, indent=2)
    return page.render(
        "job.html",
        job=found,
        args=args.decode("utf-8", "replace"),
        is_gap=found.state in GAP_STATES,
        is_live=found.state in LIVE_STATES,
        remedy=remedy(found.state, found.last_error) if found.state in GAP_STATES else None,
    )


@router.post("/jobs/{job_id}/retry")
async def retry(page: OperatorPage, job_id: NumberPath) -> Response:
    (change,) = await page.app.operations.retry([JobId(job_id)], now=page.now)
    return redirect_to(f"/jobs/{job_id}", "retried" if change.changed else "not-retried")


@router.post("/jobs/{job_id}/cancel")
async def cancel(page: OperatorPage, job_id: NumberPath) -> Response:
    (change,) = await page.app.operations.cancel([JobId(job_id)], now=page.now)
    return redirect_to(f"/jobs/{job_id}", "cancelled" if change.changed else "not-cancelled")


@router.post("/jobs/requeue")
async def requeue(page: OperatorPage, kind: KindForm = "") -> Response:
    """Requeue all failed and dead jobs, or those of one kind."""
    await page.app.operations.requeue(now=page.now, kind=KindName(kind) if kind else None)
    return redirect_to("/jobs", "requeued")


@router.post("/jobs/accept")
async def accept(
    page: OperatorPage, kind: KindForm = "", error: Annotated[str, Form(max_length=500), without_nul] = ""
) -> Response:
    """Accept the gaps of one kind or with one error. Without either, nothing is changed."""
    gaps = GapFilter(kind=kind or None, error=error.strip() or None)
    if gaps.kind is None and gaps.error is None:
        return redirect_to("/jobs", "not-accepted")
    accepted = await page.app.operations.accept(gaps, now=page.now)
    return redirect_to("/jobs", "accepted" if accepted else "not-accepted")


_RECENT: Final = 20
_MOST_STUCK: Final = 50


@router.get("/monitoring")
async def monitoring(page: ReaderPage, before: BeforeId = None) -> Response:
    monitor = Monitor(page.app.database)
    recent = await monitor.recent_jobs(before=None if before is None else JobId(before), limit=_RECENT)
    return page.render(
        "monitoring.html",
        jobs=recent.items,
        sources=await monitor.source_health(),
        stuck=await monitor.stuck_jobs(limit=_MOST_STUCK),
        odd=await monitor.odd_listings(),
        before=before,
        more=recent.next,
    )


_COUNTED: Final = 100_000
LanePath = Annotated[str, Path(max_length=100), without_nul]


@router.get("/lanes")
async def lanes(page: ReaderPage, lane: ShortText = "", state: Word = "", before: BeforeId = None) -> Response:
    """All lanes, and the dead letters of all or of one."""
    statuses, store = await page.dashboard.lanes(), LaneStore(page.app.database)
    states = [each for each in GAP_STATES if each == state] or list(GAP_STATES)
    letters = await store.dead_letters(lane=lane or None, states=states, before=before, limit=_PAGE)
    most = max((each.total for each in statuses), default=0) or 1
    return page.render(
        "lanes.html",
        lanes=[
            {
                "status": each,
                "parts": parts_of(each.states, most),
                "states": {name: each.states[name] for name in SHOWN_STATES if each.states.get(name)},
            }
            for each in statuses
        ],
        names=[each.lane for each in statuses],
        lane=lane,
        state=state if state in GAP_STATES else "",
        states=list(GAP_STATES),
        letters=[(each, remedy(each.state, each.last_error)) for each in letters.items],
        dead=await store.dead(lane, most=_COUNTED) if lane else 0,
        before=before,
        more=letters.next,
    )


@router.post("/lanes/{lane}/requeue")
async def requeue_lane(page: OperatorPage, lane: LanePath, failed: Annotated[str, Form(max_length=5)] = "") -> Response:
    """Requeue the dead jobs of a lane, and with `failed` those that failed permanently."""
    own = await find_lane(page.app, lane)
    result = await page.app.dispatching.requeue_dead(own, page.app.operations, failed=bool(failed))
    return redirect_to(f"/lanes?lane={quote(own)}", "requeued" if result.requeued else "not-requeued")


@router.post("/lanes/{lane}/requeue/{job_id}")
async def requeue_one(page: OperatorPage, lane: LanePath, job_id: NumberPath) -> Response:
    (change,) = await page.app.operations.retry([JobId(job_id)], now=page.now, gaps_only=True)
    if change.changed:
        # Its dead letter would otherwise stay in RabbitMQ, although the job is live again.
        await page.app.dispatching.remove_stale_dead_letters(Lane(lane), page.app.operations)
    return redirect_to(f"/lanes?lane={quote(lane)}", "retried" if change.changed else "not-retried")


_RUNS: Final = 30


@router.get("/runs")
async def list_runs(page: ReaderPage, before: Annotated[str | None, Query(max_length=40)] = None) -> Response:
    return await _list_runs(page, before)


async def _list_runs(page: PageRequest, before: str | None = None, **form: Any) -> Response:
    runs = await page.app.runs.page(page.now, before=before, limit=_RUNS)
    empty = {"problem": None, "given": "", "limit": str(DEFAULT_LIMIT), "most": LARGEST_LIMIT}
    return page.render("runs.html", runs=runs.items, more=runs.next, before=before, **{**empty, **form})


@router.post("/runs")
async def start_run(
    page: OperatorPage,
    usernames: Annotated[str, Form(max_length=20_000)] = "",
    limit: Annotated[str, Form(max_length=10)] = str(DEFAULT_LIMIT),
) -> Response:
    """Start a run. If that is refused, show the form again with the reason."""
    try:
        # People paste handles in lines, or with spaces between.
        handles = read_handles(usernames.replace("\n", ",").replace(" ", ","))
        run = await page.app.runs.start(handles, _read_limit(limit), asked_by=page.caller.name, now=page.now)
    except (BadHandles, BadRun, RunInProgress) as error:
        status = 409 if isinstance(error, RunInProgress) else 400
        return await _list_runs(page, problem=str(error), given=usernames, limit=limit, status=status)
    return redirect_to(f"/runs/{run.id}", "started")


def _read_limit(written: str) -> int:
    if not written.isascii() or not written.strip().isdecimal():
        raise BadRun("limit", f"must be a number of posts, such as {DEFAULT_LIMIT}")
    return int(written)


@router.post("/runs/{run_id}/cancel")
async def cancel_run(page: OperatorPage, run_id: str) -> Response:
    """End a run. What it has collected stays."""
    cancelled = await page.app.runs.cancel(run_id, page.now)
    return redirect_to(f"/runs/{cancelled.id}", "run-cancelled")


@router.get("/runs/{run_id}")
async def show_run(page: ReaderPage, run_id: str) -> Response:
    run = await page.app.runs.show(run_id, page.now)
    return page.render("run.html", run=run, report=run.report)
