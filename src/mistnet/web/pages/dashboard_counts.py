"""What the pages show of the whole, kept per process: found in the background, so that no page waits for a count."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from fastapi import Depends, Request

from mistnet.app import App
from mistnet.graph.segments.listing import SegmentPages
from mistnet.operations.overview import Board, GapGroup, OpenAlert
from mistnet.prices.store.item_pages import ItemPages
from mistnet.queue.model import GAP_STATES, LIVE_STATES, JobState, KindName, WorkerName
from mistnet.queue.store.inspect import PausedKind, SeenWorker, StateCount, WaitGroup
from mistnet.shops.store.link_pages import LinkPages
from mistnet.shops.store.product_pages import ProductPages
from mistnet.social.coverage.model import Sweep
from mistnet.social.coverage.store import Coverage
from mistnet.social.feeds.store import FeedPages
from mistnet.social.model import UserId
from mistnet.sources.lane_status import LaneStatus, lane_statuses
from mistnet.web.pages.cached_counts import Bars, ChartSpan, EventCounts, LastAnswer
from mistnet.web.pages.graph_pictures import Pictures

_DAY = timedelta(days=1)
_RECENT = timedelta(minutes=1)
_LOOKED_AT_SECONDS = 60.0
_YOUNG = ((timedelta(minutes=3), ChartSpan.MINUTES), (timedelta(hours=2), ChartSpan.HOUR))
SHOWN_STATES = (
    JobState.RUNNING,
    JobState.PENDING,
    JobState.QUEUED,
    JobState.RETRYABLE,
    JobState.FAILED,
    JobState.DEAD,
)


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
        """What there is of each kind, the most first; kinds that were busy just now are there too."""
        found: dict[KindName, dict[JobState, int]] = {name: {} for name in self.finished}
        for count in self.counts:
            found.setdefault(count.kind, {})[count.state] = count.jobs
        return dict(sorted(found.items(), key=lambda each: (-sum(each[1].values()), each[0])))

    @property
    def oldest_due_at(self) -> datetime | None:
        return min((count.oldest_due_at for count in self.counts if count.oldest_due_at), default=None)


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """How much came in, in all and lately."""

    posts: int
    posts_today: int
    credits_today: int
    span: ChartSpan


class AccountCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What each account had at that moment, what it cost, and what was under way for it."""

    at: datetime
    stored: Mapping[UserId, int]
    spent: Mapping[UserId, int]
    sweeps: Mapping[UserId, Sequence[Sweep]]


class Dashboard:
    """One for each process. Nothing is looked at while nobody looks."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._board = Board(app.database)
        self._posts = EventCounts(self._board.posts_by, self._board.posts_before)
        self._credits = EventCounts(self._board.credits_by)
        self._collected = LastAnswer(self._count, seconds=1)
        self._queue = LastAnswer(self._look_at_the_queue, seconds=1)
        self._account_counts = LastAnswer(self._look_at_accounts, seconds=3)
        self._lanes: LastAnswer[Sequence[LaneStatus]] = LastAnswer(self._look_at_lanes, seconds=2)
        self._lanes_asked_at = -math.inf
        self.pictures = Pictures(app.database)
        self.seen: int | None = None
        """The last version anybody looked at. No page that is made after it shows less."""

    @property
    def now(self) -> datetime:
        return self._app.database.clock.now()

    async def collected(self) -> Collected:
        return await self._collected.get()

    async def queue(self) -> QueueSnapshot:
        return await self._queue.get()

    async def lanes(self) -> Sequence[LaneStatus]:
        """How lanes stand: counted over all live jobs, and over what went through in an hour."""
        self._lanes_asked_at = time.monotonic()
        return await self._lanes.get()

    async def _lanes_seen(self) -> tuple[object, ...]:
        """As long as somebody looks at lanes, a change of theirs is news."""
        if time.monotonic() - self._lanes_asked_at > _LOOKED_AT_SECONDS:
            return ()
        lanes = await self._lanes.get()
        return tuple((each.lane, tuple(each.states.items()), each.succeeded, each.source) for each in lanes)

    async def account_counts(self) -> AccountCounts:
        return await self._account_counts.get()

    async def bars(self, span: ChartSpan) -> tuple[Bars, Bars]:
        """Posts that came in, and credits that were spent for them."""
        await self.collected()
        now, begin = self.now, self._posts.first_at
        return self._posts.bars(span, now, begin), self._credits.bars(span, now, begin)

    async def version(self) -> int:
        """Another number means that there is something new to show."""
        queue, collected, account_counts = await self.queue(), await self.collected(), await self.account_counts()
        counts = tuple((count.kind, count.state, count.jobs) for count in queue.counts)
        workers = tuple((worker.name, queue.held.get(worker.name)) for worker in queue.workers)
        alerts = tuple(alert.id for alert in queue.alerts)
        states = tuple(queue.accounts.items())
        segments = (queue.segments, queue.shops, await self._lanes_seen(), self.pictures.drawn)
        self.seen = hash((counts, workers, alerts, states, segments, collected, tuple(account_counts.stored.items())))
        return self.seen

    async def close(self) -> None:
        for snapshot in (self._collected, self._queue, self._account_counts, self._lanes):
            await snapshot.close()
        await self.pictures.close()

    async def _count(self) -> Collected:
        now = self.now
        await self._posts.renew(now)
        await self._credits.renew(now)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return Collected(
            posts=self._posts.total,
            posts_today=self._posts.since(now - _DAY),
            credits_today=self._credits.since(midnight),
            span=_telling_span(self._posts.first_at, now),
        )

    async def _look_at_the_queue(self) -> QueueSnapshot:
        now, inspector = self.now, self._app.inspector
        return QueueSnapshot(
            at=now,
            counts=await inspector.counts(now=now),
            waits=await inspector.waits(now=now),
            workers=await inspector.workers(),
            held=await self._board.held_by(),
            paused=await inspector.paused(),
            finished=await inspector.finished(since=now - _RECENT),
            alerts=await self._board.alerts(),
            gaps=await self._board.gaps(),
            accounts=await self._board.account_states(),
            segments=await SegmentPages(self._app.database).latest(),
            shops=await self._look_at_shops(),
        )

    async def _look_at_shops(self) -> tuple[object, ...]:
        database = self._app.database
        links, products = await LinkPages(database).latest(), await ProductPages(database).latest()
        return links, products, await FeedPages(database).latest(), await ItemPages(database).latest()

    async def _look_at_lanes(self) -> Sequence[LaneStatus]:
        return await lane_statuses(self._app)

    async def _look_at_accounts(self) -> AccountCounts:
        now = self.now
        by_account: dict[UserId, list[Sweep]] = {}
        for sweep in await Coverage(self._app.database).sweeps():
            by_account.setdefault(sweep.user_id, []).append(sweep)
        stored, spent = await self._board.stored_posts(), await self._board.spent_on()
        return AccountCounts(at=now, stored=stored, spent=spent, sweeps=by_account)


def _telling_span(first_at: int | None, now: datetime) -> ChartSpan:
    """The shortest one that shows everything a young collection has."""
    if first_at is None:
        return ChartSpan.DAY
    age = timedelta(seconds=now.timestamp() - first_at)
    return next((span for limit, span in _YOUNG if age < limit), ChartSpan.DAY)


async def the_dashboard(request: Request) -> Dashboard:
    dashboard: Dashboard = request.app.state.dashboard
    return dashboard


Shown = Annotated[Dashboard, Depends(the_dashboard)]


async def note_what_was_seen(request: Request) -> None:
    """Before a page looks at anything: what changes from now on is news to it."""
    seen = request.app.state.dashboard.seen
    request.state.seen = "" if seen is None else str(seen)
