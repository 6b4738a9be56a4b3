"""Runs: who asked for what, and how it goes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from mistnet.api.auth import READS, Operator
from mistnet.api.errors import refusals
from mistnet.api.fields import Document, Id, Moment
from mistnet.api.paging import Listing, RunPages
from mistnet.api.parts import Mistnet
from mistnet.api.routes.scrape import settled_run
from mistnet.domain.runs import Run

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
