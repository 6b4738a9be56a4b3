"""The posts that mention a link or a product, the newest first, on any number of platforms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import msgspec
from sqlalchemy import ColumnElement, FromClause, Join, and_, any_, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Store
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.types import IDS
from mistnet.kit.view import ListPage, record_of
from mistnet.shops.model import LinkId, LinkPlace, ProductId
from mistnet.shops.tables import links, post_links
from mistnet.social.model import PLATFORM_NAME, Platform, PostId, UserId
from mistnet.social.store.post_listing import stored_platforms
from mistnet.social.tables import accounts, posts, users

_FEW: Final = 400
_PLACE: Final = rf"{PLATFORM_NAME}\.[1-9][0-9]{{0,18}}"
MENTION_CURSOR: Final = rf"^{_PLACE}(~{_PLACE}){{0,31}}$"


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


class MentionCursor(msgspec.Struct, frozen=True):
    """Where a page of mentions begins: below one post of each platform that was listed so far.

    Ids of two platforms do not compare, so each has a place of its own. A platform without one begins at its newest.
    """

    below: Mapping[Platform, PostId] = {}

    def __str__(self) -> str:
        return "~".join(f"{platform}.{post_id}" for platform, post_id in sorted(self.below.items()))


def read_mention_cursor(written: str) -> MentionCursor:
    """A cursor from its text. Raises ValueError for any other text."""
    if not re.fullmatch(MENTION_CURSOR, written):
        raise ValueError("it must be the cursor that the page before gave, such as x.2028123456789")
    places = (place.split(".") for place in written.split("~"))
    return MentionCursor({Platform(platform): PostId(min(int(post_id), LARGEST_ID)) for platform, post_id in places})


class MentionPages(Store):
    """Reads, each by an index."""

    async def reach_of_link(self, link_id: LinkId) -> Sequence[LinkId]:
        """The link itself, then all that lead to it, over however many steps."""
        async with self._database.read() as connection:
            return await leading_to(connection, [link_id])

    async def reach_of_product(self, product_id: ProductId) -> Sequence[LinkId]:
        """The links that name a product, and all that lead to them."""
        own = select(links.c.id).where(links.c.product_id == product_id).order_by(links.c.id)
        async with self._database.read() as connection:
            return await leading_to(connection, (await connection.execute(own)).scalars().all())

    async def page(
        self, ids: Sequence[LinkId], *, before: MentionCursor | None = None, limit: int
    ) -> ListPage[Mentioning]:
        """Posts that mention any of these links."""
        if not ids:
            return ListPage(items=[], next=None)
        begin, own = before or MentionCursor(), post_links.c
        found: list[Sequence[Mentioning]] = []
        async with self._database.read() as connection:
            for platform in await stored_platforms(connection):
                page = (
                    select(own.post_id)
                    .where(among(connection, own.link_id, ids), own.platform == platform)
                    .where(own.post_id < begin.below.get(platform, LARGEST_ID))
                    .group_by(own.post_id)
                    .order_by(own.post_id.desc())
                    .limit(limit + 1)
                    .subquery()
                )
                same_post = and_(own.platform == platform, own.post_id == page.c.post_id)
                joined = join_posts(page.join(post_links, same_post & among(connection, own.link_id, ids)))
                query = select(*MENTION).select_from(joined).order_by(own.post_id.desc(), own.nr)
                by_post: dict[int, list[Mapping[Any, Any]]] = {}
                for row in (await connection.execute(query)).mappings():
                    by_post.setdefault(row["post_id"], []).append(row)
                urls = {post_id: [record_of(Verbatim, row) for row in rows] for post_id, rows in by_post.items()}
                found.append([record_of(Mentioning, {**by_post[each][0], "urls": urls[each]}) for each in by_post])
        return cut_posts(newest_first(found), begin, limit)


class Posted(Protocol):
    """What it takes to put a post in its place among others."""

    @property
    def platform(self) -> Platform: ...
    @property
    def post_id(self) -> PostId: ...
    @property
    def created_at(self) -> datetime: ...


P = TypeVar("P", bound=Posted)


def newest_first(some: Sequence[Sequence[P]]) -> Sequence[P]:
    """The posts of several platforms as one list, the latest first. Posts of one platform keep their order.

    They come in the order of their ids, which an index serves; a page can be cut anywhere because that order stays.
    """
    heads = [list(reversed(each)) for each in some if each]
    found: list[P] = []
    while heads:
        latest = max(heads, key=lambda each: (each[-1].created_at, each[-1].post_id))
        found.append(latest.pop())
        heads = [each for each in heads if each]
    return found


def cut_posts(posts: Sequence[P], begin: MentionCursor, limit: int) -> ListPage[P]:
    """The first `limit` of posts that begin at a cursor, and the cursor of the page after them."""
    shown = posts[:limit]
    lowest = dict(begin.below)
    for each in shown:
        lowest[each.platform] = min(each.post_id, lowest.get(each.platform, each.post_id))
    return ListPage(items=shown, next=MentionCursor(lowest) if len(posts) > limit else None)


async def leading_to(connection: AsyncConnection, first: Sequence[LinkId]) -> Sequence[LinkId]:
    """These links and all that lead to them. A step at a time: planners guess badly how many lead to one."""
    found, fresh = dict.fromkeys(first), list(first)
    while fresh:
        query = select(links.c.id).where(among(connection, links.c.leads_to, fresh)).order_by(links.c.id)
        fresh = [LinkId(each) for each in (await connection.execute(query)).scalars() if each not in found]
        found.update(dict.fromkeys(fresh))
    return list(found)


def among(connection: AsyncConnection, column: ColumnElement[Any], ids: Sequence[int]) -> ColumnElement[bool]:
    """Whether it is one of these. Many are one value to the driver: thousands of binds take longer than the answer."""
    if len(ids) <= _FEW:
        return column == ids[0] if len(ids) == 1 else column.in_(ids)
    if connection.dialect.name == "postgresql":
        return column == any_(literal(ids, IDS))
    return column.in_(select(func.json_each(literal(ids, IDS)).table_valued("value").c.value))


def join_posts(mentions: FromClause) -> Join:
    """Mentions with their posts and the authors of these, tracked or not."""
    return (
        mentions.join(posts, and_(posts.c.platform == post_links.c.platform, posts.c.id == post_links.c.post_id))
        .join(users, and_(users.c.platform == posts.c.platform, users.c.id == posts.c.author_id))
        .outerjoin(accounts, and_(accounts.c.platform == users.c.platform, accounts.c.user_id == users.c.id))
    )


MENTION: Final = (
    *(post_links.c[name] for name in ("platform", "post_id", "link_id", "url", "place", "seen_at")),
    *(posts.c[name] for name in ("author_id", "text", "conversation_id", "created_at")),
    *(posts.c.url.label("post_url"), users.c.handle, users.c.name),
    accounts.c.user_id.is_not(None).label("tracked"),
)
