"""Stores posts that a source pushes, as if they had been swept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.kit.errors import DatabaseBusy
from mistnet.kit.migrate import require_current
from mistnet.queue.events import EventKind, NewEvent
from mistnet.queue.model import Write
from mistnet.social.accounts import Account, AccountState
from mistnet.social.jobs.sweeps import Sweeper
from mistnet.social.model import THREADS, Detail, Page, Post, PostId, UserId, X
from mistnet.social.store.quarantine import KeptPayload, Quarantine, Reparsed, ReparseResult
from mistnet.sources.threads import decode as threads
from mistnet.sources.x.decode import gather_posts, gather_users

if TYPE_CHECKING:
    from mistnet.app import App


WEBHOOK_ENDPOINT: Final = "webhook"
"""Where pushed posts are said to come from."""

POST_ENDPOINTS: Final = ("tweet/advanced_search", "tweets", "user/last_tweets", "tweet/replies", WEBHOOK_ENDPOINT)
USER_ENDPOINTS: Final = {
    "user/batch_info_by_ids": Detail.PROFILE,
    "user/followers": Detail.LISTED,
    "user/followings": Detail.LISTED,
}


async def reparse_all(app: App) -> Reparsed:
    """Reads what was set aside with today's decoder, and writes what can be read now."""
    await require_current(app.database)
    await app.database.correct_clock()
    return await Quarantine(app.database).reparse(reread, app.writers, now=app.database.clock.now())


def reread(kept: KeptPayload) -> ReparseResult:
    """One payload by the decoder of the endpoint it came from. All of it can be read, or none is taken."""
    payload = msgspec.Raw(kept.payload)
    try:
        if kept.platform == THREADS:
            gathered, *_ = threads.gather_posts([payload], kept.endpoint)
        elif kept.endpoint in POST_ENDPOINTS:
            gathered, _ = gather_posts([payload], kept.endpoint)
        elif kept.endpoint in USER_ENDPOINTS:
            gathered = gather_users([payload], kept.endpoint, USER_ENDPOINTS[kept.endpoint])
        else:
            return ReparseResult(problem=f"nothing here reads what comes from {kept.endpoint}")
    except RecursionError:
        return ReparseResult(problem="it is nested too deeply")
    if gathered.unreadable:
        return ReparseResult(problem=gathered.unreadable[0].problem)
    return ReparseResult(writes=gathered.writes)


_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.1


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a push: how many posts it brought, how many of them are new, and how many cannot be read."""

    posts: int
    new: int
    unreadable: int


async def take_in(app: App, payloads: Sequence[msgspec.Raw]) -> Pushed:
    """All of it in one transaction. The same push twice changes nothing."""
    gathered, own = gather_posts(payloads, WEBHOOK_ENDPOINT)
    page = Page(own=own, gathered=gathered, has_more=False)
    known = await app.collecting.look.known_posts(X, own)
    new = [each for each in own if each not in known]
    await _written(app, [*gathered.writes, *await _leads(app, page), *await _news(app, page, new)])
    return Pushed(posts=len(own), new=len(new), unreadable=len(gathered.unreadable))


async def _leads(app: App, page: Page) -> list[Write]:
    """The ways up from tracked authors' replies, and whom they answer."""
    collecting = app.collecting
    sweeper = Sweeper(
        look=collecting.look, sources=collecting.sources, clock=app.database.clock, rules=collecting.rules
    )
    by_author = _by_author([page.gathered.posts[each] for each in page.own])
    leads: list[Write] = []
    for user_id, posts in by_author.items():
        if account := await _tracked(app, user_id):
            leads += await sweeper.leads(page, posts, account)
    return leads


async def _news(app: App, page: Page, new: Sequence[PostId]) -> list[Write]:
    """Whoever wants to know of tracked accounts' posts is told now, not at the next catch-up."""
    events: list[Write] = []
    for user_id, posts in _by_author([page.gathered.posts[each] for each in new]).items():
        if account := await _tracked(app, user_id):
            ids = [post.id for post in posts]
            payload = {
                "user_id": str(user_id),
                "handle": account.handle,
                "new": len(ids),
                "since_post_id": str(min(ids) - 1),
                "newest_post_id": str(max(ids)),
            }
            events.append(NewEvent(kind=EventKind.POSTS_COLLECTED, subject=str(user_id), payload=payload))
    return events


async def _tracked(app: App, user_id: UserId) -> Account | None:
    account = await app.collecting.look.account(X, user_id)
    return account if account and account.state is not AccountState.UNTRACKED else None


def _by_author(posts: Sequence[Post]) -> Mapping[UserId, list[Post]]:
    found: dict[UserId, list[Post]] = {}
    for post in posts:
        found.setdefault(post.author_id, []).append(post)
    return found


async def _written(app: App, writes: Sequence[Write]) -> None:
    prepared = app.writers.prepare(writes)
    for tries_left in reversed(range(_TRIES)):
        try:
            async with app.database.transaction() as connection:
                await app.writers.write(connection, prepared, app.database.clock.now())
        except DatabaseBusy:
            if not tries_left:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return
