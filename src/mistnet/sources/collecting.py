"""Collecting accounts: job kinds, the writers of what they return, and posts that a source pushes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mistnet.graph.follows.jobs import FollowSyncer
from mistnet.graph.follows.model import FOLLOW_SYNC, PAGE_SIZE, FollowsEnded, FollowsSeen, FollowSyncArgs, SyncEnded
from mistnet.graph.follows.store import SyncReads, write_follows_ended, write_follows_seen, write_syncs_ended
from mistnet.kit.database import Database
from mistnet.kit.migrate import require_current
from mistnet.kit.outage import retry_while_busy
from mistnet.operations.runs.jobs import Scraper
from mistnet.operations.runs.model import SCRAPE, RunStep, ScrapeArgs
from mistnet.operations.runs.store import write_run_steps
from mistnet.queue.events import EventKind, NewEvent
from mistnet.queue.kinds import Kind, single
from mistnet.queue.model import JobClass, Write
from mistnet.queue.outbox import write_events
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings
from mistnet.social.accounts import (
    AccountState,
    AccountStateChange,
    AccountTracked,
    Fetched,
    HistoryJudged,
    Missing,
    SuggestionClosed,
    Swept,
)
from mistnet.social.ingests import IngestAdvanced, IngestBegun, IngestEnded
from mistnet.social.jobs import args, social_kinds
from mistnet.social.jobs.args import CollectRules, MostCredits
from mistnet.social.jobs.sweeps import Sweeper
from mistnet.social.model import THREADS, Detail, Page, Post, SocialSources, Unreadable, User, UserId, X
from mistnet.social.store.accounts import (
    StoreLook,
    accounts_to_look_at,
    suspects_to_look_at,
    swept_at_once,
    write_closed_suggestions,
    write_fetched,
    write_judged,
    write_state_changes,
    write_swept,
    write_tracked,
)
from mistnet.social.store.ingests import write_advanced, write_begun, write_ended
from mistnet.social.store.posts import (
    add_users,
    posts_at_once,
    update_users,
    users_at_once,
    write_missing,
    write_posts,
    write_quarantine,
)
from mistnet.social.store.quarantine import KeptPayload, Quarantine, Reparsed, ReparseResult, take_up_unreadable
from mistnet.sources.threads import decode as threads
from mistnet.sources.x import client as prices
from mistnet.sources.x.client import XClient
from mistnet.sources.x.decode import gather_posts, gather_users

if TYPE_CHECKING:
    from mistnet.app import App


class Collecting(Feature):
    """Sweeps of accounts, reply chains and hydration on every platform; runs and follow syncs on X."""

    def __init__(self, settings: Settings, database: Database, sources: SocialSources, x: XClient) -> None:
        self._database = database
        self.sources = sources
        self.look = StoreLook(database)
        self.rules = rules_of(settings)
        clock, rules = database.clock, self.rules
        sweeper = Sweeper(look=self.look, sources=sources, clock=clock, rules=rules)
        syncer = FollowSyncer(reads=SyncReads(database), x=x, clock=clock, rules=rules)
        self.kinds: Sequence[Kind] = [
            *social_kinds(sources, look=self.look, clock=clock, rules=rules),
            single(SCRAPE, Scraper(sweeper=sweeper).scrape, ScrapeArgs, job_class=JobClass.SWEEP, lanes=[x.platform]),
            single(FOLLOW_SYNC, syncer.sync, FollowSyncArgs, job_class=JobClass.SWEEP, lanes=[x.platform]),
        ]

    def writers(self, _jobs: JobWriter) -> Sequence[Writer[Any]]:
        return WRITERS

    def upkeep_tasks(self, jobs: JobWriter) -> Sequence[Callable[[], Awaitable[int]]]:
        return [partial(self.recheck_accounts, jobs), self.retry_unreadable]

    async def recheck_accounts(self, jobs: JobWriter) -> int:
        """Create jobs for accounts that could not be collected and for suspect ones; return how many.

        The backfill of a suspect account continues below its oldest post: most often it ended there too early.
        """
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            due = await accounts_to_look_at(connection, now=now, next_at=now + self.rules.relook)
            suspects = await suspects_to_look_at(connection, now=now)
            again = [args.relook(user_id, platform) for platform, user_id in due]
            again += [args.backfill(user_id, platform) for platform, user_id in suspects]
            await jobs.write(connection, again, now)
        return len(again)

    async def retry_unreadable(self) -> int:
        """Fetch posts again that could not be decoded, at growing intervals; return how many."""
        async with self._database.transaction() as connection:
            return await take_up_unreadable(connection, self._database.clock.now())


WRITERS: Sequence[Writer[Any]] = (
    Writer(IngestBegun, write_begun),  # before everything that refers to an ingest
    Writer(User, add_users, last=update_users, parts=users_at_once),
    Writer(AccountTracked, write_tracked),
    Writer(AccountStateChange, write_state_changes),
    Writer(RunStep, write_run_steps),  # before the posts: a post that is not stored yet counts as new
    Writer(Post, write_posts, parts=posts_at_once),
    Writer(FollowsSeen, write_follows_seen),
    Writer(FollowsEnded, write_follows_ended),
    Writer(SyncEnded, write_syncs_ended),
    Writer(NewEvent, write_events),
    Writer(Swept, write_swept, parts=swept_at_once),
    Writer(Fetched, write_fetched),
    Writer(HistoryJudged, write_judged),  # after what changes the account's state
    Writer(Missing, write_missing),
    Writer(Unreadable, write_quarantine),
    Writer(SuggestionClosed, write_closed_suggestions),
    Writer(IngestAdvanced, write_advanced),
    Writer(IngestEnded, write_ended),
)
"""In the order in which their tables refer to each other."""


def rules_of(settings: Settings) -> CollectRules:
    return CollectRules(
        second_look=timedelta(seconds=settings.second_look_seconds),
        batch_fill=timedelta(seconds=settings.batch_fill_seconds),
        relook=timedelta(days=settings.relook_days),
        reposts=settings.x_reposts,
        summarize=settings.auto_summarization_enabled,
        users_per_call=settings.batch_users_by_ids_max,
        posts_per_call=settings.batch_posts_by_ids_max,
        most=MostCredits(
            posts=prices.posts(prices.POSTS_PER_PAGE),
            profile=prices.PROFILE,
            follows=prices.follow_page_at_most(PAGE_SIZE),
            relation=prices.RELATION,
        ),
    )


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
    await retry_while_busy(partial(app.writers.store, app.database, [*gathered.writes, *leads, *events]))
    new = sum(each not in known for each in own)
    return Pushed(posts=len(own), new=new, unreadable=len(gathered.unreadable))
