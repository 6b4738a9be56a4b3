"""Finds the links of posts that were collected before links were looked for, some posts at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import select

from mistnet.domain.social import LinkMention, Media, Platform, Post, PostId, Reference, UserId
from mistnet.store.database import Database
from mistnet.store.links import LinkWriter, links_in
from mistnet.store.tables import posts

AT_ONCE: Final = 500
_LOWEST: Final = -(2**63)
_COLUMNS: Final = (
    *("id", "author_id", "text", "created_at", "quoted_id", "reposted_id"),
    *("referenced_text", "referenced_media", "media", "links"),
)
_mentions = msgspec.json.Decoder(list[LinkMention]).decode
_media = msgspec.json.Decoder(list[Media]).decode


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """How far a scan is: posts looked at, and what they added."""

    posts: int
    links: int
    mentions: int


async def scan(
    database: Database, writer: LinkWriter, *, platform: Platform | None = None, since: datetime | None = None
) -> AsyncIterator[Scanned]:
    """Looks at every stored post, or those first seen since then; tells after each part how far it is.

    What is there already is not written again, so a scan that was broken off may simply be run once more.
    """
    seen = links = mentions = 0
    for each in [platform] if platform else Platform:
        last = _LOWEST
        while part := await _part(database, each, last, since):
            found = [told for post in part for told in links_in(post)]
            async with database.write() as connection:
                added = await writer.write_post_links(connection, found, database.clock.now())
            seen, last = seen + len(part), part[-1].id
            links, mentions = links + added.links, mentions + added.mentions
            yield Scanned(posts=seen, links=links, mentions=mentions)


async def _part(database: Database, platform: Platform, after: int, since: datetime | None) -> Sequence[Post]:
    asked = select(*(posts.c[name] for name in _COLUMNS)).where(posts.c.platform == platform, posts.c.id > after)
    if since is not None:
        asked = asked.where(posts.c.first_seen_at >= since)
    async with database.read() as connection:
        rows = (await connection.execute(asked.order_by(posts.c.id).limit(AT_ONCE))).all()
    return [_post(row, platform) for row in rows]


def _post(row: Any, platform: Platform) -> Post:
    """As much of a post as its links need."""
    referred = row.reposted_id or row.quoted_id
    shown = _media(row.referenced_media) if row.referenced_media else ()
    reference = Reference(id=PostId(referred), text=row.referenced_text, media=shown) if referred else None
    return Post(
        platform=platform,
        id=PostId(row.id),
        author_id=UserId(row.author_id),
        text=row.text,
        created_at=row.created_at,
        quoted=None if row.reposted_id else reference,
        reposted=reference if row.reposted_id else None,
        media=_media(row.media) if row.media else (),
        links=_mentions(row.links) if row.links else (),
        raw=b"",
    )
