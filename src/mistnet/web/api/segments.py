"""Segments: named sets of users or posts, their rules, inputs, members, changes and snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse
from pydantic import Field, StringConstraints
from pydantic.json_schema import WithJsonSchema

from mistnet.graph.segments.listing import stream_members
from mistnet.graph.segments.model import (
    LONGEST_SECONDS,
    NAME,
    SHORTEST_SECONDS,
    AnyRule,
    Member,
    MemberEvent,
    Segment,
    Snapshot,
)
from mistnet.graph.segments.rules import read_rule
from mistnet.graph.segments.service import segment_fields
from mistnet.graph.segments.store import Defined, SegmentInput
from mistnet.kit.export import Format
from mistnet.social.model import UserId
from mistnet.web.auth import OPERATES, READS, Operator
from mistnet.web.dependencies import Listing, Mistnet, Pages
from mistnet.web.errors import refusals
from mistnet.web.fields import WRITTEN_ID, Document, Flag, RequestBody, WrittenMoment, number_of

router = APIRouter(prefix="/api/segments", tags=["segments"])

_MOST_IDS: Final = 10_000
_TYPES: Final = {Format.JSONL: "application/x-ndjson", Format.CSV: "text/csv"}


# All kinds of rules, written out in full. JSON Schema ends a pattern with `$`, Python with `\Z`.
_RULES: Final = list(msgspec.json.schema_components([AnyRule])[1].values())
_RULE_SCHEMA: Final = msgspec.json.decode(msgspec.json.encode({"anyOf": _RULES}).replace(rb"\\Z", b"$"))


Named = Annotated[str, Path(pattern=f"^{NAME}$", description="A segment's name.")]
Seconds = Annotated[float, Field(ge=SHORTEST_SECONDS, le=LONGEST_SECONDS)]
UserIds = Annotated[list[Annotated[str, StringConstraints(pattern=WRITTEN_ID)]], Field(max_length=_MOST_IDS)]
AsOf = Annotated[WrittenMoment | None, Query(description="At this time; default: now.")]


class Definition(RequestBody):
    """How the members are found. A subject is a user's id or @handle."""

    rule: Annotated[dict[str, Any], WithJsonSchema(_RULE_SCHEMA)]
    every_seconds: Annotated[Seconds | None, Field(description="Materialize it at this interval.")] = None
    fresh_seconds: Annotated[
        Seconds | None, Field(description="How old the syncs that it rests on may be; null: any age.")
    ] = None


class InputChanges(RequestBody):
    add: UserIds = Field(default=[])
    remove: UserIds = Field(default=[])


class SegmentDocument(Document, record=Segment):
    """`members` as of the last materialization; null: never."""

    rule: dict[str, Any]
    in_words: str
    members: int | None


class DefinedDocument(Document, record=Defined):
    segment: SegmentDocument


class ChangedInputs(Document):
    """`fetched` were not stored before."""

    added: int
    removed: int
    fetched: list[UserId]


class AskedDocument(Document):
    """`created` is false if a live job is shared."""

    created: bool
    segment: SegmentDocument


class MemberDocument(Document, record=Member, without=("place",)):
    """A user or a post. A post has its author's handle and name."""


class SnapshotDocument(Document, record=Snapshot, without=("segment_id",)):
    """The result of one materialization, and the ingests it rests on."""


@router.get("", response_model=Listing[SegmentDocument], dependencies=READS)
async def list_segments(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """All segments, in the order in which they were created."""
    store = mistnet.segments.store
    page = await store.list(after=pages.place, limit=pages.limit)
    latest = await store.latest([each.id for each in page.items])
    return {**pages.listing(page), "items": [_document(each, latest.get(each.id)) for each in page.items]}


@router.put("/{name}", response_model=DefinedDocument, responses=refusals(502, 503), dependencies=OPERATES)
async def define_segment(name: Named, body: Definition, mistnet: Mistnet) -> dict[str, Any]:
    """Create a segment, or change the rule of the existing one. Its history stays."""
    done = await mistnet.segments.define(
        name, read_rule(name, body.rule), every_seconds=body.every_seconds, fresh_seconds=body.fresh_seconds
    )
    return {"created": done.created, "changed": done.changed, "segment": await _describe(mistnet, done.segment)}


@router.get("/{name}", response_model=SegmentDocument, dependencies=READS)
async def show_segment(name: Named, mistnet: Mistnet) -> Mapping[str, Any]:
    """One segment."""
    return await _describe(mistnet, await mistnet.segments.store.get(name))


@router.post("/{name}/enable", response_model=SegmentDocument, dependencies=OPERATES)
async def enable_segment(name: Named, mistnet: Mistnet) -> Mapping[str, Any]:
    """Allow materializations again."""
    return await _describe(mistnet, await mistnet.segments.store.enable(name, now=mistnet.database.clock.now()))


@router.post("/{name}/disable", response_model=SegmentDocument, dependencies=OPERATES)
async def disable_segment(name: Named, mistnet: Mistnet) -> Mapping[str, Any]:
    """Stop materializing it. It keeps its members; segments that build on it continue with those."""
    return await _describe(mistnet, await mistnet.segments.store.disable(name, now=mistnet.database.clock.now()))


@router.post("/{name}/materialize", response_model=AskedDocument, status_code=202, responses=refusals(409))
async def materialize_segment(name: Named, caller: Operator, mistnet: Mistnet) -> dict[str, Any]:
    """Materialize it now. Workers do it, after the syncs that it needs."""
    requested = await mistnet.segments.materialize(name, asked_by=caller.name, job_writer=mistnet.job_writer)
    return {"created": requested.created, "segment": await _describe(mistnet, requested.segment)}


@router.get("/{name}/inputs", response_model=Listing[SegmentInput], dependencies=READS)
async def list_inputs(name: Named, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Its inputs, by id. Only a segment of `specified_users` has any."""
    return pages.listing(await mistnet.segments.store.inputs(name, after=pages.place or 0, limit=pages.limit))


@router.post("/{name}/inputs", response_model=ChangedInputs, responses=refusals(422, 502, 503))
async def change_inputs(name: Named, body: InputChanges, caller: Operator, mistnet: Mistnet) -> dict[str, Any]:
    """Add or remove users. Unknown users are fetched first; if one is not available, nothing is written."""
    new, gone = ([UserId(number_of(each)) for each in given] for given in (body.add, body.remove))
    added = await mistnet.segments.add_inputs(name, new, asked_by=caller.name)
    removed = await mistnet.segments.store.remove_inputs(name, gone)
    return {"added": added.added, "removed": removed, "fetched": list(added.hydrated.fetched)}


@router.get("/{name}/members", response_model=Listing[MemberDocument], dependencies=READS)
async def list_members(name: Named, mistnet: Mistnet, pages: Pages, as_of: AsOf = None) -> dict[str, Any]:
    """Its members, in the order in which they entered."""
    page = await mistnet.segments.store.members(name, as_of_=as_of, after=pages.place or 0, limit=pages.limit)
    return pages.listing(page)


@router.get("/{name}/events", response_model=Listing[MemberEvent], dependencies=READS)
async def list_events(
    name: Named, mistnet: Mistnet, pages: Pages, kind: Literal["entered", "left"] | None = None
) -> dict[str, Any]:
    """Who entered and left, the latest first."""
    page = await mistnet.segments.store.events(name, before=pages.place, limit=pages.limit, kind=kind)
    return pages.listing(page)


@router.get("/{name}/snapshots", response_model=Listing[SnapshotDocument], dependencies=READS)
async def list_snapshots(name: Named, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Its materializations, the latest first."""
    return pages.listing(await mistnet.segments.store.snapshots(name, before=pages.place, limit=pages.limit))


@router.get(
    "/{name}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {each: {} for each in _TYPES.values()}}},
    dependencies=READS,
)
async def export_segment(
    name: Named,
    mistnet: Mistnet,
    format_: Annotated[Literal["jsonl", "csv"], Query(alias="format")] = "jsonl",
    as_of: AsOf = None,
    safe_for_spreadsheets: Annotated[
        Flag, Query(description="CSV: an apostrophe before text that a spreadsheet would run as a formula.")
    ] = "false",
) -> StreamingResponse:
    """All members, as a stream of lines."""
    segment = await mistnet.segments.store.get(name)
    safe = safe_for_spreadsheets == "true" and format_ == "csv"
    lines = stream_members(mistnet.segments.store, segment, Format(format_), as_of=as_of, safe_cells=safe)
    return StreamingResponse(lines, media_type=_TYPES[Format(format_)])


async def _describe(mistnet: Mistnet, segment: Segment) -> Mapping[str, Any]:
    return _document(segment, (await mistnet.segments.store.latest([segment.id])).get(segment.id))


def _document(segment: Segment, latest: Snapshot | None) -> Mapping[str, Any]:
    return {**segment_fields(segment), "members": latest.members if latest else None}
