"""Posts: found by words, author and time, and one of them whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response

from mistnet.api.auth import READS
from mistnet.api.errors import NotFound, refusals
from mistnet.api.fields import PLAIN, Document, Flag, Id, Moment, PathId, WrittenMoment, id_or_handle, number_of
from mistnet.api.paging import Listing, Pages
from mistnet.api.parts import Mistnet
from mistnet.domain.query import LONGEST_QUERY
from mistnet.domain.social import Platform, PostId, UserId
from mistnet.store.post_listing import PostListing, PostSpan
from mistnet.store.search import PostSearch, holders

router = APIRouter(prefix="/api/posts", tags=["posts"], dependencies=READS)

Author = Annotated[
    str | None,
    Query(pattern=r"^(@?[A-Za-z0-9_]{1,15}|[1-9][0-9]{0,18})$", description="The author's user id or present handle."),
]


class MediaDocument(Document):
    kind: str
    url: str | None
    width: int | None
    height: int | None
    alt_text: str | None
    duration_ms: int | None
    variants: list[str]


class LinkDocument(Document):
    url: str
    expanded_url: str | None


class PostDocument(Document):
    id: Id
    author_id: Id
    handle: str | None
    name: str | None
    text: str
    lang: str | None
    url: str | None
    created_at: Moment
    conversation_id: Id | None
    in_reply_to_id: Id | None
    in_reply_to_user_id: Id | None
    quoted_id: Id | None
    reposted_id: Id | None
    likes: int | None
    replies: int | None
    reposts: int | None
    quotes: int | None
    bookmarks: int | None
    views: int | None
    first_seen_at: Moment
    last_updated_at: Moment
    media: list[MediaDocument]
    links: list[LinkDocument]


class PostInFull(PostDocument):
    """With its payload as upstream sent it, if that was asked for."""

    raw: Any = None


@router.get("", response_model=Listing[PostDocument])
async def list_posts(
    mistnet: Mistnet,
    pages: Pages,
    q: Annotated[
        str | None,
        Query(max_length=LONGEST_QUERY, pattern=PLAIN, description='Words: a "phrase", begin*, a OR b, -without.'),
    ] = None,
    author: Author = None,
    since: Annotated[WrittenMoment | None, Query(description="Written then or later.")] = None,
    until: Annotated[WrittenMoment | None, Query(description="Written before then.")] = None,
) -> dict[str, Any]:
    """Posts, the newest first."""
    posts, named = PostListing(mistnet.database), _named(author)
    if q and q.strip():
        found = await PostSearch(mistnet.database).find(
            q, author=named, since=since, until=until, limit=pages.one_more, before_id=pages.place
        )
        rows = await posts.some([each.id for each in found])
    else:
        span = PostSpan(author_ids=await _authors(mistnet, named), since=since, until=until)
        rows = await posts.page(span, before=pages.place, limit=pages.one_more)
    return pages.listing(rows, lambda row: row.id)


@router.get("/{post_id}", response_model=PostInFull, responses=refusals(404))
async def show_post(post_id: PathId, mistnet: Mistnet, raw: Flag = "false") -> Response:
    """One post; with `raw=true` also its payload as upstream sent it."""
    own, posts = PostId(number_of(post_id)), PostListing(mistnet.database)
    found = await posts.some([own])
    if not found:
        raise NotFound(f"post {post_id} here")
    shown = PostDocument.model_validate(found[0]).model_dump(mode="json")
    payload = await posts.raw(own) if raw == "true" else None
    content = msgspec.json.encode({**shown, "raw": msgspec.Raw(payload) if payload else None})
    return Response(content, media_type="application/json")


def _named(author: str | None) -> str | UserId | None:
    named = id_or_handle(author) if author else None
    return UserId(named) if isinstance(named, int) else named


async def _authors(mistnet: Mistnet, named: str | UserId | None) -> Sequence[UserId] | None:
    """Whose posts are wanted; None: everybody's."""
    if not isinstance(named, str):
        return None if named is None else [named]
    async with mistnet.database.read() as connection:
        return [user_id for platform, user_id in await holders(connection, named) if platform is Platform.X]
