"""Creates the jobs that fetch prices: for items that are due, on request, and to confirm what was seen once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import SourceName
from mistnet.kit.database import Database
from mistnet.prices.matching import page_names
from mistnet.prices.model import ItemId, ItemState, PointId, price_job
from mistnet.prices.tables import FOLLOWED, item_looks, items, price_points
from mistnet.queue.model import Enqueued, JobId, Lane, NewJob
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import GAP, jobs
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import CRAWL, CrawlArgs, LinkId, LinkState, bounded, crawl
from mistnet.shops.store.links import NOT_CRAWLED
from mistnet.shops.tables import links
from mistnet.social.store.accounts import cancel, slices

AT_ONCE: Final = 500
"""How many due items are read at a time."""

# Items that are still due after so many rounds wait for the next call.
_ROUNDS: Final = 20
_texts = msgspec.json.Decoder(list[str]).decode


async def write_jobs(
    connection: AsyncConnection, job_writer: JobWriter, new: Iterable[NewJob], now: datetime
) -> Enqueued:
    """Enqueue jobs. A failed job of the same key moves to the history first: it would stand in the new one's way."""
    new_jobs = list(new)
    for kind in sorted({job.kind for job in new_jobs}):
        for part in slices(sorted(job.key for job in new_jobs if job.kind == kind and job.key)):
            failed = select(jobs.c.id).where(jobs.c.kind == kind, jobs.c.key.in_(part), text(GAP)).order_by(jobs.c.id)
            await cancel(connection, [JobId(each) for each in (await connection.execute(failed)).scalars()], now)
    return await job_writer.write(connection, new_jobs, now) if new_jobs else Enqueued()


async def make_due(
    database: Database,
    job_writer: JobWriter,
    *,
    every: timedelta,
    sources: Sequence[SourceName],
    crawl_lanes: Collection[str],
) -> int:
    """Create price jobs for items that are due, and crawls of the pages they name. Returns how many price jobs."""
    made = 0
    for _ in range(_ROUNDS):
        now = database.clock.now()
        async with database.transaction() as connection:
            due = await items_due(connection, now=now, default_every=every, sources=sources)
            own = {item_id for item_id, source in due if source in crawl_lanes}
            crawls = await _crawls(connection, sorted(own), lanes=crawl_lanes, every=every, now=now)
            await write_jobs(connection, job_writer, crawls, now)
            done = await write_jobs(connection, job_writer, [price_job(item, source) for item, source in due], now)
        if not due:
            break
        made += done.created
    return made


async def items_due(
    connection: AsyncConnection, *, now: datetime, default_every: timedelta, sources: Sequence[SourceName]
) -> Sequence[tuple[ItemId, SourceName]]:
    """What to fetch now, of at most AT_ONCE items, and set their next fetch. Repeat until there is nothing.

    A source that was fetched within the last half of an item's interval waits for the next time, unless the item has
    changed since.
    """
    waited = (
        select(items.c.id, items.c.sources, items.c.every_hours, items.c.changed_at)
        .where(text(FOLLOWED), items.c.next_look_at <= now)
        .order_by(items.c.next_look_at, items.c.id)
        .limit(AT_ONCE)
        # A locked item is being changed or valued: it stays due, so the next round finds it.
        .with_for_update(skip_locked=True, key_share=True)
    )
    rows = (await connection.execute(waited)).all()
    if not rows:
        return []
    every = {row.id: timedelta(hours=row.every_hours) if row.every_hours else default_every for row in rows}
    ids_by_interval: dict[timedelta, list[int]] = defaultdict(list)
    for item_id, interval in every.items():
        ids_by_interval[interval].append(item_id)
    for interval, ids in ids_by_interval.items():
        values = {"next_look_at": now + interval}
        await connection.execute(update(items).where(items.c.id.in_(sorted(ids))).values(values))
    fetches = select(item_looks.c.item_id, item_looks.c.source, item_looks.c.looked_at)
    found = await connection.execute(fetches.where(item_looks.c.item_id.in_(sorted(every))))
    fetched = {(row.item_id, row.source): row.looked_at for row in found}
    due = []
    for row in rows:
        for source in _sources_of(row.sources, sources):
            fetched_at = fetched.get((row.id, source))
            is_fresh = fetched_at and fetched_at > now - every[row.id] / 2 and fetched_at >= row.changed_at
            if not is_fresh:
                due.append((ItemId(row.id), source))
    return due


def _sources_of(own: bytes, known: Sequence[SourceName]) -> Sequence[SourceName]:
    """The known sources that an item names, or all if it names none."""
    named = set(_texts(own))
    return [source for source in known if source in named] if named else known


async def enqueue_fetches(
    database: Database,
    job_writer: JobWriter,
    *,
    item_ids: Collection[ItemId],
    sources: Collection[SourceName] | None,
    known: Sequence[SourceName],
) -> Enqueued:
    """Fetch these items now: from the named sources, or from those of each item. Inactive items are left out."""
    created = duplicates = parked = 0
    for part in slices(sorted(item_ids)):
        now = database.clock.now()
        async with database.transaction() as connection:
            query = select(items.c.id, items.c.sources).where(items.c.id.in_(part), items.c.state == ItemState.ACTIVE)
            rows = (await connection.execute(query.order_by(items.c.id))).all()
            chosen = None if sources is None else [source for source in known if source in set(sources)]
            new = [
                price_job(row.id, source)
                for row in rows
                for source in (_sources_of(row.sources, known) if chosen is None else chosen)
            ]
            done = await write_jobs(connection, job_writer, new, now)
        created, duplicates, parked = created + done.created, duplicates + done.duplicates, parked + done.parked
    return Enqueued(created=created, duplicates=duplicates, parked=parked)


async def _crawls(
    connection: AsyncConnection, item_ids: Sequence[int], *, lanes: Collection[str], every: timedelta, now: datetime
) -> Sequence[NewJob]:
    """Crawls of the pages that items name, as often as the items themselves are fetched."""
    intervals: dict[str, timedelta] = {}
    for part in slices(item_ids):
        for row in await connection.execute(select(items.c.urls, items.c.every_hours).where(items.c.id.in_(part))):
            own = timedelta(hours=row.every_hours) if row.every_hours else every
            intervals |= {name: min(own, intervals.get(name, own)) for name in page_names(_texts(row.urls))}
    rows: list[Any] = []
    for names in slices(sorted(intervals)):
        known = select(links.c.id, links.c.url_norm, links.c.lane, links.c.crawled_at).where(
            links.c.url_norm.in_(names),
            links.c.lane.in_(sorted(lanes)),
            links.c.kind.not_in(NOT_CRAWLED),
            links.c.state != LinkState.GONE,
            # A link that was never crawled got its first job when it was added.
            links.c.crawled_at.is_not(None),
        )
        rows += (await connection.execute(known)).all()
    stale = [row for row in rows if row.crawled_at < now - intervals[row.url_norm] / 2]
    return [crawl(row.id, row.url_norm, row.lane) for row in stale]


WHY: Final = "confirms a price before anybody is notified"
_OWN: Final = "again:"
_FEW: Final = 20
"""A valuation that rests on many pages is confirmed by some of them."""


class SecondLooks:
    """Creates the jobs that confirm a price, inside the caller's transaction. They bypass the cache.

    Their keys are their own, so that a job that is already on its way does not count as the second look.
    """

    def __init__(self, job_writer: JobWriter, pause: timedelta) -> None:
        self._job_writer = job_writer
        self._pause = pause

    async def at_page(
        self, connection: AsyncConnection, link_id: LinkId, *, seen: str, now: datetime, since: datetime
    ) -> None:
        """`seen` is the content hash of the first look, `since` its time."""
        query = select(links.c.id, links.c.url_norm, links.c.lane).where(links.c.id == link_id)
        rows = (await connection.execute(query)).all()
        await self._write(connection, [_crawl_again(row, max(now, since + self._pause), seen) for row in rows], now)

    async def at_sources(
        self,
        connection: AsyncConnection,
        item_id: ItemId,
        moved_by: Sequence[PointId],
        *,
        now: datetime,
        since: datetime,
    ) -> None:
        """Fetch from the sources of the points that moved a valuation. Where those are pages, crawl them first."""
        points = select(price_points.c.source, price_points.c.product_id)
        rows = (await connection.execute(points.where(price_points.c.id.in_(sorted(moved_by))).distinct())).all()
        pages = sorted({row.product_id for row in rows if row.source in CRAWL_LANES and row.product_id is not None})
        query = select(links.c.id, links.c.url_norm, links.c.lane).where(links.c.product_id.in_(pages[:_FEW]))
        crawled = (await connection.execute(query.order_by(links.c.id).limit(_FEW))).all() if pages else []
        due = max(now, since + self._pause)
        crawls = [_crawl_again(row, due, "") for row in crawled]
        fetches = []
        for source in sorted({SourceName(row.source) for row in rows}):
            # After the crawls above: it reads what they bring.
            run_at = due + self._pause if source in CRAWL_LANES else due
            job = price_job(item_id, source, looks=1)
            fetches.append(msgspec.structs.replace(job, key=_OWN + (job.key or ""), run_at=run_at, reason=WHY))
        await self._write(connection, [*crawls, *fetches], now)

    async def _write(self, connection: AsyncConnection, new: Iterable[NewJob], now: datetime) -> None:
        """A source that is no longer configured cannot be fetched."""
        served = [job for job in new if job.lane and self._job_writer.serves(job.kind, job.lane)]
        await write_jobs(connection, self._job_writer, served, now)


def _crawl_again(row: Any, due: datetime, seen: str) -> NewJob:
    args = CrawlArgs(link_id=LinkId(row.id), seen=seen)
    return NewJob(kind=CRAWL, key=bounded(_OWN + row.url_norm), lane=Lane(row.lane), args=args, run_at=due, reason=WHY)
