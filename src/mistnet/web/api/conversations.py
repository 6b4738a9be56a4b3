"""Conversations as trees, with what is missing in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import Field

from mistnet.social.coverage.model import Completeness
from mistnet.social.coverage.store import Coverage
from mistnet.social.model import Platform, PostId
from mistnet.social.post_order import POST_CURSOR, read_cursor
from mistnet.social.store.post_listing import PostPages
from mistnet.web.auth import READS
from mistnet.web.dependencies import Mistnet, OnPlatform
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import Document, Id, Moment, PathId, Whole, number_of
from mistnet.web.pages.conversations import ConversationLine, tree

router = APIRouter(prefix="/api/conversations", tags=["posts"], dependencies=READS)

_MOST: Final = 1_000
_DONE: Final = (Completeness.COMPLETE, Completeness.AS_FAR_AS_UPSTREAM)


class SaidDocument(Document):
    """A post in its conversation."""

    id: Id
    author_id: Id
    handle: str | None
    name: str | None
    text: str
    url: str | None
    created_at: Moment
    in_reply_to_id: Id | None
    quoted_id: Id | None
    reposted_id: Id | None
    likes: int | None
    replies: int | None
    reposts: int | None
    views: int | None
    tracked: bool


class MissingDocument(Document):
    """A post that was answered and is not stored. Gone: upstream does not have it. Awaited: a job will bring it."""

    post_id: Id
    gone: bool
    awaited: bool


class NodeDocument(Document):
    """One place of the tree, in reading order: a post, or where one is missing."""

    depth: int
    post: SaidDocument | None
    missing: MissingDocument | None


class GapDocument(Document):
    """A post that was answered, is not stored, and that nothing will bring by itself."""

    post_id: Id
    reply_id: Id
    replies: int


class DeadWalk(Document):
    job_id: Id
    last_error: str | None


class ConversationDocument(Document):
    """`complete`: everything upstream has of the way from each stored post to the first one is there."""

    platform: Platform
    conversation_id: Id
    complete: bool
    verdict: str
    posts: int
    live_walks: int
    gaps: list[GapDocument]
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
    """The tree of a conversation, the oldest posts first. One with more posts than `limit` comes in pages."""
    own = PostId(number_of(conversation_id))
    coverage = Coverage(mistnet.database)
    where = platform or await coverage.platform_of(own)
    known = await coverage.conversation(own, where)
    if not known.posts and not known.walks:
        raise NotFound(f"conversation {conversation_id} here{await _hint(coverage, own, platform)}")
    after = read_cursor(cursor) if cursor else None
    posts = await PostPages(mistnet.database).conversation(where, own, after=after, limit=limit + 1)
    shown, parents = posts[:limit], {each.post_id: each for each in known.parents}
    return {
        "platform": where,
        "conversation_id": own,
        "complete": known.verdict in _DONE,
        "verdict": known.verdict,
        "posts": known.posts,
        "live_walks": sum(walk.alive for walk in known.walks),
        "gaps": [each for each in known.parents if each.gap],
        "dead_walks": [walk for walk in known.walks if not walk.alive],
        "nodes": _nodes(list(tree(shown, parents))),
        "next": str(shown[-1].cursor) if len(posts) > limit else None,
    }


def _nodes(lines: Sequence[ConversationLine]) -> list[dict[str, Any]]:
    """What is not missing but stands on the page before is left out: those who answer it name it."""
    return [
        {"depth": line.depth, "post": line.post, "missing": line.missing}
        for line in lines
        if line.post is not None or line.missing is not None
    ]


async def _hint(coverage: Coverage, post_id: PostId, platform: Platform | None) -> str:
    belongs_to = await coverage.conversation_of(post_id, platform)
    return f"; post {post_id} belongs to conversation {belongs_to}" if belongs_to else ""
