"""Lists of links: by lane, state, kind and words; one link with where it leads and its crawls; links that wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, func, or_, select, true, union_all

from mistnet.kit.database import Store
from mistnet.kit.text import LARGEST_ID, are, counted
from mistnet.kit.view import ListPage, View, columns_of, records_of
from mistnet.queue.model import JobId
from mistnet.shops import links as link_rules
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import Canonical, CrawlOutcome, LinkId, LinkKind, LinkState, OfferId, ProductId, bounded
from mistnet.shops.store.crawls import count_new
from mistnet.shops.tables import crawls, links, post_links, products
from mistnet.social.model import Platform, UserId
from mistnet.social.tables import posts

if TYPE_CHECKING:
    from mistnet.app import App

COUNTED: Final = 1_000
"""Mentions are counted no further."""

_PLACES: Final = 4
"""In so many places a link stands in one post, at the most on average."""

_HOST_POSTS: Final = 1_000

WINDOW: Final = 20_000
"""Words are looked for in so many links at a time; a page says where the next part begins."""


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
    title: str | None
    problem: str | None
    first_seen_at: datetime
    crawled_at: datetime | None
    content_hash: str | None
    mentions: int


class CrawlLine(msgspec.Struct, frozen=True, kw_only=True):
    """One visit to a link and what came of it. `kept`: the page itself is stored."""

    id: int
    at: datetime
    outcome: CrawlOutcome
    http_status: int | None
    final_url: str | None
    bytes: int | None
    duration_ms: int | None
    content_hash: str | None
    problem: str | None
    product_id: ProductId | None
    offer_id: OfferId | None
    job_id: JobId | None
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


class LinkedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that an account links, and how many of its latest posts do."""

    host: str
    posts: int


CRAWLS: Final = View(
    CrawlLine, select(*columns_of(CrawlLine, crawls), crawls.c.body.is_not(None).label("kept")), crawls.c.id
)
"""Visits, the latest first."""


class LinkPages(Store):
    """Reads, each by an index and a page at a time."""

    async def list(self, filters: LinkFilter) -> ListPage[LinkLine]:
        """The newest first. Where words are looked for, a page may be short and still have a next."""
        below, limit, floor = links.c.id < (filters.before or LARGEST_ID), filters.limit + 1, None
        ids = select(links.c.id).where(below).order_by(links.c.id.desc())
        if filters.words.strip():
            # Within the next WINDOW links only: a search through all of them would take too long for one page.
            last = await self._database.fetch_row(ids.offset(WINDOW - 1).limit(1))
            floor = last["id"] if last else None
            ids = ids.where(*link_conditions(filters), *([links.c.id >= floor] if floor else []))
        elif filters.narrows:
            # Where lane or state is open, the index is read once for each there is: each part is in order.
            lanes = [filters.lane] if filters.lane else CRAWL_LANES
            states = [filters.state] if filters.state else list(LinkState)
            kind = [links.c.kind == filters.kind] if filters.kind else []
            parts = [
                select(links.c.id)
                .where(links.c.lane == lane, links.c.state == state, *kind, below)
                .order_by(links.c.id.desc())
                .limit(limit)
                .subquery()
                for lane, state in product(lanes, states)
            ]
            every = union_all(*(select(part.c.id) for part in parts)).subquery()
            ids = select(every.c.id).order_by(every.c.id.desc())
        page = ListPage.cut(await self._lines(ids.limit(limit)), filters.limit, lambda line: line.id)
        return ListPage(items=page.items, next=page.next or floor)

    async def one(self, link_id: LinkId) -> LinkLine | None:
        found = await self._lines(select(links.c.id).where(links.c.id == link_id))
        return found[0] if found else None

    async def called(self, url_norm: str) -> LinkId | None:
        """The link of this canonical form."""
        found = await self._database.fetch_row(select(links.c.id).where(links.c.url_norm == url_norm))
        return LinkId(found["id"]) if found else None

    async def leading_here(self, link_id: LinkId, *, limit: int) -> Sequence[LinkLine]:
        """Short links that turned out to lead to this one, the newest first."""
        return await self._newest(links.c.leads_to == link_id, limit)

    async def of_product(self, product_id: ProductId, *, limit: int) -> Sequence[LinkLine]:
        """The links that name a product, the newest first."""
        return await self._newest(links.c.product_id == product_id, limit)

    async def crawls(self, link_id: LinkId, *, before: int | None = None, limit: int) -> ListPage[CrawlLine]:
        return await CRAWLS.page(self._database, crawls.c.link_id == link_id, after=before, limit=limit)

    async def hosts_of(self, platform: Platform, user_id: UserId, *, limit: int) -> Sequence[LinkedHost]:
        """The hosts that most of an account's latest posts link."""
        own = (
            select(posts.c.platform, posts.c.id)
            .where(posts.c.platform == platform, posts.c.author_id == user_id)
            .order_by(posts.c.created_at.desc(), posts.c.id.desc())
            .limit(_HOST_POSTS)
            .subquery()
        )
        linked = own.join(
            post_links, (post_links.c.platform == own.c.platform) & (post_links.c.post_id == own.c.id)
        ).join(links, links.c.id == post_links.c.link_id)
        number = func.count(own.c.id.distinct())
        query = select(links.c.host, number.label("posts")).select_from(linked).group_by(links.c.host)
        return records_of(
            LinkedHost, await self._database.fetch_rows(query.order_by(number.desc(), links.c.host).limit(limit))
        )

    async def latest(self) -> tuple[int, int]:
        """The newest link and the newest visit: other numbers mean that there is news."""
        newest = [select(func.max(table.c.id)).scalar_subquery() for table in (links, crawls)]
        (row,) = await self._database.fetch_rows(select(newest[0].label("link"), newest[1].label("crawl")))
        return row["link"] or 0, row["crawl"] or 0

    async def _newest(self, condition: ColumnElement[bool], limit: int) -> Sequence[LinkLine]:
        return await self._lines(select(links.c.id).where(condition).order_by(links.c.id.desc()).limit(limit))

    async def _lines(self, ids: Select[Any]) -> Sequence[LinkLine]:
        """Mentions and titles are looked up for the links of the page alone."""
        page = ids.subquery()
        # How many posts have a link of the page, or one that leads to it. A post may have it in several places.
        reach = select(page.c.id.label("root"), page.c.id).cte("reach", recursive=True)
        onward = links.alias("onward")
        leading = select(onward.c.id).where(onward.c.leads_to == reach.c.id)
        if self._database.dialect == "postgresql":
            # For each by itself: it expects so many of all together that it would rather read all short links.
            each = leading.offset(0).lateral()
            reach = reach.union(select(reach.c.root, each.c.id).select_from(reach).join(each, true()))
        else:
            reach = reach.union(leading.with_only_columns(reach.c.root, onward.c.id))
        some = (
            select(post_links.c.platform, post_links.c.post_id)
            .where(post_links.c.link_id.in_(select(reach.c.id).where(reach.c.root == links.c.id).correlate(links)))
            .limit(COUNTED * _PLACES)
            .correlate(links)
            .subquery()
        )
        every = select(some.c.platform, some.c.post_id).distinct().limit(COUNTED).subquery()
        mentions = select(func.count()).select_from(every).scalar_subquery()
        joined = page.join(links, links.c.id == page.c.id).outerjoin(products, products.c.id == links.c.product_id)
        columns = [*columns_of(LinkLine, links), mentions.label("mentions"), products.c.title]
        query = select(*columns).select_from(joined).order_by(links.c.id.desc())
        return records_of(LinkLine, await self._database.fetch_rows(query))


def link_conditions(filters: LinkFilter) -> list[ColumnElement[bool]]:
    """Whether a link passes a filter."""
    given = {"lane": filters.lane, "state": filters.state, "kind": filters.kind}
    conditions = [links.c[name] == value for name, value in given.items() if value]
    if word := filters.words.strip().lower():
        columns = (links.c.url_norm, links.c.url)
        conditions.append(or_(*(func.lower(column).contains(word, autoescape=True) for column in columns)))
    return conditions


async def find_links(app: App, filters: LinkFilter) -> ListPage[LinkLine]:
    """The links that pass a filter. A whole URL as its words means one link, in any form of it."""
    pages, known = LinkPages(app.database), await named_link(app, filters.words)
    if known is None:
        return await pages.list(filters)
    one = await pages.one(known)
    return ListPage(items=[one] if one else [], next=None)


async def named_link(app: App, words: str) -> LinkId | None:
    """The stored link that words name by a whole URL, in any form of it."""
    if not words.strip().lower().startswith(("https://", "http://")):
        return None
    name = link_rules.canonical_link(words.strip(), app.shops)
    return await LinkPages(app.database).called(bounded(name.url_norm)) if isinstance(name, Canonical) else None


class WaitingLinks(msgspec.Struct, frozen=True, kw_only=True):
    """New links on lanes that are not crawled here."""

    links: int
    lanes: Sequence[str]

    @property
    def problem(self) -> str:
        """What waits and why, up to the name of the setting."""
        lanes = " and ".join([", ".join(self.lanes[:-1]), self.lanes[-1]] if len(self.lanes) > 1 else self.lanes)
        lane = "the lane" if len(self.lanes) == 1 else "the lanes"
        wait = "waits" if self.links == 1 else "wait"
        return f"{counted(self.links, 'link')} {wait}: {lane} {lanes} {are(len(self.lanes))} not in"

    @property
    def example(self) -> str:
        return f"MISTNET_CRAWL_LANES={','.join(self.lanes)}"

    def __str__(self) -> str:
        return f"{self.problem} `crawl_lanes`. Set {self.example} for the workers; `mistnet links crawl` visits these."


async def waiting_links(app: App) -> WaitingLinks | None:
    """None if all lanes that have new links are crawled."""
    found = await count_new(app.database, lanes=[lane for lane in CRAWL_LANES if lane not in app.crawling.lanes])
    return WaitingLinks(links=sum(found.values()), lanes=sorted(found)) if found else None


def hints_of(waiting: WaitingLinks | None) -> list[str]:
    return [str(waiting)] if waiting else []
