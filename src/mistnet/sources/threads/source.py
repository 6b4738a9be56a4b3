"""Threads as a source, and the feeds that are read from it: polls, and the refresh of the token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
from loguru import logger

from mistnet.governor.model import THREADS_SOURCE, KeyLabel, SourceState, fingerprint
from mistnet.governor.source import Source, SourceContext
from mistnet.kit.errors import SettingsError
from mistnet.queue.errors import WorkError
from mistnet.queue.kinds import Kind
from mistnet.queue.leader import Duty
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.social.errors import NoThreadsToken
from mistnet.social.feeds import FeedFound, FeedGrown, FeedPolled, FeedRefused
from mistnet.social.jobs.feeds import FeedRules, feed_kinds, feed_poll
from mistnet.social.model import THREADS
from mistnet.social.store.accounts import renew_jobs
from mistnet.social.store.feeds import (
    Feeds,
    StoreFeedLook,
    due_feeds,
    write_feeds_found,
    write_feeds_grown,
    write_feeds_polled,
    write_feeds_refused,
)
from mistnet.sources.threads.client import ThreadsClient
from mistnet.sources.threads.tokens import TokenKeeper, TokenState

TOKEN: Final = KeyLabel("token")
LOOK_EVERY: Final = timedelta(seconds=15)
TOKEN_LOOK_EVERY: Final = timedelta(hours=1)
YOUNGEST: Final = timedelta(days=1)
"""Threads refuses to refresh a younger token."""

BURST: Final = 5
WRITERS: Sequence[Writer[Any]] = (
    Writer(FeedFound, write_feeds_found),
    Writer(FeedRefused, write_feeds_refused),
    Writer(FeedGrown, write_feeds_grown),
    Writer(FeedPolled, write_feeds_polled),
)


class TokenStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the token and when it is refreshed. Never the token itself."""

    state: TokenState
    refresh_from: datetime | None
    file: str | None


class ThreadsCollector(Feature):
    """The feeds of Threads. Calls can be made while its source is open."""

    def __init__(self, context: SourceContext) -> None:
        settings, database = context.settings, context.database
        self.store = Feeds(database)
        given = settings.threads_token
        self.keeper = TokenKeeper(given.get_secret_value() if given else None, settings.threads_token_file)
        self._settings = settings
        self._database = database
        self._source_store = context.store
        self._checked_at: datetime | None = None
        governor = context.governor(
            THREADS_SOURCE,
            # The client reads the token from the keeper, which may refresh it at any time.
            {TOKEN: "kept apart"} if self.keeper.token else {},
            rate_per_minute=settings.threads_rate_per_minute,
            burst=BURST,
            fingerprint_of=lambda: fingerprint(self.keeper.token or ""),
        )
        http = context.http(THREADS_SOURCE, settings.threads_base_url, total_seconds=settings.threads_timeout_seconds)
        clock = database.clock
        self.threads = ThreadsClient(http, gate=governor, clock=clock, keeper=self.keeper)
        self.source = Source(
            governor=governor,
            platform=THREADS,
            parts=[http.opened],
            setup="set MISTNET_THREADS_TOKEN",
            secrets=lambda: self.keeper.secrets,
            upkeep_tasks=[self.maintain_token],
        )
        rules = FeedRules(
            second_look=timedelta(seconds=settings.second_look_seconds),
            reply_window=timedelta(days=settings.feed_reply_days),
        )
        look = StoreFeedLook(database)
        self.kinds: Sequence[Kind] = feed_kinds([self.threads], look=look, clock=clock, rules=rules)

    def writers(self, _jobs: JobWriter) -> Sequence[Writer[Any]]:
        return WRITERS

    def duties(self, jobs: JobWriter) -> Sequence[Duty]:
        poll_due = Duty(name="poll feeds", every=LOOK_EVERY, run=partial(self.make_due, jobs))
        return [poll_due] if self._settings.scheduler_enabled else []

    async def make_due(self, job_writer: JobWriter) -> int:
        """Create the polls of feeds that are due; return how many."""
        now = self._database.clock.now()
        every = timedelta(seconds=self._settings.feed_every_seconds)
        relook = timedelta(days=self._settings.relook_days)
        async with self._database.read() as connection:
            due = await due_feeds(connection, now=now, every=every, relook=relook)
        # Most looks find nothing, and then need no write transaction.
        if not due:
            return 0
        async with self._database.transaction() as connection:
            return (await renew_jobs(connection, job_writer, [feed_poll(*each) for each in due], now)).created

    @property
    def token(self) -> TokenStatus:
        state = self.keeper.state
        file = self._settings.threads_token_file
        refresh_from = None
        if state.expires_at and file:
            refresh_from = state.expires_at - timedelta(days=self._settings.threads_refresh_days)
            refresh_from = max(refresh_from, state.issued_at + YOUNGEST) if state.issued_at else refresh_from
        return TokenStatus(state=state, refresh_from=refresh_from, file=str(file) if file else None)

    async def check_token(self) -> TokenStatus:
        """Ask Threads how long the token is valid and store the answer. The source must be open."""
        token = self.keeper.token
        if token is None:
            raise NoThreadsToken
        facts = await self.threads.token_facts()
        self.keeper.keep(
            token,
            issued_at=_moment(facts.issued_at),
            expires_at=_moment(facts.expires_at),
            scopes=tuple(facts.scopes or ()),
        )
        return self.token

    async def refresh_token(self) -> TokenStatus:
        """Exchange the token for a fresh one, whatever its age. The source must be open."""
        if self.keeper.token is None:
            raise NoThreadsToken
        if self.keeper.file is None:
            problem = "a refreshed token must be stored: name a file"
            raise SettingsError("threads_token_file", "settings", problem)
        await self.threads.refresh()
        return self.token

    async def maintain_token(self) -> int:
        """Refresh the token when it is due; checked once an hour by each worker. Returns 0: it creates no jobs."""
        now = self._database.clock.now()
        if self.keeper.file is None or self.keeper.token is None:
            return 0
        states = {state.name: state for state in await self._source_store.states()}
        state = states.get(THREADS_SOURCE) or SourceState(name=THREADS_SOURCE)
        if self.source.governor.halted(state, a_page=0) is not None:
            return 0
        if self._checked_at is not None and now - self._checked_at < TOKEN_LOOK_EVERY:
            return 0
        # Set first: a refresh that fails is tried again in an hour, not in every round of upkeep.
        self._checked_at = now
        try:
            status = self.token if self.keeper.state.expires_at else await self.check_token()
            if status.refresh_from is not None and status.refresh_from <= now:
                await self.refresh_token()
                logger.info("the token for Threads was refreshed; it expires {at}", at=self.keeper.state.expires_at)
        except (WorkError, SettingsError) as error:
            logger.warning("the token for Threads could not be refreshed: {problem}", problem=str(error))
        return 0


def _moment(seconds: float | None) -> datetime | None:
    """A time as the API writes it: 0 means never."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds and seconds > 0 else None
    except (OverflowError, ValueError, OSError):
        return None
