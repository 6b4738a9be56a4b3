"""What crawled pages ask for an item: its own links first, then products whose titles share its words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet import links as link_rules
from mistnet.domain.crawling import CRAWL, bounded
from mistnet.domain.errors import NotNow
from mistnet.domain.items import Answer, Item, Listing
from mistnet.domain.jobs import JobState
from mistnet.domain.links import Shop
from mistnet.domain.products import OfferId, PriceKind, ProductId
from mistnet.domain.sources import Errand, SourceName
from mistnet.store.database import Database
from mistnet.store.product_words import products_called
from mistnet.store.tables import jobs, links, offers, products

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

    async def search(self, item: Item, *, errand: Errand, fresh: bool = False) -> Answer:  # noqa: ARG002 (no call is made)
        """Raises NotNow while one of the item's own pages is about to be visited: what it says is worth waiting for."""
        async with self._database.peek() as connection:
            pages = await _links_of(connection, names_of(item.urls))
            await self._require_visited(connection, [page.url_norm for page in pages if page.lane == self._lane])
            named = {page.product_id for page in pages if page.lane == self._lane and page.product_id is not None}
            found = await self._found(connection, item.title)
            pairs = await _asked(connection, sorted({*named, *found}))
        own = [(product, offer) for product, offer in pairs if Shop(product.platform).lane == self._lane]
        return Answer(
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


async def listing_of(connection: AsyncConnection, product_id: ProductId) -> Listing | None:
    """What a product was last believed to cost."""
    pairs = await _asked(connection, [product_id])
    return _listing(*pairs[0], None) if pairs else None


def names_of(urls: Collection[str]) -> Sequence[str]:
    """The names under which URLs are kept as links."""
    found = map(link_rules.canonical, urls)
    return sorted({bounded(each.url_norm) for each in found if not isinstance(each, link_rules.Refused)})


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


def _listing(product: Any, offer: Any, strength: float | None) -> Listing:
    """Named by its product: a new price of the same thing takes the place of the old one."""
    return Listing(
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
