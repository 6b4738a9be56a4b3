"""Whether the service is alive, ready and well."""

from __future__ import annotations

from typing import Any, Final, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from mistnet.api.auth import READS
from mistnet.api.fields import Document
from mistnet.api.parts import Gauges, Mistnet
from mistnet.desk.standings import state_of
from mistnet.domain.sources import X_SOURCE
from mistnet.store.leaders import StoreLeaders
from mistnet.store.schema import require_current

router = APIRouter(tags=["health"])

_LATELY: Final = 3
"""A worker that missed so many heartbeats has gone."""


class Alive(Document):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Health(Document):
    """`degraded`: work is due and no worker was seen lately, or the source is paused."""

    status: Literal["ok", "degraded"]
    database: Literal["ok"]
    workers: int
    oldest_due_seconds: float | None
    leader: str | None
    paused: bool


@router.get("/healthz", response_model=Alive)
async def healthz() -> Response:
    """Whether this process is alive; asks nothing of the database."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/readyz", response_model=Alive)
async def readyz(mistnet: Mistnet) -> Alive:
    """Whether the database answers and has the tables this version needs."""
    await require_current(mistnet.database)
    return Alive()


@router.get("/health", response_model=Health, dependencies=READS)
async def health(mistnet: Mistnet) -> dict[str, Any]:
    """How everything stands: database, workers seen lately, the age of the oldest job that is due, who leads."""
    now = mistnet.database.clock.now()
    lately = now - _LATELY * mistnet.settings.heartbeat
    workers = [each for each in await mistnet.inspector.workers() if each.seen_at >= lately]
    targets = mistnet.kinds.targets(slots=1, lanes=None, lane_caps={})
    first = (await mistnet.queue.outlook(targets, now=now)).next_due_at
    due = first is not None and first <= now
    leaders = [each.holder for each in await StoreLeaders(mistnet.database).all() if each.leads_at(now)]
    paused = (await state_of(mistnet, X_SOURCE)).paused_at is not None
    return {
        "status": "degraded" if paused or (due and not workers) else "ok",
        "database": "ok",
        "workers": len(workers),
        "oldest_due_seconds": (now - first).total_seconds() if first and due else None,
        "leader": leaders[0] if leaders else None,
        "paused": paused,
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
