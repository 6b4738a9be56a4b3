"""Jobs, their kinds and their lanes: list, retry, requeue, cancel, pause. Runs: start, list, show and cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from mistnet.app import App
from mistnet.operations.monitoring import LaneGap, LaneStore
from mistnet.operations.runs.model import (
    DEFAULT_LIMIT,
    LARGEST_CREDITS,
    LARGEST_LIMIT,
    LEAST_LIMIT,
    Run,
    RunAccount,
    read_handles,
)
from mistnet.queue.errors import JobNotAllowed, JobNotFound
from mistnet.queue.model import GAP_STATES, JobId, JobState, KindName, Lane
from mistnet.queue.store.inspect import JobError, JobFilter, JobView
from mistnet.queue.store.operations import GapFilter, JobChange, Requeued
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.sources.controls import LaneStatus
from mistnet.web.auth import OPERATES, READS, Operator
from mistnet.web.dependencies import Listing, Mistnet, Pages, RunPages
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import PLAIN, Document, Id, Integral, NumberPath, Reason, RequestBody, document_of
from mistnet.web.pages.dashboard import CurrentDashboard

router = APIRouter(prefix="/api", tags=["jobs"])

Word = Annotated[str | None, Query(max_length=200, pattern=PLAIN)]
KindPath = Annotated[str, Path(max_length=200, pattern=PLAIN, description="The kind of job.")]


class JobDocument(Document, record=JobView, without=("fence", "alone", "args", "errors")):
    pass


class AttemptDocument(Document, record=JobError, without=("fence",)):
    """What went wrong with one attempt."""


class JobInFull(JobDocument):
    args: dict[str, Any]
    errors: list[AttemptDocument]


class ChangeDocument(Document, record=JobChange, without=("changed", "why")):
    pass


class RequeueRequest(RequestBody):
    kind: Annotated[str, StringConstraints(pattern=PLAIN, max_length=200)] | None = None


class AcceptRequest(RequestBody):
    """Which failed jobs: of a kind, with a text in their error, or both."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in ("kind", "error")]
        }
    )
    kind: Annotated[str, StringConstraints(pattern=PLAIN, max_length=200)] | None = None
    error: Annotated[str, StringConstraints(pattern=PLAIN, min_length=1, max_length=500)] | None = None

    @model_validator(mode="after")
    def _says_which(self) -> AcceptRequest:
        if self.kind is None and self.error is None:
            raise ValueError("say which failed jobs: by kind, by error, or by both")
        return self


class AcceptedDocument(Document):
    cancelled: list[Id]


class KindDocument(Document):
    """The jobs of one kind by state."""

    kind: str
    states: dict[str, int]
    due: int
    parked: int
    paused: str | None


class Kinds(Document):
    """`at`: when the jobs were counted, some seconds ago at most."""

    at: datetime
    items: list[KindDocument]


class Lanes(Document):
    """`at`: as of when this is, some seconds ago at most."""

    at: datetime
    items: list[LaneStatus]


class PauseRequest(RequestBody):
    reason: Reason = "paused by API"


class PauseDocument(Document):
    """`changed`: whether this call paused or resumed it."""

    kind: str
    paused: bool
    changed: bool


@router.get("/jobs", response_model=Listing[JobDocument], dependencies=READS)
async def list_jobs(
    mistnet: Mistnet,
    pages: Pages,
    state: Annotated[
        list[JobState] | None, Query(max_length=8, description="Only these. Default: all that are not finished.")
    ] = None,
    kind: Word = None,
    lane: Word = None,
    key: Annotated[
        str | None, Query(max_length=200, pattern=PLAIN, description="Only keys with this beginning.")
    ] = None,
) -> dict[str, Any]:
    """Jobs, the newest first."""
    filters = JobFilter(
        kind=kind, lane=lane, states=state or (), key_prefix=key, before_id=pages.place, limit=pages.limit
    )
    return pages.listing(await mistnet.inspector.page(filters))


@router.post("/jobs/requeue", response_model=document_of(Requeued), dependencies=OPERATES)
async def requeue(body: RequeueRequest, mistnet: Mistnet) -> object:
    """Requeue all dead and failed jobs, or those of one kind."""
    return await mistnet.operations.requeue(GapFilter(kind=body.kind), now=mistnet.database.clock.now())


@router.post("/jobs/cancel", response_model=AcceptedDocument, dependencies=OPERATES)
async def accept(body: AcceptRequest, mistnet: Mistnet) -> dict[str, Any]:
    """Accept dead and failed jobs as they are, which ends them for good. Live ones are left alone."""
    filters = GapFilter(kind=body.kind, error=body.error)
    return {"cancelled": await mistnet.operations.accept(filters, now=mistnet.database.clock.now())}


@router.get("/jobs/{job_id:id}", response_model=JobInFull, dependencies=READS)
async def show_job(job_id: NumberPath, mistnet: Mistnet) -> dict[str, Any]:
    """One job with the errors of its attempts."""
    job = await mistnet.inspector.job(JobId(job_id))
    if job is None:
        raise JobNotFound(job_id)
    return {**msgspec.structs.asdict(job), "args": msgspec.json.decode(job.args)}


@router.post("/jobs/{job_id:id}/retry", response_model=ChangeDocument, dependencies=OPERATES, responses=refusals(409))
async def retry(job_id: NumberPath, mistnet: Mistnet) -> JobChange:
    """Make a job due now. A dead or failed one starts over with all its attempts."""
    changes = await mistnet.operations.retry([JobId(job_id)], now=mistnet.database.clock.now())
    return await _require_change(mistnet, changes, "retried")


@router.post("/jobs/{job_id:id}/cancel", response_model=ChangeDocument, dependencies=OPERATES, responses=refusals(409))
async def cancel(job_id: NumberPath, mistnet: Mistnet) -> JobChange:
    """End a job for good, a running one too: its worker's writes are discarded."""
    changes = await mistnet.operations.cancel([JobId(job_id)], now=mistnet.database.clock.now())
    return await _require_change(mistnet, changes, "cancelled")


@router.get("/kinds", response_model=Kinds, dependencies=READS)
async def list_kinds(mistnet: Mistnet, dashboard: CurrentDashboard) -> dict[str, Any]:
    """Every kind of job: how many there are in each state, and whether it is paused."""
    at, counts = await dashboard.recent_kinds()
    paused = {each.kind: each.reason for each in await mistnet.inspector.paused()}
    names = sorted({*mistnet.kinds, *paused, *(count.kind for count in counts)})
    own = {name: [count for count in counts if count.kind == name] for name in names}
    items = [
        {
            "kind": name,
            "states": {count.state: count.jobs for count in own[name]},
            "due": sum(count.due for count in own[name]),
            "parked": sum(count.parked for count in own[name]),
            "paused": paused.get(name),
        }
        for name in names
    ]
    return {"at": at, "items": items}


@router.post("/kinds/{kind}/pause", response_model=PauseDocument, dependencies=OPERATES)
async def pause(kind: KindPath, mistnet: Mistnet, body: PauseRequest | None = None) -> dict[str, Any]:
    """Stop workers from taking jobs of a kind. Running jobs continue; nothing is lost."""
    own = _kind(mistnet, kind)
    reason = (body or PauseRequest()).reason
    changed = await mistnet.operations.pause(own, reason, now=mistnet.database.clock.now())
    return {"kind": own, "paused": True, "changed": changed}


@router.post("/kinds/{kind}/resume", response_model=PauseDocument, dependencies=OPERATES)
async def resume(kind: KindPath, mistnet: Mistnet) -> dict[str, Any]:
    """Let workers take jobs of a paused kind again."""
    changed = await mistnet.operations.resume(KindName(kind))
    # A kind that no worker has any more can still be resumed, as long as it is paused.
    own = KindName(kind) if changed else _kind(mistnet, kind)
    return {"kind": own, "paused": False, "changed": changed}


def _kind(mistnet: Mistnet, kind: str) -> KindName:
    if kind not in mistnet.kinds:
        raise NotFound(f"job kind {kind[:80]!r}; GET /api/kinds lists them")
    return KindName(kind)


async def _require_change(mistnet: Mistnet, changes: Sequence[JobChange], verb: str) -> JobChange:
    (change,) = changes
    if change.changed:
        return change
    job = await mistnet.inspector.job(change.id)
    if job is None:
        raise JobNotFound(change.id)
    raise JobNotAllowed(change.id, job.state, verb, change.why or "it is finished")


lanes_router = APIRouter(prefix="/api/lanes", tags=["lanes"])


LanePath = Annotated[str, Path(max_length=100, pattern=PLAIN, description="The lane.")]


class LaneRequeueRequest(RequestBody):
    """`failed` includes jobs that failed permanently. A retry rarely helps those."""

    failed: bool = False


class LaneRequeuedDocument(Document, record=Requeued):
    """`problem` says why letters are still in RabbitMQ, if they are. The jobs are retried all the same."""

    problem: str | None


@lanes_router.get("", response_model=Lanes, dependencies=READS)
async def list_lanes(dashboard: CurrentDashboard) -> dict[str, Any]:
    """Every lane, those of crawls first."""
    at, items = await dashboard.recent_lanes()
    return {"at": at, "items": items}


@lanes_router.get("/{lane}/dead-letters", response_model=Listing[LaneGap], dependencies=READS)
async def list_dead_letters(
    lane: LanePath,
    mistnet: Mistnet,
    pages: Pages,
    state: Annotated[JobState | None, Query(description="`dead` or `failed` alone. Default: both.")] = None,
) -> dict[str, Any]:
    """Jobs of a lane that failed or are dead, the newest first."""
    own = await find_lane(mistnet, lane)
    states = GAP_STATES if state is None else [each for each in GAP_STATES if each is state]
    store = LaneStore(mistnet.database)
    return pages.listing(await store.dead_letters(lane=own, states=states, before=pages.place, limit=pages.limit))


@lanes_router.post("/{lane}/requeue", response_model=LaneRequeuedDocument, dependencies=OPERATES, name="requeue")
async def requeue_lane(lane: LanePath, mistnet: Mistnet, request: LaneRequeueRequest | None = None) -> object:
    """Requeue the dead letters of a lane, with all their attempts. Letters in RabbitMQ are removed there."""
    own = await find_lane(mistnet, lane)
    return await mistnet.dispatching.requeue_dead(own, mistnet.operations, failed=bool(request and request.failed))


async def find_lane(app: App, lane: str) -> Lane:
    """A lane that no kind uses may still have dead letters of a kind that was removed."""
    if lane in CRAWL_LANES or lane in app.kinds.lanes:
        return Lane(lane)
    if not (await LaneStore(app.database).dead_letters(lane=lane, limit=1)).items:
        raise NotFound(f"lane {lane[:80]!r}; GET /api/lanes lists them")
    return Lane(lane)


scrape_router = APIRouter(prefix="/api/admin/scrape", tags=["runs"])

_HANDLES: Final = r"^[\s,]*@?[A-Za-z0-9_]{1,15}(\s*,\s*@?[A-Za-z0-9_]{1,15})*[\s,]*$"


class ScrapeRequest(RequestBody):
    usernames: Annotated[
        str,
        Field(
            max_length=40_000,
            description="Handles with commas between: @name, name or https://x.com/name.",
            json_schema_extra={"pattern": _HANDLES, "examples": ["alice,bob"]},
        ),
    ]
    limit: (
        Annotated[
            int,
            Field(ge=LEAST_LIMIT, le=LARGEST_LIMIT),
            Integral,
            Field(description="Posts per account, newest first."),
        ]
        | None
    ) = Field(default=None, description=f"{DEFAULT_LIMIT}, or what earlier fetches of an account suggest, if left out.")
    max_credits: (
        Annotated[
            int,
            Field(ge=1, le=LARGEST_CREDITS),
            Integral,
            Field(description="What the task may cost; each account has an equal share of it."),
        ]
        | None
    ) = None


class ScrapeAccepted(Document):
    task_id: str
    status: str


class ScrapedAccount(Document, record=RunAccount, without=("position", "handle", "user_id")):
    """The result of one account. Of `total` posts, `new` were not stored before, `failed` could not be read."""

    username: str


class ScrapeReport(Document):
    """All accounts together, then each of them."""

    total: int
    new: int
    skipped: int
    failed: int
    accounts: list[ScrapedAccount]


class ScrapeTask(Document):
    task_id: str
    status: str
    result: ScrapeReport | None
    created_at: datetime
    updated_at: datetime


@scrape_router.post("", status_code=202, responses=refusals(409))
async def start_scrape(request: ScrapeRequest, caller: Operator, mistnet: Mistnet) -> ScrapeAccepted:
    """Collect the newest posts of some accounts now, tracked or not. One task runs at a time."""
    run = await mistnet.runs.start(
        read_handles(request.usernames),
        request.limit,
        asked_by=caller.name,
        now=mistnet.database.clock.now(),
        max_credits=request.max_credits,
    )
    return ScrapeAccepted(task_id=run.id, status=run.status)


@scrape_router.get("/{task_id}", response_model=ScrapeTask, dependencies=READS)
async def show_scrape(task_id: str, mistnet: Mistnet) -> dict[str, Any]:
    """The progress of a task, with its report once it has finished."""
    run = await mistnet.runs.show(task_id, mistnet.database.clock.now())
    fields = {name: getattr(run, name) for name in ("status", "result", "created_at", "updated_at")}
    return {"task_id": run.id, **fields}


runs_router = APIRouter(prefix="/api/runs", tags=["runs"], dependencies=READS)


class RunAccountDocument(Document, record=RunAccount, without=("position",)):
    pass


class RunDocument(Document, record=Run):
    accounts: list[RunAccountDocument]


@runs_router.get("", response_model=Listing[RunDocument])
async def list_runs(mistnet: Mistnet, pages: RunPages) -> dict[str, Any]:
    """All runs that are kept, the latest first."""
    now = mistnet.database.clock.now()
    return pages.listing(await mistnet.runs.page(now, before=pages.place, limit=pages.limit))


@runs_router.post("/{run_id}/cancel", response_model=RunDocument)
async def cancel_run(run_id: str, _caller: Operator, mistnet: Mistnet) -> Run:
    """End a run. What it has collected stays. A finished run is left alone."""
    return await mistnet.runs.cancel(run_id, mistnet.database.clock.now())


@runs_router.get("/{run_id}", response_model=RunDocument)
async def show_run(run_id: str, mistnet: Mistnet) -> Run:
    """One run, account by account."""
    return await mistnet.runs.show(run_id, mistnet.database.clock.now())
