"""Writes visits: the record, the product and its offer, where a short link leads, and the link's new state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import case, func, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.crawling import Crawled, CrawlOutcome, ProductName, bounded, content_hash
from mistnet.domain.links import LinkId
from mistnet.domain.products import OfferId, PageFacts, ProductId
from mistnet.store.driver_values import storable
from mistnet.store.inserts import insert_of
from mistnet.store.links import LinkWriter
from mistnet.store.product_words import write_words
from mistnet.store.products import Sighting, write_offer
from mistnet.store.tables import crawls, links, products

_FACTS = ("title", "brand", "sku", "image_url")


OfferSeen: TypeAlias = Callable[[AsyncConnection, ProductId, Crawled, datetime], Awaitable[None]]


class CrawlWriter:
    """The writer of visits. A target not known yet gets its link and its crawl job in the same transaction.

    `offer_seen` is told of every offer that is believed, in the same transaction.
    """

    def __init__(self, links: LinkWriter, offer_seen: OfferSeen | None = None) -> None:
        self._links = links
        self._offer_seen = offer_seen

    async def write(self, connection: AsyncConnection, given: Sequence[Crawled], now: datetime) -> None:
        for each in sorted(given, key=lambda crawled: crawled.link_id):  # in an order all writers share
            await self._write_one(connection, each, now)

    async def _write_one(self, connection: AsyncConnection, crawled: Crawled, now: datetime) -> None:
        leads_to = await self._target(connection, crawled, now)
        product_id = await _product(connection, crawled, now) if crawled.product else None
        if product_id is not None and crawled.product and crawled.facts and crawled.facts.title:
            await write_words(connection, product_id, crawled.product.platform, crawled.facts.title)
        offer_id, outcome = None, crawled.outcome
        if product_id is not None and crawled.facts is not None and _is_offer(crawled):
            sighting = Sighting(
                product_id=product_id,
                link_id=crawled.link_id,
                facts=crawled.facts,
                doubt=crawled.doubt,
                at=now,
                cached=crawled.cached,
            )
            offer_id, is_new = await write_offer(connection, sighting)
            if not is_new and outcome is CrawlOutcome.OFFER:
                outcome = CrawlOutcome.UNCHANGED
        await connection.execute(insert(crawls), _record(crawled, outcome, product_id, offer_id, now))
        await _mark(connection, crawled, leads_to=leads_to, product_id=product_id, now=now)
        if self._offer_seen and product_id is not None and offer_id is not None and crawled.doubt is None:
            # After the link knows its product: items that name the link are found by it.
            await self._offer_seen(connection, product_id, crawled, now)

    async def _target(self, connection: AsyncConnection, crawled: Crawled, now: datetime) -> LinkId | None:
        if crawled.target is None:
            return None
        name = bounded(crawled.target.canonical.url_norm)
        return (await self._links.ensure(connection, {name: crawled.target}, now))[name]


def _is_offer(crawled: Crawled) -> bool:
    return crawled.outcome in (CrawlOutcome.OFFER, CrawlOutcome.DOUBTED)


async def _product(connection: AsyncConnection, crawled: Crawled, now: datetime) -> ProductId:
    """Adds or refreshes the product. What a page does not say stays as it was; what is there again is not gone."""
    assert crawled.product is not None  # noqa: S101 (the caller looked)
    gone = crawled.outcome is CrawlOutcome.GONE
    row = _product_row(crawled.product, crawled.facts, now, gone=gone)
    adding = _insert(connection)(products).values(row)
    told = {name: func.coalesce(adding.excluded[name], products.c[name]) for name in _FACTS}
    kept = products.c.last_seen_at if gone or crawled.cached else adding.excluded.last_seen_at
    since = func.coalesce(products.c.gone_at, adding.excluded.gone_at)
    upsert = adding.on_conflict_do_update(
        index_elements=["platform", "region", "shop_id", "item_id"],
        set_={
            **told,
            "last_seen_at": kept,
            "gone_at": case((adding.excluded.gone_at.is_(None), None), else_=since),
        },
    )
    return ProductId((await connection.execute(upsert.returning(products.c.id))).scalar_one())


def _product_row(name: ProductName, facts: PageFacts | None, now: datetime, *, gone: bool) -> dict[str, Any]:
    shown = {field: storable(getattr(facts, field)) if facts else None for field in _FACTS}
    return {
        "platform": name.platform,
        "region": name.region,
        "shop_id": name.shop_id,
        "item_id": name.item_id,
        "url": name.url,
        **shown,
        "first_seen_at": now,
        "last_seen_at": now,
        "gone_at": now if gone else None,
    }


def _record(
    crawled: Crawled, outcome: CrawlOutcome, product_id: ProductId | None, offer_id: OfferId | None, now: datetime
) -> dict[str, Any]:
    return {
        "link_id": crawled.link_id,
        "product_id": product_id,
        "offer_id": offer_id,
        "job_id": crawled.job_id,
        "at": now,
        "outcome": outcome,
        "http_status": crawled.http_status,
        "final_url": storable(crawled.final_url),
        "bytes": crawled.size,
        "duration_ms": round(crawled.seconds * 1000) if crawled.seconds is not None else None,
        "content_hash": content_hash(crawled.facts) if crawled.facts else None,
        "problem": storable(crawled.problem or crawled.doubt),
        "body": crawled.body,
    }


async def _mark(
    connection: AsyncConnection,
    crawled: Crawled,
    *,
    leads_to: LinkId | None,
    product_id: ProductId | None,
    now: datetime,
) -> None:
    """What an earlier visit found out stays where this one found nothing."""
    found: dict[str, Any] = {"leads_to": leads_to, "product_id": product_id}
    found["content_hash"] = content_hash(crawled.facts) if crawled.facts and _is_offer(crawled) else None
    values = {name: value for name, value in found.items() if value is not None}
    await connection.execute(
        update(links)
        .where(links.c.id == crawled.link_id)
        .values(state=crawled.state, problem=storable(crawled.problem or crawled.doubt), crawled_at=now, **values)
    )


def _insert(connection: AsyncConnection) -> Any:
    return insert_of(connection.dialect.name)
