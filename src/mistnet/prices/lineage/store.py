"""The posts that promoted a product, by any link to it, each with the product's price before and after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import ColumnElement, FromClause, Select, and_, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import ListPage
from mistnet.prices.lineage.model import WINDOWS, Around, Promotion, SeenPrice, around, later_by, snippet
from mistnet.prices.model import ItemId
from mistnet.prices.tables import items, price_points
from mistnet.shops.model import LinkId, LinkPlace, ProductId
from mistnet.shops.store.mentions import MentionCursor, Verbatim, among, cut_posts, newest_first
from mistnet.shops.store.product_pages import ProductLine, ProductPages
from mistnet.shops.tables import links, offers, post_links, products
from mistnet.social.model import Platform, PostId, UserId
from mistnet.social.store.post_listing import stored_platforms
from mistnet.social.tables import accounts, missing, posts, users

Courses: TypeAlias = Mapping[ProductId, Sequence[SeenPrice]]
_AT_ONCE: Final = 400
_PRICE_COLUMNS: Final = (
    *("id", "product_id", "amount", "amount_max", "currency", "availability", "observed_at", "last_seen_at"),
)


async def courses(
    connection: AsyncConnection, product_ids: Collection[ProductId], *, since: datetime, until: datetime
) -> Courses:
    """In the order of their times: the last up to `since`, all up to `until`, and the first after that."""
    found: dict[ProductId, list[SeenPrice]] = {each: [] for each in product_ids}
    ids = sorted(found)
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        edges = [edge for row in await connection.execute(_edges(some, since, until)) for edge in row if edge]
        shown = [offers.c[name] for name in _PRICE_COLUMNS]
        inside = select(*shown).where(
            offers.c.product_id.in_(some),
            offers.c.observed_at > since,
            offers.c.observed_at <= until,
            *_is_price(offers),
        )
        between = union_all(inside, select(*shown).where(offers.c.id.in_(edges))) if edges else inside
        for row in (await connection.execute(between)).mappings():
            found[row["product_id"]].append(_price(row))
    for course in found.values():
        course.sort(key=lambda each: (each.observed_at, each.id))
    return found


async def latest_course(connection: AsyncConnection, product_id: ProductId, *, limit: int) -> Sequence[SeenPrice]:
    """The latest offers of one product, in the order of their times."""
    shown = [offers.c[name] for name in _PRICE_COLUMNS]
    asked = select(*shown).where(offers.c.product_id == product_id, *_is_price(offers))
    rows = await connection.execute(asked.order_by(offers.c.observed_at.desc(), offers.c.id.desc()).limit(limit))
    return [_price(row) for row in rows.mappings()][::-1]


def _edges(ids: Sequence[ProductId], since: datetime, until: datetime) -> Select[Any]:
    """By product, the ids of the offers on either side of the span."""
    earlier, later = offers.alias("earlier"), offers.alias("later")
    before = (
        _believed(earlier)
        .where(earlier.c.observed_at <= since)
        .order_by(earlier.c.observed_at.desc(), earlier.c.id.desc())
    )
    after = _believed(later).where(later.c.observed_at > until).order_by(later.c.observed_at, later.c.id)
    sides = [each.limit(1).correlate(products).scalar_subquery() for each in (before, after)]
    return select(*sides).select_from(products).where(products.c.id.in_(ids))


def _believed(table: FromClause) -> Select[Any]:
    return select(table.c.id).where(table.c.product_id == products.c.id, *_is_price(table))


def _is_price(table: FromClause) -> Sequence[ColumnElement[bool]]:
    """Offers that count as prices: with an amount and without a doubt."""
    return table.c.doubt.is_(None), table.c.amount.is_not(None)


def _price(row: Mapping[Any, Any]) -> SeenPrice:
    return SeenPrice(**{name: row[name] for name in _PRICE_COLUMNS if name != "product_id"})


AFTERMATH: Final = max(WINDOWS)


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
    post, prices = lined.post, lined.prices
    return {
        **{name: getattr(post, name) for name in post.__struct_fields__},
        "text": snippet(post.text),
        "prices": {
            "before": prices.before,
            "before_age_seconds": None if prices.age is None else int(prices.age.total_seconds()),
            "at_post": prices.at,
            "after": prices.after,
            "after_delay_seconds": None if prices.delay is None else int(prices.delay.total_seconds()),
            "unchanged": prices.unchanged,
            "change": prices.change,
            "lowest": prices.lowest,
        },
    }


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


class Lineage:
    """Reads, each by an index."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, product_id: ProductId, *, now: datetime, limit: int, before: MentionCursor | None = None
    ) -> LineagePage:
        """Each post once, though it may link the product in several ways. Those of one platform are in their order."""
        begin = before or MentionCursor()
        async with self._database.read() as connection:
            reached = list(await links_to(connection, [product_id]))
            found = [
                await _of(connection, platform, reached, begin.below.get(platform, LARGEST_ID), limit + 1)
                for platform in await stored_platforms(connection)
            ]
            page = cut_posts(newest_first(found), begin, limit)
            return LineagePage(posts=await _priced(connection, product_id, page.items, now), next=page.next)

    async def course(self, product_id: ProductId, *, limit: int = 500) -> Sequence[SeenPrice]:
        """The latest prices, in the order of time."""
        async with self._database.read() as connection:
            return await latest_course(connection, product_id, limit=limit)


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
        asked = select(links.c.id, links.c.leads_to).where(among(connection, links.c.leads_to, sorted(behind)))
        further = ((link_id, each) for link_id, at in await connection.execute(asked) for each in behind[at])
        fresh = {(link_id, each) for link_id, each in further if each not in found.get(link_id, ())}
    return found


async def _of(
    connection: AsyncConnection, platform: Platform, reached: Sequence[LinkId], before: int, limit: int
) -> Sequence[Promoting]:
    """The latest posts that mention any of these links."""
    if not reached:
        return []
    own = post_links.c
    lower = (among(connection, own.link_id, reached), own.platform == platform, own.post_id < before)
    page = select(own.post_id).where(*lower).distinct().order_by(own.post_id.desc()).limit(limit)
    latest = list((await connection.execute(page)).scalars())
    if not latest:
        return []
    asked = promoting(post_links, own.platform, own.post_id).where(own.platform == platform, own.post_id.in_(latest))
    rows = await connection.execute(asked.order_by(own.post_id.desc(), own.nr, own.link_id))
    wanted = set(reached)
    return by_post(row for row in rows.mappings() if row["link_id"] in wanted)


async def _priced(
    connection: AsyncConnection, product_id: ProductId, shown: Sequence[Promoting], now: datetime
) -> Sequence[Lined]:
    if not shown:
        return []
    moments = [each.created_at for each in shown]
    until = later_by(max(moments), AFTERMATH)
    course = (await courses(connection, [product_id], since=min(moments), until=until))[product_id]
    return [Lined(post=each, prices=around(course, each.created_at, now=now)) for each in shown]


async def products_of_links(connection: AsyncConnection, ids: Collection[int]) -> Mapping[int, set[ProductId]]:
    """The products these links lead to, over however many steps. A link that leads to none is not there."""
    known: dict[int, Any] = {}
    ahead = set(ids)
    while ahead:  # one step per query: planners guess badly how far links lead
        asked = select(links.c.id, links.c.leads_to, links.c.product_id)
        rows = await connection.execute(asked.where(among(connection, links.c.id, sorted(ahead))))
        known |= {row.id: row for row in rows}
        ahead = {known[each].leads_to for each in ahead if each in known} - known.keys() - {None}
    return {each: found for each in ids if (found := set(_along(each, known)))}


def _along(link_id: int, known: Mapping[int, Any]) -> Iterator[ProductId]:
    passed: set[int] = set()
    while link_id in known and link_id not in passed:
        passed.add(link_id)
        row = known[link_id]
        if row.product_id is not None:
            yield ProductId(row.product_id)
        link_id = row.leads_to


def promoting(joined: Any, platform: ColumnElement[Any], post_id: ColumnElement[Any]) -> Select[Any]:
    """The columns of `Promoting`, for mentions that are joined already."""
    gone = and_(missing.c.platform == posts.c.platform, missing.c.what == "post", missing.c.id == posts.c.id)
    whole = (
        joined.join(posts, and_(posts.c.platform == platform, posts.c.id == post_id))
        .join(users, and_(users.c.platform == posts.c.platform, users.c.id == posts.c.author_id))
        .outerjoin(accounts, and_(accounts.c.platform == users.c.platform, accounts.c.user_id == users.c.id))
        .outerjoin(missing, gone)
    )
    return select(*_SHOWN).select_from(whole)


def by_post(rows: Iterable[Mapping[Any, Any]]) -> Sequence[Promoting]:
    """In the order in which the rows come."""
    found: dict[tuple[str, int], list[Mapping[Any, Any]]] = {}
    for row in rows:
        found.setdefault((row["platform"], row["post_id"]), []).append(row)
    return [_promoting(some) for some in found.values()]


def _promoting(rows: Sequence[Mapping[Any, Any]]) -> Promoting:
    first = rows[0]
    own = {name: first[name] for name in _PLAIN}
    urls = [Verbatim(link_id=LinkId(row["link_id"]), url=row["url"], place=LinkPlace(row["place"])) for row in rows]
    return Promoting(
        **{**own, "platform": Platform(own["platform"]), "tracked": bool(own["tracked"])},
        text=(first["referenced_text"] or first["text"]) if first["reposted_id"] else first["text"],
        kind=kind_of(reposted=first["reposted_id"] is not None, places={each.place for each in urls}),
        urls=urls,
    )


def kind_of(*, reposted: bool, places: set[LinkPlace]) -> Promotion:
    if reposted:
        return Promotion.REPOST
    return Promotion.QUOTE if places == {LinkPlace.QUOTED} else Promotion.OWN


_PLAIN: Final = (
    *("platform", "post_id", "author_id", "handle", "name", "tracked", "post_url", "conversation_id"),
    *("created_at", "gone_at"),
)
_SHOWN: Final = (
    post_links.c.platform,
    post_links.c.post_id,
    post_links.c.link_id,
    post_links.c.url,
    post_links.c.place,
    posts.c.author_id,
    posts.c.text,
    posts.c.referenced_text,
    posts.c.reposted_id,
    posts.c.url.label("post_url"),
    posts.c.conversation_id,
    posts.c.created_at,
    users.c.handle,
    users.c.name,
    accounts.c.user_id.is_not(None).label("tracked"),
    missing.c.asked_at.label("gone_at"),
)

_COUNTS: Final = ("points", "strength", "first_at", "latest_at")


class ItemProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product with the points of an item that came from it; `strength` is how well the best of them fits."""

    product: ProductLine
    points: int
    strength: float
    first_at: datetime
    latest_at: datetime


class ItemProducts:
    """Reads, by the index of an item's points."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def has_item(self, item_id: ItemId) -> bool:
        return await self._database.fetch_value(select(items.c.id).where(items.c.id == item_id)) is not None

    async def page(self, item_id: ItemId, *, after: int | None = None, limit: int) -> ListPage[ItemProduct]:
        """In the order of their ids."""
        own = price_points.c
        asked = (
            select(
                own.product_id,
                func.count().label("points"),
                func.max(own.match_strength).label("strength"),
                func.min(own.observed_at).label("first_at"),
                func.max(own.last_seen_at).label("latest_at"),
            )
            .where(own.item_id == item_id, own.product_id > (after or 0))
            .group_by(own.product_id)
            .order_by(own.product_id)
            .limit(limit + 1)
        )
        found = ListPage.cut(await self._database.fetch_rows(asked), limit, lambda row: row["product_id"])
        rows = found.items
        lines = await ProductPages(self._database).some([ProductId(row["product_id"]) for row in rows])
        products_ = [
            ItemProduct(product=lines[row["product_id"]], **{name: row[name] for name in _COUNTS}) for row in rows
        ]
        return ListPage(items=products_, next=found.next)
