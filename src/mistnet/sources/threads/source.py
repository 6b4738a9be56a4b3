"""Assembles the reading of Threads: client, governor, polls of feeds, refresh of the token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from loguru import logger

from mistnet import __version__
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import THREADS_SOURCE, CallRecord, Halt, KeyLabel, SourceState, fingerprint
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.kit.errors import SettingsError
from mistnet.kit.shared_resource import SharedResource
from mistnet.kit.transport import LateTransport, Transport
from mistnet.queue.errors import WorkError
from mistnet.queue.kinds import Kind, single
from mistnet.queue.leader import Duty
from mistnet.queue.metrics import SourceMetrics
from mistnet.queue.model import JobClass
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings
from mistnet.social.errors import NoThreadsToken
from mistnet.social.feeds.jobs import FeedPollArgs, FeedPoller, FeedRules, feed_poll
from mistnet.social.feeds.model import FEED_POLL, Feed, FeedFound, FeedGrown, FeedPolled, FeedRefused
from mistnet.social.feeds.store import (
    AddedFeed,
    Feeds,
    StoreFeedLook,
    due_feeds,
    put_away_gaps,
    write_feeds_found,
    write_feeds_grown,
    write_feeds_polled,
    write_feeds_refused,
)
from mistnet.sources.threads.client import ThreadsClient
from mistnet.sources.threads.tokens import TokenKeeper, TokenState

LANES: Final = (THREADS_SOURCE,)
TOKEN: Final = KeyLabel("token")
LOOK_EVERY: Final = timedelta(seconds=15)
TOKEN_LOOK_EVERY: Final = timedelta(hours=1)
YOUNGEST: Final = timedelta(days=1)
"""Threads refreshes no token that is younger."""

BURST: Final = 5
WRITERS: Sequence[Writer[Any]] = (
    Writer(FeedFound, write_feeds_found),
    Writer(FeedRefused, write_feeds_refused),
    Writer(FeedGrown, write_feeds_grown),
    Writer(FeedPolled, write_feeds_polled),
)


class TokenStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the token stands, and from when on it is refreshed. Never the token."""

    state: TokenState
    refresh_from: datetime | None
    file: str | None


class ThreadsCollector:
    """All of Threads for one process. Calls can be made while it is open."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        transport: Transport | None = None,
        metrics: SourceMetrics | None = None,
        on_call: Callable[[CallRecord], None] | None = None,
    ) -> None:
        self.store = Feeds(database)
        self.keeper = keeper_of(settings)
        self._settings = settings
        self._database = database
        self._book = DatabaseSourceStore(database)
        self._looked_at: datetime | None = None
        self.governor = Governor(
            THREADS_SOURCE,
            {TOKEN: "kept apart"} if self.keeper.token else {},
            book=self._book,
            clock=database.clock,
            limits=limits_of(settings),
            metrics=metrics,
            on_call=on_call,
            fingerprint_of=lambda: fingerprint(self.keeper.token or ""),
        )
        self._transport = LateTransport(
            settings.threads_base_url,
            user_agent=f"mistnet/{__version__}",
            total_seconds=settings.threads_timeout_seconds,
            given=transport,
        )
        self._door = SharedResource([self._transport.opened, self.governor.opened])
        clock = database.clock
        self.threads = ThreadsClient(self._transport, gate=self.governor, clock=clock, keeper=self.keeper)
        poller = FeedPoller(look=StoreFeedLook(database), threads=self.threads, clock=clock, rules=rules_of(settings))
        self.kinds: Sequence[Kind] = [
            single(FEED_POLL, poller.poll, FeedPollArgs, job_class=JobClass.SWEEP, lanes=LANES)
        ]

    @property
    def secrets(self) -> Sequence[str]:
        return self.keeper.secrets

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self._door.opened():
            yield

    async def halt(self) -> Halt | None:
        """Why Threads will not serve us for now, as far as all workers together know."""
        known = {state.name: state for state in await self._book.states()}
        return self.governor.halted(known.get(THREADS_SOURCE) or SourceState(name=THREADS_SOURCE), a_page=0)

    async def add(
        self, handles: Sequence[str], *, every_seconds: float | None, job_writer: JobWriter
    ) -> Sequence[AddedFeed]:
        now = self._database.clock.now()
        return await self.store.add(
            handles, every_seconds=every_seconds, poll=feed_poll, job_writer=job_writer, now=now
        )

    async def poll(self, handles: Sequence[str], *, job_writer: JobWriter) -> Sequence[Feed]:
        now = self._database.clock.now()
        return await self.store.poll(handles, poll=feed_poll, job_writer=job_writer, now=now)

    async def remove(self, handle: str) -> Feed:
        return await self.store.remove(handle, now=self._database.clock.now())

    def duties(self, job_writer: JobWriter) -> Sequence[Duty]:
        """For the process that leads."""

        async def look() -> int:
            return await self.make_due(job_writer)

        return [Duty(name="poll feeds", every=LOOK_EVERY, run=look)] if self._settings.scheduler_enabled else []

    async def make_due(self, job_writer: JobWriter) -> int:
        """Makes the polls of feeds whose time has come; returns how many."""
        now = self._database.clock.now()
        every = timedelta(seconds=self._settings.feed_every_seconds)
        relook = timedelta(days=self._settings.relook_days)
        async with self._database.read() as connection:
            due = await due_feeds(connection, now=now, every=every, relook=relook)
        if not due:
            return 0
        async with self._database.transaction() as connection:
            await put_away_gaps(connection, due, now)
            made = await job_writer.write(connection, [feed_poll(each) for each in due], now)
        return made.created

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
        """Asks Threads what it knows of the token, and keeps that. Calls must be possible."""
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
        """Trades the token for a fresh one, whatever its age. Calls must be possible."""
        if self.keeper.token is None:
            raise NoThreadsToken
        if self.keeper.file is None:
            problem = "a refreshed token has to be kept somewhere: name a file"
            raise SettingsError("threads_token_file", "settings", problem)
        await self.threads.refresh()
        return self.token

    async def look_after_token(self) -> int:
        """A worker's chore: once an hour, whether the token is to be refreshed. Returns 0: it makes no work."""
        now = self._database.clock.now()
        if self.keeper.file is None or self.keeper.token is None or await self.halt():
            return 0
        if self._looked_at is not None and now - self._looked_at < TOKEN_LOOK_EVERY:
            return 0
        self._looked_at = now
        try:
            standing = self.token if self.keeper.state.expires_at else await self.check_token()
            if standing.refresh_from is not None and standing.refresh_from <= now:
                await self.refresh_token()
                logger.info("the token for Threads was refreshed; it expires {at}", at=self.keeper.state.expires_at)
        except (WorkError, SettingsError) as error:
            logger.warning("the token for Threads could not be looked after: {problem}", problem=str(error))
        return 0


def _moment(seconds: float | None) -> datetime | None:
    """As the API writes it: 0 is never."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds and seconds > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


def keeper_of(settings: Settings) -> TokenKeeper:
    given = settings.threads_token
    return TokenKeeper(given.get_secret_value() if given else None, settings.threads_token_file)


def rules_of(settings: Settings) -> FeedRules:
    return FeedRules(
        second_look=timedelta(seconds=settings.second_look_seconds),
        reply_window=timedelta(days=settings.feed_reply_days),
    )


def limits_of(settings: Settings) -> GovernorLimits:
    return GovernorLimits(
        rate_per_minute=settings.threads_rate_per_minute,
        burst=BURST,
        breaker_failures=settings.breaker_failures,
        breaker_cooldown=timedelta(seconds=settings.breaker_seconds),
    )
