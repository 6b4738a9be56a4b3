"""Ingest events: what was asked of upstream on purpose, what came of it, and on failure what was answered."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from mistnet.social.ingests.model import IngestKind, IngestStatus
from mistnet.social.store import listing
from mistnet.sources.pushed_posts import reparse_all
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import LARGEST_ID, Document, Flag, Id, Moment, NumberPath
from mistnet.web.paging import Listing, Pages

router = APIRouter(prefix="/api/ingests", tags=["ingests"], dependencies=READS)

_IDS_SHOWN: Final = 5_000


class ExchangeDocument(Document):
    """The answer at fault: without secrets, its body cut. Without a status there was none."""

    endpoint: str
    status: int | None
    headers: dict[str, str]
    body: str


class IngestDocument(Document):
    """`subject_id` and the ids asked for are plain ids: such users or posts need not be stored."""

    id: Id
    platform: str
    kind: IngestKind
    status: IngestStatus
    subject_id: Id | None
    mode: str | None
    asked_by: str
    job_id: Id | None
    started_at: Moment
    finished_at: Moment | None
    calls: int
    items: int
    plausible: bool | None
    endpoint: str | None
    http_status: int | None
    problem: str | None


class IngestInFull(IngestDocument):
    """With what it asked for, the first 5,000 of it, and the exchange that ended it."""

    ids: list[Id]
    exchange: ExchangeDocument | None


@router.get("", response_model=Listing[IngestDocument])
async def list_ingests(
    mistnet: Mistnet,
    pages: Pages,
    kind: Annotated[IngestKind | None, Query(description="Only of this kind.")] = None,
    status: Annotated[IngestStatus | None, Query(description="Only those that stand like this.")] = None,
    subject: Annotated[str | None, Query(pattern="^[0-9]{1,18}$", description="Only about this user id.")] = None,
) -> dict[str, Any]:
    """Ingest events, the latest first."""
    rows = await mistnet.ingests.list(
        kind=kind,
        status=status,
        subject_id=int(subject) if subject else None,
        before=pages.place or LARGEST_ID,
        limit=pages.one_more,
    )
    return pages.listing(rows, lambda row: row.id)


@router.get("/{ingest_id:id}", response_model=IngestInFull, responses=refusals(404))
async def show_ingest(ingest_id: NumberPath, mistnet: Mistnet) -> dict[str, Any]:
    """One of them with what it asked for and, if it failed, what was answered."""
    found = await mistnet.ingests.get(ingest_id)
    if found is None:
        raise NotFound(f"ingest {ingest_id}")
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    return {**fields, "ids": await mistnet.ingests.ids(ingest_id, limit=_IDS_SHOWN)}


quarantine_router = APIRouter(prefix="/api/quarantine", tags=["quarantine"])


class KeptDocument(Document):
    id: Id
    platform: str
    endpoint: str
    problem: str
    first_seen_at: Moment
    last_seen_at: Moment
    times_seen: int
    resolved_at: Moment | None


class KeptInFull(KeptDocument):
    """With the payload as text, whatever it is."""

    payload: str


class ReparsedDocument(Document):
    """How many are read now, by what was wrong with them, and how many are not."""

    resolved: dict[str, int]
    left: dict[str, int]


@quarantine_router.get("", response_model=Listing[KeptDocument], dependencies=READS)
async def list_quarantine(
    mistnet: Mistnet,
    pages: Pages,
    unresolved: Annotated[Flag, Query(description="Only those that are still to be read.")] = "true",
) -> dict[str, Any]:
    """Payloads that could not be read, the latest first."""
    rows = await listing.AccountListing(mistnet.database).quarantine(
        unresolved_only=unresolved == "true", before=pages.place or LARGEST_ID, limit=pages.one_more
    )
    return pages.listing(rows, lambda row: row.id)


@quarantine_router.post("/reparse", response_model=ReparsedDocument, dependencies=OPERATES)
async def reparse(mistnet: Mistnet) -> object:
    """Try all of them again; for after an upgrade."""
    return await reparse_all(mistnet)


@quarantine_router.get("/{kept_id:id}", response_model=KeptInFull, dependencies=READS, responses=refusals(404))
async def show_kept(kept_id: NumberPath, mistnet: Mistnet) -> dict[str, Any]:
    """One of them with its payload."""
    found = await listing.AccountListing(mistnet.database).quarantined(kept_id)
    if found is None:
        raise NotFound(f"payload {kept_id} in quarantine")
    line, payload = found
    fields = {name: getattr(line, name) for name in line.__struct_fields__}
    return {**fields, "payload": payload.decode("utf-8", "replace")}
