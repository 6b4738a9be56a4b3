"""Whether the service is alive, ready and healthy; and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from mistnet.operations.health import DatabaseState, QueueHealth, is_roomy
from mistnet.web.auth import READS
from mistnet.web.dependencies import Checks, Gauges, Mistnet
from mistnet.web.errors import RETRY_SECONDS, RequestRefused
from mistnet.web.fields import Document

router = APIRouter(tags=["health"])

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


@router.get("/healthz", response_model=Alive)
async def healthz() -> Response:
    """Whether this process is alive. Does not use the database."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/readyz", response_model=Alive)
async def readyz(check: Checks) -> Alive:
    """Whether the database answers, has the tables that this version needs, and accepts writes."""
    found = await check.database()
    if found.state != "ok":
        raise NotReady(found.state)
    return Alive()


@router.get("/health", response_model=Health, dependencies=READS, responses={503: {"model": Health}})
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


@router.get(
    "/metrics",
    dependencies=READS,
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(mistnet: Mistnet, gauges: Gauges) -> Response:
    """The metrics of this process, for Prometheus."""
    await gauges.refresh()
    return Response(generate_latest(mistnet.metrics.registry), media_type=CONTENT_TYPE_LATEST)
