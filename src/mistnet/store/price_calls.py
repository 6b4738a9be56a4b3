"""Asks for looks at sources: for items whose time has come, and for those somebody names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.crawling import crawl
from mistnet.domain.items import ItemId, ItemState, price_job
from mistnet.domain.jobs import Enqueued, JobId, NewJob
from mistnet.domain.links import LinkState
from mistnet.domain.sources import SourceName
from mistnet.store.account_jobs import cancel, slices
from mistnet.store.crawled_prices import names_of
from mistnet.store.database import Database
from mistnet.store.enqueue import JobWriter
from mistnet.store.items import items_due
from mistnet.store.links import NOT_CRAWLED
from mistnet.store.tables import items, jobs, links
from mistnet.store.tables.engine import GAP

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
        async with database.write() as connection:
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
        async with database.write() as connection:
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
