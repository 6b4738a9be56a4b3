"""Writes visits: the record, the product and its offer, a short link's target, the link's state. Requests new ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import Select, case, exists, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database, Store
from mistnet.kit.statements import insert_of
from mistnet.kit.types import storable
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import jobs
from mistnet.shops.model import (
    CRAWL,
    Crawled,
    CrawlOutcome,
    LinkId,
    LinkKind,
    LinkState,
    ProductId,
    bounded,
    content_hash,
    crawl,
)
from mistnet.shops.store.links import NOT_CRAWLED, LinkWriter
from mistnet.shops.store.products import write_offer, write_words
from mistnet.shops.tables import READ, crawls, hosts, links, products
from mistnet.social.store.accounts import renew_jobs, slices

_FACTS = ("title", "brand", "sku", "image_url")


OfferSeen: TypeAlias = Callable[[AsyncConnection, ProductId, Crawled, datetime], Awaitable[None]]


class CrawlWriter:
    """Writes visits. A new target gets its link and its crawl job in the same transaction.

    `offer_seen` is called for every offer that is believed, in the same transaction.
    """

    def __init__(self, links: LinkWriter, offer_seen: OfferSeen | None = None) -> None:
        self._links = links
        self._offer_seen = offer_seen

    async def write(self, connection: AsyncConnection, given: Sequence[Crawled], now: datetime) -> None:
        # In the same order for all writers, or two of them could deadlock.
        for crawled in sorted(given, key=lambda each: each.link_id):
            leads_to: LinkId | None = None
            if crawled.target is not None:
                name = bounded(crawled.target.canonical.url_norm)
                leads_to = (await self._links.ensure(connection, {name: crawled.target}, now))[name]
            facts = crawled.facts
            product_id = await _product(connection, crawled, now) if crawled.product else None
            if product_id is not None and crawled.product and facts and facts.title:
                await write_words(connection, product_id, crawled.product.platform, facts.title)
            offer, outcome, doubt, seen = None, crawled.outcome, crawled.doubt, None
            if facts is not None and outcome in (CrawlOutcome.OFFER, CrawlOutcome.DOUBTED):
                seen = content_hash(facts)
                if product_id is not None:
                    offer = await write_offer(connection, product_id, crawled, facts, now)
            if offer is not None and offer.is_believed:
                doubt, outcome = None, CrawlOutcome.OFFER if offer.is_new else CrawlOutcome.UNCHANGED
            problem, offer_id = storable(crawled.problem or doubt), offer.id if offer else None
            made = {"outcome": outcome, "problem": problem, "product_id": product_id, "offer_id": offer_id}
            await connection.execute(insert(crawls), _record(crawled, now) | made)
            # Values of an earlier visit stay if this one has none.
            found = {"leads_to": leads_to, "product_id": product_id, "content_hash": seen}
            values = {name: value for name, value in found.items() if value is not None}
            marking = update(links).where(links.c.id == crawled.link_id)
            await connection.execute(marking.values(state=crawled.state, problem=problem, crawled_at=now, **values))
            if self._offer_seen and product_id is not None and offer is not None and offer.is_believed:
                # After the link has its product: items that name the link are found by it.
                shown = msgspec.structs.replace(crawled, doubt=None, facts=offer.facts)
                await self._offer_seen(connection, product_id, shown, now)


async def _product(connection: AsyncConnection, crawled: Crawled, now: datetime) -> ProductId:
    """Insert or update the product. A field that the page lacks keeps its value; a product that is back is not gone."""
    assert crawled.product is not None  # noqa: S101 (the caller checked)
    gone = crawled.outcome is CrawlOutcome.GONE
    adding = insert_of(connection.dialect.name)(products).values(
        **{**msgspec.structs.asdict(crawled.product), "platform": crawled.product.platform.name},
        **{name: storable(getattr(crawled.facts, name, None)) for name in _FACTS},
        first_seen_at=now,
        last_seen_at=now,
        gone_at=now if gone else None,
    )
    facts = {name: func.coalesce(adding.excluded[name], products.c[name]) for name in _FACTS}
    kept = products.c.last_seen_at if gone or crawled.cached else adding.excluded.last_seen_at
    since = func.coalesce(products.c.gone_at, adding.excluded.gone_at)
    upsert = adding.on_conflict_do_update(
        index_elements=["platform", "region", "shop_id", "item_id"],
        set_={
            **facts,
            "last_seen_at": kept,
            "gone_at": case((adding.excluded.gone_at.is_(None), None), else_=since),
        },
    )
    return ProductId((await connection.execute(upsert.returning(products.c.id))).scalar_one())


def _record(crawled: Crawled, now: datetime) -> dict[str, Any]:
    return {
        "link_id": crawled.link_id,
        "job_id": crawled.job_id,
        "at": now,
        "http_status": crawled.http_status,
        "final_url": storable(crawled.final_url),
        "bytes": crawled.size,
        "duration_ms": round(crawled.seconds * 1000) if crawled.seconds is not None else None,
        "content_hash": content_hash(crawled.facts) if crawled.facts else None,
        "body": crawled.body,
    }


AT_ONCE: Final = 500
# Without a limit, counting would read as much of the index as there are new links.
_COUNTED: Final = 10_000
# Written like the condition of the index of live jobs, or a planner would not use that index.
_LIVE: Final = "jobs.key IS NOT NULL AND jobs.state IN ('pending', 'queued', 'running', 'retryable')"
_CRAWLED_KINDS: Final = tuple(kind for kind in LinkKind if kind not in NOT_CRAWLED)


class RequestedCrawls(msgspec.Struct, frozen=True, kw_only=True):
    """How many links were requested, and how many of these were not in the queue already."""

    links: int
    created: int


async def make_due(database: Database, job_writer: JobWriter, *, lanes: Collection[str], before: datetime) -> int:
    """Enqueue crawls of products last visited before then, the oldest first. Returns how many are new."""
    query = (
        _links()
        .where(links.c.lane.in_(sorted(lanes)), text(f"links.{READ}"), links.c.crawled_at < before)
        .where(links.c.product_id.is_not(None), ~_is_queued())
        .order_by(links.c.crawled_at, links.c.id)
        .limit(AT_ONCE)
    )
    return (await _enqueue(database, job_writer, query)).created


async def call_for_new(
    database: Database, job_writer: JobWriter, *, lanes: Collection[str], limit: int
) -> RequestedCrawls:
    """Enqueue crawls of links that were found while their lane was not crawled, the oldest of each lane first."""
    done = RequestedCrawls(links=0, created=0)
    for lane in sorted(lanes):
        query = (
            _links()
            .where(links.c.lane == lane, links.c.state == LinkState.NEW, links.c.kind.in_(_CRAWLED_KINDS))
            .where(~_is_queued())
            .order_by(links.c.id)
            .limit(limit - done.links)
        )
        more = await _enqueue(database, job_writer, query)
        done = RequestedCrawls(links=done.links + more.links, created=done.created + more.created)
        if done.links >= limit:
            break
    return done


async def count_new(database: Database, *, lanes: Collection[str]) -> Mapping[str, int]:
    """How many links of each lane were never visited, counted up to a limit."""
    found: dict[str, int] = {}
    async with database.read() as connection:
        for lane in sorted(lanes):
            new = select(links.c.id).where(
                links.c.lane == lane, links.c.state == LinkState.NEW, links.c.kind.in_(_CRAWLED_KINDS)
            )
            counted = select(func.count()).select_from(new.limit(_COUNTED).subquery())
            if number := (await connection.execute(counted)).scalar_one():
                found[lane] = number
    return found


async def call_for_links(database: Database, job_writer: JobWriter, link_ids: Sequence[LinkId]) -> RequestedCrawls:
    return await _each(database, job_writer, [links.c.id.in_(part) for part in slices(sorted(link_ids))])


async def call_for_products(
    database: Database, job_writer: JobWriter, product_ids: Sequence[ProductId]
) -> RequestedCrawls:
    return await _each(database, job_writer, [links.c.product_id.in_(part) for part in slices(sorted(product_ids))])


async def _each(database: Database, job_writer: JobWriter, conditions: Sequence[Any]) -> RequestedCrawls:
    done = [
        await _enqueue(database, job_writer, _links().where(condition, links.c.kind.in_(_CRAWLED_KINDS)))
        for condition in conditions
    ]
    return RequestedCrawls(links=sum(each.links for each in done), created=sum(each.created for each in done))


def _links() -> Select[Any]:
    return select(links.c.id, links.c.url_norm, links.c.lane)


def _is_queued() -> Any:
    return exists().where(jobs.c.kind == CRAWL, jobs.c.key == links.c.url_norm, text(_LIVE))


async def _enqueue(database: Database, job_writer: JobWriter, query: Select[Any]) -> RequestedCrawls:
    now = database.clock.now()
    async with database.read() as connection:
        rows = (await connection.execute(query)).all()
    if not rows:
        return RequestedCrawls(links=0, created=0)
    async with database.transaction() as connection:
        wanted = [crawl(row.id, row.url_norm, row.lane) for row in rows]
        made = await renew_jobs(connection, job_writer, wanted, now)
    return RequestedCrawls(links=len(rows), created=made.created)


class StoreHosts(Store):
    """The database's record of when each host may be visited next."""

    async def claim(self, host: str, *, now: datetime, delay: float) -> datetime | None:
        """One statement claims the turn or leaves it, so that exactly one of any number of workers gets it."""
        row = {"host": host, "next_at": now + timedelta(seconds=delay), "delay_seconds": delay}
        adding = insert_of(self._database.dialect)(hosts).values(row)
        taking = adding.on_conflict_do_update(
            index_elements=["host"],
            set_={"next_at": adding.excluded.next_at, "delay_seconds": adding.excluded.delay_seconds},
            where=hosts.c.next_at <= now,
        ).returning(hosts.c.host)
        async with self._database.autocommit() as connection:
            if (await connection.execute(taking)).first():
                return None
            held = await connection.execute(select(hosts.c.next_at).where(hosts.c.host == host))
            free_at: datetime = held.scalar_one()
            return free_at

    async def leave_alone(self, host: str, *, until: datetime) -> None:
        adding = insert_of(self._database.dialect)(hosts).values(host=host, next_at=until)
        greatest = func.greatest if self._database.dialect == "postgresql" else func.max
        later = greatest(hosts.c.next_at, adding.excluded.next_at, type_=hosts.c.next_at.type)
        async with self._database.autocommit() as connection:
            await connection.execute(adding.on_conflict_do_update(index_elements=["host"], set_={"next_at": later}))
