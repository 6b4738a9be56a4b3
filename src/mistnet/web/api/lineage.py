"""Posts and prices over the API: who promoted a product at which price, and what an account promotes."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path

from mistnet.prices.lineage import Lowest, PriceChange, SeenPrice
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
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.post_listing import holders
from mistnet.web.api.links import Mentions, known_product
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
from mistnet.web.errors import NotFound
from mistnet.web.fields import LARGEST_ID, Document, PathId, number_of

router = APIRouter(prefix="/api", tags=["lineage"], dependencies=READS)

_BYTES: Final = 8
_NUMBER: Final = re.compile(r"-?[0-9]+")
UserPath = Annotated[
    str,
    Path(
        pattern=r"^(@?[A-Za-z0-9_][A-Za-z0-9_.]{0,29}|-[1-9][0-9]{0,18})$",
        description="A user id, or a handle of X or Threads. A handle of digits alone is written with an @.",
    ),
]


class AroundDocument(Document):
    """Prices around a post. `before` null: none was known then; `at_post` is `before` if it held at that moment."""

    before: SeenPrice | None
    before_age_seconds: int | None
    at_post: SeenPrice | None
    after: SeenPrice | None
    after_delay_seconds: int | None
    unchanged: bool
    change: PriceChange
    lowest: list[Lowest]


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
    return ProductCursor(post_id=min(post_id, LARGEST_ID), product_id=min(product_id, LARGEST_ID))


ProductPlaces = Annotated[PageQuery, Depends(page_query(CursorFormat(RUN_CURSOR, read_place, write_place)))]
"""For products in the order of the post that mentioned each last."""


@router.get("/products/{product_id}/lineage", response_model=Listing[LinedDocument])
async def show_lineage(product_id: PathId, mistnet: Mistnet, pages: Mentions) -> dict[str, Any]:
    """The posts that promoted a product, the newest first, each once, with its price before and after."""
    line, now = await known_product(mistnet, product_id), mistnet.database.clock.now()
    page = await Lineage(mistnet.database).page(line.id, now=now, limit=pages.limit, before=pages.place)
    return {"items": [lined_fields(each) for each in page.posts], "next": page.next and str(page.next)}


@router.get("/accounts/{who}/products", response_model=Listing[LinkedDocument])
async def list_linked(
    who: UserPath,
    mistnet: Mistnet,
    pages: ProductPlaces,
    platform: OnPlatform = None,
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


@router.get("/items/{item_id}/products", response_model=Listing[ItemProduct])
async def list_item_products(item_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """The products an item's price points came from, by their ids."""
    store, number = ItemProducts(mistnet.database), ItemId(number_of(item_id))
    if not await store.has_item(number):
        raise NotFound(f"item {item_id}")
    return pages.listing(await store.page(number, after=pages.place, limit=pages.limit))
