"""Lanes: what waits on each, what went through it recently, and its dead letters, which can be requeued."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from mistnet.app import App
from mistnet.operations.monitoring import LaneGap, LaneStore
from mistnet.queue.model import GAP_STATES, JobState, Lane
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.sources.status import LaneStatus, lane_statuses
from mistnet.web.api.jobs import RequeuedDocument
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import PLAIN, Document, RequestBody
from mistnet.web.paging import Listing, Pages

router = APIRouter(prefix="/api/lanes", tags=["lanes"])


LanePath = Annotated[str, Path(max_length=100, pattern=PLAIN, description="The lane.")]


class LaneDocument(Document, record=LaneStatus):
    """One lane. Counts of what went through are of the last hour, jobs per second of the last minute.

    `wait_p50` and `wait_p95` are how many seconds links waited for their first crawl. `source` is the state of what the
    lane reads from: serving, paused, breaker open, half-open, or no key; null where it reads from nothing.
    """

    states: dict[str, int]


class Lanes(Document):
    items: list[LaneDocument]


class DeadLetterDocument(Document, record=LaneGap):
    """A job that failed or is dead, and the link that it is about, if any."""


class LaneRequeueRequest(RequestBody):
    """`failed` includes jobs that failed permanently. A retry rarely helps those."""

    failed: bool = False


class LaneRequeuedDocument(RequeuedDocument):
    """`problem` says why letters are still in RabbitMQ, if they are. The jobs are retried all the same."""

    problem: str | None


@router.get("", response_model=Lanes, dependencies=READS)
async def list_lanes(mistnet: Mistnet) -> dict[str, Any]:
    """Every lane, those of crawls first."""
    return {"items": await lane_statuses(mistnet)}


@router.get(
    "/{lane}/dead-letters", response_model=Listing[DeadLetterDocument], dependencies=READS, responses=refusals(404)
)
async def list_dead_letters(
    lane: LanePath,
    mistnet: Mistnet,
    pages: Pages,
    state: Annotated[JobState | None, Query(description="`dead` or `failed` alone. Default: both.")] = None,
) -> dict[str, Any]:
    """Jobs of a lane that failed or are dead, the newest first."""
    own = await known_lane(mistnet, lane)
    states = GAP_STATES if state is None else [each for each in GAP_STATES if each is state]
    store = LaneStore(mistnet.database)
    return pages.listing(await store.dead_letters(lane=own, states=states, before=pages.place, limit=pages.limit))


@router.post("/{lane}/requeue", response_model=LaneRequeuedDocument, dependencies=OPERATES, responses=refusals(404))
async def requeue(lane: LanePath, mistnet: Mistnet, request: LaneRequeueRequest | None = None) -> object:
    """Requeue the dead letters of a lane, with all their attempts. Letters in RabbitMQ are removed there."""
    own = await known_lane(mistnet, lane)
    return await mistnet.dispatching.requeue_dead(own, mistnet.operations, failed=bool(request and request.failed))


async def known_lane(app: App, lane: str) -> Lane:
    """A lane that no kind uses may still have dead letters of a kind that was removed."""
    if lane in CRAWL_LANES or lane in app.kinds.lanes:
        return Lane(lane)
    if not (await LaneStore(app.database).dead_letters(lane=lane, limit=1)).items:
        raise NotFound(f"lane {lane[:80]!r}; GET /api/lanes lists them")
    return Lane(lane)
