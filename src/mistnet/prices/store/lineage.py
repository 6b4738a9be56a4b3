"""The posts that promoted a product, by any link to it, each with the product's price before and after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import ColumnElement, FromClause, Select, and_, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.columns import ColumnShape, Field
from mistnet.kit.database import Database, Store
from mistnet.kit.export import BadExport, Format, Row, Target, export_pages
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import record_of, records_of
from mistnet.prices.lineage import WINDOWS, Around, Promotion, SeenPrice, around, later_by, snippet
from mistnet.shops.model import LinkId, LinkPlace, ProductId
from mistnet.shops.store.mentions import (
    MENTION,
    MentionCursor,
    Verbatim,
    among,
    cut_posts,
    join_posts,
    newest_first,
)
from mistnet.shops.store.product_pages import ProductLine, ProductPages
from mistnet.shops.tables import links, offers, post_links, products
from mistnet.social.model import Platform, PostId, UserId
from mistnet.social.store.post_listing import holders, stored_platforms
from mistnet.social.tables import missing, posts

Courses: TypeAlias = Mapping[ProductId, Sequence[SeenPrice]]
Author: TypeAlias = tuple[Platform, UserId | None]
"""A user whose posts are exported; without an id, everyone on the platform."""

LINEAGE: Final = "lineage"
AFTERMATH: Final = max(WINDOWS)
_AT_ONCE: Final = 400
_POSTS: Final = 500
_PRICE_COLUMNS: Final = [offers.c[name] for name in SeenPrice.__struct_fields__]


async def courses(
    connection: AsyncConnection, product_ids: Collection[ProductId], *, since: datetime, until: datetime
) -> Courses:
    """In the order of their times: the last up to `since`, all up to `until`, and the first after that."""
    found: dict[ProductId, list[SeenPrice]] = {each: [] for each in product_ids}
    ids = sorted(found)
    query = select(offers.c.product_id, *_PRICE_COLUMNS)
    # By product, the ids of the offers on either side of the span.
    earlier, later = offers.alias("earlier"), offers.alias("later")
    before = _price_ids(earlier).where(earlier.c.observed_at <= since)
    after = _price_ids(later).where(later.c.observed_at > until)
    sides = (
        before.order_by(earlier.c.observed_at.desc(), earlier.c.id.desc()),
        after.order_by(later.c.observed_at, later.c.id),
    )
    outside = select(*(each.limit(1).correlate(products).scalar_subquery() for each in sides)).select_from(products)
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        rows = await connection.execute(outside.where(products.c.id.in_(some)))
        edges = [edge for row in rows for edge in row if edge]
        span = (offers.c.observed_at > since, offers.c.observed_at <= until)
        inside = query.where(offers.c.product_id.in_(some), *span, *_is_price(offers))
        between = union_all(inside, query.where(offers.c.id.in_(edges))) if edges else inside
        for product_id, *values in await connection.execute(between):
            found[product_id].append(_price(values))
    for course in found.values():
        # A union comes in no order.
        course.sort(key=lambda each: (each.observed_at, each.id))
    return found


async def _courses_around(
    connection: AsyncConnection, product_ids: Collection[ProductId], shown: Sequence[Promoting]
) -> Courses:
    """The prices around these posts."""
    moments = [each.created_at for each in shown]
    if not moments:
        return {}
    return await courses(connection, product_ids, since=min(moments), until=later_by(max(moments), AFTERMATH))


def _price_ids(table: FromClause) -> Select[Any]:
    return select(table.c.id).where(table.c.product_id == products.c.id, *_is_price(table))


def _is_price(table: FromClause) -> Sequence[ColumnElement[bool]]:
    """Offers that count as prices: with an amount and without a doubt."""
    return table.c.doubt.is_(None), table.c.amount.is_not(None)


def _price(values: Iterable[Any]) -> SeenPrice:
    return SeenPrice(**dict(zip(SeenPrice.__struct_fields__, values, strict=True)))


class Promoting(msgspec.Struct, frozen=True, kw_only=True):
    """A post that promotes a product, with all its links to it.

    `gone_at` is when the platform no longer had the post.
    """

    platform: Platform
    post_id: PostId
    author_id: UserId
    handle: str | None
    name: str | None
    tracked: bool
    kind: Promotion
    text: str
    post_url: str | None
    conversation_id: PostId | None
    created_at: datetime
    gone_at: datetime | None
    urls: Sequence[Verbatim]


class Lined(msgspec.Struct, frozen=True, kw_only=True):
    """A post and the prices around it."""

    post: Promoting
    prices: Around


def lined_fields(lined: Lined) -> dict[str, Any]:
    """A post and its prices as API and commands show them: one flat object."""
    return {**msgspec.structs.asdict(lined.post), "text": snippet(lined.post.text), "prices": lined.prices}


class LineagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some posts, the newest first; `next` is where the page after them begins, None if there is none."""

    posts: Sequence[Lined]
    next: MentionCursor | None

    def cut(self, limit: int) -> LineagePage:
        """As a first page of so many posts would be."""
        if len(self.posts) <= limit:
            return self
        page = cut_posts([each.post for each in self.posts], MentionCursor(), limit)
        return LineagePage(posts=self.posts[:limit], next=page.next)


class Lineage(Store):
    """Reads, each by an index."""

    async def page(
        self, product_id: ProductId, *, now: datetime, limit: int, before: MentionCursor | None = None
    ) -> LineagePage:
        """Each post once, though it may link the product in several ways. Those of one platform are in their order."""
        begin, own = before or MentionCursor(), post_links.c
        found: list[Sequence[Promoting]] = []
        async with self._database.read() as connection:
            reached = await links_to(connection, [product_id])
            for platform in await stored_platforms(connection) if reached else ():
                below = begin.below.get(platform, LARGEST_ID)
                lower = (among(connection, own.link_id, list(reached)), own.platform == platform, own.post_id < below)
                latest = select(own.post_id).where(*lower).distinct().order_by(own.post_id.desc()).limit(limit + 1)
                post_ids = list((await connection.execute(latest)).scalars())
                query = _mentions_in(platform, post_ids).order_by(own.post_id.desc(), own.nr, own.link_id)
                rows = (await connection.execute(query)).mappings() if post_ids else ()
                # These posts may have links to other products too.
                found.append(_by_post(row for row in rows if row["link_id"] in reached))
            page = cut_posts(newest_first(found), begin, limit)
            priced = await _courses_around(connection, [product_id], page.items)
        lines = [Lined(post=each, prices=around(priced[product_id], each.created_at, now=now)) for each in page.items]
        return LineagePage(posts=lines, next=page.next)

    async def course(self, product_id: ProductId, *, limit: int = 500) -> Sequence[SeenPrice]:
        """The latest prices, in the order of time."""
        query = select(*_PRICE_COLUMNS).where(offers.c.product_id == product_id, *_is_price(offers))
        latest = query.order_by(offers.c.observed_at.desc(), offers.c.id.desc()).limit(limit)
        rows = await self._database.fetch_rows(latest)
        return [_price(row.values()) for row in reversed(rows)]


async def links_to(connection: AsyncConnection, ids: Sequence[ProductId]) -> Mapping[LinkId, set[ProductId]]:
    """The links that name these products, and all that lead to them over however many steps, with what they reach."""
    found = defaultdict[LinkId, set[ProductId]](set)
    rows = await connection.execute(select(links.c.id, links.c.product_id).where(links.c.product_id.in_(ids)))
    fresh = {(LinkId(link_id), ProductId(product_id)) for link_id, product_id in rows}
    while fresh:  # one step per query: planners guess badly how many links lead to one
        behind = defaultdict[LinkId, set[ProductId]](set)
        for link_id, product_id in fresh:
            found[link_id].add(product_id)
            behind[link_id].add(product_id)
        query = select(links.c.id, links.c.leads_to).where(among(connection, links.c.leads_to, sorted(behind)))
        further = ((link_id, each) for link_id, at in await connection.execute(query) for each in behind[at])
        fresh = {(link_id, each) for link_id, each in further if each not in found.get(link_id, ())}
    return found


async def products_of_links(connection: AsyncConnection, ids: Collection[int]) -> Mapping[int, set[ProductId]]:
    """The products these links lead to, over however many steps. A link that leads to none is not there."""
    known: dict[int, Any] = {}
    ahead = set(ids)
    while ahead:  # one step per query: planners guess badly how far links lead
        query = select(links.c.id, links.c.leads_to, links.c.product_id)
        rows = await connection.execute(query.where(among(connection, links.c.id, sorted(ahead))))
        known |= {row.id: row for row in rows}
        ahead = {known[each].leads_to for each in ahead if each in known} - known.keys() - {None}
    found = defaultdict[int, set[ProductId]](set)
    for link_id in ids:
        step, passed = link_id, set[int]()
        while step in known and step not in passed:  # links may lead in a circle
            passed.add(step)
            if known[step].product_id is not None:
                found[link_id].add(ProductId(known[step].product_id))
            step = known[step].leads_to
    return found


def _mentions_in(platform: Platform, post_ids: Sequence[int]) -> Select[Any]:
    """A row for each link in these posts, with the columns of `Promoting`."""
    own = post_links.c
    gone = and_(missing.c.platform == posts.c.platform, missing.c.what == "post", missing.c.id == posts.c.id)
    joined = join_posts(post_links).outerjoin(missing, gone)
    return select(*_SHOWN).select_from(joined).where(own.platform == platform, own.post_id.in_(post_ids))


def _by_post(rows: Iterable[Mapping[Any, Any]]) -> Sequence[Promoting]:
    """In the order in which the rows come."""
    found = defaultdict[PostId, list[Mapping[Any, Any]]](list)
    for row in rows:
        found[row["post_id"]].append(row)
    promoting = []
    for own in found.values():
        urls, is_repost = records_of(Verbatim, own), own[0]["reposted_id"] is not None
        text = (is_repost and own[0]["referenced_text"]) or own[0]["text"]
        about = {"text": text, "kind": _kind_of(is_repost=is_repost, urls=urls), "urls": urls}
        promoting.append(record_of(Promoting, {**own[0], **about}))
    return promoting


def _kind_of(*, is_repost: bool, urls: Sequence[Verbatim]) -> Promotion:
    if is_repost:
        return Promotion.REPOST
    return Promotion.QUOTE if {each.place for each in urls} == {LinkPlace.QUOTED} else Promotion.OWN


_SHOWN: Final = (*MENTION, posts.c.referenced_text, posts.c.reposted_id, missing.c.asked_at.label("gone_at"))

_SHAPES: Final = {
    "before_age_seconds": ColumnShape.WHOLE,
    "after_delay_seconds": ColumnShape.WHOLE,
    "held_at_post": ColumnShape.FLAG,
    "unchanged": ColumnShape.FLAG,
    "lowest_7_over": ColumnShape.FLAG,
    "lowest_30_over": ColumnShape.FLAG,
    **dict.fromkeys(("post_id", "author_id", "product_id"), ColumnShape.ID),
}
_ENDINGS: Final = {"_at": ColumnShape.TIME, "_amount": ColumnShape.AMOUNT, "_percent": ColumnShape.AMOUNT}
_POST: Final = ("platform", "post_id", "author_id", "handle", "kind", "created_at", "post_gone_at", "post_url", "text")
_PRODUCT: Final = ("product_id", "shop", "region", "shop_id", "item_id", "product_url", "title", "product_gone_at")
_PRICES: Final = (
    *("before_amount", "before_currency", "before_observed_at", "before_last_seen_at", "before_age_seconds"),
    *("held_at_post", "after_amount", "after_currency", "after_observed_at", "after_last_seen_at"),
    *("after_delay_seconds", "unchanged", "change_percent", "no_change_because"),
    *("lowest_7_amount", "lowest_7_at", "lowest_7_change_percent", "lowest_7_over"),
    *("lowest_30_amount", "lowest_30_at", "lowest_30_change_percent", "lowest_30_over"),
)
NAMES: Final = (*_POST, *_PRODUCT, *_PRICES)
_FIELDS: Final = [
    Field(name, _SHAPES.get(name) or next((_ENDINGS[end] for end in _ENDINGS if name.endswith(end)), ColumnShape.TEXT))
    for name in NAMES
]


class LineageSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Posts of whom and of when. The span includes its beginning, but not its end."""

    author: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def export_lineage(
    database: Database, selection: LineageSelection, format_: Format, target: Target, *, now: datetime
) -> int:
    """In the order of posts, then of products; how many rows. Memory does not grow with the tables."""
    async with database.read() as connection:
        if selection.author is None:
            authors: Sequence[Author] = [(each, None) for each in sorted(await stored_platforms(connection))]
        else:
            authors = await holders(connection, selection.author)
    if selection.author is not None and not authors:
        raise BadExport(LINEAGE, f"no stored user has the handle {selection.author!r}; check its spelling")
    return await export_pages(LINEAGE, _FIELDS, _pages(database, selection, authors, now), format_, target)


async def _pages(
    database: Database, selection: LineageSelection, authors: Sequence[Author], now: datetime
) -> AsyncGenerator[Sequence[Row], None]:
    for platform, author_id in authors:
        # All posts that link anything. For one author: all posts of that author, with or without links.
        own, key = (post_links.c, post_links.c.post_id) if author_id is None else (posts.c, posts.c.id)
        query = select(key).distinct() if author_id is None else select(key).where(posts.c.author_id == author_id)
        query = query.where(own.platform == platform).order_by(key).limit(_POSTS)
        last: int | None = None
        ids: Sequence[int] = ()
        while last is None or len(ids) == _POSTS:
            async with database.read() as connection:
                following = query if last is None else query.where(key > last)
                ids = list((await connection.execute(following)).scalars())
                pairs = await _pairs(connection, selection, platform, ids) if ids else []
                product_ids = {product_id for _, product_id in pairs}
                found = await _courses_around(connection, product_ids, [post for post, _ in pairs])
            lines = await ProductPages(database).some(sorted(found))
            if pairs:
                yield [_row(post, lines[product_id], found, now) for post, product_id in pairs]
            last = ids[-1] if ids else 0


async def _pairs(
    connection: AsyncConnection, selection: LineageSelection, platform: Platform, ids: Sequence[int]
) -> Sequence[tuple[Promoting, ProductId]]:
    """Each post with each product it promotes, and of its links only those that lead there."""
    own, query = post_links.c, _mentions_in(platform, ids)
    if selection.since is not None:
        query = query.where(posts.c.created_at >= selection.since)
    if selection.until is not None:
        query = query.where(posts.c.created_at < selection.until)
    rows = await connection.execute(query.order_by(own.post_id, own.nr, own.link_id))
    linking = _by_post(rows.mappings())
    named = await products_of_links(connection, {url.link_id for post in linking for url in post.urls})
    pairs = []
    for post in linking:
        for product_id in sorted({each for url in post.urls for each in named.get(url.link_id, ())}):
            urls = [url for url in post.urls if product_id in named.get(url.link_id, ())]
            kind = _kind_of(is_repost=post.kind is Promotion.REPOST, urls=urls)
            pairs.append((msgspec.structs.replace(post, urls=urls, kind=kind), product_id))
    return pairs


def _row(post: Promoting, line: ProductLine, found: Courses, now: datetime) -> Row:
    prices = around(found[line.id], post.created_at, now=now)
    values: dict[str, Any] = {
        **{name: getattr(post, name) for name in ("platform", "post_id", "author_id", "handle", "kind", "created_at")},
        "post_gone_at": post.gone_at,
        "post_url": post.post_url,
        "text": snippet(post.text),
        "product_id": line.id,
        "shop": line.platform,
        **{name: getattr(line, name) for name in ("region", "shop_id", "item_id", "title")},
        "product_url": line.url,
        "product_gone_at": line.gone_at,
        "before_age_seconds": prices.before_age_seconds,
        "held_at_post": prices.at_post is not None,
        "after_delay_seconds": prices.after_delay_seconds,
        "unchanged": prices.unchanged,
        "change_percent": prices.change.percent,
        "no_change_because": prices.change.why_not,
    }
    for when, price in (("before", prices.before), ("after", prices.after)):
        for name in ("amount", "currency", "observed_at", "last_seen_at"):
            values[f"{when}_{name}"] = price and getattr(price, name)
    for each in prices.lowest:
        values[f"lowest_{each.days}_amount"] = each.price and each.price.amount
        values[f"lowest_{each.days}_at"] = each.price and each.price.observed_at
        values[f"lowest_{each.days}_change_percent"] = each.change.percent
        values[f"lowest_{each.days}_over"] = each.over
    return [values[name] for name in NAMES]
