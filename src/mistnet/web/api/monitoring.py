"""What the views for monitoring show: recent jobs, the health of sources, stuck jobs."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query

from mistnet.operations.alerts.store import AlertRow
from mistnet.operations.monitoring import Monitor
from mistnet.operations.schedule.scheduler import schedule_status
from mistnet.operations.schedule.store import StoreSchedule
from mistnet.queue.leader import StoreLeaders
from mistnet.queue.model import JobId, JobState
from mistnet.web.auth import READS, Operator
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import refusals
from mistnet.web.fields import Document, Flag, Id, Moment, NumberPath
from mistnet.web.paging import Listing, PageLimit, Pages

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


watching_router = APIRouter(prefix="/api", tags=["watching"], dependencies=READS)

_TICKS: Final = 20


class AlertDocument(Document):
    id: Id
    rule: str
    subject: str
    severity: str
    message: str
    opened_at: Moment
    last_seen_at: Moment
    closed_at: Moment | None
    accepted_at: Moment | None
    accepted_by: str | None


class EventDocument(Document):
    id: Id
    channel: str
    kind: str
    subject: str
    created_at: Moment
    payload: Any


class TickDocument(Document):
    """`missed`: for how many slots before it this one stands too."""

    tick_at: Moment
    made_at: Moment
    holder: str
    accounts: int
    jobs: int
    missed: int


class GroupDocument(Document):
    """Accounts that are looked at together, when that was done last and will be next.

    `unknown` are handles the group names and nobody tracks.
    """

    name: str
    rhythm: str
    unknown: list[str]
    next_at: Moment | None
    ticks: list[TickDocument]


class LeaderDocument(Document):
    """Who acts for all processes, or did last."""

    name: str
    holder: str
    since: Moment
    lease_until: Moment
    leads: bool


class ScheduleDocument(Document):
    enabled: bool
    groups: list[GroupDocument]
    leaders: list[LeaderDocument]


@watching_router.get("/alerts", response_model=Listing[AlertDocument])
async def list_alerts(
    mistnet: Mistnet,
    pages: Pages,
    only_open: Annotated[Flag, Query(alias="open", description="Only those that are not over.")] = "false",
) -> dict[str, Any]:
    """What needs an operator, or did; the latest first."""
    rows = await mistnet.watch.alerts.recent(open_only=only_open == "true", before_id=pages.place, limit=pages.one_more)
    return pages.listing(rows, lambda row: row.id)


@watching_router.post("/alerts/{alert_id:id}/accept", response_model=AlertDocument, responses=refusals(404))
async def accept_alert(alert_id: NumberPath, visitor: Operator, mistnet: Mistnet) -> AlertRow:
    """Accept an open alert: it is not shown as needing somebody until it is over or gets worse."""
    return await mistnet.watch.alerts.accept(alert_id, by=visitor.name, now=mistnet.database.clock.now())


@watching_router.get("/events", response_model=Listing[EventDocument])
async def list_events(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """What others were told of, or will be; the latest first."""
    rows = await mistnet.watch.outbox.recent(limit=pages.one_more, before_id=pages.place)
    page = pages.listing(rows, lambda row: row.id)
    shown = [
        {**{name: getattr(each, name) for name in each.__struct_fields__}, "payload": msgspec.json.decode(each.payload)}
        for each in page["items"]
    ]
    return {**page, "items": shown}


@watching_router.get("/schedule", response_model=ScheduleDocument)
async def show_schedule(mistnet: Mistnet) -> dict[str, Any]:
    """Groups with their rhythm and last ticks, and who leads. Groups are those of this process's settings."""
    store, now = StoreSchedule(mistnet.database, mistnet.job_writer), mistnet.database.clock.now()
    standings = (await schedule_status(mistnet.settings, mistnet.database, mistnet.job_writer)).groups
    groups = [
        {
            "name": group.name,
            "rhythm": group.rhythm,
            "unknown": group.unknown,
            "next_at": group.next_at,
            "ticks": await store.ticks(group.name, limit=_TICKS),
        }
        for group in standings
    ]
    leaders = [
        {**{name: getattr(each, name) for name in each.__struct_fields__}, "leads": each.leads_at(now)}
        for each in await StoreLeaders(mistnet.database).all()
    ]
    return {"enabled": mistnet.settings.scheduler_enabled, "groups": groups, "leaders": leaders}
