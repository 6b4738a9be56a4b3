"""Recent and stuck jobs, the health of sources; alerts, events, and the schedule with its leaders."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query

from mistnet.operations.alerts.store import AlertRow
from mistnet.operations.monitoring import Monitor, RecentJob, SourceHealth, StuckJob
from mistnet.operations.schedule.scheduler import schedule_status
from mistnet.operations.schedule.store import StoreSchedule, Tick
from mistnet.queue.leader import Leader, StoreLeaders
from mistnet.web.auth import READS, Operator
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import refusals
from mistnet.web.fields import Document, Flag, Id, Moment, NumberPath
from mistnet.web.paging import Listing, PageLimit, Pages

router = APIRouter(prefix="/api/monitoring", tags=["monitoring"])


class RecentJobDocument(Document, record=RecentJob):
    """One job, live or finished. `error_message` is its last error, also of a job that succeeded in the end."""


class SourceHealthDocument(Document, record=SourceHealth):
    """One source that was called before. `enabled` is false while it is paused; `paused_until` is its breaker's."""


class SourcesHealth(Document):
    items: list[SourceHealthDocument]


class StuckJobDocument(Document, record=StuckJob):
    """A job whose lease ran out: its worker died or hangs. Another worker takes it over."""


class StuckJobs(Document):
    items: list[StuckJobDocument]


@router.get("/recent-jobs", response_model=Listing[RecentJobDocument], dependencies=READS)
async def recent_jobs(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Live and finished jobs in the order they were added, the newest first."""
    return pages.listing(await Monitor(mistnet.database).recent_jobs(before=pages.place, limit=pages.limit))


@router.get("/source-health", response_model=SourcesHealth, dependencies=READS)
async def source_health(mistnet: Mistnet) -> dict[str, Any]:
    """Each source that was called before: whether it serves us, its failures in a row, when it answered last."""
    return {"items": await Monitor(mistnet.database).source_health()}


@router.get("/stuck-jobs", response_model=StuckJobs, dependencies=READS)
async def stuck_jobs(mistnet: Mistnet, limit: PageLimit = 100) -> dict[str, Any]:
    """Jobs whose lease ran out, those without a heartbeat for longest first."""
    return {"items": await Monitor(mistnet.database).stuck_jobs(limit=limit)}


watching_router = APIRouter(prefix="/api", tags=["watching"], dependencies=READS)

_TICKS: Final = 20


class AlertDocument(Document, record=AlertRow):
    rule: str
    severity: str


class EventDocument(Document):
    id: Id
    channel: str
    kind: str
    subject: str
    created_at: Moment
    payload: Any


class TickDocument(Document, record=Tick, without=("group", "fence")):
    """`missed` is the number of earlier slots that this tick also stands for."""


class GroupDocument(Document):
    """Accounts that are updated together, their last ticks, and the time of the next one.

    `unknown` are handles that the group names and that are not tracked.
    """

    name: str
    rhythm: str
    unknown: list[str]
    next_at: Moment | None
    ticks: list[TickDocument]


class LeaderDocument(Document, record=Leader, without=("fence",)):
    """The process that acts for all, or the last one that did."""

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
    """Alerts, open and over; the latest first."""
    alerts = mistnet.watch.alerts
    return pages.listing(await alerts.page(open_only=only_open == "true", after=pages.place, limit=pages.limit))


@watching_router.post("/alerts/{alert_id:id}/accept", response_model=AlertDocument, responses=refusals(404))
async def accept_alert(alert_id: NumberPath, caller: Operator, mistnet: Mistnet) -> AlertRow:
    """Accept an open alert: it no longer needs attention, until it is over or its severity changes."""
    return await mistnet.watch.alerts.accept(alert_id, by=caller.name, now=mistnet.database.clock.now())


@watching_router.get("/events", response_model=Listing[EventDocument])
async def list_events(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Events that subscribers have received or will receive; the latest first."""
    page = await mistnet.watch.outbox.recent(limit=pages.limit, before_id=pages.place)
    items = [{**msgspec.structs.asdict(each), "payload": msgspec.json.decode(each.payload)} for each in page.items]
    return {**pages.listing(page), "items": items}


@watching_router.get("/schedule", response_model=ScheduleDocument)
async def show_schedule(mistnet: Mistnet) -> dict[str, Any]:
    """The groups of this process's settings with their rhythms and last ticks, and the leaders."""
    store, now = StoreSchedule(mistnet.database, mistnet.job_writer), mistnet.database.clock.now()
    status = await schedule_status(mistnet.settings, mistnet.database, mistnet.job_writer)
    return {
        "enabled": mistnet.settings.scheduler_enabled,
        "groups": [
            {**msgspec.structs.asdict(group), "ticks": await store.ticks(group.name, limit=_TICKS)}
            for group in status.groups
        ],
        "leaders": [
            {**msgspec.structs.asdict(each), "leads": each.leads_at(now)}
            for each in await StoreLeaders(mistnet.database).all()
        ],
    }
