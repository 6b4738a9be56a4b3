"""Links as people look at them: by lane, state, kind and words; one with where it leads and how its crawls went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import product
from typing import Any, Final, Protocol, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Select, Subquery, and_, any_, func, literal, or_, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.types import IDS
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import LinkId, LinkKind, LinkPlace, LinkState, ProductId
from mistnet.shops.tables import crawls, links, post_links, products
from mistnet.social.model import PLATFORMS, Platform, PostId, UserId, X
from mistnet.social.tables import accounts, posts, users

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


LARGEST_MENTION_ID: Final = 2**63 - 1
_FEW: Final = 400


class Posted(Protocol):
    """What is needed to put a post in its place among others."""

    @property
    def platform(self) -> Platform: ...
    @property
    def post_id(self) -> PostId: ...
    @property
    def created_at(self) -> datetime: ...


P = TypeVar("P", bound=Posted)


class Verbatim(msgspec.Struct, frozen=True, kw_only=True):
    """A link as it was posted, and where in the post it stood."""

    link_id: LinkId
    url: str
    place: LinkPlace


class Mentioning(msgspec.Struct, frozen=True, kw_only=True):
    """One post that mentions a link, with every form in which it does."""

    platform: Platform
    post_id: PostId
    author_id: UserId
    handle: str | None
    name: str | None
    tracked: bool
    text: str
    post_url: str | None
    conversation_id: PostId | None
    created_at: datetime
    seen_at: datetime
    urls: Sequence[Verbatim]


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page begins: below these posts, one for each platform. Their ids do not compare with each other."""

    x: int = LARGEST_MENTION_ID
    threads: int = LARGEST_MENTION_ID

    def of(self, platform: Platform) -> int:
        return self.x if platform == X else self.threads


class MentionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some posts; `next` is where the page after them begins, None if there is none."""

    posts: Sequence[Mentioning]
    next: Before | None


class MentionPages:
    """Reads, each by an index."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reach_of_link(self, link_id: LinkId) -> Sequence[LinkId]:
        """The link itself, then all that lead to it, over however many steps."""
        async with self._database.read() as connection:
            return await leading_to(connection, [link_id])

    async def reach_of_product(self, product_id: int) -> Sequence[LinkId]:
        """The links that name a product, and all that lead to them."""
        own = select(links.c.id).where(links.c.product_id == product_id).order_by(links.c.id)
        async with self._database.read() as connection:
            return await leading_to(connection, (await connection.execute(own)).scalars().all())

    async def page(self, ids: Sequence[LinkId], *, before: Before | None = None, limit: int) -> MentionPage:
        """Posts that mention any of these links."""
        begin = before or Before()
        async with self._database.read() as connection:
            found = [
                await _of(connection, platform, ids, begin.of(platform), limit + 1) for platform in PLATFORMS if ids
            ]
        every = newest_first(found)
        shown = every[:limit]
        return MentionPage(posts=shown, next=below(shown, begin) if len(every) > limit else None)


async def leading_to(connection: AsyncConnection, first: Sequence[LinkId]) -> Sequence[LinkId]:
    """These links and all that lead to them. A step at a time: planners guess badly how many lead to one."""
    found, fresh = dict.fromkeys(first), list(first)
    while fresh:
        asked = select(links.c.id).where(among(connection, links.c.leads_to, fresh)).order_by(links.c.id)
        fresh = [LinkId(each) for each in (await connection.execute(asked)).scalars() if each not in found]
        found.update(dict.fromkeys(fresh))
    return list(found)


async def _of(
    connection: AsyncConnection, platform: Platform, ids: Sequence[LinkId], before: int, limit: int
) -> Sequence[Mentioning]:
    own = post_links.c
    page = (
        select(own.post_id)
        .where(among(connection, own.link_id, ids), own.platform == platform, own.post_id < before)
        .group_by(own.post_id)
        .order_by(own.post_id.desc())
        .limit(limit)
        .subquery()
    )
    same_post = and_(own.platform == platform, own.post_id == page.c.post_id, among(connection, own.link_id, ids))
    joined = (
        page.join(post_links, same_post)
        .join(posts, and_(posts.c.platform == own.platform, posts.c.id == own.post_id))
        .join(users, and_(users.c.platform == posts.c.platform, users.c.id == posts.c.author_id))
        .outerjoin(accounts, and_(accounts.c.platform == users.c.platform, accounts.c.user_id == users.c.id))
    )
    asked = select(*_SHOWN).select_from(joined).order_by(own.post_id.desc(), own.nr)
    return _by_post((await connection.execute(asked)).mappings().all())


def among(connection: AsyncConnection, column: ColumnElement[Any], ids: Sequence[int]) -> ColumnElement[bool]:
    """Whether it is one of these. Many are one value to the driver: thousands of places take longer than the answer."""
    if len(ids) <= _FEW:
        return column == ids[0] if len(ids) == 1 else column.in_(ids)
    if connection.dialect.name == "postgresql":
        return column == any_(literal(ids, IDS))
    return column.in_(select(func.json_each(literal(ids, IDS)).table_valued("value").c.value))


def newest_first(some: Sequence[Sequence[P]]) -> Sequence[P]:
    """The latest first. What is of one platform keeps its order, so that a page can be cut anywhere."""
    heads = [list(reversed(each)) for each in some if each]
    found: list[P] = []
    while heads:
        latest = max(heads, key=lambda each: (each[-1].created_at, each[-1].post_id))
        found.append(latest.pop())
        heads = [each for each in heads if each]
    return found


def below(shown: Sequence[Posted], begin: Before) -> Before:
    """Where the page after these begins."""
    lowest = {
        str(platform): min((each.post_id for each in shown if each.platform == platform), default=begin.of(platform))
        for platform in PLATFORMS
    }
    return Before(**lowest)


def _by_post(rows: Sequence[Mapping[Any, Any]]) -> Sequence[Mentioning]:
    found: dict[int, list[Mapping[Any, Any]]] = {}
    for row in rows:
        found.setdefault(row["post_id"], []).append(row)
    return [_mentioning(some) for some in found.values()]


def _mentioning(rows: Sequence[Mapping[Any, Any]]) -> Mentioning:
    own = {name: value for name, value in rows[0].items() if name not in ("link_id", "url", "place")}
    urls = [Verbatim(link_id=row["link_id"], url=row["url"], place=LinkPlace(row["place"])) for row in rows]
    return Mentioning(**{**own, "platform": Platform(own["platform"]), "tracked": bool(own["tracked"])}, urls=urls)


_SHOWN: Final = (
    post_links.c.platform,
    post_links.c.post_id,
    post_links.c.link_id,
    post_links.c.url,
    post_links.c.place,
    post_links.c.seen_at,
    posts.c.author_id,
    posts.c.text,
    posts.c.url.label("post_url"),
    posts.c.conversation_id,
    posts.c.created_at,
    users.c.handle,
    users.c.name,
    accounts.c.user_id.is_not(None).label("tracked"),
)
