"""Links as people look at them: by lane, state, kind and words; one with where it leads and how its crawls went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import product
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, Subquery, func, or_, select, union_all

from mistnet.domain.links import CRAWL_LANES, LinkId, LinkKind, LinkState
from mistnet.domain.products import ProductId
from mistnet.store.database import Database
from mistnet.store.tables import crawls, links, post_links, products

LARGEST_ID: Final = 2**63 - 1
COUNTED: Final = 1_000
"""Mentions are counted no further."""

_PLACES: Final = 4
"""In so many places a link stands in one post, at the most on average."""

WINDOW: Final = 20_000
"""Words are looked for in so many links at a time; a page says where the next part begins."""

_PLAIN: Final = (
    *("id", "url_norm", "url", "host", "lane", "platform", "kind", "state", "region", "shop_id", "item_id"),
    *("leads_to", "product_id", "problem", "first_seen_at", "crawled_at", "content_hash"),
)
_CRAWL: Final = (
    *("id", "product_id", "offer_id", "job_id", "at", "outcome", "http_status", "final_url", "bytes"),
    *("duration_ms", "content_hash", "problem"),
)


class LinkLine(msgspec.Struct, frozen=True, kw_only=True):
    """One link. `mentions` counts posts that have it or a short link to it, up to COUNTED."""

    id: LinkId
    url_norm: str
    url: str
    host: str
    lane: str
    platform: str
    kind: LinkKind
    state: LinkState
    region: str | None
    shop_id: str | None
    item_id: str | None
    leads_to: LinkId | None
    product_id: ProductId | None
    problem: str | None
    first_seen_at: datetime
    crawled_at: datetime | None
    content_hash: str | None
    mentions: int
    title: str | None


class CrawlLine(msgspec.Struct, frozen=True, kw_only=True):
    """One visit to a link and what came of it; `kept` tells whether the page itself was."""

    id: int
    product_id: ProductId | None
    offer_id: int | None
    job_id: int | None
    at: datetime
    outcome: str
    http_status: int | None
    final_url: str | None
    bytes: int | None
    duration_ms: int | None
    content_hash: str | None
    problem: str | None
    kept: bool


class LinkFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which links to list. None and empty: all."""

    lane: str | None = None
    state: LinkState | None = None
    kind: LinkKind | None = None
    words: str = ""
    before: int | None = None
    limit: int = 50

    @property
    def narrows(self) -> bool:
        return bool(self.lane or self.state or self.kind)


class LinkPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some links; `next` is the `before` of the page after, None if there is none."""

    links: Sequence[LinkLine]
    next: int | None


class LinkPages:
    """Reads, each by an index and a page at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, wanted: LinkFilter) -> LinkPage:
        """The newest first. Where words are looked for, a page may be short and still have a next."""
        if wanted.words.strip():
            return await self._searched(wanted)
        found = await self._lines(_candidates(wanted))
        more = len(found) > wanted.limit
        shown = found[: wanted.limit]
        return LinkPage(links=shown, next=shown[-1].id if more else None)

    async def one(self, link_id: LinkId) -> LinkLine | None:
        found = await self._lines(select(links.c.id).where(links.c.id == link_id))
        return found[0] if found else None

    async def called(self, url_norm: str) -> LinkId | None:
        """The link of this canonical form."""
        rows = await self._rows(select(links.c.id).where(links.c.url_norm == url_norm))
        return LinkId(rows[0]["id"]) if rows else None

    async def leading_here(self, link_id: LinkId, *, limit: int) -> Sequence[LinkLine]:
        """Short links that turned out to lead to this one, the newest first."""
        return await self._lines(
            select(links.c.id).where(links.c.leads_to == link_id).order_by(links.c.id.desc()).limit(limit)
        )

    async def of_product(self, product_id: ProductId, *, limit: int) -> Sequence[LinkLine]:
        """The links that name a product, the newest first."""
        return await self._lines(
            select(links.c.id).where(links.c.product_id == product_id).order_by(links.c.id.desc()).limit(limit)
        )

    async def crawls(self, link_id: LinkId, *, before: int | None = None, limit: int) -> Sequence[CrawlLine]:
        """The latest first."""
        asked = (
            select(*(crawls.c[name] for name in _CRAWL), crawls.c.body.is_not(None).label("kept"))
            .where(crawls.c.link_id == link_id, crawls.c.id < (before or LARGEST_ID))
            .order_by(crawls.c.id.desc())
            .limit(limit)
        )
        return [CrawlLine(**{**row, "kept": bool(row["kept"])}) for row in await self._rows(asked)]

    async def latest(self) -> tuple[int, int]:
        """Other numbers mean that a link was found or visited meanwhile."""
        newest_link = select(func.max(links.c.id)).scalar_subquery()
        newest_crawl = select(func.max(crawls.c.id)).scalar_subquery()
        (row,) = await self._rows(select(newest_link.label("link"), newest_crawl.label("crawl")))
        return row["link"] or 0, row["crawl"] or 0

    async def _searched(self, wanted: LinkFilter) -> LinkPage:
        """Within the next WINDOW links only, so that nobody waits for a look at all of them."""
        before = wanted.before or LARGEST_ID
        below = select(links.c.id).where(links.c.id < before).order_by(links.c.id.desc())
        rows = await self._rows(below.offset(WINDOW - 1).limit(1))
        floor = rows[0]["id"] if rows else None
        word = wanted.words.strip().lower()
        named = [func.lower(column).contains(word, autoescape=True) for column in (links.c.url_norm, links.c.url)]
        inside = [*_narrowed(wanted), or_(*named), *([links.c.id >= floor] if floor else [])]
        found = await self._lines(below.where(*inside).limit(wanted.limit + 1))
        shown = found[: wanted.limit]
        return LinkPage(links=shown, next=shown[-1].id if len(found) > wanted.limit else floor)

    async def _lines(self, ids: Select[Any]) -> Sequence[LinkLine]:
        """What is shown is looked up for the few that are."""
        page = ids.subquery()
        joined = page.join(links, links.c.id == page.c.id).outerjoin(products, products.c.id == links.c.product_id)
        plain = [links.c[name] for name in _PLAIN]
        asked = select(*plain, _mentions(page).label("mentions"), products.c.title).select_from(joined)
        return [_line(row) for row in await self._rows(asked.order_by(links.c.id.desc()))]

    async def _rows(self, asked: Select[Any]) -> Sequence[Any]:
        async with self._database.read() as connection:
            return list((await connection.execute(asked)).mappings())


def _candidates(wanted: LinkFilter) -> Select[Any]:
    """Ids in order. Where lane or state is open, the index is read once for each there is: each part is in order."""
    below = links.c.id < (wanted.before or LARGEST_ID)
    limit = wanted.limit + 1
    if not wanted.narrows:
        return select(links.c.id).where(below).order_by(links.c.id.desc()).limit(limit)
    lanes = [wanted.lane] if wanted.lane else CRAWL_LANES
    states = [wanted.state] if wanted.state else list(LinkState)
    kind = [links.c.kind == wanted.kind] if wanted.kind else []
    parts = [
        select(links.c.id)
        .where(links.c.lane == lane, links.c.state == state, *kind, below)
        .order_by(links.c.id.desc())
        .limit(limit)
        .subquery()
        for lane, state in product(lanes, states)
    ]
    every = union_all(*(select(part.c.id) for part in parts)).subquery()
    return select(every.c.id).order_by(every.c.id.desc()).limit(limit)


def _narrowed(wanted: LinkFilter) -> list[ColumnElement[bool]]:
    given = {"lane": wanted.lane, "state": wanted.state, "kind": wanted.kind}
    return [links.c[name] == value for name, value in given.items() if value]


def _mentions(page: Subquery) -> ColumnElement[int]:
    """How many posts have a link of the page, or one that leads to it. A post may have it in several places."""
    reach = select(page.c.id.label("root"), page.c.id).cte("reach", recursive=True)
    onward = links.alias("onward")
    reach = reach.union(select(reach.c.root, onward.c.id).where(onward.c.leads_to == reach.c.id))
    some = (
        select(post_links.c.platform, post_links.c.post_id)
        .where(post_links.c.link_id.in_(select(reach.c.id).where(reach.c.root == links.c.id).correlate(links)))
        .limit(COUNTED * _PLACES)
        .correlate(links)
        .subquery()
    )
    every = select(some.c.platform, some.c.post_id).distinct().limit(COUNTED).subquery()
    return select(func.count()).select_from(every).scalar_subquery()


def _line(row: Any) -> LinkLine:
    return LinkLine(**{**row, "kind": LinkKind(row["kind"]), "state": LinkState(row["state"])})
