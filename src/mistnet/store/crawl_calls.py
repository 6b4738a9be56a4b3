"""Asks for crawls: of things last seen too long ago, of links nobody has visited, of what somebody names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, exists, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.crawling import CRAWL, crawl
from mistnet.domain.jobs import JobId
from mistnet.domain.links import LinkId, LinkKind, LinkState
from mistnet.domain.products import ProductId
from mistnet.store.account_jobs import cancel, slices
from mistnet.store.database import Database
from mistnet.store.enqueue import JobWriter
from mistnet.store.links import NOT_CRAWLED
from mistnet.store.tables import jobs, links
from mistnet.store.tables.engine import GAP
from mistnet.store.tables.shops import READ

AT_ONCE: Final = 500
_COUNTED: Final = 10_000
_LIVE: Final = "jobs.key IS NOT NULL AND jobs.state IN ('pending', 'queued', 'running', 'retryable')"
_CRAWLED_KINDS: Final = tuple(kind for kind in LinkKind if kind not in NOT_CRAWLED)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """How many links were to be visited, and how many of those were not already on the list."""

    links: int
    created: int


async def make_due(database: Database, job_writer: JobWriter, *, lanes: Collection[str], before: datetime) -> int:
    """Crawls for things last visited before then, the longest unseen first; returns how many are new."""
    asked = (
        _wanted()
        .where(links.c.lane.in_(sorted(lanes)), text(f"links.{READ}"), links.c.crawled_at < before)
        .where(links.c.product_id.is_not(None), ~_is_on_the_list())
        .order_by(links.c.crawled_at, links.c.id)
        .limit(AT_ONCE)
    )
    return (await _enqueue(database, job_writer, asked)).created


async def call_for_new(database: Database, job_writer: JobWriter, *, lanes: Collection[str], limit: int) -> Asked:
    """Crawls for links that were found while their lane was not crawled, the oldest of each lane first."""
    done = Asked(links=0, created=0)
    for lane in sorted(lanes):
        asked = (
            _wanted()
            .where(links.c.lane == lane, links.c.state == LinkState.NEW, links.c.kind.in_(_CRAWLED_KINDS))
            .where(~_is_on_the_list())
            .order_by(links.c.id)
            .limit(limit - done.links)
        )
        more = await _enqueue(database, job_writer, asked)
        done = Asked(links=done.links + more.links, created=done.created + more.created)
        if done.links >= limit:
            break
    return done


async def count_new(database: Database, *, lanes: Collection[str]) -> Mapping[str, int]:
    """How many links of each lane were not visited yet, counted no further than makes sense to say."""
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


async def call_for_links(database: Database, job_writer: JobWriter, link_ids: Sequence[LinkId]) -> Asked:
    return await _each(database, job_writer, [links.c.id.in_(part) for part in slices(sorted(link_ids))])


async def call_for_products(database: Database, job_writer: JobWriter, product_ids: Sequence[ProductId]) -> Asked:
    return await _each(database, job_writer, [links.c.product_id.in_(part) for part in slices(sorted(product_ids))])


async def _each(database: Database, job_writer: JobWriter, conditions: Sequence[Any]) -> Asked:
    done = [
        await _enqueue(database, job_writer, _wanted().where(condition, links.c.kind.in_(_CRAWLED_KINDS)))
        for condition in conditions
    ]
    return Asked(links=sum(each.links for each in done), created=sum(each.created for each in done))


def _wanted() -> Select[Any]:
    return select(links.c.id, links.c.url_norm, links.c.lane)


def _is_on_the_list() -> Any:
    return exists().where(jobs.c.kind == CRAWL, jobs.c.key == links.c.url_norm, text(_LIVE))


async def _enqueue(database: Database, job_writer: JobWriter, asked: Select[Any]) -> Asked:
    now = database.clock.now()
    async with database.read() as connection:
        rows = (await connection.execute(asked)).all()
    if not rows:
        return Asked(links=0, created=0)
    async with database.write() as connection:
        await _put_away_gaps(connection, [row.url_norm for row in rows], now)
        made = await job_writer.write(connection, [crawl(row.id, row.url_norm, row.lane) for row in rows], now)
    return Asked(links=len(rows), created=made.created)


async def _put_away_gaps(connection: AsyncConnection, keys: Sequence[str], now: datetime) -> None:
    """What failed before is to be tried anew: it goes to the history."""
    for part in slices(sorted(keys)):
        failed = select(jobs.c.id).where(jobs.c.kind == CRAWL, jobs.c.key.in_(part), text(GAP)).order_by(jobs.c.id)
        await cancel(connection, [JobId(each) for each in (await connection.execute(failed)).scalars()], now)
