"""Pages of posts by author and time, and one post whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, or_, select

from mistnet.domain.post_order import PostCursor
from mistnet.domain.social import LinkMention, Media, Platform, PostId, UserId
from mistnet.store.database import Database
from mistnet.store.post_order import NEWEST_FIRST, older_than
from mistnet.store.tables import posts, users

PostKey = tuple[Platform, PostId]


class ListedPost(msgspec.Struct, frozen=True, kw_only=True):
    """A post with its author's present handle and name."""

    platform: Platform
    id: PostId
    author_id: UserId
    handle: str | None
    name: str | None
    text: str
    text_clean: str
    lang: str | None
    url: str | None
    created_at: datetime
    conversation_id: PostId | None
    in_reply_to_id: PostId | None
    in_reply_to_user_id: UserId | None
    quoted_id: PostId | None
    reposted_id: PostId | None
    referenced_text: str | None
    referenced_text_clean: str | None
    referenced_handle: str | None
    likes: int | None
    replies: int | None
    reposts: int | None
    quotes: int | None
    bookmarks: int | None
    views: int | None
    first_seen_at: datetime
    last_updated_at: datetime
    referenced_media: Sequence[Media] = ()
    media: Sequence[Media] = ()
    links: Sequence[LinkMention] = ()

    @property
    def cursor(self) -> PostCursor:
        return PostCursor(self.created_at, self.platform, self.id)


class PostSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Which posts to list. A span of time has its beginning in it, and its end not."""

    authors: Sequence[tuple[Platform, UserId]] | None = None
    platform: Platform | None = None
    since: datetime | None = None
    until: datetime | None = None
    stored_since: datetime | None = None
    stored_until: datetime | None = None


class PostListing:
    """Reads. The cursor of the last post of one page is the `before` of the next."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, span: PostSpan, *, before: PostCursor | None, limit: int) -> Sequence[ListedPost]:
        """The newest first."""
        asked = narrow_posts(_POSTS, span).order_by(*NEWEST_FIRST).limit(limit)
        if before is not None:
            asked = asked.where(older_than(before))
        if span.authors is None:
            return await self._posts(asked)
        # One question for each author: an index has the posts of one in their order, and of several in none.
        found = [each for author in span.authors for each in await self._posts(asked.where(_written_by(author)))]
        return newest_first(found)[:limit]

    async def some(self, keys: Sequence[PostKey]) -> Sequence[ListedPost]:
        """These, the newest first."""
        wanted = [and_(posts.c.platform == platform, posts.c.id.in_(_ids(keys, platform))) for platform in Platform]
        return await self._posts(_POSTS.where(or_(*wanted)).order_by(*NEWEST_FIRST))

    async def raw(self, key: PostKey) -> bytes | None:
        """A post's payload as it came."""
        asked = select(posts.c.raw).where(posts.c.platform == key[0], posts.c.id == key[1])
        async with self._database.read() as connection:
            kept = (await connection.execute(asked)).scalar_one_or_none()
        return None if kept is None else bytes(kept)

    async def _posts(self, asked: Select[Any]) -> list[ListedPost]:
        async with self._database.read() as connection:
            return [_listed(row) for row in (await connection.execute(asked)).mappings()]


def narrow_posts(asked: Select[Any], span: PostSpan) -> Select[Any]:
    """Only posts of the span, by any author."""
    if span.platform is not None:
        asked = asked.where(posts.c.platform == span.platform)
    if span.since is not None:
        asked = asked.where(posts.c.created_at >= span.since)
    if span.until is not None:
        asked = asked.where(posts.c.created_at < span.until)
    if span.stored_since is not None:
        asked = asked.where(posts.c.first_seen_at >= span.stored_since)
    if span.stored_until is not None:
        asked = asked.where(posts.c.first_seen_at < span.stored_until)
    return asked


def newest_first(found: Sequence[ListedPost]) -> Sequence[ListedPost]:
    return sorted(found, key=lambda post: post.cursor, reverse=True)


def _written_by(author: tuple[Platform, UserId]) -> Any:
    return and_(posts.c.platform == author[0], posts.c.author_id == author[1])


def _ids(keys: Sequence[PostKey], wanted: Platform) -> Sequence[PostId]:
    return [post_id for platform, post_id in keys if platform is wanted]


_PLAIN: Final = [name for name in ListedPost.__struct_fields__ if name not in ("handle", "name")]
_POSTS: Final = select(*(posts.c[name] for name in _PLAIN), users.c.handle, users.c.name).join(
    users, (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id)
)


def _listed(row: Mapping[Any, Any]) -> ListedPost:
    lists = {
        name: msgspec.json.decode(row[name], type=list[item]) if row[name] else ()  # type: ignore[valid-type]
        for name, item in (("media", Media), ("referenced_media", Media), ("links", LinkMention))
    }
    return ListedPost(**{**row, "platform": Platform(row["platform"]), **lists})
