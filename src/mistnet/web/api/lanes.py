"""Lanes: what waits on each, what went through it lately, its dead letters, and their second chance."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator

from mistnet.app import App
from mistnet.operations.lanes import LanePages
from mistnet.queue.model import GAP_STATES, JobState, Lane
from mistnet.shops.model import CRAWL_LANES
from mistnet.sources.lane_status import lane_statuses
from mistnet.web.api.jobs import RequeuedDocument
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import PLAIN, Document, Id, Moment, RequestBody
from mistnet.web.paging import Listing, Pages

router = APIRouter(prefix="/api/lanes", tags=["lanes"])


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]
LanePath = Annotated[str, Path(max_length=100, pattern=PLAIN, description="The lane.")]


class LaneDocument(Document):
    """One lane. Counts of what went through are of the last hour, jobs per second of the last minute.

    `wait_p50` and `wait_p95` are how many seconds links waited for their first crawl. `source` is how what the lane
    reads from stands: serving, paused, breaker open, half-open, or no key; null where it reads from nothing.
    """

    lane: str
    states: dict[str, int]
    parked: int
    due: int
    oldest_due_at: Moment | None
    jobs_per_second: float
    succeeded: int
    retried: int
    failed: int
    dead: int
    crawled: int
    wait_p50: Seconds | None
    wait_p95: Seconds | None
    source: str | None
    why: str | None
    until: Moment | None


class Lanes(Document):
    items: list[LaneDocument]


class DeadLetterDocument(Document):
    """A job that ended without its result, and the link it is about if it is about one."""

    id: Id
    kind: str
    key: str | None
    lane: str
    state: JobState
    attempts: int
    max_attempts: int
    created_at: Moment
    ended_at: Moment
    last_error: str | None
    link_id: Id | None
    url: str | None


class LaneRequeueRequest(RequestBody):
    """`failed`: those too that failed for good, which a retry seldom mends."""

    failed: bool = False


class LaneRequeuedDocument(RequeuedDocument):
    """`problem`: why letters are still in RabbitMQ, if they are. The jobs are retried all the same."""

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
    """Jobs of a lane that ended without their result, the newest first."""
    own = await known_lane(mistnet, lane)
    states = GAP_STATES if state is None else [each for each in GAP_STATES if each is state]
    found = await LanePages(mistnet.database).dead_letters(
        lane=own, states=states, before=pages.place, limit=pages.one_more
    )
    return pages.listing(found, lambda letter: letter.id)


@router.post("/{lane}/requeue", response_model=LaneRequeuedDocument, dependencies=OPERATES, responses=refusals(404))
async def requeue(lane: LanePath, mistnet: Mistnet, asked: LaneRequeueRequest | None = None) -> object:
    """Requeue the dead letters of a lane, with all their attempts. Where RabbitMQ keeps letters, they are taken."""
    own = await known_lane(mistnet, lane)
    return await mistnet.dispatching.requeue_dead(own, mistnet.operations, failed=bool(asked and asked.failed))


async def known_lane(app: App, lane: str) -> Lane:
    """A lane that no kind has may still have dead letters of a kind that is gone."""
    if lane in CRAWL_LANES or lane in app.kinds.lanes:
        return Lane(lane)
    if not await LanePages(app.database).dead_letters(lane=lane, limit=1):
        raise NotFound(f"lane {lane[:80]!r}; GET /api/lanes lists them")
    return Lane(lane)
