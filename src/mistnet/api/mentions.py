"""Posts that mention a link, as the API tells of them, page by page over all platforms."""

from __future__ import annotations

import base64
from typing import Annotated, Any

from fastapi import Depends, Query

from mistnet.api.fields import LARGEST_ID, Document, Id, Moment
from mistnet.api.paging import RUN_CURSOR, PageLimit
from mistnet.domain.links import Place
from mistnet.domain.social import Platform
from mistnet.store.mention_pages import Before, MentionPage

_BYTES = 8


class VerbatimDocument(Document):
    """A link as it was posted, and where in the post it stood."""

    link_id: Id
    url: str
    place: Place


class MentionDocument(Document):
    """One post that mentions a link, with every form in which it does."""

    platform: Platform
    post_id: Id
    author_id: Id
    handle: str | None
    name: str | None
    text: str
    post_url: str | None
    created_at: Moment
    seen_at: Moment
    urls: list[VerbatimDocument]


class MentionPaging:
    """A page of posts; its cursor holds a place for each platform."""

    def __init__(self, limit: int, cursor: str | None) -> None:
        self.limit = limit
        self.before = None if cursor is None else _read(cursor)

    def listing(self, page: MentionPage) -> dict[str, Any]:
        return {"items": page.posts, "next": None if page.next is None else mentions_cursor(page.next)}


def mentions_cursor(before: Before) -> str:
    raw = before.x.to_bytes(_BYTES) + before.threads.to_bytes(_BYTES)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read(cursor: str) -> Before:
    raw = base64.urlsafe_b64decode(cursor + "==")
    x, threads = (int.from_bytes(part) for part in (raw[:_BYTES], raw[_BYTES:]))
    return Before(x=min(x, LARGEST_ID), threads=min(threads, LARGEST_ID))


async def _pages(
    limit: PageLimit = 50,
    cursor: Annotated[
        str | None, Query(pattern=RUN_CURSOR, description="Where the page begins: `next` of the page before.")
    ] = None,
) -> MentionPaging:
    return MentionPaging(limit, cursor)


Mentions = Annotated[MentionPaging, Depends(_pages)]
