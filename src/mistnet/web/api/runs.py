"""Runs: who asked for what, and how it goes."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import Field

from mistnet.operations.errors import RunNotFound
from mistnet.operations.runs.model import DEFAULT_LIMIT, LARGEST_CREDITS, LARGEST_LIMIT, LEAST_LIMIT, Run, read_handles
from mistnet.web.auth import READS, Operator
from mistnet.web.errors import refusals
from mistnet.web.fields import Document, Given, Id, Integral, Moment
from mistnet.web.paging import Listing, RunPages
from mistnet.web.parts import Mistnet

scrape_router = APIRouter(prefix="/api/admin/scrape", tags=["runs"])

_HANDLES: Final = r"^[\s,]*@?[A-Za-z0-9_]{1,15}(\s*,\s*@?[A-Za-z0-9_]{1,15})*[\s,]*$"


class ScrapeRequest(Given):
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


class ScrapedAccount(Document):
    """What came of one account. Of `total` posts, `new` were not stored before, `failed` could not be read."""

    username: str
    status: str
    total: int
    new: int
    skipped: int
    failed: int
    reason: str | None


class ScrapeReport(Document):
    """All accounts together, then one by one."""

    total: int
    new: int
    skipped: int
    failed: int
    accounts: list[ScrapedAccount]


class ScrapeTask(Document):
    task_id: str
    status: str
    result: ScrapeReport | None
    created_at: Moment
    updated_at: Moment


@scrape_router.post("", status_code=202, responses=refusals(409))
async def start_scrape(asked: ScrapeRequest, visitor: Operator, mistnet: Mistnet) -> ScrapeAccepted:
    """Collect the newest posts of some accounts now, tracked or not. One task runs at a time."""
    handles = read_handles(asked.usernames)
    run = await mistnet.runs.start(
        handles,
        asked.limit,
        asked_by=visitor.name,
        now=mistnet.database.clock.now(),
        max_credits=asked.max_credits,
    )
    return ScrapeAccepted(task_id=run.id, status=run.status)


@scrape_router.get("/{task_id}", dependencies=READS, responses=refusals(404))
async def show_scrape(task_id: str, mistnet: Mistnet) -> ScrapeTask:
    """How far a task is; its report once it is over."""
    run = await settled_run(mistnet, task_id)
    return ScrapeTask.model_validate(
        {
            "task_id": run.id,
            "status": run.status,
            "result": run.result,
            "created_at": run.created_at,
            "updated_at": run.updated_at,
        }
    )


async def settled_run(mistnet: Mistnet, run_id: str) -> Run:
    """A run as it stands now, with what its jobs can no longer tell."""
    await mistnet.runs.settle(mistnet.database.clock.now())
    run = await mistnet.runs.get(run_id)
    if run is None:
        raise RunNotFound(run_id)
    return run


router = APIRouter(prefix="/api/runs", tags=["runs"], dependencies=READS)


class RunAccountDocument(Document):
    handle: str
    user_id: Id | None
    status: str
    total: int
    new: int
    skipped: int
    failed: int
    reason: str | None


class RunDocument(Document):
    id: str
    status: str
    asked_by: str
    post_limit: int
    created_at: Moment
    updated_at: Moment
    finished_at: Moment | None
    accounts: list[RunAccountDocument]


@router.get("", response_model=Listing[RunDocument])
async def list_runs(mistnet: Mistnet, pages: RunPages) -> dict[str, Any]:
    """All runs that are kept, the latest first."""
    await mistnet.runs.settle(mistnet.database.clock.now())
    return pages.listing(await mistnet.runs.list(pages.limit + 1, pages.before))


@router.post("/{run_id}/cancel", response_model=RunDocument, responses=refusals(404))
async def cancel_run(run_id: str, _visitor: Operator, mistnet: Mistnet) -> Run:
    """End a run where it stands; what it has collected stays. A finished one is left alone."""
    return await mistnet.runs.cancel(run_id, mistnet.database.clock.now())


@router.get("/{run_id}", response_model=RunDocument, responses=refusals(404))
async def show_run(run_id: str, mistnet: Mistnet) -> Run:
    """One run, account by account."""
    return await settled_run(mistnet, run_id)
