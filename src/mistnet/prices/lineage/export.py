"""Writes lineage out: a row for each post and product it promotes, with the prices around it, in every format."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.export import BadExport, ColumnShape, Field, Format, Row, Target, export_pages
from mistnet.prices.lineage.model import Around, Promotion, SeenPrice, around, later_by, snippet
from mistnet.prices.lineage.store import (
    AFTERMATH,
    Courses,
    Promoting,
    by_post,
    courses,
    kind_of,
    products_of_links,
    promoting,
)
from mistnet.shops.model import ProductId
from mistnet.shops.store.product_pages import ProductLine, ProductPages
from mistnet.shops.tables import post_links
from mistnet.social.model import Platform, UserId
from mistnet.social.store.post_listing import holders, stored_platforms
from mistnet.social.tables import posts

LINEAGE: Final = "lineage"
_POSTS: Final = 500
_SHAPES: Final = {
    "before_age_seconds": ColumnShape.WHOLE,
    "after_delay_seconds": ColumnShape.WHOLE,
    "held_at_post": ColumnShape.FLAG,
    "unchanged": ColumnShape.FLAG,
    "lowest_7_over": ColumnShape.FLAG,
    "lowest_30_over": ColumnShape.FLAG,
}
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


class LineageWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Posts of whom and of when. The span has its beginning in it, and its end not."""

    author: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def export_lineage(
    database: Database, wanted: LineageWanted, format_: Format, target: Target, *, now: datetime
) -> int:
    """In the order of posts, then of products; how many rows. Memory does not grow with the tables."""
    fields = [Field(name, _SHAPES.get(name, ColumnShape.TEXT)) for name in NAMES]
    pages = _pages_of_all(database, wanted, await _authors(database, wanted.author), now)
    return await export_pages(LINEAGE, fields, pages, format_, target)


async def _pages_of_all(
    database: Database, wanted: LineageWanted, authors: Sequence[tuple[Platform, UserId | None]], now: datetime
) -> AsyncGenerator[Sequence[Row], None]:
    for platform, author_id in authors:
        async with aclosing(_pages(database, wanted, platform, author_id, now)) as pages:
            async for page in pages:
                yield page


async def _authors(database: Database, handle: str | None) -> Sequence[tuple[Platform, UserId | None]]:
    async with database.read() as connection:
        if handle is None:
            return [(platform, None) for platform in sorted(await stored_platforms(connection))]
        found = await holders(connection, handle)
    if not found:
        raise BadExport(LINEAGE, f"no stored user has the handle {handle!r}; check its spelling")
    return found


async def _pages(
    database: Database, wanted: LineageWanted, platform: Platform, author_id: UserId | None, now: datetime
) -> AsyncGenerator[Sequence[Row], None]:
    last: int | None = None
    while True:
        async with database.read() as connection:
            ids = list((await connection.execute(_next_posts(platform, author_id, last))).scalars())
            pairs = await _pairs(connection, wanted, platform, ids) if ids else []
            found = await _courses(connection, pairs)
        lines = await ProductPages(database).some(sorted(found))
        rows = [_row(post, lines[product_id], found, now) for post, product_id in pairs]
        if rows:
            yield rows
        if len(ids) < _POSTS:
            return
        last = ids[-1]


def _next_posts(platform: Platform, author_id: UserId | None, last: int | None) -> Select[Any]:
    """The next posts that link anything. For one author: the next posts of that author, with or without links."""
    own, key = (post_links.c, post_links.c.post_id) if author_id is None else (posts.c, posts.c.id)
    asked = select(key).distinct() if author_id is None else select(key).where(posts.c.author_id == author_id)
    asked = asked.where(own.platform == platform).order_by(key).limit(_POSTS)
    return asked if last is None else asked.where(key > last)


async def _pairs(
    connection: AsyncConnection, wanted: LineageWanted, platform: Platform, ids: Sequence[int]
) -> Sequence[tuple[Promoting, ProductId]]:
    """Each post with each product it promotes, and of its links only those that lead there."""
    own = post_links.c
    asked = promoting(post_links, own.platform, own.post_id).where(own.platform == platform, own.post_id.in_(ids))
    if wanted.since is not None:
        asked = asked.where(posts.c.created_at >= wanted.since)
    if wanted.until is not None:
        asked = asked.where(posts.c.created_at < wanted.until)
    rows = await connection.execute(asked.order_by(own.post_id, own.nr, own.link_id))
    linking = by_post(rows.mappings())
    named = await products_of_links(connection, {found.link_id for post in linking for found in post.urls})
    return [
        (_narrowed(post, product_id, named), product_id)
        for post in linking
        for product_id in sorted({each for found in post.urls for each in named.get(found.link_id, ())})
    ]


def _narrowed(post: Promoting, product_id: ProductId, named: Mapping[int, set[ProductId]]) -> Promoting:
    urls = [each for each in post.urls if product_id in named.get(each.link_id, ())]
    kind = kind_of(reposted=post.kind is Promotion.REPOST, places={each.place for each in urls})
    return msgspec.structs.replace(post, urls=urls, kind=kind)


async def _courses(connection: AsyncConnection, pairs: Sequence[tuple[Promoting, ProductId]]) -> Courses:
    if not pairs:
        return {}
    moments = [post.created_at for post, _ in pairs]
    ids = {product_id for _, product_id in pairs}
    return await courses(connection, ids, since=min(moments), until=later_by(max(moments), AFTERMATH))


def _row(post: Promoting, line: ProductLine, found: Courses, now: datetime) -> Row:
    values = {
        **{name: getattr(post, name) for name in ("platform", "post_id", "author_id", "handle", "kind", "created_at")},
        "post_gone_at": post.gone_at,
        "post_url": post.post_url,
        "text": snippet(post.text),
        "product_id": line.id,
        "shop": line.platform,
        **{name: getattr(line, name) for name in ("region", "shop_id", "item_id", "title")},
        "product_url": line.url,
        "product_gone_at": line.gone_at,
        **dict(_prices(around(found[line.id], post.created_at, now=now))),
    }
    return [values[name] for name in NAMES]


def _prices(prices: Around) -> Iterator[tuple[str, Any]]:
    yield from _price("before", prices.before)
    yield "before_age_seconds", None if prices.age is None else int(prices.age.total_seconds())
    yield "held_at_post", prices.at is not None
    yield from _price("after", prices.after)
    yield "after_delay_seconds", None if prices.delay is None else int(prices.delay.total_seconds())
    yield "unchanged", prices.unchanged
    yield "change_percent", prices.change.percent
    yield "no_change_because", prices.change.why_not
    for each in prices.lowest:
        yield f"lowest_{each.days}_amount", each.price and each.price.amount
        yield f"lowest_{each.days}_at", each.price and each.price.observed_at
        yield f"lowest_{each.days}_change_percent", each.change.percent
        yield f"lowest_{each.days}_over", each.over


def _price(when: str, price: SeenPrice | None) -> Iterator[tuple[str, Any]]:
    for name in ("amount", "currency", "observed_at", "last_seen_at"):
        yield f"{when}_{name}", None if price is None else getattr(price, name)
