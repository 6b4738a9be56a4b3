"""Conversations as trees, with gaps where posts are missing."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import Field

from mistnet.kit.view import ListPage
from mistnet.social.coverage import Completeness, MissingParent
from mistnet.social.model import Platform, PostId
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.post_listing import POST_CURSOR, ListedPost, PostListing, read_cursor
from mistnet.web.auth import READS
from mistnet.web.dependencies import Mistnet, OnPlatform
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import Document, Id, PathId, Whole, number_of
from mistnet.web.pages.conversations import tree

router = APIRouter(prefix="/api/conversations", tags=["posts"], dependencies=READS)

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


class DeadWalk(Document):
    job_id: Id
    last_error: str | None


class ConversationDocument(Document):
    """`complete`: every ancestor of every stored post is stored, as far as the source has it."""

    platform: Platform
    conversation_id: Id
    complete: bool
    verdict: str
    posts: int
    live_walks: int
    gaps: list[ConversationGap]
    dead_walks: list[DeadWalk]
    nodes: list[NodeDocument]
    next: str | None


@router.get("/{conversation_id}", response_model=ConversationDocument, responses=refusals(404))
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
    posts = await PostListing(mistnet.database).conversation(where, own, after=after, limit=limit + 1)
    page, parents = ListPage.cut(posts, limit, lambda post: post.cursor), {each.post_id: each for each in known.parents}
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
