"""Recent and stuck jobs, alerts, events, the schedule; whether the service is alive and healthy; its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from mistnet.operations.alerts.store import AlertRow
from mistnet.operations.health import DatabaseState, QueueHealth, is_roomy
from mistnet.operations.monitoring import Monitor, RecentJob, SourceHealth, StuckJob
from mistnet.operations.schedule.scheduler import GroupStatus, schedule_status
from mistnet.operations.schedule.store import StoreSchedule, Tick
from mistnet.queue.events import Event
from mistnet.queue.leader import Leader, StoreLeaders
from mistnet.web.auth import READS, Operator
from mistnet.web.dependencies import Checks, Gauges, Listing, Mistnet, PageLimit, Pages
from mistnet.web.errors import RETRY_SECONDS, RequestRefused
from mistnet.web.fields import Document, Flag, NumberPath, document_of, list_of

router = APIRouter(prefix="/api/monitoring", tags=["monitoring"])


@router.get("/recent-jobs", response_model=Listing[RecentJob], dependencies=READS)
async def recent_jobs(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Live and finished jobs in the order they were added, the newest first."""
    return pages.listing(await Monitor(mistnet.database).recent_jobs(before=pages.place, limit=pages.limit))


@router.get("/source-health", response_model=list_of(SourceHealth), dependencies=READS)
async def source_health(mistnet: Mistnet) -> dict[str, Any]:
    """Each source that was called before: whether it serves us, its failures in a row, when it answered last."""
    return {"items": await Monitor(mistnet.database).source_health()}


@router.get("/stuck-jobs", response_model=list_of(StuckJob), dependencies=READS)
async def stuck_jobs(mistnet: Mistnet, limit: PageLimit = 100) -> dict[str, Any]:
    """Jobs whose lease ran out, those without a heartbeat for longest first."""
    return {"items": await Monitor(mistnet.database).stuck_jobs(limit=limit)}


watching_router = APIRouter(prefix="/api", tags=["watching"], dependencies=READS)

_TICKS: Final = 20


class EventDocument(Document, record=Event):
    """An event that subscribers have received or will receive."""


class TickDocument(Document, record=Tick, without=("group", "fence")):
    """`missed` is the number of earlier slots that this tick also stands for."""


class GroupDocument(Document, record=GroupStatus, without=("last_tick",)):
    """Accounts that are updated together, their last ticks, and the time of the next one.

    `unknown` are handles that the group names and that are not tracked.
    """

    ticks: list[TickDocument]


class LeaderDocument(Document, record=Leader, without=("fence",)):
    """The process that acts for all, or the last one that did."""

    leads: bool


class ScheduleDocument(Document):
    enabled: bool
    groups: list[GroupDocument]
    leaders: list[LeaderDocument]


@watching_router.get("/alerts", response_model=Listing[AlertRow])
async def list_alerts(
    mistnet: Mistnet,
    pages: Pages,
    only_open: Annotated[Flag, Query(alias="open", description="Only those that are not over.")] = "false",
) -> dict[str, Any]:
    """Alerts, open and over; the latest first."""
    alerts = mistnet.watch.alerts
    return pages.listing(
        await alerts.page(is_open=True if only_open == "true" else None, after=pages.place, limit=pages.limit)
    )


@watching_router.post("/alerts/{alert_id:id}/accept", response_model=document_of(AlertRow))
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


health_router = APIRouter(tags=["health"])

_NOT_READY: Final[Mapping[DatabaseState, str]] = {
    "unreachable": "the database does not answer; try again, nothing was lost",
    "busy": "the database is busy; try again, nothing was lost",
    "wrong tables": "the database and this version of mistnet do not match; the log says what to do",
    "read-only": "the database is read-only: nothing can be written until it accepts writes again",
    "full": "the database has no disk space left: nothing can be written until there is some",
    "refused": "the database refuses writes; the log of mistnet says why",
}


class NotReady(RequestRefused):
    """Says only the state: the database's address and its error are for the log."""

    def __init__(self, state: DatabaseState) -> None:
        super().__init__(503, _NOT_READY[state], headers={"Retry-After": str(RETRY_SECONDS)})


class Alive(Document):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Health(Document):
    """The state of the service. Unknown values are null.

    `down`: nothing can be written. `degraded`: work is due and no worker was seen recently, or no job was started or
    settled for 15 minutes; a source is paused; less than 100 MB of disk or a tenth of all connections are left.
    """

    status: Literal["ok", "degraded", "down"]
    database: DatabaseState
    read_only: bool | None
    write_seconds: float | None
    database_bytes: int | None
    disk_free_bytes: int | None
    connections: int | None
    connections_limit: int | None
    workers: int | None
    oldest_due_seconds: float | None
    stalled_seconds: float | None
    leader: str | None
    paused: bool | None


@health_router.get("/healthz", response_model=Alive)
async def healthz() -> Response:
    """Whether this process is alive. Does not use the database."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@health_router.get("/readyz", response_model=Alive)
async def readyz(check: Checks) -> Alive:
    """Whether the database answers, has the tables that this version needs, and accepts writes."""
    found = await check.database()
    # Load balancers have no token, so the answer says nothing else.
    if found.state != "ok":
        raise NotReady(found.state)
    return Alive()


@health_router.get("/health", response_model=Health, dependencies=READS, responses={503: {"model": Health}})
async def health(check: Checks, response: Response) -> dict[str, Any]:
    """The state of the database, its space, the workers seen recently, how long work has waited, and the leader."""
    found = await check.database()
    queue = await check.queue()
    is_up = found.state == "ok" and queue is not None
    if not is_up:
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    well = queue is not None and queue.is_served and is_roomy(found)
    return {
        "status": "down" if not is_up else "ok" if well else "degraded",
        "database": found.state,
        "read_only": found.read_only,
        "write_seconds": found.write_seconds,
        "database_bytes": found.size_bytes,
        "disk_free_bytes": found.free_bytes,
        "connections": found.connections,
        "connections_limit": found.most_connections,
        **(msgspec.structs.asdict(queue) if queue else dict.fromkeys(QueueHealth.__struct_fields__)),
    }


@health_router.get(
    "/metrics",
    dependencies=READS,
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(mistnet: Mistnet, gauges: Gauges) -> Response:
    """The metrics of this process, for Prometheus."""
    await gauges.refresh()
    return Response(generate_latest(mistnet.metrics.registry), media_type=CONTENT_TYPE_LATEST)
