"""Searches: the box of the header, and posts by words, author and time. One conversation as a tree, with its gaps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Final
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import RedirectResponse, Response

from mistnet.app import App
from mistnet.kit.errors import UsageError
from mistnet.kit.text import read_id
from mistnet.kit.view import ListPage
from mistnet.prices.lineage import snippet
from mistnet.queue.model import JobId
from mistnet.shops.model import ProductId
from mistnet.shops.store.link_pages import LinkFilter, find_links
from mistnet.shops.store.product_pages import ProductFilter, ProductPages
from mistnet.social.coverage import Completeness, MissingParent
from mistnet.social.errors import BadHandle
from mistnet.social.model import PostId, UserId, X, read_handle
from mistnet.social.search_query import parse, pattern
from mistnet.social.store.account_pages import AccountPages
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.post_listing import ListedPost, PostListing, PostSearch, PostSpan, find_authors, read_cursor
from mistnet.web.dependencies import OnPlatform
from mistnet.web.errors import NotFound
from mistnet.web.fields import NumberPath, PostPlace, QueryText, ShortText
from mistnet.web.pages.render import ReaderPage, mark_matches

router = APIRouter(include_in_schema=False)
_FOUND: Final = 10
_IN_CONVERSATION: Final = 60
_TITLE: Final = 140
_DEEPEST: Final = 6
"""Deeper replies are not indented further: a phone has no room for it."""
_VERDICTS: Final = {
    Completeness.COMPLETE: "every post with replies is stored",
    Completeness.IN_PROGRESS: "missing posts are being fetched",
    Completeness.AS_FAR_AS_UPSTREAM: "every post with replies that the source has is stored",
    Completeness.HAS_GAPS: "posts are missing",
}
Day = Annotated[str, Query(max_length=10)]
_POST: Final = re.compile(
    r"(?:https?://)?(?:www\.|mobile\.)?(?:x|twitter)\.com/[^/?#]+(?:/web)?/status/([0-9]{1,19})\b.*"
)
_NUMBERED: Final = re.compile(r"(job|post|account|product|link|item|segment|run)s?[ #]+([0-9a-f-]{1,36})")
_NAMED: Final = 50


@router.get("/go")
async def go(page: ReaderPage, q: QueryText = "") -> Response:
    """The search box of the header: leads to what was typed, or to a search for it."""
    typed = q.strip()
    place: str | None
    if not typed:
        place = "/search"
    elif named := _NUMBERED.fullmatch(typed.lower()):
        place = f"/{'conversation' if named[1] == 'post' else named[1]}s/{named[2]}"
    elif post := _POST.fullmatch(typed):
        place = f"/conversations/{post[1]}"
    elif number := read_id(typed):
        place = await _find_numbered(page.app, number)
    else:
        place = await _find_named(page.app, typed)
    return RedirectResponse(place or f"/search?{urlencode({'q': typed})}", 303)


async def _find_numbered(app: App, number: int) -> str | None:
    """Ids of jobs and products are small, those of posts and users are not: few numbers are ambiguous."""
    if await app.inspector.job(JobId(number)):
        return f"/jobs/{number}"
    if await Coverage(app.database).conversation_of(PostId(number)):
        return f"/conversations/{number}"
    for platform in app.platforms:
        if await AccountPages(app.database, platform).account(UserId(number)):
            return f"/accounts/{number}{'' if platform == X else f'?platform={platform}'}"
    return f"/products/{number}" if await ProductPages(app.database).one(ProductId(number)) else None


async def _find_named(app: App, typed: str) -> str | None:
    """The account with this handle, the product or link of this URL, or the only product whose name begins so."""
    with suppress(BadHandle):
        handle = read_handle(typed)
        for platform in app.platforms:
            if found := await AccountPages(app.database, platform).account_called(handle):
                return f"/accounts/{found.user_id}{'' if platform == X else f'?platform={platform}'}"
    if typed.lower().startswith(("https://", "http://")):
        for link in (await find_links(app, LinkFilter(words=typed, limit=1))).items:
            return f"/products/{link.product_id}" if link.product_id else f"/links/{link.id}"
    products = (await ProductPages(app.database).list(ProductFilter(words=typed, limit=_NAMED))).items
    named = [each for each in products if (each.title or "").lower().startswith(typed.lower())]
    # Of several products, none: posts may be meant.
    return f"/products/{named[0].id}" if len(named) == 1 else None


@router.get("/search")
async def search(
    page: ReaderPage,
    q: QueryText = "",
    author: ShortText = "",
    since: Day = "",
    until: Day = "",
    before: PostPlace = None,
) -> Response:
    found: ListPage[ListedPost] = ListPage(items=(), next=None)
    problem, database = None, page.app.database
    if q.strip():
        try:
            span = PostSpan(
                authors=await find_authors(database, author) if author else None,
                since=read_day(since),
                until=read_day(until, later=1),
            )
            place = read_cursor(before) if before else None
            found = await PostSearch(database).find(q, span, before=place, limit=_FOUND)
        except (UsageError, ValueError) as error:
            problem = str(error)
    return page.render(
        "search.html",
        status=400 if problem else 200,
        asked={"q": q, "author": author, "since": since, "until": until},
        found=[(post, mark_matches(post.text, pattern(parse(q)))) for post in found.items],
        problem=problem,
        before=before,
        more=found.next,
    )


def read_day(written: str, later: int = 0) -> datetime | None:
    """The beginning of a day (UTC), or of a later one."""
    if not written.strip():
        return None
    try:
        return datetime.combine(date.fromisoformat(written.strip()) + timedelta(days=later), time(), UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{written!r} is not a day. Write it like 2027-01-31") from None


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
    page: ReaderPage, conversation_id: NumberPath, platform: OnPlatform = None, after: PostPlace = None
) -> Response:
    own, coverage = PostId(conversation_id), Coverage(page.app.database)
    where = platform or await coverage.platform_of(own)
    place = read_cursor(after) if after else None
    posts = await PostListing(page.app.database).conversation(where, own, after=place, limit=_IN_CONVERSATION)
    if not posts.items:
        other = await coverage.conversation_of(own, platform)
        if after is None and other not in (None, own):
            query = f"?platform={platform}" if platform else ""
            return RedirectResponse(f"/conversations/{other}{query}#p{own}", 303)
        raise NotFound(f"post of a conversation {conversation_id} here")
    known = await coverage.conversation(own, where)
    # The first post by time may be another one where the root is not stored.
    stored = posts.items if after is None else await PostListing(page.app.database).some([(where, own)])
    root = next((post for post in stored if post.id == own), None)
    lines = list(tree(posts.items, {each.post_id: each for each in known.parents}))
    return page.render(
        "conversation.html",
        conversation=known,
        said=_VERDICTS[known.verdict],
        lines=lines,
        root=root,
        title=snippet(root.text, _TITLE) or "A post without text" if root else "Conversation",
        tracked=list({post.author_id: post for post in posts.items if post.tracked}.values()),
        gaps=[line.missing_id for line in lines if line.missing],
        after=after,
        more=posts.next,
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
