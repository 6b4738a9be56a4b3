"""Takes in posts that a source pushes: stored at once, and led on from as if they had been swept."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mistnet.app import App
from mistnet.desk.rereading import WEBHOOK_ENDPOINT
from mistnet.domain.accounts import Account, AccountState
from mistnet.domain.errors import DatabaseBusy
from mistnet.domain.events import EventKind, NewEvent
from mistnet.domain.jobs import Write
from mistnet.domain.social import Page, Platform, Post, PostId, UserId
from mistnet.jobs.sweeps import Sweeper
from mistnet.upstream.x.decode import gather_posts

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
    known = await app.harvest.look.known_posts(Platform.X, own)
    new = [each for each in own if each not in known]
    await _written(app, [*gathered.writes, *await _leads(app, page), *await _news(app, page, new)])
    return Pushed(posts=len(own), new=len(new), unreadable=len(gathered.unreadable))


async def _leads(app: App, page: Page) -> list[Write]:
    """The ways up from tracked authors' replies, and whom they answer."""
    harvest = app.harvest
    sweeper = Sweeper(look=harvest.look, x=harvest.x, clock=app.database.clock, rules=harvest.rules)
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
    account = await app.harvest.look.account(Platform.X, user_id)
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
            async with app.database.write() as connection:
                await app.writers.write(connection, prepared, app.database.clock.now())
        except DatabaseBusy:
            if not tries_left:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return
