"""Reads and writes feeds: the list, their polls, and which of them are due."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import case, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of
from mistnet.kit.view import ListPage, View, columns_of, record_of
from mistnet.queue.model import JobId
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import GAP, LIVE_KEY, jobs
from mistnet.social.errors import FeedNotFound
from mistnet.social.feeds import FEED_POLL, Feed, FeedFound, FeedGrown, FeedId, FeedPolled, FeedRefused, FeedState
from mistnet.social.jobs.feeds import feed_poll
from mistnet.social.model import THREADS, Platform, PostId, UserId
from mistnet.social.store.accounts import StoreLook, SubjectJob, cancel, cancel_gaps, renew_jobs
from mistnet.social.tables import feeds, missing

_LIVE: Final = feeds.c.state != FeedState.REMOVED
_FEEDS: Final = View(Feed, select(*columns_of(Feed, feeds)), feeds.c.id, descending=False)


class AddedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of adding a feed: added, known already, or tried again after a refusal."""

    feed: Feed
    result: Literal["added", "known", "again"]


class FeedJob(SubjectJob, frozen=True, kw_only=True):
    """The live or failed poll of a feed."""


class Feeds:
    """All feeds of one platform that were not removed."""

    def __init__(self, database: Database, platform: Platform = THREADS) -> None:
        self._database = database
        self._platform = platform

    async def page(self, *, after: int = 0, limit: int) -> ListPage[Feed]:
        """In the order in which they were added."""
        return await _FEEDS.page(self._database, feeds.c.platform == self._platform, _LIVE, after=after, limit=limit)

    async def list(self) -> Sequence[Feed]:
        """All of them, in that order."""
        return await _FEEDS.rows(self._database, feeds.c.platform == self._platform, _LIVE)

    async def get(self, handle: str) -> Feed:
        own = (feeds.c.platform == self._platform) & (feeds.c.handle_key == handle.lower())
        found = await _FEEDS.first(self._database, own, _LIVE)
        if found is None:
            raise FeedNotFound(handle)
        return found

    async def jobs(self, ids: Sequence[FeedId]) -> Mapping[FeedId, FeedJob]:
        """The latest live or failed poll of each feed."""
        keys = [str(each) for each in ids]
        query = select(jobs.c.key, *columns_of(FeedJob, jobs)).where(jobs.c.kind == FEED_POLL, jobs.c.key.in_(keys))
        rows = await self._database.fetch_rows(query.order_by(jobs.c.id))
        return {FeedId(int(row["key"])): record_of(FeedJob, row) for row in rows}

    async def add(
        self, handles: Sequence[str], *, every_seconds: float | None, job_writer: JobWriter
    ) -> Sequence[AddedFeed]:
        """Feeds and their first polls in one transaction. One that was refused is tried again."""
        done: list[AddedFeed] = []
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            for handle in dict.fromkeys(handles):
                row = {"platform": self._platform, "handle": handle, "handle_key": handle.lower(), "added_at": now}
                adding = insert_of(connection.dialect.name)(feeds)
                new = adding.values(**row, state=FeedState.NEW, every_seconds=every_seconds)
                created = (await connection.execute(new.on_conflict_do_nothing().returning(feeds.c.id))).first()
                known = await self._find(connection, handle)
                if created is not None:
                    done.append(AddedFeed(feed=known, result="added"))
                    continue
                refused = known.state is FeedState.REFUSED
                changed: dict[str, Any] = {"state": FeedState.NEW, "reason": None} if refused else {}
                if every_seconds is not None:
                    changed["every_seconds"] = every_seconds
                if changed:
                    await connection.execute(update(feeds).where(feeds.c.id == known.id).values(**changed))
                    known = await self._find(connection, handle)
                done.append(AddedFeed(feed=known, result="again" if refused else "known"))
            again = [feed_poll(each.feed.id, self._platform) for each in done if each.result != "known"]
            await renew_jobs(connection, job_writer, again, now)
        return done

    async def poll(self, handles: Sequence[str], *, job_writer: JobWriter) -> Sequence[Feed]:
        """Poll these feeds now, or all if none is named. A live poll is not repeated."""
        wanted = [await self.get(each) for each in handles] if handles else await self.list()
        polls, now = [feed_poll(each.id, self._platform) for each in wanted], self._database.clock.now()
        async with self._database.transaction() as connection:
            await renew_jobs(connection, job_writer, polls, now)
        return wanted

    async def remove(self, handle: str) -> Feed:
        """Stored posts stay. A live poll is cancelled."""
        now = self._database.clock.now()
        gone = (
            update(feeds)
            .where(feeds.c.platform == self._platform, feeds.c.handle_key == handle.lower(), _LIVE)
            .values(state=FeedState.REMOVED, removed_at=now)
            .returning(*columns_of(Feed, feeds))
        )
        async with self._database.transaction() as connection:
            row = (await connection.execute(gone)).mappings().first()
            if row is None:
                raise FeedNotFound(handle)
            alive = select(jobs.c.id).where(jobs.c.kind == FEED_POLL, jobs.c.key == str(row["id"]), text(LIVE_KEY))
            ids = [JobId(each) for each in (await connection.execute(alive)).scalars()]
            # A worker on this poll loses its lease, and cannot write what it finds any more.
            await cancel(connection, ids, now)
            await cancel_gaps(connection, FEED_POLL, [str(row["id"])], now)
        return record_of(Feed, row)

    async def _find(self, connection: AsyncConnection, handle: str) -> Feed:
        own = (feeds.c.platform == self._platform) & (feeds.c.handle_key == handle.lower())
        query = select(*columns_of(Feed, feeds)).where(own, _LIVE)
        row = (await connection.execute(query)).mappings().first()
        if row is None:
            raise FeedNotFound(handle)  # another process has just removed it
        return record_of(Feed, row)


async def due_feeds(
    connection: AsyncConnection, *, now: datetime, every: timedelta, relook: timedelta
) -> Sequence[tuple[FeedId, Platform]]:
    """The feeds that are due. A refused feed is polled rarely; a poll that failed for good counts as a poll."""
    died = (
        select(jobs.c.key, func.max(jobs.c.run_at).label("at"))
        .where(jobs.c.kind == FEED_POLL, text(GAP))
        .group_by(jobs.c.key)
    )
    tried = {row.key: row.at for row in await connection.execute(died)}
    rows = await connection.execute(
        select(feeds.c.id, feeds.c.platform, feeds.c.state, feeds.c.every_seconds, feeds.c.polled_at)
        .where(_LIVE)
        .order_by(feeds.c.id)
    )
    due: list[tuple[FeedId, Platform]] = []
    for row in rows:
        pause = timedelta(seconds=row.every_seconds) if row.every_seconds else every
        if row.state == FeedState.REFUSED:
            pause = max(pause, relook)
        if all(at is None or at + pause <= now for at in (row.polled_at, tried.get(str(row.id)))):
            due.append((FeedId(row.id), Platform(row.platform)))
    return due


class StoreFeedLook(StoreLook):
    """What polls read from the database."""

    async def feed(self, feed_id: FeedId) -> Feed | None:
        return await _FEEDS.first(self._database, feeds.c.id == feed_id)

    async def profiled_at(self, platform: Platform, user_id: UserId) -> datetime | None:
        found = await self.profiles(platform, [user_id])
        return found[user_id].profiled_at if user_id in found else None

    async def missing_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        if not ids:
            return set()
        own = missing.c
        query = select(own.id).where(own.platform == platform, own.what == "post", own.id.in_(sorted(ids)))
        return set(await self.fetch_ids(query))


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
        values: dict[str, Any] = {"polled_at": now, "reason": each.reason}
        for name in ("newest_post_at", "newest_reply_at"):
            at = getattr(each, name)
            if at is not None:
                before = feeds.c[name]
                values[name] = case((or_(before.is_(None), before < at), at), else_=before)
        await connection.execute(update(feeds).where(feeds.c.id == each.feed_id, _LIVE).values(**values))


async def feeds_version(database: Database) -> tuple[object, ...]:
    """Other values mean that a feed was added, removed, refused or polled meanwhile."""
    own = feeds.c
    query = select(
        func.count().label("feeds"),
        func.count(own.removed_at).label("removed"),
        func.count(own.reason).label("refused"),
        func.coalesce(func.sum(own.posts), 0).label("posts"),
        func.max(own.polled_at).label("polled_at"),
    )
    row = await database.fetch_row(query)
    return tuple(row.values()) if row else ()
