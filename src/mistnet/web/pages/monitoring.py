"""Lanes in words, and monitoring: what went through and what failed over time, health, workers, stuck jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from mistnet.kit.text import counted
from mistnet.operations.health import HealthCheck
from mistnet.operations.monitoring import Monitor
from mistnet.queue.model import GAP_STATES, JobState
from mistnet.sources.controls import LaneStatus
from mistnet.web.dependencies import part
from mistnet.web.fields import ShortText
from mistnet.web.pages.cached_counts import Bars, ChartSpan
from mistnet.web.pages.overview import work_words
from mistnet.web.pages.plots import Plot, bar_plot
from mistnet.web.pages.render import ReaderPage, lasting, span

router = APIRouter(include_in_schema=False)
_MOST_STUCK: Final = 50
_NO_WORKER: Final = "due: waits for a free worker"


@router.get("/lanes")
async def lanes(page: ReaderPage, lane: ShortText = "") -> Response:
    """What is due, running and waiting on each lane. `lane` shows one."""
    statuses, queue = await page.dashboard.lanes(), await page.dashboard.queue.get()
    shown = [each for each in statuses if not lane or each.lane == lane]
    return page.render(
        "lanes.html",
        lane=lane,
        rows=[
            {
                "status": each,
                "running": each.states.get(JobState.RUNNING, 0),
                "gaps": sum(each.states.get(state, 0) for state in GAP_STATES),
                "due": _due_words(each, page.now),
                "waits": [
                    (work_words(wait), wait)
                    for wait in queue.waits
                    if wait.lane == each.lane and wait.reason != _NO_WORKER
                ],
                "lately": _lately_words(each),
            }
            for each in shown
        ],
    )


def _due_words(lane: LaneStatus, now: datetime) -> str | None:
    if not lane.due:
        return None
    since = f", the oldest for {span(lane.oldest_due_at, now)}" if lane.oldest_due_at else ""
    return f"{counted(lane.due, 'job')} due{since}"


def _lately_words(lane: LaneStatus) -> str:
    """What went through in an hour."""
    failed = lane.failed + lane.dead
    visits = f"links wait {lasting(lane.wait_p50)} to be visited, 1 in 20 {lasting(lane.wait_p95)}"
    words = [
        counted(lane.succeeded, "job") + " done",
        *([f"{lane.jobs_per_second:.1f} a second now"] if lane.jobs_per_second >= 0.1 else []),
        *([f"{lane.retried:,} retried"] if lane.retried else []),
        *([f"{failed:,} failed"] if failed else []),
        *([visits] if lane.crawled else []),
    ]
    return ", ".join(words) if lane.succeeded or lane.retried or failed or lane.crawled else ""


@router.get("/monitoring")
async def monitoring(
    page: ReaderPage, health: Annotated[HealthCheck, Depends(part("health"))], span: ChartSpan = ChartSpan.DAY
) -> Response:
    monitor, activity = Monitor(page.app.database), await page.dashboard.activity(span)
    queue = await page.dashboard.queue.get()
    return page.render(
        "monitoring.html",
        spans=list(ChartSpan),
        chosen=span,
        plots=[(title, name, _plot(bars, span)) for name, (title, bars) in activity.items()],
        database=await health.database(),
        served=await health.queue(),
        workers=queue.workers,
        held=queue.held,
        stuck=await monitor.stuck_jobs(limit=_MOST_STUCK),
        odd=await monitor.odd_listings(),
    )


def _plot(bars: Bars, span: ChartSpan) -> Plot | None:
    edges = [datetime.fromtimestamp(at, UTC) for at in (*bars.since, bars.since[-1] + span.bars[1])]
    return bar_plot(edges, bars.amounts, lambda amount: f"{amount:,.0f}")
