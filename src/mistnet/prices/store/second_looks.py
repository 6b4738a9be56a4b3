"""Asks for second looks: visits and price jobs with keys of their own, so that no job that is alive stands for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import SourceName
from mistnet.prices.model import PRICE, ItemId, PointId, PriceArgs, price_key
from mistnet.prices.tables import price_points
from mistnet.queue.model import JobId, Lane, NewJob
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import GAP, jobs
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import CRAWL, CrawlArgs, LinkId, bounded
from mistnet.shops.tables import links
from mistnet.social.store.account_jobs import cancel, slices

WHY: Final = "looks a second time before anybody is told of a price"
_OWN: Final = "again:"
_FEW: Final = 20
"""A valuation that many pages carry is confirmed by some of them."""


class SecondLooks:
    """Makes the jobs, inside the caller's transaction. They never take a remembered answer."""

    def __init__(self, job_writer: JobWriter, pause: timedelta) -> None:
        self._job_writer = job_writer
        self._pause = pause

    async def at_page(
        self, connection: AsyncConnection, link_id: LinkId, *, seen: str, now: datetime, since: datetime
    ) -> None:
        """`seen` is what the first look saw, `since` when."""
        asked = select(links.c.id, links.c.url_norm, links.c.lane).where(links.c.id == link_id)
        rows = (await connection.execute(asked)).all()
        await self._write(connection, [_visit(row, max(now, since + self._pause), seen) for row in rows], now)

    async def at_sources(
        self,
        connection: AsyncConnection,
        item_id: ItemId,
        moved_by: Sequence[PointId],
        *,
        now: datetime,
        since: datetime,
    ) -> None:
        """Asks the sources of the points that moved a valuation. Where those are pages, the pages are visited first."""
        asked = (
            select(price_points.c.source, price_points.c.product_id)
            .where(price_points.c.id.in_(sorted(moved_by)))
            .distinct()
        )
        rows = (await connection.execute(asked)).all()
        sources = sorted({row.source for row in rows})
        pages = sorted({row.product_id for row in rows if row.source in CRAWL_LANES and row.product_id is not None})
        due = max(now, since + self._pause)
        await self._write(
            connection,
            [
                *[_visit(row, due, None) for row in await _links_of(connection, pages[:_FEW])],
                *[_search(item_id, name, due + self._pause if name in CRAWL_LANES else due) for name in sources],
            ],
            now,
        )

    async def _write(self, connection: AsyncConnection, wanted: Iterable[NewJob], now: datetime) -> None:
        """A source that is no longer configured cannot be asked; what failed before is to be tried anew."""
        made = [job for job in wanted if job.lane and self._job_writer.serves(job.kind, job.lane)]
        for kind in sorted({job.kind for job in made}):
            for part in slices(sorted(job.key for job in made if job.kind == kind and job.key)):
                failed = select(jobs.c.id).where(jobs.c.kind == kind, jobs.c.key.in_(part), text(GAP))
                await cancel(connection, [JobId(each) for each in (await connection.execute(failed)).scalars()], now)
        await self._job_writer.write(connection, made, now)


async def _links_of(connection: AsyncConnection, product_ids: Sequence[int]) -> Sequence[Any]:
    if not product_ids:
        return []
    asked = select(links.c.id, links.c.url_norm, links.c.lane).where(links.c.product_id.in_(product_ids))
    return (await connection.execute(asked.order_by(links.c.id).limit(_FEW))).all()


def _visit(row: Any, due: datetime, seen: str | None) -> NewJob:
    args = CrawlArgs(link_id=LinkId(row.id), seen=seen or "")
    return NewJob(kind=CRAWL, key=bounded(_OWN + row.url_norm), lane=Lane(row.lane), args=args, run_at=due, reason=WHY)


def _search(item_id: ItemId, source: str, due: datetime) -> NewJob:
    name = SourceName(source)
    args = PriceArgs(item_id=item_id, source=name, looks=1)
    return NewJob(kind=PRICE, key=_OWN + price_key(item_id, name), lane=Lane(source), args=args, run_at=due, reason=WHY)
