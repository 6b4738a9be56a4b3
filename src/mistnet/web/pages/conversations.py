"""One conversation as a tree, with gaps where posts are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.social.coverage import Completeness, MissingParent
from mistnet.social.model import PostId
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.post_listing import ListedPost, PostListing, read_cursor
from mistnet.web.auth import Reader
from mistnet.web.dependencies import Mistnet, OnPlatform
from mistnet.web.errors import NotFound
from mistnet.web.pages.accounts import LargestId, PostPlace
from mistnet.web.pages.render import page

router = APIRouter(include_in_schema=False)
_PAGE: Final = 200
_DEEPEST: Final = 6
"""Deeper replies are not indented further: a phone has no room for it."""
_VERDICTS: Final = {
    Completeness.COMPLETE: "every post with replies is stored",
    Completeness.IN_PROGRESS: "missing posts are being fetched",
    Completeness.AS_FAR_AS_UPSTREAM: "every post with replies that the source has is stored",
    Completeness.HAS_GAPS: "posts are missing",
}


class ConversationLine(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the tree: a post, or the place of a missing one. `answers` is set where the parent is not above."""

    depth: int
    post: ListedPost | None = None
    missing: MissingParent | None = None
    missing_id: PostId | None = None
    answers: str | None = None

    @property
    def step(self) -> int:
        return min(self.depth, _DEEPEST)


@router.get("/conversations/{conversation_id}")
async def conversation(
    request: Request,
    caller: Reader,
    app: Mistnet,
    conversation_id: Annotated[int, Path(ge=1, le=LargestId)],
    platform: OnPlatform = None,
    after: PostPlace = None,
) -> Response:
    own, pages, coverage = PostId(conversation_id), PostListing(app.database), Coverage(app.database)
    where = platform or await coverage.platform_of(own)
    posts = await pages.conversation(where, own, after=read_cursor(after) if after else None, limit=_PAGE)
    if not posts:
        other = await coverage.conversation_of(own, platform)
        if after is None and other not in (None, own):
            asked = f"?platform={platform}" if platform else ""
            return RedirectResponse(f"/conversations/{other}{asked}#p{own}", 303)
        raise NotFound(f"post of a conversation {conversation_id} here")
    known = await coverage.conversation(own, where)
    return HTMLResponse(
        page(
            request,
            "conversation.html",
            caller,
            conversation=known,
            said=_VERDICTS[known.verdict],
            lines=list(tree(posts, {each.post_id: each for each in known.parents})),
            first=posts[0],
            after=after,
            more=posts[-1].cursor if len(posts) == _PAGE else None,
        ).body
    )


def tree(posts: Sequence[ListedPost], parents: dict[PostId, MissingParent]) -> Iterator[ConversationLine]:
    """Every post below its parent, oldest first, with nodes for missing parents."""
    stored = {post.id: post for post in posts}
    answers: dict[PostId | None, list[ListedPost]] = {}
    for post in posts:
        answers.setdefault(post.in_reply_to_id, []).append(post)
    begins = [each for each in answers if each not in stored]
    # A missing post sorts like its oldest stored reply.
    for missing_id in sorted(begins, key=lambda each: (each is not None, answers[each][0].cursor)):
        if missing_id is not None:
            yield ConversationLine(depth=0, missing=parents.get(missing_id), missing_id=missing_id)
        depth = 0 if missing_id is None else 1
        # Without recursion: some threads are deeper than Python's stack.
        waiting = [(post, depth) for post in reversed(answers[missing_id])]
        while waiting:
            post, own = waiting.pop()
            answered = stored.get(post.in_reply_to_id) if post.in_reply_to_id else None
            named = answered.handle if answered and own > _DEEPEST else None
            yield ConversationLine(depth=own, post=post, answers=named)
            waiting += [(each, own + 1) for each in reversed(answers.get(post.id, ()))]
