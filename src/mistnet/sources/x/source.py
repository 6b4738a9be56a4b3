"""Assembles the collecting of X: client, governor, job kinds, writers."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from mistnet import __version__
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import X_SOURCE, CallRecord, Halt, KeyLabel, SourceState
from mistnet.governor.store import DatabaseSourceStore
from mistnet.graph.follows.jobs import FollowSyncer
from mistnet.graph.follows.model import FOLLOW_SYNC, PAGE_SIZE, FollowsEnded, FollowsSeen, FollowSyncArgs, SyncEnded
from mistnet.graph.follows.store import SyncReads, write_follows_ended, write_follows_seen, write_syncs_ended
from mistnet.kit.database import Database
from mistnet.kit.shared_resource import SharedResource
from mistnet.kit.transport import LateTransport, Transport
from mistnet.operations.runs.jobs import Scraper
from mistnet.operations.runs.model import SCRAPE, RunStep, ScrapeArgs
from mistnet.operations.runs.store import write_run_steps
from mistnet.queue.events import NewEvent
from mistnet.queue.kinds import single
from mistnet.queue.metrics import SourceMetrics
from mistnet.queue.model import JobClass
from mistnet.queue.outbox import write_events
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings
from mistnet.social.accounts import AccountStateChange, HistoryJudged, Missing, SuggestionClosed, Swept, TrackedAccount
from mistnet.social.fetch_sizes import Fetched
from mistnet.social.ingests.model import IngestAdvanced, IngestBegun, IngestEnded
from mistnet.social.ingests.store import write_advanced, write_begun, write_ended
from mistnet.social.jobs.args import CollectRules, MostCredits
from mistnet.social.jobs.kinds import social_kinds
from mistnet.social.jobs.sweeps import Sweeper
from mistnet.social.model import Post, Unreadable, User
from mistnet.social.sources import SocialSources
from mistnet.social.store.accounts import (
    StoreLook,
    write_closed_suggestions,
    write_judged,
    write_state_changes,
    write_swept,
    write_tracked,
)
from mistnet.social.store.fetch_sizes import write_fetched
from mistnet.social.store.posts import write_missing, write_posts, write_quarantine, write_users
from mistnet.sources.x import client as prices
from mistnet.sources.x.client import XClient

USUAL_DAY_CREDITS = 200_000
NO_CAP = (
    f"X has no cap on spending. Set one, for example US$ {USUAL_DAY_CREDITS // prices.CREDITS_PER_DOLLAR} a day: "
    f"`mistnet sources set x --day-credits {USUAL_DAY_CREDITS}`."
)
LANES = (X_SOURCE,)


class XCollector:
    """All of X for one process. Calls can be made while it is open."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        transport: Transport | None = None,
        metrics: SourceMetrics | None = None,
        on_call: Callable[[CallRecord], None] | None = None,
    ) -> None:
        self.book = DatabaseSourceStore(database)
        self.look = StoreLook(database)
        self.rules = rules_of(settings)
        self.governor = Governor(
            X_SOURCE,
            keys_of(settings),
            book=self.book,
            clock=database.clock,
            limits=limits_of(settings),
            metrics=metrics,
            on_call=on_call,
        )
        self._transport = LateTransport(
            settings.x_base_url,
            user_agent=f"mistnet/{__version__}",
            total_seconds=settings.x_timeout_seconds,
            given=transport,
        )
        self._door = SharedResource([self._transport.opened, self.governor.opened])
        self.x = XClient(self._transport, gate=self.governor, clock=database.clock)
        syncer = FollowSyncer(reads=SyncReads(database), x=self.x, clock=database.clock, rules=self.rules)
        sources = SocialSources([self.x])
        sweeper = Sweeper(look=self.look, sources=sources, clock=database.clock, rules=self.rules)
        self.kinds = [
            *social_kinds(sources, look=self.look, targets=self.look, clock=database.clock, rules=self.rules),
            single(SCRAPE, Scraper(sweeper=sweeper).scrape, ScrapeArgs, job_class=JobClass.SWEEP, lanes=LANES),
            single(FOLLOW_SYNC, syncer.sync, FollowSyncArgs, job_class=JobClass.SWEEP, lanes=LANES),
        ]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """A worker and any number of requests may have it open at once; the last one closes it."""
        async with self._door.opened():
            yield

    async def look_at_the_budget(self, now: datetime) -> None:
        """A cap may have been raised since work was told to wait for another day."""
        if await self.halt() is not Halt.BUDGET:
            await self.book.wake_for_budget(X_SOURCE, now=now)

    async def halt(self) -> Halt | None:
        """Why X will not serve us for now, as far as all workers together know."""
        return self.governor.halted(await self._state(), a_page=prices.posts(prices.POSTS_PER_PAGE))

    async def is_capped(self) -> bool:
        """Whether anything limits what X may cost in a day or a month."""
        return self.governor.is_capped(await self._state())

    async def _state(self) -> SourceState:
        known = {state.name: state for state in await self.book.states()}
        return known.get(X_SOURCE) or SourceState(name=X_SOURCE)


WRITERS: Sequence[Writer[Any]] = (
    Writer(IngestBegun, write_begun),  # before all that refers to an ingest
    Writer(User, write_users),
    Writer(TrackedAccount, write_tracked),
    Writer(AccountStateChange, write_state_changes),
    Writer(RunStep, write_run_steps),  # before the posts: what is not there yet is new
    Writer(Post, write_posts),
    Writer(FollowsSeen, write_follows_seen),
    Writer(FollowsEnded, write_follows_ended),
    Writer(SyncEnded, write_syncs_ended),
    Writer(NewEvent, write_events),
    Writer(Swept, write_swept),
    Writer(Fetched, write_fetched),
    Writer(HistoryJudged, write_judged),  # after what changes the account's state
    Writer(Missing, write_missing),
    Writer(Unreadable, write_quarantine),
    Writer(SuggestionClosed, write_closed_suggestions),
    Writer(IngestAdvanced, write_advanced),
    Writer(IngestEnded, write_ended),
)
"""In the order their tables depend on each other."""


def rules_of(settings: Settings) -> CollectRules:
    return CollectRules(
        second_look=timedelta(seconds=settings.second_look_seconds),
        batch_fill=timedelta(seconds=settings.batch_fill_seconds),
        relook=timedelta(days=settings.relook_days),
        reposts=settings.x_reposts,
        round_pause=timedelta(seconds=settings.round_pause_seconds),
        summarize=settings.auto_summarization_enabled,
        users_per_call=settings.batch_users_by_ids_max,
        posts_per_call=settings.batch_posts_by_ids_max,
        most=MostCredits(
            posts=prices.posts(prices.POSTS_PER_PAGE),
            profile=prices.profile(),
            follows=prices.follow_page_at_most(PAGE_SIZE),
            relation=prices.relation(),
        ),
    )


def limits_of(settings: Settings) -> GovernorLimits:
    return GovernorLimits(
        rate_per_minute=settings.x_rate_per_minute,
        burst=settings.x_burst,
        day_credits=settings.x_day_credits,
        month_credits=settings.x_month_credits,
        breaker_failures=settings.breaker_failures,
        breaker_cooldown=timedelta(seconds=settings.breaker_seconds),
        failure_credits=prices.failure,
    )


def keys_of(settings: Settings) -> Mapping[KeyLabel, str]:
    """Keys by a label that names them without giving them away."""
    keys = [key.get_secret_value() for key in settings.x_api_key]
    return {KeyLabel(f"key-{hashlib.sha256(key.encode()).hexdigest()[:8]}"): key for key in keys}
