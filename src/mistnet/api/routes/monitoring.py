"""What the views for monitoring show: recent jobs, the health of sources, stuck jobs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from mistnet.api.auth import READS
from mistnet.api.fields import Document, Id, Moment
from mistnet.api.paging import Listing, PageLimit, Pages
from mistnet.api.parts import Mistnet
from mistnet.domain.jobs import JobId, JobState
from mistnet.store.monitoring import Monitor

router = APIRouter(prefix="/api/monitoring", tags=["monitoring"])


class RecentJobDocument(Document):
    """One job, live or finished. `error_message`: what went wrong last, also where it went well in the end."""

    id: Id
    kind: str
    key: str | None
    lane: str
    status: JobState
    locked_by: str | None
    heartbeat_at: Moment | None
    created_at: Moment
    started_at: Moment | None
    completed_at: Moment | None
    next_retry_at: Moment | None
    attempts: int
    error_message: str | None


class SourceHealthDocument(Document):
    """One source that was asked before. `enabled` is false while it is paused; `paused_until` is its breaker's."""

    name: str
    enabled: bool
    failure_streak: int
    last_success_at: Moment | None
    last_failure_at: Moment | None
    last_failure: str | None
    paused_until: Moment | None
    pause_reason: str | None
    state: str


class SourcesHealth(Document):
    items: list[SourceHealthDocument]


class StuckJobDocument(Document):
    """A job whose lease ran out: its worker died or lost its way. Another takes it over."""

    id: Id
    kind: str
    lane: str
    status: JobState
    locked_by: str
    heartbeat_at: Moment
    lease_until: Moment
    seconds_since_heartbeat: float


class StuckJobs(Document):
    items: list[StuckJobDocument]


@router.get("/recent-jobs", response_model=Listing[RecentJobDocument], dependencies=READS)
async def recent_jobs(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Jobs in the order they were added, the newest first, be they live or finished."""
    before = None if pages.place is None else JobId(pages.place)
    found = await Monitor(mistnet.database).recent_jobs(before=before, limit=pages.one_more)
    return pages.listing(found, lambda job: job.id)


@router.get("/source-health", response_model=SourcesHealth, dependencies=READS)
async def source_health(mistnet: Mistnet) -> dict[str, Any]:
    """Each source that was asked before: whether it serves us, its failures in a row, when it answered last."""
    return {"items": await Monitor(mistnet.database).source_health()}


@router.get("/stuck-jobs", response_model=StuckJobs, dependencies=READS)
async def stuck_jobs(mistnet: Mistnet, limit: PageLimit = 100) -> dict[str, Any]:
    """Jobs whose leases ran out, those longest without a sign of life first."""
    return {"items": await Monitor(mistnet.database).stuck_jobs(limit=limit)}
