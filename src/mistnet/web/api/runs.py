"""Runs: start, list, show and cancel them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import Field

from mistnet.operations.runs.model import (
    DEFAULT_LIMIT,
    LARGEST_CREDITS,
    LARGEST_LIMIT,
    LEAST_LIMIT,
    Run,
    RunAccount,
    read_handles,
)
from mistnet.web.auth import READS, Operator
from mistnet.web.dependencies import Listing, Mistnet, RunPages
from mistnet.web.errors import refusals
from mistnet.web.fields import Document, Integral, RequestBody

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


router = APIRouter(prefix="/api/runs", tags=["runs"], dependencies=READS)


class RunAccountDocument(Document, record=RunAccount, without=("position",)):
    pass


class RunDocument(Document, record=Run):
    accounts: list[RunAccountDocument]


@router.get("", response_model=Listing[RunDocument])
async def list_runs(mistnet: Mistnet, pages: RunPages) -> dict[str, Any]:
    """All runs that are kept, the latest first."""
    now = mistnet.database.clock.now()
    return pages.listing(await mistnet.runs.page(now, before=pages.place, limit=pages.limit))


@router.post("/{run_id}/cancel", response_model=RunDocument)
async def cancel_run(run_id: str, _caller: Operator, mistnet: Mistnet) -> Run:
    """End a run. What it has collected stays. A finished run is left alone."""
    return await mistnet.runs.cancel(run_id, mistnet.database.clock.now())


@router.get("/{run_id}", response_model=RunDocument)
async def show_run(run_id: str, mistnet: Mistnet) -> Run:
    """One run, account by account."""
    return await mistnet.runs.show(run_id, mistnet.database.clock.now())
