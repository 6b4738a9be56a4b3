"""Posts: a search by words, author and time, one post in full, and conversations as trees."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from mistnet.social.coverage import Completeness, MissingParent, Walk
from mistnet.social.errors import AmbiguousPost
from mistnet.social.model import LinkMention, Media, Platform, PostId
from mistnet.social.search_query import LONGEST_QUERY
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.post_listing import (
    POST_CURSOR,
    ListedPost,
    PostListing,
    PostSearch,
    PostSpan,
    find_authors,
    read_cursor,
)
from mistnet.web.auth import READS
from mistnet.web.dependencies import Listing, Mistnet, OnPlatform, PostPages
from mistnet.web.errors import NotFound
from mistnet.web.fields import PLAIN, Document, Flag, PathId, Whole, WrittenMoment, id_or_handle, number_of
from mistnet.web.pages.posts import tree

router = APIRouter(prefix="/api/posts", tags=["posts"], dependencies=READS)

Author = Annotated[
    str | None,
    Query(pattern=r"^(@?[A-Za-z0-9_]{1,15}|[1-9][0-9]{0,18})$", description="The author's user id or current handle."),
]


class MediaDocument(Document, record=Media, without=("shown_as",)):
    pass


class PostLinkDocument(Document, record=LinkMention, without=("place",)):
    pass


class PostDocument(Document, record=ListedPost, without=("tracked",)):
    referenced_media: list[MediaDocument]
    media: list[MediaDocument]
    links: list[PostLinkDocument]


class PostInFull(PostDocument):
    """A post with its payload as the source sent it, if the request has `raw=true`."""

    raw: Any = None


@router.get("", response_model=Listing[PostDocument])
async def list_posts(
    mistnet: Mistnet,
    pages: PostPages,
    *,
    q: Annotated[
        str | None,
        Query(max_length=LONGEST_QUERY, pattern=PLAIN, description='Words, a "phrase", begin*, a OR b, -without.'),
    ] = None,
    author: Author = None,
    platform: OnPlatform = None,
    since: Annotated[WrittenMoment | None, Query(description="Written at this time or later.")] = None,
    until: Annotated[WrittenMoment | None, Query(description="Written before this time.")] = None,
    stored_since: Annotated[WrittenMoment | None, Query(description="First stored at this time or later.")] = None,
    stored_until: Annotated[WrittenMoment | None, Query(description="First stored before this time.")] = None,
) -> dict[str, Any]:
    """Posts of every platform, the newest first: by time, then platform, then id."""
    span = PostSpan(
        authors=await find_authors(mistnet.database, id_or_handle(author), platform) if author else None,
        platform=platform,
        since=since,
        until=until,
        stored_since=stored_since,
        stored_until=stored_until,
    )
    if q and q.strip():
        return pages.listing(await PostSearch(mistnet.database).find(q, span, before=pages.place, limit=pages.limit))
    return pages.listing(await PostListing(mistnet.database).page(span, before=pages.place, limit=pages.limit))


@router.get("/{post_id}", response_model=PostInFull)
async def show_post(post_id: PathId, mistnet: Mistnet, platform: OnPlatform = None, raw: Flag = "false") -> Response:
    """One post. With `raw=true` it includes the payload as the source sent it."""
    own, posts = PostId(number_of(post_id)), PostListing(mistnet.database)
    found = await posts.some([(each, own) for each in mistnet.platforms if platform in (None, each)])
    if not found:
        raise NotFound(f"post {post_id} here")
    if len(found) > 1:
        raise AmbiguousPost(own, [each for each in mistnet.platforms if each in {post.platform for post in found}])
    shown = PostDocument.model_validate(found[0]).model_dump(mode="json")
    payload = await posts.raw((found[0].platform, own)) if raw == "true" else None
    # The payload is passed on as it is stored: to parse and write it again could change its numbers.
    content = msgspec.json.encode({**shown, "raw": msgspec.Raw(payload) if payload else None})
    return Response(content, media_type="application/json")


conversations_router = APIRouter(prefix="/api/conversations", tags=["posts"], dependencies=READS)

_MOST: Final = 1_000
_DONE: Final = (Completeness.COMPLETE, Completeness.AS_FAR_AS_UPSTREAM)


_NOT_IN_TREES: Final = (
    *("platform", "text_clean", "lang", "conversation_id", "in_reply_to_user_id", "referenced_text", "links", "media"),
    *("referenced_text_clean", "referenced_handle", "referenced_media", "quotes", "bookmarks"),
    *("first_seen_at", "last_updated_at"),
)


class ConversationPost(Document, record=ListedPost, without=_NOT_IN_TREES):
    """A post of a conversation."""


class MissingPost(Document, record=MissingParent, without=("reply_id", "replies")):
    """A missing post that has replies. `gone`: the source no longer has it. `awaited`: a job will fetch it."""


class NodeDocument(Document):
    """One node of the tree, in reading order: a post, or the place of a missing one."""

    depth: int
    post: ConversationPost | None
    missing: MissingPost | None


class ConversationGap(Document, record=MissingParent, without=("gone", "awaited")):
    """A missing post that has replies and that no job will fetch."""


class DeadWalk(Document, record=Walk, without=("state", "reply_id", "next_id")):
    pass


class ConversationDocument(Document):
    """`complete`: every ancestor of every stored post is stored, as far as the source has it."""

    platform: Platform
    conversation_id: PostId
    complete: bool
    verdict: Completeness
    posts: int
    live_walks: int
    gaps: list[ConversationGap]
    dead_walks: list[DeadWalk]
    nodes: list[NodeDocument]
    next: str | None


@conversations_router.get("/{conversation_id}", response_model=ConversationDocument)
async def show_conversation(
    conversation_id: PathId,
    mistnet: Mistnet,
    *,
    platform: OnPlatform = None,
    limit: Annotated[int, Field(ge=1, le=_MOST), Whole, Query(description="How many posts at most.")] = 300,
    cursor: Annotated[str | None, Query(pattern=POST_CURSOR, description="`next` of the page before.")] = None,
) -> dict[str, Any]:
    """The tree of a conversation, the oldest posts first. With more posts than `limit` it comes in pages."""
    own = PostId(number_of(conversation_id))
    coverage = Coverage(mistnet.database)
    where = platform or await coverage.platform_of(own)
    known = await coverage.conversation(own, where)
    if not known.posts and not known.walks:
        belongs_to = await coverage.conversation_of(own, platform)
        hint = f"; post {own} belongs to conversation {belongs_to}" if belongs_to else ""
        raise NotFound(f"conversation {conversation_id} here{hint}")
    after = read_cursor(cursor) if cursor else None
    page = await PostListing(mistnet.database).conversation(where, own, after=after, limit=limit)
    parents = {each.post_id: each for each in known.parents}
    return {
        "platform": where,
        "conversation_id": own,
        "complete": known.verdict in _DONE,
        "verdict": known.verdict,
        "posts": known.posts,
        "live_walks": sum(walk.alive for walk in known.walks),
        "gaps": [each for each in known.parents if each.gap],
        "dead_walks": [walk for walk in known.walks if not walk.alive],
        # A parent that stands on the page before is left out: its replies name it.
        "nodes": [each for each in tree(page.items, parents) if each.post or each.missing],
        "next": page.next and str(page.next),
    }
