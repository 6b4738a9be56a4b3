"""What polls of feeds look at before they ask, and what they write beside posts and users."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, case, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.feeds import Feed, FeedFound, FeedGrown, FeedId, FeedPolled, FeedRefused, FeedState
from mistnet.domain.social import Platform, PostId, UserId
from mistnet.store.accounts import StoreLook
from mistnet.store.database import Database
from mistnet.store.feeds import feed_of
from mistnet.store.tables import feeds, missing

_LIVE = feeds.c.state != FeedState.REMOVED


class StoreFeedLook:
    """The port's look on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._social = StoreLook(database)

    async def feed(self, feed_id: FeedId) -> Feed | None:
        asked = select(*(feeds.c[name] for name in Feed.__struct_fields__)).where(feeds.c.id == feed_id)
        async with self._database.peek() as connection:
            row = (await connection.execute(asked)).mappings().first()
        return feed_of(row) if row else None

    async def profiled_at(self, user_id: UserId) -> datetime | None:
        found = await self._social.profiles(Platform.THREADS, [user_id])
        return found[user_id].profiled_at if user_id in found else None

    async def known_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        return await self._social.known_posts(platform, ids)

    async def missing_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        if not ids:
            return set()
        own = missing.c
        asked = select(own.id).where(own.platform == platform, own.what == "post", own.id.in_(sorted(ids)))
        async with self._database.peek() as connection:
            return {PostId(each) for each in (await connection.execute(asked)).scalars()}


async def write_feeds_found(connection: AsyncConnection, given: Sequence[FeedFound], _now: datetime) -> None:
    for each in sorted(given, key=lambda each: each.feed_id):
        reason = case((feeds.c.state == FeedState.ACTIVE, feeds.c.reason), else_=None)
        found = update(feeds).where(feeds.c.id == each.feed_id, _LIVE)
        await connection.execute(found.values(user_id=each.user_id, state=FeedState.ACTIVE, reason=reason))


async def write_feeds_refused(connection: AsyncConnection, given: Sequence[FeedRefused], now: datetime) -> None:
    for each in sorted(given, key=lambda each: each.feed_id):
        refused = update(feeds).where(feeds.c.id == each.feed_id, _LIVE)
        await connection.execute(refused.values(state=FeedState.REFUSED, reason=each.reason, polled_at=now))


async def write_feeds_grown(connection: AsyncConnection, given: Sequence[FeedGrown], _now: datetime) -> None:
    for each in sorted(given, key=lambda each: each.feed_id):
        grown = update(feeds).where(feeds.c.id == each.feed_id)
        await connection.execute(grown.values(posts=feeds.c.posts + each.posts))


async def write_feeds_polled(connection: AsyncConnection, given: Sequence[FeedPolled], now: datetime) -> None:
    """Both boundaries only rise."""
    for each in sorted(given, key=lambda each: each.feed_id):
        told: dict[str, Any] = {"polled_at": now, "reason": each.reason}
        for name in ("newest_post_at", "newest_reply_at"):
            at = getattr(each, name)
            if at is not None:
                told[name] = case((_is_before(feeds.c[name], at), at), else_=feeds.c[name])
        await connection.execute(update(feeds).where(feeds.c.id == each.feed_id, _LIVE).values(**told))


def _is_before(column: Any, at: datetime) -> ColumnElement[bool]:
    return or_(column.is_(None), column < at)
