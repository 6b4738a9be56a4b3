"""Links and the products they lead to: prices over time, who promoted what at which price, and what accounts link."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query
from fastapi.exceptions import RequestValidationError
from msgspec.structs import asdict
from pydantic import Field

from mistnet.prices.lineage import Around
from mistnet.prices.model import ItemId
from mistnet.prices.store.lineage import Lineage, Promoting, lined_fields
from mistnet.prices.store.related_products import (
    AccountProducts,
    ItemProduct,
    ItemProducts,
    LinkedProduct,
    ProductCursor,
    linked_fields,
    who_is,
)
from mistnet.shops.catalog import CATALOG, CRAWL_LANES
from mistnet.shops.model import LinkId, LinkKind, LinkState, ProductId
from mistnet.shops.store.link_pages import CrawlLine, LinkFilter, LinkLine, LinkPages, find_links
from mistnet.shops.store.mentions import MENTION_CURSOR, Mentioning, MentionPages, read_mention_cursor
from mistnet.shops.store.product_pages import Asks, OfferLine, ProductFilter, ProductLine, ProductPages
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.post_listing import holders
from mistnet.web.auth import READS
from mistnet.web.dependencies import (
    RUN_CURSOR,
    CursorFormat,
    Listing,
    Mistnet,
    OnPlatform,
    PageQuery,
    Pages,
    decode,
    encode,
    page_query,
)
from mistnet.web.errors import NotFound, require
from mistnet.web.fields import LARGEST_ID, PLAIN, Document, Flag, OneOf, PathId, document_of, number_of, read_flag

MENTIONS: Final = CursorFormat(MENTION_CURSOR, read_mention_cursor, str)
Mentions = Annotated[PageQuery, Depends(page_query(MENTIONS))]
LaneWord = Annotated[str, OneOf(CRAWL_LANES)]
_CRAWLS: Final = 20
_LEADING: Final = 50

router = APIRouter(prefix="/api/links", tags=["links"], dependencies=READS)


class MentionDocument(Document, record=Mentioning, without=("tracked", "conversation_id")):
    """One post that mentions a link, with every form in which it does."""


class LinkDocument(Document, record=LinkLine, without=("content_hash",)):
    """One link under its canonical form. `mentions` counts posts, 1000 at most."""


class LinkInFull(LinkDocument):
    """With its latest crawls, and the links that turned out to lead here."""

    target: LinkDocument | None
    leading_here: list[LinkDocument]
    crawls: list[CrawlLine]


@router.get("", response_model=Listing[LinkDocument])
async def list_links(
    mistnet: Mistnet,
    pages: Pages,
    lane: Annotated[LaneWord | None, Query(description="Only links that are crawled on this lane.")] = None,
    state: Annotated[LinkState | None, Query(description="Only links in this state.")] = None,
    kind: Annotated[LinkKind | None, Query(description="Only links that name such a thing.")] = None,
    q: Annotated[
        str,
        Query(max_length=500, pattern=PLAIN, description="Only URLs with this in them; a whole URL finds its link."),
    ] = "",
) -> dict[str, Any]:
    """Links, the newest first. With `q` a page may be short and still have a `next`."""
    filters = LinkFilter(lane=lane, state=state, kind=kind, words=q, before=pages.place, limit=pages.limit)
    return pages.listing(await find_links(mistnet, filters))


@router.get("/{link_id}", response_model=LinkInFull)
async def show_link(link_id: PathId, mistnet: Mistnet) -> dict[str, Any]:
    """One link with where it leads and its latest crawls."""
    store = LinkPages(mistnet.database)
    line = await _known(store, link_id)
    return {
        **asdict(line),
        "target": await store.one(line.leads_to) if line.leads_to else None,
        "leading_here": await store.leading_here(line.id, limit=_LEADING),
        "crawls": (await store.crawls(line.id, limit=_CRAWLS)).items,
    }


@router.get("/{link_id}/crawls", response_model=Listing[CrawlLine])
async def list_crawls(link_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Every visit to one link, the latest first."""
    store = LinkPages(mistnet.database)
    line = await _known(store, link_id)
    return pages.listing(await store.crawls(line.id, before=pages.place, limit=pages.limit))


@router.get("/{link_id}/mentions", response_model=Listing[MentionDocument])
async def list_mentions(link_id: PathId, mistnet: Mistnet, pages: Mentions) -> dict[str, Any]:
    """Who linked it and when, the newest post first; posts whose short link leads to it too."""
    line = await _known(LinkPages(mistnet.database), link_id)
    store = MentionPages(mistnet.database)
    reach = await store.reach_of_link(line.id)
    return pages.listing(await store.page(reach, before=pages.place, limit=pages.limit))


async def _known(store: LinkPages, link_id: str) -> LinkLine:
    return require(await store.one(LinkId(number_of(link_id))), f"link {link_id}")


products_router = APIRouter(prefix="/api/products", tags=["products"], dependencies=READS)


ShopWord = Annotated[str, Field(json_schema_extra={"enum": list(CATALOG.names)})]
"""Plugins bring more shops than the schema names, so the route itself checks the word."""


class OfferDocument(Document, record=OfferLine, without=("product_id", "unread")):
    """What one page asked at one time. A doubted one says why, and is no price."""


@products_router.get("", response_model=Listing[ProductLine])
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
    if shop is not None and shop not in mistnet.shops.names:
        *names, last = map(repr, mistnet.shops.names)
        message = f"Input should be {', '.join(names)} or {last}"
        # In the words of the framework, like every other value that is not one of a list.
        raise RequestValidationError([{"type": "enum", "loc": ("query", "shop"), "msg": message, "input": shop}])
    filters = ProductFilter(shop=shop, asks=price, words=q, before=pages.place, limit=pages.limit)
    return pages.listing(await ProductPages(mistnet.database).list(filters))


@products_router.get("/{product_id}", response_model=document_of(ProductLine))
async def show_product(product_id: PathId, mistnet: Mistnet) -> ProductLine:
    """One product with its price now."""
    return await find_product(mistnet, product_id)


@products_router.get("/{product_id}/offers", response_model=Listing[OfferDocument])
async def list_offers(
    product_id: PathId,
    mistnet: Mistnet,
    pages: Pages,
    doubted: Annotated[Flag | None, Query(description="Only those that are doubted, or only the others.")] = None,
) -> dict[str, Any]:
    """Every offer with its evidence, the latest first."""
    line = await find_product(mistnet, product_id)
    offers = ProductPages(mistnet.database).offers
    return pages.listing(await offers(line.id, before=pages.place, limit=pages.limit, doubted=read_flag(doubted)))


@products_router.get("/{product_id}/mentions", response_model=Listing[MentionDocument], name="list_mentions")
async def list_product_mentions(product_id: PathId, mistnet: Mistnet, pages: Mentions) -> dict[str, Any]:
    """Every post that mentions it, by whichever link, the newest first."""
    line = await find_product(mistnet, product_id)
    store = MentionPages(mistnet.database)
    reach = await store.reach_of_product(line.id)
    return pages.listing(await store.page(reach, before=pages.place, limit=pages.limit))


async def find_product(mistnet: Mistnet, product_id: str) -> ProductLine:
    """The product that a path names."""
    return require(await ProductPages(mistnet.database).one(ProductId(number_of(product_id))), f"product {product_id}")


lineage_router = APIRouter(prefix="/api", tags=["lineage"], dependencies=READS)

_BYTES: Final = 8
_NUMBER: Final = re.compile(r"-?[0-9]+")
UserPath = Annotated[
    str,
    Path(
        pattern=r"^(@?[A-Za-z0-9_][A-Za-z0-9_.]{0,29}|-[1-9][0-9]{0,18})$",
        description="A user id, or a handle of X or Threads. A handle of digits alone is written with an @.",
    ),
]


class AroundDocument(Document, record=Around):
    """Prices around a post. `before` null: none was known then; `at_post` is `before` if it held at that moment."""


class LinedDocument(Document, record=Promoting):
    """A post that promotes a product. `gone_at`: the platform no longer had it."""

    prices: AroundDocument


class LinkedDocument(Document, record=LinkedProduct, without=("mentions",)):
    """A product that an account links. Prices are those since the first mention; `earlier` counts those not listed."""

    posts: int
    reposts: int
    first_post_id: PostId
    first_at: datetime
    latest_post_id: PostId
    latest_at: datetime


def write_place(place: ProductCursor) -> str:
    return encode(place.post_id.to_bytes(_BYTES) + place.product_id.to_bytes(_BYTES))


def read_place(cursor: str) -> ProductCursor:
    raw = decode(cursor)
    post_id, product_id = (int.from_bytes(part) for part in (raw[:_BYTES], raw[_BYTES:]))
    # A made-up cursor may hold numbers that no database column can.
    return ProductCursor(post_id=min(post_id, LARGEST_ID), product_id=min(product_id, LARGEST_ID))


ProductPlaces = Annotated[PageQuery, Depends(page_query(CursorFormat(RUN_CURSOR, read_place, write_place)))]
"""For products in the order of the post that mentioned each last."""


@lineage_router.get("/products/{product_id}/lineage", response_model=Listing[LinedDocument])
async def show_lineage(product_id: PathId, mistnet: Mistnet, pages: Mentions) -> dict[str, Any]:
    """The posts that promoted a product, the newest first, each once, with its price before and after."""
    line, now = await find_product(mistnet, product_id), mistnet.database.clock.now()
    page = await Lineage(mistnet.database).page(line.id, now=now, limit=pages.limit, before=pages.place)
    return {"items": [lined_fields(each) for each in page.posts], "next": page.next and str(page.next)}


@lineage_router.get("/accounts/{who}/products", response_model=Listing[LinkedDocument])
async def list_linked(
    who: UserPath, mistnet: Mistnet, pages: ProductPlaces, platform: OnPlatform = None
) -> dict[str, Any]:
    """The products an account links, tracked or not, the latest mention first. A page may be short with a `next`."""
    where = platform or X
    async with mistnet.database.read() as connection:
        if _NUMBER.fullmatch(who):
            ids = [UserId(int(who))] if abs(int(who)) <= LARGEST_ID else []
            ids = [each for each in ids if await who_is(connection, where, each)]
        else:
            ids = [user_id for there, user_id in await holders(connection, who) if there == where]
    if not ids:
        raise NotFound(f"user {who} of {where} here: no collected payload contains one")
    user_id = ids[-1]  # of several who had a handle, the one with the highest id
    page = await AccountProducts(mistnet.database).page(where, user_id, limit=pages.limit, before=pages.place)
    return {**pages.listing(page), "items": [linked_fields(each) for each in page.items]}


@lineage_router.get("/items/{item_id}/products", response_model=Listing[ItemProduct])
async def list_item_products(item_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """The products an item's price points came from, by their ids."""
    store, number = ItemProducts(mistnet.database), ItemId(number_of(item_id))
    if not await store.has_item(number):
        raise NotFound(f"item {item_id}")
    return pages.listing(await store.page(number, after=pages.place, limit=pages.limit))
