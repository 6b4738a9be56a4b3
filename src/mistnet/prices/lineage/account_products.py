"""The products that an account links, the newest mention first, each with its prices since the first mention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.view import ListPage
from mistnet.prices.lineage.model import PriceChange, SeenPrice, change, cheapest, dearest, since
from mistnet.prices.lineage.store import courses, links_to, products_of_links
from mistnet.shops.model import ProductId
from mistnet.shops.store.mentions import among
from mistnet.shops.store.product_pages import ProductLine, ProductPages
from mistnet.shops.tables import post_links
from mistnet.social.model import Platform, PostId, UserId
from mistnet.social.tables import accounts, posts, users

LARGEST_ID: Final = 2**63 - 1
WINDOW: Final = 20_000
"""How many posts are searched for one page. A page may be short and still have a next."""

SHOWN_OFFERS: Final = 100
"""How many prices of a product are shown: the latest."""

_STEP: Final = 5_000
_AT_ONCE: Final = 400
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)


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


class _ReadPosition(msgspec.Struct):
    """How far the mentions of an account are read, from the newest down to a floor."""

    below: int
    floor: int | None
    over: bool = False


class AccountProducts:
    """Reads, each by an index: as many posts of an account as a page needs, and all mentions of its products."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, platform: Platform, user_id: UserId, *, limit: int, before: ProductCursor | None = None
    ) -> ListPage[LinkedProduct]:
        """By the ids of the latest mentions. A page may be short and still have a next."""
        begin, who = before or ProductCursor(), (platform, user_id)
        # The last post of the window; None if all posts are in it.
        asked = select(posts.c.id).where(*_written_by(who), posts.c.id <= begin.post_id).order_by(posts.c.id.desc())
        rows = await self._rows(asked.offset(WINDOW - 1).limit(1))
        floor = rows[0]["id"] if rows else None
        walk = _ReadPosition(begin.post_id, floor)
        found: dict[ProductId, Mentions] = {}
        looked_at: set[ProductId] = set()
        while not walk.over and len(found) <= limit:
            new = [each for each in await self._step(who, walk) if each[1] not in looked_at]
            size = limit + 1
            while new and len(found) <= limit:
                some, new, size = new[:size], new[size:], _AT_ONCE
                looked_at |= {product_id for _, product_id in some}
                found |= await self._latest_here(who, some, begin)
        shown = dict(list(found.items())[:limit])
        return ListPage(items=await self._lines(shown), next=_next(shown, found, walk.floor))

    async def _step(self, who: tuple[Platform, UserId], walk: _ReadPosition) -> Sequence[tuple[int, ProductId]]:
        """The next mentions as (post, product), the latest first, each product once. Advances the walk."""
        same = and_(post_links.c.platform == posts.c.platform, post_links.c.post_id == posts.c.id)
        own = [*_written_by(who), posts.c.id <= walk.below, *([posts.c.id >= walk.floor] if walk.floor else [])]
        asked = select(post_links.c.post_id, post_links.c.link_id).select_from(posts.join(post_links, same))
        rows = await self._rows(asked.where(*own).order_by(posts.c.id.desc()).limit(_STEP))
        walk.over = len(rows) < _STEP
        if not walk.over:
            # Without the last post, of which there may be more links. One that fills a step alone is taken as it is.
            whole = [row for row in rows if row["post_id"] != rows[-1]["post_id"]]
            rows = whole or rows
            walk.below = rows[-1]["post_id"] - 1
        async with self._database.read() as connection:
            named = await products_of_links(connection, {row["link_id"] for row in rows})
        pairs = {(row["post_id"], each) for row in rows for each in named.get(row["link_id"], ())}
        latest: dict[ProductId, int] = {}
        for post_id, product_id in sorted(pairs, reverse=True):
            latest.setdefault(product_id, post_id)
        return [(post_id, product_id) for product_id, post_id in latest.items()]

    async def _latest_here(
        self, who: tuple[Platform, UserId], some: Sequence[tuple[int, ProductId]], begin: ProductCursor
    ) -> dict[ProductId, Mentions]:
        """Those that were not mentioned later: the others are on an earlier page."""
        known = await self._mentions(who, [product_id for _, product_id in some])
        return {
            product_id: mentions
            for post_id, product_id in some
            if (mentions := known.get(product_id)) and mentions.highest_id == post_id
            if post_id < begin.post_id or product_id < begin.product_id
        }

    async def _mentions(self, who: tuple[Platform, UserId], ids: Sequence[ProductId]) -> Mapping[ProductId, Mentions]:
        own, found = post_links.c, dict[tuple[ProductId, int], Any]()
        same = and_(posts.c.platform == own.platform, posts.c.id == own.post_id)
        shown = select(own.link_id, posts.c.id, posts.c.created_at, posts.c.reposted_id)
        asked = shown.select_from(post_links.join(posts, same)).where(*_written_by(who))
        async with self._database.read() as connection:
            reached = await links_to(connection, ids)
            linked = (among(connection, own.link_id, sorted(reached)), own.platform == who[0])
            for row in await connection.execute(asked.where(*linked)) if reached else ():
                for product_id in reached[row.link_id]:
                    found[product_id, row.id] = row
        rows = defaultdict[ProductId, list[Any]](list)
        for (product_id, _), row in found.items():
            rows[product_id].append(row)
        return {product_id: _mentions(some) for product_id, some in rows.items()}

    async def _lines(self, shown: Mapping[ProductId, Mentions]) -> Sequence[LinkedProduct]:
        if not shown:
            return []
        lines = await ProductPages(self._database).some(list(shown))
        begun = min(each.first_at for each in shown.values())
        async with self._database.read() as connection:
            found = await courses(connection, list(shown), since=begun, until=_FOR_EVER)
        return [_linked(lines[each], mentions, found[each]) for each, mentions in shown.items()]

    async def _rows(self, asked: Select[Any]) -> Sequence[Any]:
        return await self._database.fetch_rows(asked)


def _written_by(who: tuple[Platform, UserId]) -> tuple[Any, ...]:
    return posts.c.platform == who[0], posts.c.author_id == who[1]


def _mentions(rows: Sequence[Any]) -> Mentions:
    in_time = sorted(rows, key=lambda row: (row.created_at, row.id))
    return Mentions(
        posts=len(rows),
        reposts=sum(row.reposted_id is not None for row in rows),
        first_post_id=PostId(in_time[0].id),
        first_at=in_time[0].created_at,
        latest_post_id=PostId(in_time[-1].id),
        latest_at=in_time[-1].created_at,
        highest_id=PostId(max(row.id for row in rows)),
    )


def _linked(line: ProductLine, mentions: Mentions, whole: Sequence[SeenPrice]) -> LinkedProduct:
    course = since(whole, mentions.first_at)
    at_first = course[0] if course and course[0].observed_at <= mentions.first_at else None
    latest = course[-1] if course else None
    currency = latest.currency if latest else None
    return LinkedProduct(
        product=line,
        mentions=mentions,
        at_first=at_first,
        lowest=cheapest(course, currency),
        highest=dearest(course, currency),
        latest=latest,
        change=change(at_first, latest),
        course=course[-SHOWN_OFFERS:],
        earlier=max(len(course) - SHOWN_OFFERS, 0),
    )


def _next(
    shown: Mapping[ProductId, Mentions], found: Mapping[ProductId, Mentions], floor: int | None
) -> ProductCursor | None:
    if len(found) > len(shown):
        last = list(shown)[-1]
        return ProductCursor(post_id=shown[last].highest_id, product_id=last)
    return ProductCursor(post_id=floor) if floor is not None else None


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
    asked = select(users.c.handle, users.c.name, accounts.c.user_id.is_not(None).label("tracked"))
    asked = asked.select_from(users.outerjoin(accounts, same)).where(
        users.c.platform == platform, users.c.id == user_id
    )
    row = (await connection.execute(asked)).first()
    if row is None:
        return None
    return AccountName(platform=platform, id=user_id, handle=row.handle, name=row.name, tracked=bool(row.tracked))
