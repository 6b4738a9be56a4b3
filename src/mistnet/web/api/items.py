"""Items: things whose worth is followed, their points, their valuations over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query

from mistnet.governor.model import SourceName
from mistnet.prices import item_validation as item_requests
from mistnet.prices.errors import BadItem
from mistnet.prices.model import ItemId, ItemState, PointId
from mistnet.prices.service import (
    Bearings,
    ask_now,
    change_item,
    item_fields,
    items_of,
    line_fields,
    look_fields,
    point_fields,
    sources_of,
    valuation_fields,
    version_fields,
)
from mistnet.prices.store.item_pages import ItemFilter, ItemLine, ItemPages
from mistnet.prices.store.items import ItemOutcome
from mistnet.prices.store.valuations import PointFilter, Valuations
from mistnet.shops.model import PriceKind
from mistnet.web.api.item_models import (
    AskedDocument,
    ChangedDocument,
    ItemChanges,
    ItemDocument,
    ItemLineDocument,
    ItemsWanted,
    KeptDocuments,
    PastValuationDocument,
    PointDocument,
    PointVersionDocument,
    SourcesAsked,
    WholeItemDocument,
)
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import BadInput, FieldProblem, NotFound, refusals
from mistnet.web.fields import PLAIN, Flag, PathId, number_of
from mistnet.web.paging import Listing, Pages, cursor_of

router = APIRouter(prefix="/api/items", tags=["items"])


@router.get("", response_model=Listing[ItemLineDocument], dependencies=READS)
async def list_items(
    mistnet: Mistnet,
    pages: Pages,
    state: Annotated[ItemState | None, Query(description="Only these; without it, all but the removed.")] = None,
    q: Annotated[str, Query(max_length=500, pattern=PLAIN, description="Only titles and refs with this in them.")] = "",
    ref: Annotated[
        str | None, Query(max_length=item_requests.LONGEST_REF, pattern=PLAIN, description="Only this one.")
    ] = None,
    valued: Annotated[Flag | None, Query(description="Only those with a valuation, or only the others.")] = None,
) -> dict[str, Any]:
    """Items with what they are worth, the newest first. With `q` or `valued` a page may be short and have a `next`."""
    wanted = ItemFilter(
        state=state,
        words=q,
        ref=ref,
        valued=None if valued is None else valued == "true",
        before=pages.place,
        limit=pages.limit,
    )
    page = await ItemPages(mistnet.database).list(wanted)
    shown = [line_fields(each) for each in page.items]
    return {"items": shown, "next": None if page.next is None else cursor_of(page.next)}


@router.post("", response_model=KeptDocuments, dependencies=OPERATES)
async def add_items(asked: ItemsWanted, mistnet: Mistnet) -> dict[str, Any]:
    """Follow things. One with a `ref` that is known changes its item; one that says all the same changes nothing."""
    sources = sources_of(mistnet)
    good: dict[int, Any] = {}
    bad: list[dict[str, Any]] = []
    for index, each in enumerate(asked.items):
        try:
            good[index] = item_requests.item_request_of(each.model_dump(), sources=sources)
        except BadItem as error:
            bad += [
                {"index": index, "field": field, "value": value, "problem": problem}
                for field, value, problem in error.problems
            ]
    if bad and not asked.skip_bad:
        raise BadInput(
            [FieldProblem(field=f"items.{each['index']}.{each['field']}", problem=each["problem"]) for each in bad]
        )
    store = items_of(mistnet)
    kept = await store.add(list(good.values()), mistnet.database.clock.now()) if good else ()
    known = await store.some([each.item_id for each in kept])
    return {
        "items": [
            {"index": index, "outcome": each.outcome, "item": item_fields(known[each.item_id])}
            for index, each in zip(good, kept, strict=True)
        ],
        "problems": bad,
    }


@router.get("/{item_id}", response_model=WholeItemDocument, responses=refusals(404), dependencies=READS)
async def show_item(item_id: PathId, mistnet: Mistnet) -> dict[str, Any]:
    """One item: its worth with the points it rests on, and the last look at each source."""
    line = await _known(mistnet, item_id)
    facts = Valuations(mistnet.database)
    worth = (await facts.current([line.item.id])).get(line.item.id)
    looks = look_fields(await facts.looks(line.item.id))
    return {**line_fields(line), "valuation": valuation_fields(worth), "looks": looks}


@router.patch("/{item_id}", response_model=ChangedDocument, responses=refusals(404), dependencies=OPERATES)
async def change(item_id: PathId, asked: ItemChanges, mistnet: Mistnet) -> dict[str, Any]:
    """Change what an item says, pause it or go on. It is looked at anew if it says something else."""
    number = ItemId(number_of(item_id))
    changes = _changes(asked)
    item, kept = await change_item(mistnet, number, changes)
    outcome = kept.outcome
    if asked.state is not None:
        item, moved = await items_of(mistnet).set_state(number, ItemState(asked.state), mistnet.database.clock.now())
        outcome = ItemOutcome.CHANGED if moved else outcome
    return {"outcome": outcome, "item": item_fields(item)}


@router.delete("/{item_id}", response_model=ItemDocument, responses=refusals(404), dependencies=OPERATES)
async def remove(item_id: PathId, mistnet: Mistnet) -> dict[str, Any]:
    """Follow it no more. Its points and valuations stay."""
    number, now = ItemId(number_of(item_id)), mistnet.database.clock.now()
    item, _ = await items_of(mistnet).set_state(number, ItemState.REMOVED, now)
    return item_fields(item)


@router.get("/{item_id}/points", response_model=Listing[PointDocument], responses=refusals(404), dependencies=READS)
async def list_points(
    item_id: PathId,
    mistnet: Mistnet,
    pages: Pages,
    kind: Annotated[PriceKind | None, Query(description="Only these.")] = None,
    source: Annotated[str | None, Query(max_length=100, pattern=PLAIN, description="Only of this source.")] = None,
    doubted: Annotated[Flag | None, Query(description="Only those that are doubted, or only the others.")] = None,
) -> dict[str, Any]:
    """What was asked, bid or paid, the latest found first, and what each counts for."""
    line = await _known(mistnet, item_id)
    facts = Valuations(mistnet.database)
    wanted = PointFilter(
        kind=kind,
        source=None if source is None else SourceName(source),
        doubted=None if doubted is None else doubted == "true",
        before=pages.place,
        limit=pages.one_more,
    )
    bearings = Bearings((await facts.current([line.item.id])).get(line.item.id))
    page = pages.listing(await facts.points(line.item.id, wanted), lambda point: point.id)
    return {**page, "items": [point_fields(each, bearings.of(each)) for each in page["items"]]}


@router.get(
    "/{item_id}/points/{point_id}/versions",
    response_model=Listing[PointVersionDocument],
    responses=refusals(404),
    dependencies=READS,
)
async def list_versions(item_id: PathId, point_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """What one point said before, the latest first: the earlier prices of a listing."""
    line = await _known(mistnet, item_id)
    facts, number = Valuations(mistnet.database), PointId(number_of(point_id))
    point = (await facts.named([number])).get(number)
    if point is None or point.item_id != line.item.id:
        raise NotFound(f"point {point_id} of item {item_id}")
    found = await facts.versions(number, before=pages.place, limit=pages.one_more)
    page = pages.listing(found, lambda version: version.nr)
    return {**page, "items": [version_fields(each) for each in page["items"]]}


@router.get(
    "/{item_id}/history", response_model=Listing[PastValuationDocument], responses=refusals(404), dependencies=READS
)
async def list_history(item_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """What it was worth, the latest first."""
    line = await _known(mistnet, item_id)
    found = await Valuations(mistnet.database).history(line.item.id, before=pages.place, limit=pages.one_more)
    page = pages.listing(found, lambda past: past.id)
    return {**page, "items": [valuation_fields(each) for each in page["items"]]}


@router.post(
    "/{item_id}/ask", response_model=AskedDocument, status_code=202, responses=refusals(404), dependencies=OPERATES
)
async def ask(item_id: PathId, mistnet: Mistnet, asked: SourcesAsked | None = None) -> object:
    """Have sources asked now: those named, or all that the item wants. Workers do it; what is under way is joined."""
    named = asked.sources if asked else []
    return await ask_now(mistnet, [ItemId(number_of(item_id))], named)


def _changes(asked: ItemChanges) -> Mapping[str, Any]:
    named = asked.model_fields_set - {"state"}
    if "title" in named and asked.title is None:
        raise BadInput([FieldProblem(field="title", problem="an item needs a title; write one, or leave it out")])
    return {name: getattr(asked, name) for name in named}


async def _known(mistnet: Any, item_id: str) -> ItemLine:
    """Also one that was removed: its points are kept to be looked at."""
    found = await ItemPages(mistnet.database).one(ItemId(number_of(item_id)))
    if found is None:
        raise NotFound(f"item {item_id}")
    return found
