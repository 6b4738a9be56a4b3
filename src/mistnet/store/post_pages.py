"""Posts as the dashboard shows them: with their author, and in the conversation they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import func, select

from mistnet.domain.post_order import PostCursor
from mistnet.domain.social import LinkMention, Platform, PostId, UserId
from mistnet.store.database import Database
from mistnet.store.post_order import NEWEST_FIRST, OLDEST_FIRST, newer_than
from mistnet.store.tables import accounts, posts, users

_X: Final = Platform.X
_PLAIN: Final = (
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


POST_FIELDS: Final = (*(posts.c[name] for name in _PLAIN), posts.c.links, users.c.handle, users.c.name)
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
        some = select(posts.c.id).where(posts.c.platform == _X, posts.c.conversation_id == conversation_id).limit(most)
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
