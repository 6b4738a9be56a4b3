"""Products, their prices over time, and the posts that mention them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from pydantic import Field

from mistnet.shops.catalog import CATALOG
from mistnet.shops.model import Evidence, ProductId
from mistnet.shops.store.mentions import MentionPages
from mistnet.shops.store.product_pages import Asks, OfferLine, ProductFilter, ProductLine, ProductPages
from mistnet.web.api.links import MentionDocument, Mentions
from mistnet.web.auth import READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import PLAIN, Document, Flag, PathId, number_of
from mistnet.web.paging import Listing, Pages

router = APIRouter(prefix="/api/products", tags=["products"], dependencies=READS)


ShopWord = Annotated[str, Field(json_schema_extra={"enum": list(CATALOG.names)})]
"""Plugins bring more shops than the schema names, so the route itself checks the word."""


class ProductDocument(Document, record=ProductLine):
    """One product. Its price is that of the latest offer that is believed; none is known where it is null."""


class EvidenceDocument(Document, record=Evidence):
    """Where in the page one value was read, and how sure that is (0 to 1)."""


class OfferDocument(Document, record=OfferLine, without=("product_id", "unread")):
    """What one page asked at one time. A doubted one says why, and is no price."""

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
    return pages.listing(await ProductPages(mistnet.database).list(wanted))


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
    return pages.listing(await store.offers(line.id, before=pages.place, limit=pages.limit, doubted=wanted))


@router.get("/{product_id}/mentions", response_model=Listing[MentionDocument], responses=refusals(404))
async def list_mentions(product_id: PathId, mistnet: Mistnet, pages: Mentions) -> dict[str, Any]:
    """Every post that mentions it, by whichever link, the newest first."""
    line = await known_product(ProductPages(mistnet.database), product_id)
    store = MentionPages(mistnet.database)
    reach = await store.reach_of_product(line.id)
    return pages.listing(await store.page(reach, before=pages.place, limit=pages.limit))


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
