"""Hands a crawled offer to the items it belongs to, in the transaction of the crawl: none waits for its next look."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet import pricing
from mistnet.domain.crawling import Crawled
from mistnet.domain.items import Item, ItemId, ItemState, PriceAsked
from mistnet.domain.links import Shop
from mistnet.domain.products import ProductId
from mistnet.domain.sources import SourceName
from mistnet.store.crawled_prices import NAMED, listing_of
from mistnet.store.items import read_item
from mistnet.store.mention_pages import among, leading_to
from mistnet.store.points import PointWriter
from mistnet.store.tables import item_links, items, links, price_points, products
from mistnet.store.watches import Watches

_FIELDS = Item.__struct_fields__


class OfferFollowers:
    """What follows offers: watches, unless a remembered page told the offer (that is no new look), and items."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._points = PointWriter(watches)

    async def offer_seen(
        self, connection: AsyncConnection, product_id: ProductId, crawled: Crawled, now: datetime
    ) -> None:
        if crawled.facts is not None and not crawled.cached:
            await self._watches.offer_seen(connection, product_id, crawled.link_id, crawled.facts, now)
        await push_offer(connection, self._points, product_id, now, cached=crawled.cached)


async def push_offer(
    connection: AsyncConnection, writer: PointWriter, product_id: ProductId, now: datetime, *, cached: bool
) -> None:
    """To followed items that name a page of the product, and to those that have a point of it already."""
    named = await _naming(connection, product_id)
    known = select(price_points.c.item_id).where(price_points.c.product_id == product_id).distinct()
    every = {*named, *(ItemId(each) for each in (await connection.execute(known)).scalars())}
    if not every:
        return
    listing, source = await listing_of(connection, product_id), await _source(connection, product_id)
    if listing is None:
        return
    own, told = msgspec.structs.replace(listing, strength=NAMED), list[PriceAsked]()
    for item in await _followed(connection, sorted(every), source):
        points, _misfits = pricing.points_of(item, [own if item.id in named else listing])
        if points:
            told.append(PriceAsked(item_id=item.id, source=source, points=points, cached=cached))
    if told:
        await writer.push(connection, told, now)


async def _source(connection: AsyncConnection, product_id: ProductId) -> SourceName:
    asked = select(products.c.platform).where(products.c.id == product_id)
    return SourceName(Shop((await connection.execute(asked)).scalar_one()).lane)


async def _naming(connection: AsyncConnection, product_id: ProductId) -> set[ItemId]:
    """Items that name a link of the product, or one that leads to it."""
    own = (await connection.execute(select(links.c.id).where(links.c.product_id == product_id))).scalars().all()
    reach = await leading_to(connection, own)
    if not reach:
        return set()
    asked = select(item_links.c.item_id).where(among(connection, item_links.c.link_id, reach))
    return {ItemId(each) for each in (await connection.execute(asked)).scalars()}


async def _followed(connection: AsyncConnection, item_ids: Sequence[ItemId], source: SourceName) -> Sequence[Item]:
    """Those that are followed and want this source."""
    asked = select(*(items.c[name] for name in _FIELDS)).where(
        among(connection, items.c.id, item_ids), items.c.state == ItemState.ACTIVE
    )
    found = [read_item(row) for row in (await connection.execute(asked.order_by(items.c.id))).mappings()]
    return [each for each in found if not each.sources or source in each.sources]
