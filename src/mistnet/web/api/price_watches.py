"""Price watches over the API."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, StringConstraints

from mistnet.prices.model import ItemId
from mistnet.prices.store.watches import AddedWatch
from mistnet.prices.watches import LEAST, MOST, Observation, WatchId, WatchKind, WatchLine, WatchRequest
from mistnet.shops.model import ProductId
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Listing, Mistnet, Pages
from mistnet.web.errors import refusals
from mistnet.web.fields import Document, PathId, RequestBody, number_of

router = APIRouter(prefix="/api/price-watches", tags=["price watches"])

_ID: Final = r"^[1-9][0-9]{0,18}$"
_PLAINLY: Final = {"target": {"pattern": r"^[1-9][0-9]{0,14}(\.[0-9]{1,6})?$"}}
OneId = Annotated[str, StringConstraints(pattern=_ID), Field(description="An id: a 64-bit number as a string.")]
OfId = Annotated[str | None, Query(pattern=_ID, description="Only the watches of this one.")]


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


class LookDocument(Document, record=Observation, without=("source", "link_id", "rests_on", "moved_by")):
    """What one look saw."""


class PriceWatchDocument(Document, record=WatchLine):
    """One watch. `standing` is waiting (for a first look), watching, unconfirmed (one look saw `suspected`; a
    second one decides) or suspended, for the reason in `problem`."""

    standing: str
    known: LookDocument | None
    suspected: LookDocument | None


class AddedWatchDocument(Document, record=AddedWatch):
    """`added` is false if the same watch existed already."""

    watch: PriceWatchDocument


@router.get("", response_model=Listing[PriceWatchDocument], dependencies=READS)
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


@router.post("", response_model=AddedWatchDocument, responses=refusals(404), dependencies=OPERATES)
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


@router.get("/{watch_id}", response_model=PriceWatchDocument, dependencies=READS)
async def show_price_watch(watch_id: PathId, mistnet: Mistnet) -> WatchLine:
    """One watch."""
    return await mistnet.price_watches.get(WatchId(number_of(watch_id)))


@router.delete("/{watch_id}", response_model=PriceWatchDocument, dependencies=OPERATES)
async def remove_price_watch(watch_id: PathId, mistnet: Mistnet) -> WatchLine:
    """Remove a watch. Events that were written are still sent."""
    return await mistnet.price_watches.remove(WatchId(number_of(watch_id)))
