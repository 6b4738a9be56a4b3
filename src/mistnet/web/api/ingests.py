"""Ingest events: explicit requests to a source, their results, and the response if they failed. The quarantine."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from msgspec.structs import asdict

from mistnet.kit.transport import Exchange
from mistnet.social.ingests import Ingest, IngestKind, IngestStatus
from mistnet.social.store.quarantine import Quarantine, QuarantineLine, Reparsed
from mistnet.sources.pushed_posts import reparse_all
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import LARGEST_ID, Document, Flag, Id, NumberPath
from mistnet.web.paging import Listing, Pages

router = APIRouter(prefix="/api/ingests", tags=["ingests"], dependencies=READS)

_IDS_SHOWN: Final = 5_000


class ExchangeDocument(Document, record=Exchange):
    """The response that caused the failure, without secrets and with its body cut. `status` is null if none came."""


class IngestDocument(Document, record=Ingest, without=("exchange",)):
    """`subject_id` and the requested ids need not name stored users or posts: a failure can be about missing ones."""

    platform: str


class IngestInFull(IngestDocument):
    """An ingest with the first 5,000 ids it requested, and the exchange that ended it."""

    ids: list[Id]
    exchange: ExchangeDocument | None


@router.get("", response_model=Listing[IngestDocument])
async def list_ingests(
    mistnet: Mistnet,
    pages: Pages,
    kind: Annotated[IngestKind | None, Query(description="Only of this kind.")] = None,
    status: Annotated[IngestStatus | None, Query(description="Only with this status.")] = None,
    subject: Annotated[str | None, Query(pattern="^[0-9]{1,18}$", description="Only about this user id.")] = None,
) -> dict[str, Any]:
    """Ingest events, the latest first."""
    page = await mistnet.ingests.list(
        kind=kind,
        status=status,
        subject_id=int(subject) if subject else None,
        before=pages.place or LARGEST_ID,
        limit=pages.limit,
    )
    return pages.listing(page)


@router.get("/{ingest_id:id}", response_model=IngestInFull, responses=refusals(404))
async def show_ingest(ingest_id: NumberPath, mistnet: Mistnet) -> dict[str, Any]:
    """One ingest event with the ids it requested and, if it failed, the response."""
    ingest = await mistnet.ingests.get(ingest_id)
    if ingest is None:
        raise NotFound(f"ingest {ingest_id}")
    return {**asdict(ingest), "ids": await mistnet.ingests.ids(ingest_id, limit=_IDS_SHOWN)}


quarantine_router = APIRouter(prefix="/api/quarantine", tags=["quarantine"])


class QuarantinedDocument(Document, record=QuarantineLine):
    pass


class QuarantinedInFull(QuarantinedDocument):
    """With the payload as text."""

    payload: str


class ReparsedDocument(Document, record=Reparsed):
    """How many payloads can be read now, and how many still cannot, by their problem."""


@quarantine_router.get("", response_model=Listing[QuarantinedDocument], dependencies=READS)
async def list_quarantine(
    mistnet: Mistnet,
    pages: Pages,
    unresolved: Annotated[Flag, Query(description="Only payloads that still cannot be read.")] = "true",
) -> dict[str, Any]:
    """Payloads that could not be decoded, the latest first."""
    page = await Quarantine(mistnet.database).list(
        unresolved_only=unresolved == "true", before=pages.place or LARGEST_ID, limit=pages.limit
    )
    return pages.listing(page)


@quarantine_router.post("/reparse", response_model=ReparsedDocument, dependencies=OPERATES)
async def reparse(mistnet: Mistnet) -> object:
    """Try to decode all of them again, for example after an upgrade."""
    return await reparse_all(mistnet)


@quarantine_router.get("/{kept_id:id}", response_model=QuarantinedInFull, dependencies=READS, responses=refusals(404))
async def show_kept(kept_id: NumberPath, mistnet: Mistnet) -> dict[str, Any]:
    """One quarantined payload."""
    found = await Quarantine(mistnet.database).get(kept_id)
    if found is None:
        raise NotFound(f"payload {kept_id} in quarantine")
    line, payload = found
    return {**asdict(line), "payload": payload.decode("utf-8", "replace")}
