"""Pages of posts by author and time, and one post whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import Select, select

from mistnet.domain.coverage import moment_of
from mistnet.domain.social import LinkMention, Media, Platform, PostId, UserId
from mistnet.store.database import Database
from mistnet.store.tables import posts, users

_X: Final = Platform.X
_FIRST_ID_AT: Final = moment_of(PostId(0))
_LARGEST_ID: Final = 2**63 - 1
_DOUBT: Final = timedelta(days=1) // timedelta(milliseconds=1) << 22
"""An id tells its time, the row tells it exactly: a day apart they never are. Ids from before November 2010, which
carry no time, are all smaller than this."""


class ListedPost(msgspec.Struct, frozen=True, kw_only=True):
    """A post with its author's present handle and name."""

    id: PostId
    author_id: UserId
    handle: str | None
    name: str | None
    text: str
    lang: str | None
    url: str | None
    created_at: datetime
    conversation_id: PostId | None
    in_reply_to_id: PostId | None
    in_reply_to_user_id: UserId | None
    quoted_id: PostId | None
    reposted_id: PostId | None
    likes: int | None
    replies: int | None
    reposts: int | None
    quotes: int | None
    bookmarks: int | None
    views: int | None
    first_seen_at: datetime
    last_updated_at: datetime
    media: Sequence[Media] = ()
    links: Sequence[LinkMention] = ()


class PostSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Which posts to list. The span has its beginning in it, and its end not."""

    author_ids: Sequence[UserId] | None = None
    since: datetime | None = None
    until: datetime | None = None


class PostListing:
    """Reads. The last id of one page is the `before` of the next."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, span: PostSpan, *, before: int | None, limit: int) -> Sequence[ListedPost]:
        """Newest id first."""
        asked = _narrowed(_POSTS, span)
        if before is not None:
            asked = asked.where(posts.c.id < before)
        return await self._posts(asked.order_by(posts.c.id.desc()).limit(limit))

    async def some(self, ids: Sequence[PostId]) -> Sequence[ListedPost]:
        """These, newest id first."""
        return await self._posts(_POSTS.where(posts.c.id.in_(ids)).order_by(posts.c.id.desc()))

    async def raw(self, post_id: PostId) -> bytes | None:
        """A post's payload as it came."""
        asked = select(posts.c.raw).where(posts.c.platform == _X, posts.c.id == post_id)
        async with self._database.read() as connection:
            kept = (await connection.execute(asked)).scalar_one_or_none()
        return None if kept is None else bytes(kept)

    async def _posts(self, asked: Select[Any]) -> list[ListedPost]:
        async with self._database.read() as connection:
            return [_listed(row) for row in (await connection.execute(asked)).mappings()]


def _narrowed(asked: Select[Any], span: PostSpan) -> Select[Any]:
    """Ids grow with time, so that a span of time is a range of the key."""
    if span.author_ids is not None:
        asked = asked.where(posts.c.author_id.in_(span.author_ids))
    if span.since is not None:
        asked = asked.where(posts.c.created_at >= span.since, posts.c.id >= _first_id(span.since) - _DOUBT)
    if span.until is not None:
        asked = asked.where(
            posts.c.created_at < span.until, posts.c.id <= min(_first_id(span.until) + _DOUBT, _LARGEST_ID)
        )
    return asked


def _first_id(moment: datetime) -> int:
    return min(max((moment - _FIRST_ID_AT) // timedelta(milliseconds=1), 0) << 22, _LARGEST_ID)


_PLAIN: Final = [name for name in ListedPost.__struct_fields__ if name not in ("handle", "name")]
_POSTS: Final = (
    select(*(posts.c[name] for name in _PLAIN), users.c.handle, users.c.name)
    .join(users, (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id))
    .where(posts.c.platform == _X)
)


def _listed(row: Mapping[Any, Any]) -> ListedPost:
    media = msgspec.json.decode(row["media"], type=list[Media]) if row["media"] else ()
    links = msgspec.json.decode(row["links"], type=list[LinkMention]) if row["links"] else ()
    return ListedPost(**{**row, "media": media, "links": links})
