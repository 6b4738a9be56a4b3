"""Who linked something, and when: the posts that mention some links, of every platform, the newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import msgspec
from sqlalchemy import ColumnElement, and_, any_, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.links import LinkId, Place
from mistnet.domain.social import Platform, PostId, UserId
from mistnet.store.database import Database
from mistnet.store.tables import accounts, links, post_links, posts, users
from mistnet.store.types import IDS

LARGEST_ID: Final = 2**63 - 1
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
    place: Place


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

    x: int = LARGEST_ID
    threads: int = LARGEST_ID

    def of(self, platform: Platform) -> int:
        return self.x if platform is Platform.X else self.threads


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
                await _of(connection, platform, ids, begin.of(platform), limit + 1) for platform in Platform if ids
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
        str(platform): min((each.post_id for each in shown if each.platform is platform), default=begin.of(platform))
        for platform in Platform
    }
    return Before(**lowest)


def _by_post(rows: Sequence[Mapping[Any, Any]]) -> Sequence[Mentioning]:
    found: dict[int, list[Mapping[Any, Any]]] = {}
    for row in rows:
        found.setdefault(row["post_id"], []).append(row)
    return [_mentioning(some) for some in found.values()]


def _mentioning(rows: Sequence[Mapping[Any, Any]]) -> Mentioning:
    own = {name: value for name, value in rows[0].items() if name not in ("link_id", "url", "place")}
    urls = [Verbatim(link_id=row["link_id"], url=row["url"], place=Place(row["place"])) for row in rows]
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
