"""Items over the API: their fields, their points, their valuations over time. Price watches."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, StringConstraints

from mistnet.governor.model import SourceName
from mistnet.prices import item_validation as limits
from mistnet.prices.model import (
    BadItem,
    Item,
    ItemId,
    ItemLine,
    ItemPoint,
    ItemState,
    PastValuation,
    PointFilter,
    PointId,
    PointVersion,
    SourceFetch,
    WholeItem,
)
from mistnet.prices.service import change_item, fetch_now, item_line, item_points, items_of, sources_of, whole_item
from mistnet.prices.store.item_listing import ItemFilter, ItemListing
from mistnet.prices.store.items import ItemOutcome
from mistnet.prices.store.valuations import Valuations
from mistnet.prices.store.watches import AddedWatch
from mistnet.prices.watches import LEAST, MOST, Observation, WatchId, WatchKind, WatchLine, WatchRequest
from mistnet.queue.model import Enqueued
from mistnet.shops.model import PriceKind, ProductId
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Listing, Mistnet, Pages
from mistnet.web.errors import BadInput, FieldProblem, NotFound, refusals
from mistnet.web.fields import PLAIN, WRITTEN_ID, Document, Flag, PathId, RequestBody, document_of, number_of, read_flag

router = APIRouter(prefix="/api/items", tags=["items"])
_MOST_ITEMS: Final = 1_000


def _text(longest: int) -> Any:
    return StringConstraints(pattern=PLAIN, min_length=1, max_length=longest)


Title = Annotated[str, _text(limits.LONGEST_TITLE), Field(description="The words that listings of it have.")]
Ref = Annotated[
    str, _text(limits.LONGEST_REF), Field(description="Your own name for it: the same one again changes the item.")
]
Value = Annotated[str, _text(limits.LONGEST_VALUE)] | int | float
Word = Annotated[str, _text(limits.LONGEST_EXCLUDED)]
Source = Annotated[str, _text(limits.LONGEST_NAME)]
Url = Annotated[str, _text(limits.LONGEST_URL)]
Currency = Annotated[str, Field(pattern=r"^[A-Za-z]{3}$", description="Value it in this currency: an ISO code.")]
Hours = Annotated[
    float,
    Field(
        ge=limits.LEAST_HOURS, le=limits.MOST_HOURS, description="Fetch prices this often; null: as the settings say."
    ),
]
Excluded = Annotated[list[Word], Field(max_length=limits.MOST_EXCLUDED, description="Words a listing must not have.")]
Sources = Annotated[list[Source], Field(max_length=100, description="Only these sources; empty: all that serve items.")]
Urls = Annotated[list[Url], Field(max_length=limits.MOST_URLS, description="Pages that sell this very thing.")]
_ATTRIBUTES: Final = "Year, mint_mark, denomination, series, grade, and any other."


class ItemWanted(RequestBody):
    """A thing to follow."""

    title: Title
    ref: Ref | None = None
    attributes: Annotated[dict[str, Value], Field(max_length=limits.MOST_ATTRIBUTES, description=_ATTRIBUTES)] = Field(
        default_factory=dict
    )
    exclude: Excluded = Field(default_factory=list)
    sources: Sources = Field(default_factory=list)
    urls: Urls = Field(default_factory=list)
    currency: Currency | None = None
    every_hours: Hours | None = None


class ItemsWanted(RequestBody):
    """Many of them. If one is not valid nothing is written, unless invalid ones are to be skipped."""

    items: Annotated[list[ItemWanted], Field(min_length=1, max_length=_MOST_ITEMS)]
    skip_bad: Annotated[bool, Field(description="Add the valid ones, and report the others.")] = False


class ItemChanges(RequestBody):
    """Fields that are left out stay. Null clears a field or an attribute; lists are replaced whole."""

    title: Title | None = None
    ref: Ref | None = None
    attributes: Annotated[
        dict[str, Value | None], Field(max_length=limits.MOST_ATTRIBUTES, description="Only these change.")
    ] = Field(default_factory=dict)
    exclude: Excluded | None = None
    sources: Sources | None = None
    urls: Urls | None = None
    currency: Currency | None = None
    every_hours: Hours | None = None
    state: Annotated[
        Literal["active", "paused"] | None, Field(description="Paused: no prices are fetched until it is active.")
    ] = None


class SourcesAsked(RequestBody):
    sources: Sources = Field(default_factory=list)


class LookDocument(Document, record=SourceFetch, without=("item_id",)):
    """The last fetch from one source; the counts are those of the last that succeeded."""


class WholeItemDocument(Document, record=WholeItem):
    """One item with all that its valuation rests on, and the last fetch from each source."""

    looks: list[LookDocument]


class PointDocument(Document, record=ItemPoint, without=("item_id", "converted", "dedupe_key")):
    """A price that was asked, bid or paid. `weight` is its share in the valuation, `left_out` why it has none, and
    `rate` what its amount was converted by."""


class PointVersionDocument(Document, record=PointVersion, without=("point_id",)):
    """The values of a point until `replaced_at`, when a stronger or later observation replaced them."""


class KeptDocument(Document):
    """`index` is the place in what was sent; `outcome`: added, changed, or same."""

    index: int
    outcome: ItemOutcome
    item: Item


class BadRowDocument(Document):
    index: int
    field: str
    value: str
    problem: str


class KeptDocuments(Document):
    items: list[KeptDocument]
    problems: list[BadRowDocument]


class ChangedDocument(Document):
    outcome: ItemOutcome
    item: Item


@router.get("", response_model=Listing[ItemLine], dependencies=READS)
async def list_items(
    mistnet: Mistnet,
    pages: Pages,
    state: Annotated[ItemState | None, Query(description="Only these; without it, all but the removed.")] = None,
    q: Annotated[str, Query(max_length=500, pattern=PLAIN, description="Only titles and refs with this in them.")] = "",
    ref: Annotated[
        str | None, Query(max_length=limits.LONGEST_REF, pattern=PLAIN, description="Only this one.")
    ] = None,
    valued: Annotated[Flag | None, Query(description="Only those with a valuation, or only the others.")] = None,
) -> dict[str, Any]:
    """Items with their valuations, the newest first. With `q` or `valued` a page may be short and have a `next`."""
    filters = ItemFilter(state=state, words=q, ref=ref, valued=read_flag(valued))
    return pages.listing(await ItemListing(mistnet.database).page(filters, after=pages.place, limit=pages.limit))


@router.post("", response_model=KeptDocuments, dependencies=OPERATES)
async def add_items(body: ItemsWanted, mistnet: Mistnet) -> dict[str, Any]:
    """Follow things. A known `ref` changes its item; an item with all the same fields changes nothing."""
    sources = sources_of(mistnet)
    good: dict[int, Any] = {}
    bad: list[dict[str, Any]] = []
    for index, each in enumerate(body.items):
        try:
            good[index] = limits.item_request_of(each.model_dump(), sources=sources)
        except BadItem as error:
            bad += [
                {"index": index, "field": field, "value": value, "problem": problem}
                for field, value, problem in error.problems
            ]
    if bad and not body.skip_bad:
        raise BadInput(
            [FieldProblem(field=f"items.{each['index']}.{each['field']}", problem=each["problem"]) for each in bad]
        )
    store = items_of(mistnet)
    kept = await store.add(list(good.values()), mistnet.database.clock.now()) if good else ()
    known = await store.some([each.item_id for each in kept])
    return {
        "items": [
            {"index": index, "outcome": each.outcome, "item": known[each.item_id]}
            for index, each in zip(good, kept, strict=True)
        ],
        "problems": bad,
    }


@router.get("/{item_id}", response_model=WholeItemDocument, dependencies=READS)
async def show_item(item_id: PathId, mistnet: Mistnet) -> WholeItem:
    """One item: its valuation with the points it rests on, and the last fetch from each source."""
    return await whole_item(mistnet, ItemId(number_of(item_id)))


@router.patch("/{item_id}", response_model=ChangedDocument, dependencies=OPERATES)
async def change(item_id: PathId, body: ItemChanges, mistnet: Mistnet) -> dict[str, Any]:
    """Change the fields of an item, pause it or resume it. If its fields change, its prices are fetched again."""
    number = ItemId(number_of(item_id))
    # Null is a value here: only the fields that the request has are changed.
    named = body.model_fields_set - {"state"}
    if "title" in named and body.title is None:
        raise BadInput([FieldProblem(field="title", problem="an item needs a title; write one, or leave it out")])
    item, kept = await change_item(mistnet, number, {name: getattr(body, name) for name in named})
    outcome = kept.outcome
    if body.state is not None:
        item, moved = await items_of(mistnet).set_state(number, ItemState(body.state), mistnet.database.clock.now())
        outcome = ItemOutcome.CHANGED if moved else outcome
    return {"outcome": outcome, "item": item}


@router.delete("/{item_id}", response_model=document_of(Item), dependencies=OPERATES)
async def remove(item_id: PathId, mistnet: Mistnet) -> Item:
    """Stop following an item. Its points and valuations are kept."""
    number, now = ItemId(number_of(item_id)), mistnet.database.clock.now()
    item, _ = await items_of(mistnet).set_state(number, ItemState.REMOVED, now)
    return item


@router.get("/{item_id}/points", response_model=Listing[PointDocument], dependencies=READS)
async def list_points(
    item_id: PathId,
    mistnet: Mistnet,
    pages: Pages,
    kind: Annotated[PriceKind | None, Query(description="Only these.")] = None,
    source: Annotated[str | None, Query(max_length=100, pattern=PLAIN, description="Only of this source.")] = None,
    doubted: Annotated[Flag | None, Query(description="Only those that are doubted, or only the others.")] = None,
) -> dict[str, Any]:
    """What was asked, bid or paid, the latest found first, and what each counts for."""
    line = await item_line(mistnet, ItemId(number_of(item_id)))
    filters = PointFilter(kind=kind, source=None if source is None else SourceName(source), doubted=read_flag(doubted))
    return pages.listing(await item_points(mistnet, line.id, filters, after=pages.place, limit=pages.limit))


@router.get("/{item_id}/points/{point_id}/versions", response_model=Listing[PointVersionDocument], dependencies=READS)
async def list_versions(item_id: PathId, point_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """The earlier values of one point, the latest first: the earlier prices of a listing."""
    line = await item_line(mistnet, ItemId(number_of(item_id)))
    valuations, number = Valuations(mistnet.database), PointId(number_of(point_id))
    point = (await valuations.named_points([number])).get(number)
    if point is None or point.item_id != line.id:
        raise NotFound(f"point {point_id} of item {item_id}")
    return pages.listing(await valuations.versions(number, after=pages.place, limit=pages.limit))


@router.get("/{item_id}/history", response_model=Listing[PastValuation], dependencies=READS)
async def list_history(item_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Its valuations, the latest first."""
    line = await item_line(mistnet, ItemId(number_of(item_id)))
    valuations = Valuations(mistnet.database)
    return pages.listing(await valuations.history(line.id, after=pages.place, limit=pages.limit))


@router.post("/{item_id}/ask", response_model=document_of(Enqueued, "parked"), status_code=202, dependencies=OPERATES)
async def ask(item_id: PathId, mistnet: Mistnet, body: SourcesAsked | None = None) -> object:
    """Fetch prices now, from the named sources or from all that the item uses. Workers do it."""
    return await fetch_now(mistnet, [ItemId(number_of(item_id))], body.sources if body else [])


watches_router = APIRouter(prefix="/api/price-watches", tags=["price watches"])

_PLAINLY: Final = {"target": {"pattern": r"^[1-9][0-9]{0,14}(\.[0-9]{1,6})?$"}}
OneId = Annotated[str, StringConstraints(pattern=WRITTEN_ID), Field(description="An id: a 64-bit number as a string.")]
OfId = Annotated[str | None, Query(pattern=WRITTEN_ID, description="Only the watches of this one.")]


def _shapes(schema: dict[str, Any]) -> None:
    """Which fields go together: one product or item, and the threshold of the kind."""
    fields: dict[str, Any] = {}
    for name, own in schema.pop("properties").items():
        # A field is required where its kind needs it, and then it cannot be null.
        given: dict[str, Any] = next((each for each in own.get("anyOf", ()) if each.get("type") != "null"), {})
        rest = {word: value for word, value in own.items() if word not in ("anyOf", "default", "title")}
        fields[name] = {**given, **rest, **_PLAINLY.get(name, {})}
    targets, thresholds = ("product_id", "item_id"), {"changed": ["percent"], "below": ["target", "currency"]}
    shapes = [(kind, [target, *own]) for kind, own in thresholds.items() for target in targets]
    schema.pop("required")
    schema.pop("additionalProperties")
    schema["anyOf"] = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, **{name: fields[name] for name in names}},
            "required": ["kind", *names],
            "additionalProperties": False,
        }
        for kind, names in [*shapes, ("back_in_stock", ["product_id"])]
    ]


class WatchWanted(RequestBody):
    """A product or an item, and one threshold: `percent`, `target` with its `currency`, or back in stock."""

    model_config = ConfigDict(json_schema_extra=_shapes)

    kind: Annotated[WatchKind, Field(strict=False)]
    product_id: OneId | None = None
    item_id: OneId | None = None
    percent: Annotated[
        float | None, Field(ge=LEAST, le=MOST, description="For `changed`: by how much the price must change.")
    ] = None
    target: Annotated[
        str | None,
        StringConstraints(pattern=r"^[0-9]{1,15}(\.[0-9]{1,6})?$"),
        Field(description="For `below`: an exact amount, its digits as a string."),
    ] = None
    currency: Annotated[
        str | None, StringConstraints(pattern=r"^[A-Z]{3}$"), Field(description="Of the target, such as TWD.")
    ] = None


class WatchLookDocument(Document, record=Observation, without=("source", "link_id", "rests_on", "moved_by")):
    """What one look saw."""


class PriceWatchDocument(Document, record=WatchLine):
    """One watch. `standing` is waiting (for a first look), watching, unconfirmed (one look saw `suspected`; a
    second one decides) or suspended, for the reason in `problem`."""

    standing: str
    known: WatchLookDocument | None
    suspected: WatchLookDocument | None


class AddedWatchDocument(Document, record=AddedWatch):
    """`added` is false if the same watch existed already."""

    watch: PriceWatchDocument


@watches_router.get("", response_model=Listing[PriceWatchDocument], dependencies=READS)
async def list_price_watches(
    mistnet: Mistnet, pages: Pages, product_id: OfId = None, item_id: OfId = None
) -> dict[str, Any]:
    """All price watches, the newest first."""
    found = await mistnet.price_watches.page(
        product_id=None if product_id is None else ProductId(number_of(product_id)),
        item_id=None if item_id is None else ItemId(number_of(item_id)),
        after=pages.place,
        limit=pages.limit,
    )
    return pages.listing(found)


@watches_router.post("", response_model=AddedWatchDocument, responses=refusals(404), dependencies=OPERATES)
async def add_price_watch(body: WatchWanted, mistnet: Mistnet) -> Any:
    """Get an event about a price, once a second look confirms it. The same watch is not added twice."""
    return await mistnet.price_watches.add(
        WatchRequest(
            kind=body.kind,
            product_id=None if body.product_id is None else ProductId(number_of(body.product_id)),
            item_id=None if body.item_id is None else ItemId(number_of(body.item_id)),
            percent=body.percent,
            target=None if body.target is None else Decimal(body.target),
            currency=body.currency,
        )
    )


@watches_router.get("/{watch_id}", response_model=PriceWatchDocument, dependencies=READS)
async def show_price_watch(watch_id: PathId, mistnet: Mistnet) -> WatchLine:
    """One watch."""
    return await mistnet.price_watches.get(WatchId(number_of(watch_id)))


@watches_router.delete("/{watch_id}", response_model=PriceWatchDocument, dependencies=OPERATES)
async def remove_price_watch(watch_id: PathId, mistnet: Mistnet) -> WatchLine:
    """Remove a watch. Events that were written are still sent."""
    return await mistnet.price_watches.remove(WatchId(number_of(watch_id)))
