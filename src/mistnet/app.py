"""The composition root: the only module that knows every part."""

from __future__ import annotations

import os
import random
import secrets as random_names
import socket
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mistnet import __version__
from mistnet.governor.governor import Governor
from mistnet.governor.model import THREADS_SOURCE, X_SOURCE, CallRecord, Halt, SourceName
from mistnet.graph.segments import service as segmenting
from mistnet.graph.segments.service import SegmentService
from mistnet.kit.clock import Clock
from mistnet.kit.database import Database, patiently
from mistnet.kit.errors import DatabaseError
from mistnet.kit.migrate import ready
from mistnet.kit.outage import Outage
from mistnet.kit.transport import Transport
from mistnet.operations.alerts.watch import AlertWatcher
from mistnet.operations.events import service as outgoing
from mistnet.operations.events.service import EventService
from mistnet.operations.progress_log import ProgressLog
from mistnet.operations.pruning import Pruning
from mistnet.operations.retention import kept_since
from mistnet.operations.runs.store import RunService
from mistnet.prices.watches.service import watches_of
from mistnet.prices.watches.store import WatchStore
from mistnet.queue.dispatching import Dispatching
from mistnet.queue.kinds import Kind, KindRegistry, Policy
from mistnet.queue.metrics import EngineMetrics, SourceMetrics
from mistnet.queue.model import Enqueued, KindName, Lane, NewJob, Wake, WorkerName, Write
from mistnet.queue.opentelemetry import Tracing, tracing_to
from mistnet.queue.plugins import Plugin, load_plugin, require_own_kinds
from mistnet.queue.ports import Wakeups, WorkerCard
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.enqueue import JobWriter, write_wakes
from mistnet.queue.store.inspect import Inspector
from mistnet.queue.store.operations import Operations
from mistnet.queue.store.upkeep import StoreUpkeep
from mistnet.queue.store.wakeups import DatabaseWakeups
from mistnet.queue.store.writes import Writer, Writers
from mistnet.queue.tracing import untraced
from mistnet.queue.worker import Tools, Worker
from mistnet.settings import KindSettings, Settings
from mistnet.shops.plugins import ShopPlugin, shops_of
from mistnet.shops.store.links import links_in
from mistnet.social.ingests.store import Ingests, end_with_jobs
from mistnet.social.jobs.args import backfill, relook
from mistnet.social.model import THREADS, Platform, Post, X
from mistnet.social.store.accounts import accounts_to_look_at, suspects_to_look_at, tracked_handles
from mistnet.social.store.quarantine import take_up_unreadable
from mistnet.sources.market.source import PriceCollector
from mistnet.sources.reading import PageReader, ReadingLimits, ReadsApart, ReadsHere
from mistnet.sources.threads import source as feeding
from mistnet.sources.threads.source import ThreadsCollector
from mistnet.sources.web.port import WebTransport
from mistnet.sources.web.source import WebCrawler
from mistnet.sources.x.client import COSTS
from mistnet.sources.x.hydration import hydration_of
from mistnet.sources.x.source import WRITERS, XCollector

if TYPE_CHECKING:
    from mistnet.operations.schedule.scheduler import Scheduler

INGEST_GIVEN_UP = timedelta(hours=1)
"""Nothing that is asked for at once takes longer: its process is gone."""


class Via(StrEnum):
    """How a worker gets its jobs: from the table, or by messages that name them."""

    DB = "db"
    AMQP = "amqp"


class App:
    """All parts, put together for one process."""

    def __init__(
        self,
        settings: Settings,
        *,
        plugins: Sequence[Plugin] = (),
        clock: Clock | None = None,
        transport: Transport | None = None,
        web: WebTransport | None = None,
        threads: Transport | None = None,
        market: Transport | None = None,
        database: Database | None = None,
    ) -> None:
        self.settings = settings
        self.database = database or Database(settings.database_url.get_secret_value(), clock=clock)
        named = {name: load_plugin(name) for name in settings.plugins}
        self.shops = shops_of([*plugins, *named.values()])
        self.metrics = EngineMetrics()
        self._tracing: Tracing | None = None
        self.platforms: Sequence[Platform] = (X, THREADS)
        calls = SourceMetrics(self.metrics.registry)
        self.collector = XCollector(settings, self.database, transport=transport, metrics=calls, on_call=self._called)
        self.reader: PageReader = _page_reader(settings) if web is None else ReadsHere(self.shops)
        self.crawling = WebCrawler(
            settings,
            self.database,
            reader=self.reader,
            shops=self.shops,
            transport=web,
            metrics=calls,
            on_call=self._called,
        )
        self.feeds = ThreadsCollector(settings, self.database, transport=threads, metrics=calls, on_call=self._called)
        self.valuing = PriceCollector(
            settings,
            self.database,
            reader=self.reader,
            transport=market,
            web=web,
            metrics=calls,
            on_call=self._called,
        )
        self.hydration = hydration_of(settings, self.database, self.collector.x)
        self.ingests = Ingests(self.database)
        self.pruning = Pruning(settings, self.database)
        self.outgoing = EventService(settings, self.database)
        self.segments = SegmentService(settings, self.database, collector=self.collector, hydration=self.hydration)
        brought = [
            Plugin(kinds=self.collector.kinds, writers=WRITERS),
            Plugin(kinds=self.crawling.kinds),
            Plugin(kinds=self.feeds.kinds, writers=feeding.WRITERS),
            Plugin(kinds=self.valuing.kinds),
            Plugin(kinds=self.outgoing.kinds, writers=outgoing.WRITERS),
            Plugin(kinds=self.segments.kinds, writers=segmenting.WRITERS),
            *plugins,
        ]
        for name, plugin in named.items():
            require_own_kinds(name, plugin, [kind for each in brought for kind in each.kinds])
            brought.append(plugin)
        self.kinds = KindRegistry([tuned(kind, settings) for plugin in brought for kind in plugin.kinds])
        self._require_known_kinds()
        self.dispatching = Dispatching(settings, self.database, self.kinds, self.metrics)
        self.job_writer = JobWriter(self.kinds.rules)
        jobs: Writer[NewJob] = Writer(NewJob, self.job_writer.write)
        wakes = Writer(Wake, write_wakes)
        writers: list[Writer[Any]] = [w for plugin in brought for w in plugin.writers]
        writers += [*self.crawling.writers(self.job_writer), *self.valuing.writers(self.job_writer), jobs, wakes]
        self.writers = Writers(writers, {Post: partial(links_in, shops=self.shops)})
        self.hydration.write_with(self.writers)
        self.queue = JobQueue(self.database, self.job_writer, self.writers, given_up=end_with_jobs)
        self.upkeep = StoreUpkeep(self.database, given_up=end_with_jobs)
        self.inspector = Inspector(self.database)
        self.price_watches = WatchStore(self.database, watches_of(settings, self.job_writer))
        self.operations = Operations(self.database)
        self.runs = RunService(
            self.database,
            self.job_writer,
            summarize=settings.auto_summarization_enabled,
            longest_wait=timedelta(minutes=settings.run_wait_minutes),
        )
        self.progress = ProgressLog(self.database.clock, read_run=self.runs.get)
        self.watch = AlertWatcher(
            settings,
            self.database,
            fan_out=self.outgoing.fan_out(self.job_writer),
            subscribers=self.outgoing.subscribers,
            costs=COSTS,
            targets=[(name, lane) for name, rules in self.kinds.rules.items() for lane in rules.lanes],
        )

    def _require_known_kinds(self) -> None:
        for name in self.settings.kinds:
            self.kinds[KindName(name)]

    async def enqueue(self, jobs: Sequence[NewJob]) -> Enqueued:
        return await self.queue.enqueue(jobs, now=self.database.clock.now())

    @asynccontextmanager
    async def worker(
        self,
        *,
        concurrency: int | None = None,
        lanes: Sequence[str] | None = None,
        until_idle: bool = False,
        via: Via | None = None,
    ) -> AsyncIterator[Worker]:
        """A worker with its feed; run it inside the block. Unless it is told, it leaves dispatched lanes alone.

        One that takes these lanes from the database does not dispatch: it would hand away what it is to do itself.
        """
        width = concurrency or self.settings.concurrency
        lanes = self.lanes_of(lanes, via)
        card = WorkerCard(
            name=worker_name(self.settings),
            host=socket.gethostname(),
            pid=os.getpid(),
            concurrency=width,
            lanes=lanes if lanes is not None else self.kinds.lanes,
            version=__version__,
        )
        async with (
            DatabaseWakeups(self.database) as wakeup,
            self.collector.opened(),
            self.crawling.opened(),
            self.feeds.opened(),
            self.valuing.opened(),
            self.outgoing.opened(),
            self._traced(card.name),
            self.dispatching.opened(card.name) if via is not Via.DB else nullcontext(),
        ):
            await patiently(self._look_around, seconds=self.settings.database_wait_seconds)
            own_lanes = None if lanes is None else [Lane(lane) for lane in lanes]
            outage = self.outage()
            mail = self.dispatching.mail(card.name, own_lanes or [], self.policy, outage) if via is Via.AMQP else None
            every = [Lane(lane) for lane in card.lanes]
            taken = self.dispatching.handed_over(card.name, every, self.policy) if via is Via.DB else None
            tools = self.tools(wakeup, outage=outage)
            yield Worker(tools, card, lanes=own_lanes, until_idle=until_idle, feed=mail, handed_over=taken)
            await self.progress.close()
            if until_idle and self.dispatching.lanes and via is not Via.DB:
                await self.dispatching.all_buried()
            with suppress(DatabaseError):  # the next look finds it
                await self.watch.check_pauses()

    async def _look_around(self) -> None:
        """What a worker wants to know before it begins."""
        await self.look_at_keys()
        await self.watch.close_no_workers()
        await self.collector.look_at_the_budget(self.database.clock.now())
        self.progress.know(await tracked_handles(self.database))

    @property
    def watchdog_seconds(self) -> float:
        """How long this process may stand still before it ends itself: less than its leases last."""
        return self.settings.watchdog_seconds or max(self.settings.lease_seconds / 3, 10.0)

    def outage(self) -> Outage:
        """What the parts of one worker know together of a database that fails."""
        chance = random.Random()  # noqa: S311 (it spreads waits)
        return Outage(self.database.clock, mercy=self.policy.mercy, chance=chance)

    def lanes_of(self, lanes: Sequence[str] | None, via: Via | None) -> Sequence[str] | None:
        """The lanes a worker works on: those it names, or all that are meant for its way of getting jobs."""
        dispatched = self.dispatching.lanes
        if via is Via.AMQP:
            return self.dispatching.chosen(lanes)
        if via is None and lanes is None and dispatched:
            return [lane for lane in self.kinds.lanes if lane not in dispatched]
        return lanes

    def scheduler(self) -> Scheduler:
        """Looks for new posts at their times and does the duties of one process for all, while it leads."""
        from mistnet.operations.schedule.scheduler import Scheduler  # noqa: PLC0415 (timers take long to load, and few commands schedule)

        return Scheduler(
            self.settings,
            self.database,
            self.job_writer,
            costs=COSTS,
            duties=[
                *self.watch.duties,
                *self.segments.duties(self.job_writer),
                *self.crawling.duties(self.job_writer),
                *self.feeds.duties(self.job_writer),
                *self.valuing.duties(self.job_writer),
            ],
        )

    @asynccontextmanager
    async def _traced(self, worker: WorkerName) -> AsyncIterator[None]:
        if not self.settings.otel_endpoint:
            yield
            return
        self._tracing = tracing_to(self.settings.otel_endpoint, instance=worker)
        async with self._tracing.opened():
            yield
        self._tracing = None

    def _called(self, record: CallRecord) -> None:
        if self._tracing:
            self._tracing.called(record)

    @property
    def policy(self) -> Policy:
        """A server gains from settling two groups at once; one file has one writer."""
        settlers = 2 if self.database.dialect == "postgresql" else 1
        return msgspec.structs.replace(policy_of(self.settings), settlers=settlers)

    def tools(self, wakeup: Wakeups, **other: Any) -> Tools:
        """What a worker of this app works with."""
        given: dict[str, Any] = {"policy": self.policy, "secrets": self.secrets, **other}
        return Tools(
            queue=self.queue,
            upkeep=self.upkeep,
            wakeup=wakeup,
            clock=self.database.clock,
            kinds=self.kinds,
            metrics=self.metrics,
            observer=self.progress,
            halted=self.halted,
            left_to_others=lambda: {lane for lane, each in self._governors.items() if each.stands_aside},
            chores=[
                self.look_at_keys,
                self.watch.close_no_workers,
                self.look_again,
                self.look_after_unreadable,
                self.look_after_runs,
                self.look_after_ingests,
                self.pruning.look_after,
                self.feeds.look_after_token,
                self.dispatching.look_after_queued,
            ],
            trace=self._tracing.jobs if self._tracing else untraced,
            **given,
        )

    @property
    def _governors(self) -> Mapping[SourceName, Governor]:
        """Of the sources that know us by a key."""
        return {X_SOURCE: self.collector.governor, THREADS_SOURCE: self.feeds.governor, **self.valuing.governors}

    async def look_at_keys(self) -> int:
        """Learns which keys are refused: a new one ends the old one's pause. Returns how many alerts that changed."""
        sources, keys = await self.collector.book.states(), await self.collector.book.keys()
        for governor in self._governors.values():
            await governor.look_at_keys(sources, keys)
        changes = await self.watch.check_pauses()
        return len(changes.opened) + len(changes.closed)

    async def look_again(self) -> int:
        """Makes the jobs that look again at accounts which could not be collected, or are suspect; returns how many.

        A suspect account's backfill goes on below its oldest post. Most often it ended there too early.
        """
        now = self.database.clock.now()
        async with self.database.transaction() as connection:
            due = await accounts_to_look_at(connection, now=now, next_at=now + self.collector.rules.relook)
            suspects = await suspects_to_look_at(connection, now=now)
            again = [*(relook(user_id) for user_id in due), *(backfill(user_id) for user_id in suspects)]
            await self.job_writer.write(connection, again, now)
        return len(again)

    async def look_after_unreadable(self) -> int:
        """Tries posts again that could not be read, at growing intervals; returns how many."""
        async with self.database.transaction() as connection:
            return await take_up_unreadable(connection, self.database.clock.now())

    async def look_after_runs(self) -> int:
        """End runs whose jobs ended without a report, delete old ones. Return how many accounts of runs were ended."""
        now = self.database.clock.now()
        await self.runs.prune(now - timedelta(hours=self.settings.run_hours))
        ended = await self.runs.settle(now)
        for run in (await self.runs.page(now, limit=1)).items if ended else ():
            self.progress.report(run)
        return ended

    async def look_after_ingests(self) -> int:
        """Ends ingests whose job or process ended without telling, and forgets old ones; returns how many ended."""
        now = self.database.clock.now()
        if before := kept_since(now, self.settings.history_days):
            await self.ingests.prune(before)
        return await self.ingests.settle(now, lost_before=now - INGEST_GIVEN_UP)

    async def halted(self) -> Collection[str]:
        """Lanes whose source will not serve us until somebody acts or the day is over, or whose receiver is away."""
        away = await self.outgoing.away() | await self.crawling.paused()
        return {*away, *await self._halts()}

    async def _halts(self) -> Mapping[str, Halt]:
        """The platforms that will not serve us for now, and why."""
        asked = {X_SOURCE: await self.collector.halt(), THREADS_SOURCE: await self.feeds.halt()}
        return {lane: halt for lane, halt in asked.items() if halt} | dict(await self.valuing.halts())

    async def stopped_by(self, lanes: Sequence[str] | None = None) -> tuple[str, Halt] | None:
        """Which source keeps work of these lanes from going on, and why."""
        now = self.database.clock.now()
        for lane, halt in (await self._halts()).items():
            wanted = lanes is None or lane in lanes
            if wanted and await self.upkeep.work_left(list(self.kinds), [lane], now=now):
                return lane, halt
        return None

    @property
    def secrets(self) -> Sequence[str]:
        return [*self.settings.secrets, *self.feeds.secrets, *self.valuing.secrets]


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    plugins: Sequence[Plugin] = (),
    checked: bool = True,
    create: bool = False,
    patient: bool = False,
) -> AsyncIterator[App]:
    """The app on a database that is ready for it. With `create`, a SQLite file that is not there yet is made.

    Services are `patient`: they wait for a database that starts later than they do.
    """
    app = App(settings, plugins=plugins)
    try:
        if checked:
            wait = settings.database_wait_seconds if patient else 0.0
            await patiently(lambda: ready(app.database, create=create), seconds=wait)
        yield app
    finally:
        await app.reader.close()
        await app.database.close()


def _page_reader(settings: Settings) -> ReadsApart:
    limits = ReadingLimits(seconds=settings.crawl_read_seconds, megabytes=settings.crawl_read_megabytes)
    return ReadsApart(most=settings.crawl_readers, limits=limits, plugins=settings.plugins)


def policy_of(settings: Settings) -> Policy:
    return Policy(
        lease=timedelta(seconds=settings.lease_seconds),
        heartbeat=timedelta(seconds=settings.heartbeat_seconds),
        reclaim=timedelta(seconds=settings.reclaim_seconds),
        idle_poll=timedelta(seconds=settings.idle_poll_seconds),
        backoff_base=timedelta(seconds=settings.backoff_base_seconds),
        job_timeout=timedelta(seconds=settings.job_timeout_seconds),
        grace=timedelta(seconds=settings.grace_seconds),
        retention=timedelta(days=settings.history_days) if settings.history_days else None,
        aging=timedelta(minutes=settings.aging_minutes) if settings.aging_minutes else None,
        lane_caps=settings.lane_caps,
    )


def tuned(kind: Kind, settings: Settings) -> Kind:
    """A kind as its author made it, with what the settings say of it on top."""
    own = settings.kinds.get(kind.name) or KindSettings.model_validate({})
    rules = msgspec.structs.replace(
        kind.rules,
        batch=own.batch or kind.rules.batch,
        max_attempts=own.max_attempts or kind.tries or settings.max_attempts,
        running_cap=own.running_cap or kind.rules.running_cap,
        live_cap=own.live_cap or kind.rules.live_cap,
    )
    timeout = timedelta(seconds=own.timeout_seconds) if own.timeout_seconds else kind.timeout
    return msgspec.structs.replace(kind, rules=rules, timeout=timeout)


def worker_name(settings: Settings) -> WorkerName:
    if settings.worker_id:
        return WorkerName(f"{settings.worker_id}.{os.getpid()}")
    return WorkerName(f"{socket.gethostname()}.{os.getpid()}.{random_names.token_hex(2)}")


__all__ = ["App", "Plugin", "ShopPlugin", "Write", "load_plugin", "open_app", "policy_of"]
