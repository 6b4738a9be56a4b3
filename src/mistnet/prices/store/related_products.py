"""Products by what leads to them: an account that links them, or an item that has prices of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Store
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import ListPage, columns_of, record_of
from mistnet.prices.lineage import PriceChange, SeenPrice, change, cheapest, dearest, since
from mistnet.prices.model import ItemId
from mistnet.prices.store.lineage import courses, links_to, products_of_links
from mistnet.prices.tables import items, price_points
from mistnet.shops.model import ProductId
from mistnet.shops.store.mentions import among
from mistnet.shops.store.product_pages import ProductLine, ProductPages
from mistnet.shops.tables import post_links
from mistnet.social.model import Platform, PostId, UserId
from mistnet.social.tables import accounts, posts, users

WINDOWS: Final = (2_500, 17_500)
"""How many posts are searched for one page: a few first, as of most accounts they fill it. A page may be short and
still have a next."""

SHOWN_OFFERS: Final = 100
"""How many prices of a product are shown: the latest."""

# Mentions are read in such steps, so that a page whose products are all recent reads few of the window.
_STEP: Final = 5_000
_AT_ONCE: Final = 400
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)

Author: TypeAlias = tuple[Platform, UserId]
Mention: TypeAlias = tuple[int, ProductId]
"""A post and a product that it links."""


class ProductCursor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page begins: below this product, whose latest mention is this post."""

    post_id: int = LARGEST_ID
    product_id: int = 0


class Mentions(msgspec.Struct, frozen=True, kw_only=True):
    """How often and when an account linked a product. Reposts count as posts, and are counted again by themselves."""

    posts: int
    reposts: int
    first_post_id: PostId
    first_at: datetime
    latest_post_id: PostId
    latest_at: datetime
    highest_id: PostId


class LinkedProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product that an account links. Prices are those since the first mention, in the latest currency.

    `at_first` is the last price up to the first mention; `earlier` counts prices that are not in `course`.
    """

    product: ProductLine
    mentions: Mentions
    at_first: SeenPrice | None
    lowest: SeenPrice | None
    highest: SeenPrice | None
    latest: SeenPrice | None
    change: PriceChange
    course: Sequence[SeenPrice]
    earlier: int


def linked_fields(linked: LinkedProduct) -> dict[str, Any]:
    """A linked product as API and commands show it: one flat object."""
    mentions = {name: getattr(linked.mentions, name) for name in Mentions.__struct_fields__ if name != "highest_id"}
    own = {name: getattr(linked, name) for name in LinkedProduct.__struct_fields__ if name != "mentions"}
    return {**own, **mentions}


class AccountProducts(Store):
    """Reads, each by an index: as many posts of an account as a page needs, and all mentions of its products."""

    async def page(
        self, platform: Platform, user_id: UserId, *, limit: int, before: ProductCursor | None = None
    ) -> ListPage[LinkedProduct]:
        """By the ids of the latest mentions, the newest first. A page may be short and still have a next."""
        begin, author = before or ProductCursor(), (platform, user_id)
        found: dict[ProductId, Mentions] = {}
        checked: set[ProductId] = set()
        below, floor = begin.post_id, None
        for size in WINDOWS:
            newest = select(posts.c.id).where(*_written_by(author), posts.c.id <= below).order_by(posts.c.id.desc())
            # The last post of the window; None if all posts are in it.
            floor = await self._database.fetch_value(newest.offset(size - 1).limit(1))
            async with aclosing(self._steps(author, below, floor)) as steps:
                async for step in steps:
                    new, many = [each for each in step if each[1] not in checked], limit + 1
                    while new and len(found) <= limit:
                        some, new, many = new[:many], new[many:], _AT_ONCE
                        checked |= {product_id for _, product_id in some}
                        found |= await self._latest_mentions(author, some, begin)
                    if len(found) > limit:
                        break
            if len(found) > limit or floor is None:
                break
            below = floor - 1
        shown = dict(list(found.items())[:limit])
        following = None if floor is None else ProductCursor(post_id=floor)
        if len(found) > limit:
            last = list(shown)[-1]
            following = ProductCursor(post_id=shown[last].highest_id, product_id=last)
        return ListPage(items=await self._lines(shown), next=following)

    async def _steps(self, author: Author, below: int, floor: int | None) -> AsyncGenerator[Sequence[Mention], None]:
        """The mentions of a window of posts, step by step, the latest first, each product once in a step."""
        same = and_(post_links.c.platform == posts.c.platform, post_links.c.post_id == posts.c.id)
        query = select(post_links.c.post_id, post_links.c.link_id).select_from(posts.join(post_links, same))
        query = query.where(*_written_by(author), *([posts.c.id >= floor] if floor else []))
        # Of links, too: then the planner can begin with those of the window where they are fewer than its posts.
        query = query.where(*([post_links.c.post_id >= floor] if floor else []), post_links.c.platform == author[0])
        query = query.order_by(posts.c.id.desc()).limit(_STEP)
        is_last = False
        while not is_last:
            rows = await self._database.fetch_rows(query.where(posts.c.id <= below, post_links.c.post_id <= below))
            if not rows:
                return
            is_last = len(rows) < _STEP
            if not is_last:
                # Without the last post, of which there may be more links. One that fills a step alone is kept as it is.
                rows = [row for row in rows if row["post_id"] != rows[-1]["post_id"]] or rows
                below = rows[-1]["post_id"] - 1
            async with self._database.read() as connection:
                named = await products_of_links(connection, {row["link_id"] for row in rows})
            pairs = {(row["post_id"], each) for row in rows for each in named.get(row["link_id"], ())}
            latest: dict[ProductId, int] = {}
            for post_id, product_id in sorted(pairs, reverse=True):
                latest.setdefault(product_id, post_id)
            yield [(post_id, product_id) for product_id, post_id in latest.items()]

    async def _latest_mentions(
        self, author: Author, some: Sequence[Mention], begin: ProductCursor
    ) -> dict[ProductId, Mentions]:
        """All mentions of the products that were not linked later: the others are on an earlier page."""
        own, found = post_links.c, defaultdict[ProductId, dict[int, Any]](dict)
        same = and_(posts.c.platform == own.platform, posts.c.id == own.post_id)
        query = select(own.link_id, posts.c.id, posts.c.created_at, posts.c.reposted_id)
        query = query.select_from(post_links.join(posts, same)).where(*_written_by(author), own.platform == author[0])
        async with self._database.read() as connection:
            reached = await links_to(connection, [product_id for _, product_id in some])
            linked = among(connection, own.link_id, sorted(reached))
            for row in await connection.execute(query.where(linked)) if reached else ():
                for product_id in reached[row.link_id]:
                    found[product_id][row.id] = row
        latest: dict[ProductId, Mentions] = {}
        for post_id, product_id in some:
            is_on_earlier_page = post_id >= begin.post_id and product_id >= begin.product_id
            if is_on_earlier_page or max(found[product_id], default=None) != post_id:
                continue
            in_time = sorted(found[product_id].values(), key=lambda row: (row.created_at, row.id))
            latest[product_id] = Mentions(
                posts=len(in_time),
                reposts=sum(row.reposted_id is not None for row in in_time),
                first_post_id=PostId(in_time[0].id),
                first_at=in_time[0].created_at,
                latest_post_id=PostId(in_time[-1].id),
                latest_at=in_time[-1].created_at,
                highest_id=PostId(post_id),
            )
        return latest

    async def _lines(self, shown: Mapping[ProductId, Mentions]) -> Sequence[LinkedProduct]:
        if not shown:
            return []
        lines = await ProductPages(self._database).some(list(shown))
        begun = min(each.first_at for each in shown.values())
        async with self._database.read() as connection:
            found = await courses(connection, list(shown), since=begun, until=_FOR_EVER)
        linked = []
        for product_id, mentions in shown.items():
            course = since(found[product_id], mentions.first_at)
            at_first = course[0] if course and course[0].observed_at <= mentions.first_at else None
            latest = course[-1] if course else None
            currency = latest.currency if latest else None
            product = LinkedProduct(
                product=lines[product_id],
                mentions=mentions,
                at_first=at_first,
                lowest=cheapest(course, currency),
                highest=dearest(course, currency),
                latest=latest,
                change=change(at_first, latest),
                course=course[-SHOWN_OFFERS:],
                earlier=max(len(course) - SHOWN_OFFERS, 0),
            )
            linked.append(product)
        return linked


def _written_by(author: Author) -> tuple[Any, ...]:
    return posts.c.platform == author[0], posts.c.author_id == author[1]


class AccountName(msgspec.Struct, frozen=True, kw_only=True):
    """The account that links products."""

    platform: Platform
    id: UserId
    handle: str | None
    name: str | None
    tracked: bool


async def who_is(connection: AsyncConnection, platform: Platform, user_id: UserId) -> AccountName | None:
    """A stored user, by id."""
    same = and_(accounts.c.platform == users.c.platform, accounts.c.user_id == users.c.id)
    query = select(*columns_of(AccountName, users), accounts.c.user_id.is_not(None).label("tracked"))
    query = query.select_from(users.outerjoin(accounts, same)).where(
        users.c.platform == platform, users.c.id == user_id
    )
    row = (await connection.execute(query)).mappings().first()
    return record_of(AccountName, row) if row else None


_COUNTS: Final = ("points", "strength", "first_at", "latest_at")


class ItemProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product with the points of an item that came from it; `strength` is how well the best of them fits."""

    product: ProductLine
    points: int
    strength: float
    first_at: datetime
    latest_at: datetime


class ItemProducts(Store):
    """Reads, by the index of an item's points."""

    async def has_item(self, item_id: ItemId) -> bool:
        return await self._database.fetch_value(select(items.c.id).where(items.c.id == item_id)) is not None

    async def page(self, item_id: ItemId, *, after: int | None = None, limit: int) -> ListPage[ItemProduct]:
        """In the order of their ids."""
        own = price_points.c
        query = (
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
        found = ListPage.cut(await self._database.fetch_rows(query), limit, lambda row: row["product_id"])
        rows = found.items
        lines = await ProductPages(self._database).some([ProductId(row["product_id"]) for row in rows])
        products_ = [
            ItemProduct(product=lines[row["product_id"]], **{name: row[name] for name in _COUNTS}) for row in rows
        ]
        return ListPage(items=products_, next=found.next)
