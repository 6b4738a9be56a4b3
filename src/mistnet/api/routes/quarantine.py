"""Payloads that could not be read: kept, shown, and tried again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from mistnet.api.auth import OPERATES, READS
from mistnet.api.errors import NotFound, refusals
from mistnet.api.fields import LARGEST_ID, Document, Flag, Id, Moment, NumberPath
from mistnet.api.paging import Listing, Pages
from mistnet.api.parts import Mistnet
from mistnet.desk.rereading import reparse_all
from mistnet.store import listing

router = APIRouter(prefix="/api/quarantine", tags=["quarantine"])


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


@router.get("", response_model=Listing[KeptDocument], dependencies=READS)
async def list_quarantine(
    mistnet: Mistnet,
    pages: Pages,
    unresolved: Annotated[Flag, Query(description="Only those that are still to be read.")] = "true",
) -> dict[str, Any]:
    """Payloads that could not be read, the latest first."""
    rows = await listing.Listing(mistnet.database).quarantine(
        unresolved_only=unresolved == "true", before=pages.place or LARGEST_ID, limit=pages.one_more
    )
    return pages.listing(rows, lambda row: row.id)


@router.post("/reparse", response_model=ReparsedDocument, dependencies=OPERATES)
async def reparse(mistnet: Mistnet) -> object:
    """Try all of them again; for after an upgrade."""
    return await reparse_all(mistnet)


@router.get("/{kept_id:id}", response_model=KeptInFull, dependencies=READS, responses=refusals(404))
async def show_kept(kept_id: NumberPath, mistnet: Mistnet) -> dict[str, Any]:
    """One of them with its payload."""
    found = await listing.Listing(mistnet.database).quarantined(kept_id)
    if found is None:
        raise NotFound(f"payload {kept_id} in quarantine")
    line, payload = found
    fields = {name: getattr(line, name) for name in line.__struct_fields__}
    return {**fields, "payload": payload.decode("utf-8", "replace")}
