"""Who linked something, and when: the posts that mention some links, of every platform, the newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, and_, select

from mistnet.domain.links import LinkId, Place
from mistnet.domain.social import Platform, PostId, UserId
from mistnet.store.database import Database
from mistnet.store.tables import accounts, links, post_links, posts, users

LARGEST_ID: Final = 2**63 - 1
REACH: Final = 500
"""Links that lead to the same place: so many of them are looked at."""


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
        return await self._reach(select(links.c.id).where(links.c.id == link_id))

    async def reach_of_product(self, product_id: int) -> Sequence[LinkId]:
        """The links that name a product, and all that lead to them."""
        return await self._reach(select(links.c.id).where(links.c.product_id == product_id))

    async def page(self, ids: Sequence[LinkId], *, before: Before | None = None, limit: int) -> MentionPage:
        """Posts that mention any of these links."""
        begin = before or Before()
        found: list[Mentioning] = []
        for platform in Platform if ids else ():
            found += await self._of(platform, ids, begin.of(platform), limit + 1)
        found.sort(key=lambda each: (each.created_at, each.post_id), reverse=True)
        shown = found[:limit]
        return MentionPage(posts=shown, next=_below(shown, begin) if len(found) > limit else None)

    async def _reach(self, first: Select[Any]) -> Sequence[LinkId]:
        reached = first.cte("reached", recursive=True)
        further = select(links.c.id).join(reached, links.c.leads_to == reached.c.id)
        asked = select(reached.union(further).c.id).limit(REACH)
        async with self._database.read() as connection:
            return [LinkId(each) for each in (await connection.execute(asked)).scalars()]

    async def _of(self, platform: Platform, ids: Sequence[LinkId], before: int, limit: int) -> Sequence[Mentioning]:
        own = post_links.c
        page = (
            select(own.post_id)
            .where(_among(ids), own.platform == platform, own.post_id < before)
            .group_by(own.post_id)
            .order_by(own.post_id.desc())
            .limit(limit)
            .subquery()
        )
        same_post = and_(own.platform == platform, own.post_id == page.c.post_id, own.link_id.in_(ids))
        joined = (
            page.join(post_links, same_post)
            .join(posts, and_(posts.c.platform == own.platform, posts.c.id == own.post_id))
            .join(users, and_(users.c.platform == posts.c.platform, users.c.id == posts.c.author_id))
            .outerjoin(accounts, and_(accounts.c.platform == users.c.platform, accounts.c.user_id == users.c.id))
        )
        asked = select(*_SHOWN).select_from(joined).order_by(own.post_id.desc(), own.nr)
        async with self._database.read() as connection:
            return _by_post((await connection.execute(asked)).mappings().all())


def _among(ids: Sequence[LinkId]) -> ColumnElement[bool]:
    """One link has its mentions in order already; of several they are sorted."""
    return post_links.c.link_id == ids[0] if len(ids) == 1 else post_links.c.link_id.in_(ids)


def _by_post(rows: Sequence[Mapping[Any, Any]]) -> Sequence[Mentioning]:
    found: dict[int, list[Mapping[Any, Any]]] = {}
    for row in rows:
        found.setdefault(row["post_id"], []).append(row)
    return [_mentioning(some) for some in found.values()]


def _mentioning(rows: Sequence[Mapping[Any, Any]]) -> Mentioning:
    own = {name: value for name, value in rows[0].items() if name not in ("link_id", "url", "place")}
    urls = [Verbatim(link_id=row["link_id"], url=row["url"], place=Place(row["place"])) for row in rows]
    return Mentioning(**{**own, "platform": Platform(own["platform"]), "tracked": bool(own["tracked"])}, urls=urls)


def _below(shown: Sequence[Mentioning], begin: Before) -> Before:
    lowest = {
        str(platform): min(
            (each.post_id for each in shown if each.platform is platform), default=PostId(begin.of(platform))
        )
        for platform in Platform
    }
    return Before(**lowest)


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
