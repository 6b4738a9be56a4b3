"""Suggestions: handles somebody would like tracked."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from pydantic import Field, StringConstraints
from pydantic.json_schema import WithJsonSchema

from mistnet.api.auth import OPERATES, READS
from mistnet.api.fields import LARGEST_ID, PLAIN, Document, Flag, Given, Id, Moment
from mistnet.api.paging import Listing, Pages
from mistnet.api.parts import Mistnet
from mistnet.api.routes.accounts import WrittenHandle, read_all
from mistnet.jobs import args
from mistnet.store import listing
from mistnet.store.refusals import Refusals
from mistnet.store.roster import NewSuggestion, Roster, Suggestion

router = APIRouter(prefix="/api/suggestions", tags=["accounts"])

Label = Annotated[str, StringConstraints(pattern=PLAIN, max_length=500)]
LabelName = Annotated[str, StringConstraints(pattern=PLAIN, min_length=1, max_length=100)]
_LABELS: Final = {
    "type": "object",
    "propertyNames": {"pattern": PLAIN, "minLength": 1, "maxLength": 100},
    "additionalProperties": {"type": "string", "pattern": PLAIN, "maxLength": 500},
    "maxProperties": 50,
}


class SuggestRequest(Given):
    """All handles are kept with the same wallet and labels."""

    handles: Annotated[list[WrittenHandle], Field(min_length=1, max_length=1_000)]
    wallet: Annotated[str, StringConstraints(pattern=PLAIN, max_length=500)] | None = None
    labels: Annotated[dict[LabelName, Label], Field(max_length=50), WithJsonSchema(_LABELS)] = Field(
        default_factory=dict
    )


class SuggestedDocument(Document):
    handle: str
    result: str
    user_id: Id | None
    merged: bool


class SuggestedDocuments(Document):
    suggestions: list[SuggestedDocument]


class SuggestionDocument(Document):
    """One that was accepted or refused says when and why."""

    id: Id
    handle: str
    wallet: str | None
    labels: dict[str, Any]
    suggested_at: Moment
    closed_at: Moment | None
    outcome: str | None
    reason: str | None
    user_id: Id | None
    withdrawn_at: Moment | None


class RefusedDocument(Document):
    """A handle that was to be tracked and could not be."""

    handle: str
    reason: str
    refused_at: Moment


class RefusedDocuments(Document):
    refused: list[RefusedDocument]


@router.get("/refused", response_model=RefusedDocuments, dependencies=READS)
async def list_refused(mistnet: Mistnet, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> dict[str, Any]:
    """Handles that were to be tracked and could not be, with the reason, the latest first."""
    return {"refused": await Refusals(mistnet.database).standing(limit)}


@router.get("", response_model=Listing[SuggestionDocument], dependencies=READS)
async def list_suggestions(
    mistnet: Mistnet,
    pages: Pages,
    only_open: Annotated[Flag, Query(alias="open", description="Only those nobody has decided on.")] = "false",
) -> dict[str, Any]:
    """Suggestions and what became of them, the latest first."""
    rows = await listing.Listing(mistnet.database).suggestions(
        live_only=only_open == "true", before=pages.place or LARGEST_ID, limit=pages.one_more
    )
    page = pages.listing(rows, lambda row: row.id)
    return {**page, "items": [_shown(each) for each in page["items"]]}


@router.post("", response_model=SuggestedDocuments, dependencies=OPERATES)
async def suggest(asked: SuggestRequest, mistnet: Mistnet) -> dict[str, Any]:
    """Suggest accounts. A worker looks each up, and tracks it or refuses it with the reason."""
    wanted = [NewSuggestion(handle=each, wallet=asked.wallet, labels=asked.labels) for each in read_all(asked.handles)]
    roster = Roster(mistnet.database, mistnet.job_writer)
    return {"suggestions": await roster.suggest(wanted, job=args.suggestion, now=mistnet.database.clock.now())}


def _shown(kept: Suggestion) -> dict[str, Any]:
    fields = {name: getattr(kept, name) for name in kept.__struct_fields__}
    return {**fields, "labels": msgspec.json.decode(kept.labels), "closed_at": kept.deleted_at}
