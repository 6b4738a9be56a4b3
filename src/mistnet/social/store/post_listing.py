"""Pages of posts by author and time, and one post whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, func, or_, select

from mistnet.kit.database import Database
from mistnet.social.model import LinkMention, Media, Platform, PostId, UserId, X
from mistnet.social.post_order import NEWEST_FIRST, OLDEST_FIRST, PostCursor, newer_than, older_than
from mistnet.social.tables import accounts, posts, users

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
        if not keys:
            return []
        ids: dict[Platform, list[PostId]] = {}
        for platform, post_id in keys:
            ids.setdefault(platform, []).append(post_id)
        # One condition for each platform: with pairs of values, no index of SQLite serves the lookup.
        wanted = [and_(posts.c.platform == platform, posts.c.id.in_(own)) for platform, own in ids.items()]
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


_POST_PAGES_PLAIN: Final = (
    *("platform", "id", "author_id", "text", "url", "created_at", "conversation_id", "in_reply_to_id", "quoted_id"),
    *("reposted_id", "referenced_text", "referenced_handle", "likes", "replies", "reposts", "views", "first_seen_at"),
)


class ShownPost(msgspec.Struct, frozen=True, kw_only=True):
    """A post with who wrote it."""

    platform: Platform
    id: PostId
    author_id: UserId
    handle: str | None
    name: str | None
    text: str
    url: str | None
    created_at: datetime
    conversation_id: PostId | None
    in_reply_to_id: PostId | None
    quoted_id: PostId | None
    reposted_id: PostId | None
    referenced_text: str | None
    referenced_handle: str | None
    likes: int | None
    replies: int | None
    reposts: int | None
    views: int | None
    first_seen_at: datetime
    links: Sequence[LinkMention] = ()
    tracked: bool = False

    @property
    def cursor(self) -> PostCursor:
        return PostCursor(self.created_at, self.platform, self.id)


POST_FIELDS: Final = (*(posts.c[name] for name in _POST_PAGES_PLAIN), posts.c.links, users.c.handle, users.c.name)
_AUTHOR: Final = (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id)
_TRACKED: Final = (
    *POST_FIELDS,
    (accounts.c.user_id.is_not(None)).label("tracked"),
)
_WITH_AUTHOR: Final = (
    select(*_TRACKED)
    .join(users, _AUTHOR)
    .outerjoin(accounts, (accounts.c.platform == users.c.platform) & (accounts.c.user_id == users.c.id))
)


class PostPages:
    """Reads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def latest(self, limit: int) -> Sequence[ShownPost]:
        """What came in last. Authors are looked up for the few that are shown."""
        own = select(posts.c.platform, posts.c.id).order_by(posts.c.first_seen_at.desc()).limit(limit).subquery()
        asked = _WITH_AUTHOR.join(own, (own.c.platform == posts.c.platform) & (own.c.id == posts.c.id))
        return await self._shown(asked.order_by(posts.c.first_seen_at.desc(), *NEWEST_FIRST))

    async def conversation(
        self, platform: Platform, conversation_id: PostId, *, after: PostCursor | None, limit: int
    ) -> Sequence[ShownPost]:
        """Oldest first; the cursor of the last post of one page is the `after` of the next."""
        asked = _WITH_AUTHOR.where(posts.c.platform == platform, posts.c.conversation_id == conversation_id)
        if after is not None:
            asked = asked.where(newer_than(after))
        return await self._shown(asked.order_by(*OLDEST_FIRST).limit(limit))

    async def size(self, conversation_id: PostId, most: int) -> int:
        """How many posts of a conversation are stored; not counted beyond `most`."""
        some = select(posts.c.id).where(posts.c.platform == X, posts.c.conversation_id == conversation_id).limit(most)
        async with self._database.read() as connection:
            return (await connection.execute(select(func.count()).select_from(some.subquery()))).scalar_one()

    async def _shown(self, asked: Any) -> Sequence[ShownPost]:
        async with self._database.read() as connection:
            return [shown(row) for row in (await connection.execute(asked)).mappings()]


def shown(row: Mapping[Any, Any]) -> ShownPost:
    links = msgspec.json.decode(row["links"], type=list[LinkMention]) if row["links"] else ()
    return ShownPost(
        **{**row, "platform": Platform(row["platform"]), "links": links, "tracked": bool(row.get("tracked"))}
    )
