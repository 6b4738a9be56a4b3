"""Crawled offers as prices of items: searched as a source, and pushed to items when a page was crawled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import CallPurpose, SourceName
from mistnet.kit.database import Database
from mistnet.kit.view import record_of
from mistnet.prices.matching import page_names, points_of
from mistnet.prices.model import Item, ItemId, ItemState, PriceAnswer, PriceFetch, PriceListing
from mistnet.prices.store.items import ITEM
from mistnet.prices.store.points import PointWriter
from mistnet.prices.store.watches import Watches
from mistnet.prices.tables import item_links, items, price_points
from mistnet.queue.errors import NotNow
from mistnet.queue.model import JobState
from mistnet.queue.tables import jobs
from mistnet.shops.catalog import lane_of
from mistnet.shops.model import CRAWL, Crawled, OfferId, PriceKind, ProductId
from mistnet.shops.store.mentions import among, leading_to
from mistnet.shops.store.products import products_called
from mistnet.shops.tables import links, offers, products

NAMED: Final = 1.0
"""How well an offer matches an item that names its page."""

BEFORE_THE_VISIT: Final = timedelta(seconds=30)
_PATIENCE: Final = timedelta(hours=1)
_ON_ITS_WAY: Final = (JobState.PENDING, JobState.QUEUED, JobState.RUNNING)
_MOST_HOPS: Final = 3
_PRODUCT: Final = (products.c.id, products.c.platform, products.c.url, products.c.title, products.c.offer_id)
_OFFER: Final = tuple(offers.c[name] for name in ("id", "amount", "currency", "last_seen_at", "corrected_at"))
_LINK: Final = (links.c.id, links.c.url_norm, links.c.lane, links.c.leads_to, links.c.product_id)


class CrawledPrices:
    """One crawl lane as a source of prices."""

    def __init__(self, database: Database, lane: SourceName) -> None:
        self._database = database
        self.name: Final = lane

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:  # noqa: ARG002 (no call is made)
        """Raises NotNow while a page that the item names is about to be crawled: its price is worth the wait."""
        now = self._database.clock.now()
        async with self._database.read_quickly() as connection:
            linked = await _links_of(connection, sorted(page_names(item.urls)))
            pages = [page for page in linked if page.lane == self.name]
            # For an hour at most: a paused lane or a failing page must not hold back the other prices.
            waiting = select(jobs.c.id).where(
                jobs.c.kind == CRAWL,
                jobs.c.key.in_([page.url_norm for page in pages]),
                jobs.c.state.in_(_ON_ITS_WAY),
                jobs.c.attempts == 0,
                jobs.c.created_at > now - _PATIENCE,
                jobs.c.run_at <= now + BEFORE_THE_VISIT,
            )
            if pages and (await connection.execute(waiting.limit(1))).first() is not None:
                raise NotNow(now + BEFORE_THE_VISIT, f"{self.name}: a page that the item names is about to be crawled")
            named = {page.product_id for page in pages if page.product_id is not None}
            search = products_called(self.name, item.title)
            found = [] if search is None else (await connection.execute(search)).scalars()
            pairs = await _offers_of(connection, sorted({*named, *found}))
        own = [(product, offer) for product, offer in pairs if lane_of(product.platform) == self.name]
        return PriceAnswer(
            listings=[_listing(product, offer, NAMED if product.id in named else None) for product, offer in own]
        )


async def _links_of(connection: AsyncConnection, names: Sequence[str]) -> Sequence[Any]:
    """These links, and the links that they redirect to."""
    if not names:
        return []
    rows = list((await connection.execute(select(*_LINK).where(links.c.url_norm.in_(names)))).all())
    latest = rows
    for _ in range(_MOST_HOPS):
        onward = sorted({row.leads_to for row in latest if row.leads_to is not None} - {row.id for row in rows})
        if not onward:
            break
        latest = list((await connection.execute(select(*_LINK).where(links.c.id.in_(onward)))).all())
        rows += latest
    return rows


async def _offers_of(connection: AsyncConnection, product_ids: Sequence[ProductId]) -> Sequence[tuple[Any, Any]]:
    """Products with their latest offer without doubt, if it has an amount. Two queries, both by keys alone."""
    if not product_ids:
        return []
    named = select(*_PRODUCT).where(products.c.id.in_(product_ids), products.c.offer_id.is_not(None))
    found = (await connection.execute(named.order_by(products.c.id))).all()
    latest = select(*_OFFER).where(offers.c.id.in_(sorted(row.offer_id for row in found)))
    priced = await connection.execute(latest.where(offers.c.amount.is_not(None), offers.c.doubt.is_(None)))
    by_id = {row.id: row for row in priced}
    return [(row, by_id[row.offer_id]) for row in found if row.offer_id in by_id]


def _listing(product: Any, offer: Any, strength: float | None) -> PriceListing:
    """Identified by its product, so that a new price replaces the old one."""
    return PriceListing(
        kind=PriceKind.ASK,
        amount=offer.amount,
        currency=offer.currency,
        title=product.title or product.url,
        url=product.url,
        # A person looked at it when they corrected it; an older point would keep its wrong price.
        observed_at=max(offer.last_seen_at, offer.corrected_at or offer.last_seen_at),
        external_id=f"product:{product.id}",
        product_id=ProductId(product.id),
        offer_id=OfferId(offer.id),
        strength=strength,
    )


class OfferFollowers:
    """Passes crawled offers on to price watches, unless the page came from a cache, and to items."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._points = PointWriter(watches)

    async def offer_seen(
        self, connection: AsyncConnection, product_id: ProductId, crawled: Crawled, now: datetime
    ) -> None:
        if crawled.facts is not None and not crawled.cached:
            await self._watches.offer_seen(connection, product_id, crawled.link_id, crawled.facts, now)
        await self.push(connection, product_id, now, cached=crawled.cached)

    async def push(
        self, connection: AsyncConnection, product_id: ProductId, now: datetime, *, cached: bool = False
    ) -> None:
        """Give the product's current price to items; without a visit, after a correction by hand, as from a cache."""
        # The offer becomes a point of the active items that name a page of the product, also by a link that redirects
        # to one, and of those that already have a point of it.
        own = (await connection.execute(select(links.c.id).where(links.c.product_id == product_id))).scalars().all()
        named: set[ItemId] = set()
        if reach := await leading_to(connection, own):
            naming = select(item_links.c.item_id).where(among(connection, item_links.c.link_id, reach))
            named = set((await connection.execute(naming)).scalars())
        known = select(price_points.c.item_id).where(price_points.c.product_id == product_id).distinct()
        item_ids = {*named, *(ItemId(each) for each in (await connection.execute(known)).scalars())}
        pairs = await _offers_of(connection, [product_id]) if item_ids else []
        if not pairs:
            return
        (product, offer), fetched = pairs[0], list[PriceFetch]()
        source = SourceName(lane_of(product.platform))
        active = among(connection, items.c.id, sorted(item_ids)), items.c.state == ItemState.ACTIVE
        rows = await connection.execute(select(*ITEM).where(*active).order_by(items.c.id))
        for item in [record_of(Item, row) for row in rows.mappings()]:
            if item.sources and source not in item.sources:
                continue
            points = points_of(item, [_listing(product, offer, NAMED if item.id in named else None)])
            if points:
                fetched.append(PriceFetch(item_id=item.id, source=source, points=points, cached=cached))
        if fetched:
            await self._points.push(connection, fetched, now)
