"""Whether the service is alive, ready and well."""

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
    "unreachable": "the database does not answer now; try again, nothing was lost",
    "busy": "the database is busy; try again, nothing was lost",
    "wrong tables": "the database and this version of mistnet do not fit together; its log tells what to do",
    "read-only": "the database is read-only: nothing can be written until it takes writes again",
    "full": "the database has no room left: nothing can be written until there is some",
    "refused": "the database refuses to be written to; the log of mistnet tells why",
}


class NotReady(RequestRefused):
    """Where the database is, and what exactly it said, is for the log alone."""

    def __init__(self, state: DatabaseState) -> None:
        super().__init__(503, _NOT_READY[state], headers={"Retry-After": str(RETRY_SECONDS)})


class Alive(Document):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Health(Document):
    """How everything stands. What is not known is null.

    `down`: nothing can be written. `degraded`: work is due and no worker was seen lately, or no job was begun or
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
    """Whether this process is alive; asks nothing of the database."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/readyz", response_model=Alive)
async def readyz(check: Checks) -> Alive:
    """Whether the database answers, has the tables this version needs and keeps what is written."""
    found = await check.database()
    if found.state != "ok":
        raise NotReady(found.state)
    return Alive()


@router.get("/health", response_model=Health, dependencies=READS, responses={503: {"model": Health}})
async def health(check: Checks, response: Response) -> dict[str, Any]:
    """How everything stands: the database, its room, workers seen lately, how long work has waited, who leads."""
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
    """The meters of this process, for Prometheus."""
    await gauges.refresh()
    return Response(generate_latest(mistnet.metrics.registry), media_type=CONTENT_TYPE_LATEST)
