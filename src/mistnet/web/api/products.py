"""Products, what was asked for them over time, and the posts that mention them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BeforeValidator, Field

from mistnet.shops.catalog import CATALOG
from mistnet.shops.model import ProductId
from mistnet.shops.store.link_pages import MentionPages
from mistnet.shops.store.product_pages import Asks, ProductFilter, ProductLine, ProductPages
from mistnet.web.api.links import MentionDocument, Mentions
from mistnet.web.auth import READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import PLAIN, Document, Flag, Id, Moment, PathId, number_of
from mistnet.web.paging import Listing, Pages, cursor_of

router = APIRouter(prefix="/api/products", tags=["products"], dependencies=READS)


ShopWord = Annotated[str, Field(json_schema_extra={"enum": list(CATALOG.names)})]
"""Plugins bring more shops than the schema names, so the route itself checks the word."""


def _digits(value: object) -> object:
    return f"{value:f}" if isinstance(value, Decimal) else value


Amount = Annotated[str, BeforeValidator(_digits), Field(description="An exact amount: its digits as a string.")]


class ProductDocument(Document):
    """One product. Its price is that of the latest offer that is believed; none is known where it is null."""

    id: Id
    platform: str
    region: str
    shop_id: str
    item_id: str
    url: str
    title: str | None
    brand: str | None
    sku: str | None
    image_url: str | None
    first_seen_at: Moment
    last_seen_at: Moment
    gone_at: Moment | None
    offer_id: Id | None
    amount: Amount | None
    amount_max: Amount | None
    list_amount: Amount | None
    currency: str | None
    availability: str | None
    observed_at: Moment | None


class EvidenceDocument(Document):
    """Where in the page one value was read, and how sure that is (0 to 1)."""

    field: str
    path: str
    snippet: str
    confidence: float


class OfferDocument(Document):
    """What one page asked at one time. A doubted one says why, and is no price."""

    id: Id
    link_id: Id | None
    observed_at: Moment
    last_seen_at: Moment
    times_seen: int
    amount: Amount | None
    amount_max: Amount | None
    list_amount: Amount | None
    currency: str | None
    availability: str | None
    sold_count: int | None
    rating_count: int | None
    path: str
    confidence: float
    doubt: str | None
    content_hash: str
    evidence: list[EvidenceDocument]


@router.get("", response_model=Listing[ProductDocument])
async def list_products(
    mistnet: Mistnet,
    pages: Pages,
    shop: Annotated[ShopWord | None, Query(description="Only products sold there.")] = None,
    price: Annotated[Asks | None, Query(description="Only those with a price, without one, or gone.")] = None,
    q: Annotated[
        str, Query(max_length=500, pattern=PLAIN, description="Only titles, brands, ids and URLs with this in them.")
    ] = "",
) -> dict[str, Any]:
    """Products, the newest first. With `q` or `price` a page may be short and still have a `next`."""
    require_shop(shop, mistnet.shops.names)
    wanted = ProductFilter(shop=shop, asks=price, words=q, before=pages.place, limit=pages.limit)
    page = await ProductPages(mistnet.database).list(wanted)
    return {"items": page.products, "next": None if page.next is None else cursor_of(page.next)}


@router.get("/{product_id}", response_model=ProductDocument, responses=refusals(404))
async def show_product(product_id: PathId, mistnet: Mistnet) -> ProductLine:
    """One product with its price now."""
    return await known_product(ProductPages(mistnet.database), product_id)


@router.get("/{product_id}/offers", response_model=Listing[OfferDocument], responses=refusals(404))
async def list_offers(
    product_id: PathId,
    mistnet: Mistnet,
    pages: Pages,
    doubted: Annotated[Flag | None, Query(description="Only those that are doubted, or only the others.")] = None,
) -> dict[str, Any]:
    """Every offer with its evidence, the latest first."""
    store = ProductPages(mistnet.database)
    line = await known_product(store, product_id)
    wanted = None if doubted is None else doubted == "true"
    rows = await store.offers(line.id, before=pages.place, limit=pages.one_more, doubted=wanted)
    return pages.listing(rows, lambda offer: offer.id)


@router.get("/{product_id}/mentions", response_model=Listing[MentionDocument], responses=refusals(404))
async def list_mentions(product_id: PathId, mistnet: Mistnet, pages: Mentions) -> dict[str, Any]:
    """Every post that mentions it, by whichever link, the newest first."""
    line = await known_product(ProductPages(mistnet.database), product_id)
    store = MentionPages(mistnet.database)
    reach = await store.reach_of_product(line.id)
    return pages.listing(await store.page(reach, before=pages.before, limit=pages.limit))


def require_shop(given: str | None, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        *names, last = map(repr, known)
        expected = f"{', '.join(names)} or {last}"
        raise RequestValidationError(
            [{"type": "enum", "loc": ("query", "shop"), "msg": f"Input should be {expected}", "input": given}]
        )


async def known_product(pages: ProductPages, product_id: str) -> ProductLine:
    found = await pages.one(ProductId(number_of(product_id)))
    if found is None:
        raise NotFound(f"product {product_id}")
    return found
