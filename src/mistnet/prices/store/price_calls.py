"""Requests prices: from sources for items that are due or named, and from crawled and pushed offers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import CallPurpose, SourceName
from mistnet.kit.database import Database
from mistnet.prices.matching import points_of
from mistnet.prices.model import Item, ItemId, ItemState, PriceAnswer, PriceAsked, PriceListing, price_job
from mistnet.prices.store.items import items_due, read_item
from mistnet.prices.store.points import PointWriter
from mistnet.prices.tables import item_links, items, price_points
from mistnet.prices.watches.store import Watches
from mistnet.queue.errors import NotNow
from mistnet.queue.model import Enqueued, JobId, JobState, NewJob
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import GAP, jobs
from mistnet.shops import links as link_rules
from mistnet.shops.catalog import lane_of
from mistnet.shops.model import CRAWL, Crawled, LinkState, OfferId, PriceKind, ProductId, bounded, crawl
from mistnet.shops.store.links import NOT_CRAWLED
from mistnet.shops.store.mentions import among, leading_to
from mistnet.shops.store.products import products_called
from mistnet.shops.tables import links, offers, products
from mistnet.social.store.account_jobs import cancel, slices

NAMED: Final = 1.0
"""An item that names a page itself means what is on it."""

BEFORE_THE_VISIT: Final = timedelta(seconds=30)
_PATIENCE: Final = timedelta(hours=1)
_ON_ITS_WAY: Final = (JobState.PENDING, JobState.QUEUED, JobState.RUNNING)
_MOST_HOPS: Final = 3
_PRODUCT: Final = (products.c.id, products.c.platform, products.c.url, products.c.title, products.c.offer_id)
_OFFER: Final = (offers.c.id, offers.c.amount, offers.c.currency, offers.c.last_seen_at)
_LINK: Final = (links.c.id, links.c.url_norm, links.c.lane, links.c.leads_to, links.c.product_id)


class CrawledPrices:
    """One crawl lane as a source of prices."""

    def __init__(self, database: Database, lane: SourceName) -> None:
        self._database = database
        self._lane = lane

    @property
    def name(self) -> SourceName:
        return self._lane

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:  # noqa: ARG002 (no call is made)
        """Raises NotNow while one of the item's own pages is about to be visited: what it says is worth waiting for."""
        async with self._database.read_quickly() as connection:
            pages = await _links_of(connection, names_of(item.urls))
            await self._require_visited(connection, [page.url_norm for page in pages if page.lane == self._lane])
            named = {page.product_id for page in pages if page.lane == self._lane and page.product_id is not None}
            found = await self._found(connection, item.title)
            pairs = await _asked(connection, sorted({*named, *found}))
        own = [(product, offer) for product, offer in pairs if lane_of(product.platform) == self._lane]
        return PriceAnswer(
            listings=[_listing(product, offer, NAMED if product.id in named else None) for product, offer in own]
        )

    async def _require_visited(self, connection: AsyncConnection, names: Sequence[str]) -> None:
        """Not for ever: a lane that is paused, or a page that fails, does not keep the others from being told."""
        now = self._database.clock.now()
        waiting = select(jobs.c.id).where(
            jobs.c.kind == CRAWL,
            jobs.c.key.in_(names),
            jobs.c.state.in_(_ON_ITS_WAY),
            jobs.c.attempts == 0,
            jobs.c.created_at > now - _PATIENCE,
            jobs.c.run_at <= now + BEFORE_THE_VISIT,
        )
        if names and (await connection.execute(waiting.limit(1))).first() is not None:
            raise NotNow(now + BEFORE_THE_VISIT, f"{self._lane}: the item's own page is about to be visited")

    async def _found(self, connection: AsyncConnection, title: str) -> Sequence[ProductId]:
        asked = products_called(self._lane, title)
        return [] if asked is None else list((await connection.execute(asked)).scalars())


async def listing_of(connection: AsyncConnection, product_id: ProductId) -> PriceListing | None:
    """What a product was last believed to cost."""
    pairs = await _asked(connection, [product_id])
    return _listing(*pairs[0], None) if pairs else None


def names_of(urls: Collection[str]) -> Sequence[str]:
    """The names under which URLs are kept as links."""
    found = map(link_rules.canonical_link, urls)
    return sorted({bounded(each.url_norm) for each in found if not isinstance(each, link_rules.RefusedUrl)})


async def _links_of(connection: AsyncConnection, names: Sequence[str]) -> Sequence[Any]:
    """These links, and those that they lead to."""
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


async def _asked(connection: AsyncConnection, product_ids: Sequence[ProductId]) -> Sequence[tuple[Any, Any]]:
    """The offer each product was last believed to make, where that has an amount. Two questions, both by keys alone."""
    if not product_ids:
        return []
    named = select(*_PRODUCT).where(products.c.id.in_(product_ids), products.c.offer_id.is_not(None))
    found = (await connection.execute(named.order_by(products.c.id))).all()
    believed = select(*_OFFER).where(offers.c.id.in_(sorted(row.offer_id for row in found)))
    told = await connection.execute(believed.where(offers.c.amount.is_not(None), offers.c.doubt.is_(None)))
    by_id = {row.id: row for row in told}
    return [(row, by_id[row.offer_id]) for row in found if row.offer_id in by_id]


def _listing(product: Any, offer: Any, strength: float | None) -> PriceListing:
    """Named by its product: a new price of the same thing takes the place of the old one."""
    return PriceListing(
        kind=PriceKind.ASK,
        amount=offer.amount,
        currency=offer.currency,
        title=product.title or product.url,
        url=product.url,
        observed_at=offer.last_seen_at,
        external_id=f"product:{product.id}",
        product_id=ProductId(product.id),
        offer_id=OfferId(offer.id),
        strength=strength,
    )


_ROUNDS: Final = 20
_texts = msgspec.json.Decoder(list[str]).decode


async def make_due(
    database: Database,
    job_writer: JobWriter,
    *,
    every: timedelta,
    sources: Sequence[SourceName],
    crawl_lanes: Collection[str],
) -> int:
    """Price jobs for items whose time has come, and visits to their own pages; returns how many looks are new."""
    made = 0
    for _ in range(_ROUNDS):
        now = database.clock.now()
        async with database.transaction() as connection:
            due = await items_due(connection, now=now, default_every=every, sources=sources)
            own = {item_id for item_id, source in due if source in crawl_lanes}
            visits = await _visits(connection, sorted(own), lanes=crawl_lanes, every=every, now=now)
            await _write(connection, job_writer, visits, now)
            looks = await _write(connection, job_writer, [price_job(item, source) for item, source in due], now)
        if not due:
            break
        made += looks.created
    return made


async def call_for_prices(
    database: Database,
    job_writer: JobWriter,
    *,
    item_ids: Collection[ItemId],
    sources: Collection[SourceName] | None,
    known: Sequence[SourceName],
) -> Enqueued:
    """Looks at these items now: at the named sources, or at those each item wants. Who is not followed is left out."""
    created = duplicates = parked = 0
    for part in slices(sorted(item_ids)):
        now = database.clock.now()
        async with database.transaction() as connection:
            asked = select(items.c.id, items.c.sources).where(items.c.id.in_(part), items.c.state == ItemState.ACTIVE)
            rows = (await connection.execute(asked.order_by(items.c.id))).all()
            wanted = [(row.id, source) for row in rows for source in _wanted(row.sources, sources, known)]
            done = await _write(connection, job_writer, [price_job(item, source) for item, source in wanted], now)
        created, duplicates, parked = created + done.created, duplicates + done.duplicates, parked + done.parked
    return Enqueued(created=created, duplicates=duplicates, parked=parked)


def _wanted(own: bytes, sources: Collection[SourceName] | None, known: Sequence[SourceName]) -> Sequence[SourceName]:
    named = set(sources) if sources is not None else set(_texts(own))
    return [source for source in known if source in named] if named else known


async def _visits(
    connection: AsyncConnection, item_ids: Sequence[int], *, lanes: Collection[str], every: timedelta, now: datetime
) -> Sequence[NewJob]:
    """An item's own pages are read again as often as the item is looked for."""
    rhythms: dict[str, timedelta] = {}
    for part in slices(item_ids):
        asked = select(items.c.urls, items.c.every_hours).where(items.c.id.in_(part))
        for row in await connection.execute(asked):
            rhythm = timedelta(hours=row.every_hours) if row.every_hours else every
            rhythms |= {name: min(rhythm, rhythms.get(name, rhythm)) for name in names_of(_texts(row.urls))}
    rows: list[Any] = []
    for names in slices(sorted(rhythms)):
        known = select(links.c.id, links.c.url_norm, links.c.lane, links.c.crawled_at).where(
            links.c.url_norm.in_(names),
            links.c.lane.in_(sorted(lanes)),
            links.c.kind.not_in(NOT_CRAWLED),
            links.c.state != LinkState.GONE,
            links.c.crawled_at.is_not(None),
        )
        rows += (await connection.execute(known)).all()
    stale = [row for row in rows if row.crawled_at < now - rhythms[row.url_norm] / 2]
    return [crawl(row.id, row.url_norm, row.lane) for row in stale]


async def _write(
    connection: AsyncConnection, job_writer: JobWriter, wanted: Sequence[NewJob], now: datetime
) -> Enqueued:
    """What failed before is to be tried anew: it goes to the history."""
    if not wanted:
        return Enqueued()
    kind = wanted[0].kind
    for part in slices(sorted(job.key for job in wanted if job.key)):
        failed = select(jobs.c.id).where(jobs.c.kind == kind, jobs.c.key.in_(part), text(GAP)).order_by(jobs.c.id)
        await cancel(connection, [JobId(each) for each in (await connection.execute(failed)).scalars()], now)
    return await job_writer.write(connection, wanted, now)


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
        points, _misfits = points_of(item, [own if item.id in named else listing])
        if points:
            told.append(PriceAsked(item_id=item.id, source=source, points=points, cached=cached))
    if told:
        await writer.push(connection, told, now)


async def _source(connection: AsyncConnection, product_id: ProductId) -> SourceName:
    asked = select(products.c.platform).where(products.c.id == product_id)
    return SourceName(lane_of((await connection.execute(asked)).scalar_one()))


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
