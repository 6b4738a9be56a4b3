"""Store posts that a source pushes, as if a sweep had collected them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.kit.migrate import require_current
from mistnet.queue.events import EventKind, NewEvent
from mistnet.queue.model import Write
from mistnet.social.accounts import AccountState
from mistnet.social.jobs.sweeps import Sweeper
from mistnet.social.model import THREADS, Detail, Page, Post, UserId, X
from mistnet.social.store.quarantine import KeptPayload, Quarantine, Reparsed, ReparseResult
from mistnet.sources.collecting import retry_while_busy
from mistnet.sources.threads import decode as threads
from mistnet.sources.x.decode import gather_posts, gather_users

if TYPE_CHECKING:
    from mistnet.app import App


WEBHOOK_ENDPOINT: Final = "webhook"
"""The endpoint recorded for pushed posts."""

POST_ENDPOINTS: Final = ("tweet/advanced_search", "tweets", "user/last_tweets", "tweet/replies", WEBHOOK_ENDPOINT)
USER_ENDPOINTS: Final = {
    "user/batch_info_by_ids": Detail.PROFILE,
    "user/followers": Detail.LISTED,
    "user/followings": Detail.LISTED,
}


async def reparse_all(app: App) -> Reparsed:
    """Decode the quarantined payloads again with the current decoder, and write those that can be read now."""
    await require_current(app.database)
    await app.database.correct_clock()
    return await Quarantine(app.database).reparse(reread, app.writers, now=app.database.clock.now())


def reread(kept: KeptPayload) -> ReparseResult:
    """Decode one payload as its endpoint requires. Unless all of it can be read, none of it is written."""
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


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a push: how many posts it contained, how many are new, and how many cannot be read."""

    posts: int
    new: int
    unreadable: int


async def take_in(app: App, payloads: Sequence[msgspec.Raw]) -> Pushed:
    """Store everything in one transaction. A repeated push changes nothing."""
    gathered, own = gather_posts(payloads, WEBHOOK_ENDPOINT)
    page = Page(own=own, gathered=gathered, has_more=False)
    known = await app.collecting.look.known_posts(X, own)
    collecting = app.collecting
    sweeper = Sweeper(
        look=collecting.look, sources=collecting.sources, clock=app.database.clock, rules=collecting.rules
    )
    by_author: dict[UserId, list[Post]] = {}
    for each in own:
        post = gathered.posts[each]
        by_author.setdefault(post.author_id, []).append(post)
    leads: list[Write] = []
    events: list[Write] = []
    for user_id, posts in by_author.items():
        account = await collecting.look.account(X, user_id)
        if account is None or account.state is AccountState.UNTRACKED:
            continue
        # The posts and users that its replies refer to, and an event: subscribers need not wait for the next catch-up.
        leads += await sweeper.leads(page, posts, account)
        if ids := [post.id for post in posts if post.id not in known]:
            payload = {
                "user_id": str(user_id),
                "handle": account.handle,
                "new": len(ids),
                "since_post_id": str(min(ids) - 1),
                "newest_post_id": str(max(ids)),
            }
            events.append(NewEvent(kind=EventKind.POSTS_COLLECTED, subject=str(user_id), payload=payload))
    prepared = app.writers.prepare([*gathered.writes, *leads, *events])

    async def write() -> None:
        async with app.database.transaction() as connection:
            await app.writers.write(connection, prepared, app.database.clock.now())

    await retry_while_busy(write)
    new = sum(each not in known for each in own)
    return Pushed(posts=len(own), new=new, unreadable=len(gathered.unreadable))
