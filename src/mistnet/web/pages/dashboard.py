"""Counts that many pages show, cached per process; and the stream that tells open pages of changes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from mistnet.app import App
from mistnet.governor.model import day_start
from mistnet.graph.segments.listing import SegmentPages
from mistnet.kit.errors import DatabaseError
from mistnet.operations.overview import By, CallLedger, DashboardStore, GapGroup, OpenAlert, Spent
from mistnet.prices.store.item_listing import ItemListing
from mistnet.queue.model import GAP_STATES, LIVE_STATES, JobState, KindName, WorkerName
from mistnet.queue.store.inspect import PausedKind, SeenWorker, StateCount, WaitGroup
from mistnet.shops.store.link_pages import LinkedHost, LinkPages
from mistnet.shops.store.product_pages import ProductPages
from mistnet.social.coverage import Sweep
from mistnet.social.model import Platform, UserId
from mistnet.social.store.account_pages import AccountPages, MonthOfPosts, OwnConversation
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.feeds import feeds_version
from mistnet.sources.controls import LaneStatus, lane_statuses
from mistnet.web.auth import Reader
from mistnet.web.dependencies import part
from mistnet.web.pages.cached_counts import Bars, CachedResult, ChartSpan, EventCounts, KeptResults
from mistnet.web.pages.graph_pictures import pictures_of

router = APIRouter(include_in_schema=False)
_CHECK_SECONDS: Final = 1.0
_QUIET_CHECKS: Final = 15
"""After this many checks without a change, a comment keeps proxies from closing the stream."""
_MOST_CHECKS: Final = 600
"""After this many checks the stream ends and the page reconnects, so that a session that ended ends it, too."""
_HEADERS: Final = {"X-Accel-Buffering": "no"}

_DAY = timedelta(days=1)
_RECENT = timedelta(minutes=1)
_LANES_SHOWN_SECONDS = 60.0
_RECENT_SECONDS: Final = 5.0
_HOSTS, _TALKS = 8, 6
_YOUNG = (
    (timedelta(minutes=3), ChartSpan.MINUTES),
    (timedelta(hours=2), ChartSpan.HOUR),
    (timedelta(days=2), ChartSpan.DAY),
)
SHOWN_STATES = (JobState.RUNNING, JobState.PENDING, JobState.QUEUED, JobState.RETRYABLE, JobState.FAILED, JobState.DEAD)


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The queue at one moment."""

    at: datetime
    counts: Sequence[StateCount]
    waits: Sequence[WaitGroup]
    workers: Sequence[SeenWorker]
    held: Mapping[WorkerName, int]
    paused: Sequence[PausedKind]
    finished: Mapping[KindName, int]
    alerts: Sequence[OpenAlert]
    gaps: Sequence[GapGroup]
    accounts: Mapping[str, int]
    complete: int = 0
    segments: tuple[int, int] = (0, 0)
    shops: tuple[object, ...] = ()

    def of(self, *states: JobState) -> int:
        return sum(count.jobs for count in self.counts if count.state in states)

    @property
    def live(self) -> int:
        return self.of(*LIVE_STATES)

    @property
    def gap_count(self) -> int:
        return self.of(*GAP_STATES)

    @property
    def kinds(self) -> Mapping[KindName, Mapping[JobState, int]]:
        """Jobs of each kind by state, the largest kind first. Kinds that finished jobs just now are included."""
        found: dict[KindName, dict[JobState, int]] = {name: {} for name in self.finished}
        for count in self.counts:
            found.setdefault(count.kind, {})[count.state] = count.jobs
        return dict(sorted(found.items(), key=lambda each: (-sum(each[1].values()), each[0])))

    @property
    def oldest_due_at(self) -> datetime | None:
        return min((count.oldest_due_at for count in self.counts if count.oldest_due_at), default=None)


class CollectedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How much was collected, in all and recently."""

    posts: int
    posts_today: int
    credits_today: int
    span: ChartSpan


class AccountCounts(msgspec.Struct, frozen=True, kw_only=True):
    """For each account at one moment: its stored posts, what it cost, and its sweeps."""

    at: datetime
    stored: Mapping[UserId, int]
    spent: Mapping[UserId, int]
    sweeps: Mapping[UserId, Sequence[Sweep]]


class AccountFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What takes a look at many posts of one account."""

    months: Sequence[MonthOfPosts]
    hours: Mapping[int, int]
    conversations: Sequence[OwnConversation]
    hosts: Sequence[LinkedHost]


class Dashboard:
    """One per process. It reads nothing while no page is open."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._store = DashboardStore(app.database)
        amounts = self._store.amounts_by
        self._posts = EventCounts(partial(amounts, of="posts"), self._store.posts_before)
        self._credits = EventCounts(partial(amounts, of="credits"))
        self.collected = CachedResult(self._count, seconds=1)
        self.queue = CachedResult(self._read_queue, seconds=1)
        self.account_counts = CachedResult(self._read_accounts, seconds=3)
        self._lanes = CachedResult(self._read_lanes, seconds=2)
        self._kinds = CachedResult(self._read_kinds, seconds=1)
        self._lanes_read_at = -math.inf
        self._activity = {
            "done": ("Jobs done", EventCounts(partial(amounts, of="jobs done"))),
            "failed-attempts": ("Attempts that failed", EventCounts(partial(amounts, of="failed attempts"))),
            "calls": ("Calls to sources", EventCounts(partial(amounts, of="calls"))),
            "failed-calls": ("Calls that failed", EventCounts(partial(amounts, of="failed calls"))),
        }
        self._spent: dict[int, CachedResult[tuple[datetime, Mapping[By, Sequence[Spent]]]]] = {}
        self._told: dict[str, int] = {}
        """What pages of sums were rendered from: such a page is shown again when its sums were renewed behind it."""
        self._active = CachedResult(self._renew_activity, seconds=2)
        self.pictures = pictures_of(app.database)
        self.figures = KeptResults(self._read_figures)
        self.seen: int | None = None
        """The last version that was computed. A page rendered later shows this version or a newer one."""

    async def spent(self, days: int) -> tuple[datetime, Mapping[By, Sequence[Spent]]]:
        """Since when, and what was spent in the last days. Sums of a large ledger take longer than a page should."""
        cached = self._spent.setdefault(days, CachedResult(partial(self._read_spent, days), seconds=2))
        return await cached.get()

    async def _read_spent(self, days: int) -> tuple[datetime, Mapping[By, Sequence[Spent]]]:
        since = day_start(self.now) - (days - 1) * _DAY
        ledger = CallLedger(self._app.database)
        sums = {by: await ledger.spent(by, since=since) for by in By}
        self._told[f"spent in {days} days"] = sum(each.calls for each in sums[By.SOURCE])
        return since, sums

    async def activity(self, span: ChartSpan) -> Mapping[str, tuple[str, Bars]]:
        """What went through and what failed over time. Read only while a page shows it."""
        await self._active.get()
        return {name: (title, counts.bars(span, self.now)) for name, (title, counts) in self._activity.items()}

    async def _renew_activity(self) -> None:
        for name, (_, counts) in self._activity.items():
            await counts.renew(self.now)
            self._told[name] = counts.total

    @property
    def now(self) -> datetime:
        return self._app.database.clock.now()

    async def lanes(self) -> Sequence[LaneStatus]:
        """The status of each lane: its live jobs, and what went through it in an hour."""
        self._lanes_read_at = time.monotonic()
        return (await self._lanes.get())[1]

    async def recent_lanes(self) -> tuple[datetime, Sequence[LaneStatus]]:
        """The status of each lane, and as of when it is: some seconds ago at most."""
        return await self._lanes.recent(_RECENT_SECONDS)

    async def recent_kinds(self) -> tuple[datetime, Sequence[StateCount]]:
        """The jobs of each kind by state, and as of when they were counted: some seconds ago at most."""
        return await self._kinds.recent(_RECENT_SECONDS)

    async def _read_lanes(self) -> tuple[datetime, Sequence[LaneStatus]]:
        return self.now, await lane_statuses(self._app)

    async def _read_kinds(self) -> tuple[datetime, Sequence[StateCount]]:
        now = self.now
        return now, await self._app.inspector.counts(now=now)

    async def bars(self, span: ChartSpan) -> tuple[Bars, Bars]:
        """The posts that were stored, and the credits that were spent."""
        await self.collected.get()
        now, begin = self.now, self._posts.first_at
        return self._posts.bars(span, now, begin), self._credits.bars(span, now, begin)

    async def version(self) -> int:
        """A number that changes when there is something new to show."""
        queue, collected = await self.queue.get(), await self.collected.get()
        stored = tuple((await self.account_counts.get()).stored.items())
        # Changes of lanes count while a page shows them. Otherwise they are not even read.
        is_shown = time.monotonic() - self._lanes_read_at <= _LANES_SHOWN_SECONDS
        statuses = (await self._lanes.get())[1] if is_shown else ()
        lanes = tuple((each.lane, tuple(each.states.items()), each.succeeded, each.source) for each in statuses)
        counts = tuple((count.kind, count.state, count.jobs) for count in queue.counts)
        workers = tuple((worker.name, queue.held.get(worker.name)) for worker in queue.workers)
        alerts = tuple(alert.id for alert in queue.alerts)
        states = tuple(queue.accounts.items())
        others = (queue.segments, queue.shops, lanes, self.pictures.found, self.figures.found, *self._told.items())
        self.seen = hash((counts, workers, alerts, states, others, collected, stored))
        return self.seen

    async def close(self) -> None:
        counts: list[CachedResult[Any]] = [self.collected, self.queue, self.account_counts, self._lanes, self._kinds]
        for cached in (*counts, self._active, *self._spent.values()):
            await cached.close()
        await self.pictures.close()
        await self.figures.close()

    async def _count(self) -> CollectedCounts:
        now = self.now
        await self._posts.renew(now)
        await self._credits.renew(now)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        span, first_at = ChartSpan.MONTH, self._posts.first_at
        if first_at is not None:
            # The shortest span that shows everything of a young collection.
            age = timedelta(seconds=now.timestamp() - first_at)
            span = next((each for limit, each in _YOUNG if age < limit), ChartSpan.MONTH)
        return CollectedCounts(
            posts=self._posts.total,
            posts_today=self._posts.since(now - _DAY),
            credits_today=self._credits.since(midnight),
            span=span,
        )

    async def _read_queue(self) -> QueueSnapshot:
        now, inspector, database = self.now, self._app.inspector, self._app.database
        return QueueSnapshot(
            at=now,
            counts=await inspector.counts(now=now),
            waits=await inspector.waits(now=now),
            workers=await inspector.workers(),
            held=await self._store.held_by(),
            paused=await inspector.paused(),
            finished=await inspector.finished(since=now - _RECENT),
            alerts=await self._store.alerts(),
            gaps=await self._store.gaps(),
            accounts=await self._store.account_states(),
            complete=await self._store.complete_accounts(),
            segments=await SegmentPages(database).latest(),
            shops=(
                await LinkPages(database).latest(),
                await ProductPages(database).latest(),
                await feeds_version(database),
                await ItemListing(database).latest(),
            ),
        )

    async def _read_accounts(self) -> AccountCounts:
        now = self.now
        by_account: dict[UserId, list[Sweep]] = {}
        # One query for all accounts: one for each would be hundreds for a page.
        for sweep in await Coverage(self._app.database).sweeps():
            by_account.setdefault(sweep.user_id, []).append(sweep)
        stored, spent = await self._store.stored_posts(), await self._store.spent_on()
        return AccountCounts(at=now, stored=stored, spent=spent, sweeps=by_account)

    async def _read_figures(self, account: tuple[Platform, UserId]) -> AccountFigures:
        platform, user_id = account
        pages = AccountPages(self._app.database, platform)
        return AccountFigures(
            months=await pages.months(user_id),
            hours=await pages.hours(user_id),
            conversations=await pages.conversations(user_id, limit=_TALKS),
            hosts=await LinkPages(self._app.database).hosts_of(platform, user_id, limit=_HOSTS),
        )


CurrentDashboard = Annotated[Dashboard, Depends(part("dashboard"))]


async def remember_version(request: Request) -> None:
    """Runs before a page reads anything, so that every later change counts as new to the page."""
    seen = request.app.state.dashboard.seen
    request.state.seen = "" if seen is None else str(seen)


@router.get("/live")
async def live(request: Request, _caller: Reader, dashboard: CurrentDashboard, seen: str = "") -> StreamingResponse:
    """`seen` is the version that the page was rendered from. It may have changed while the page was sent."""
    return StreamingResponse(
        news(request.app.state.closing, dashboard, seen), media_type="text/event-stream", headers=_HEADERS
    )


async def news(closing: asyncio.Event, dashboard: Dashboard, seen: str) -> AsyncIterator[str]:
    """Server-sent events: one for each new version, until the server closes or the stream is too old."""
    yield "retry: 3000\n\n"
    sent, quiet = seen, 0
    for _ in range(_MOST_CHECKS):
        with suppress(DatabaseError):  # it is busy; the next check comes soon
            version = str(await dashboard.version())
            if version != sent:
                yield f"event: changed\ndata: {version}\n\n"
                sent, quiet = version, 0
        quiet += 1
        if quiet % _QUIET_CHECKS == 0:
            yield ": still here\n\n"
        with suppress(TimeoutError):
            async with asyncio.timeout(_CHECK_SECONDS):
                await closing.wait()
        if closing.is_set():
            return
