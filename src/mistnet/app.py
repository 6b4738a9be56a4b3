"""The composition root: the only module that knows every part."""

from __future__ import annotations

import os
import random
import secrets as random_names
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mistnet import __version__
from mistnet.governor.model import X_SOURCE, CallRecord, Halt
from mistnet.governor.source import Source, SourceContext, SourceRegistry
from mistnet.governor.store import DatabaseSourceStore
from mistnet.graph.segments.service import SegmentService
from mistnet.kit.clock import Clock
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.kit.migrate import ready
from mistnet.kit.outage import Outage, patiently
from mistnet.operations.counts import CountMerging
from mistnet.operations.events import AlertWatcher, EventService
from mistnet.operations.monitoring import ProgressLog
from mistnet.operations.pruning import Pruning, kept_since
from mistnet.operations.runs.store import RunService
from mistnet.prices.store.watches import Watches, WatchStore
from mistnet.queue.dispatch import BrokerDispatch
from mistnet.queue.kinds import Kind, KindRegistry, Policy
from mistnet.queue.metrics import EngineMetrics, SourceMetrics
from mistnet.queue.model import Enqueued, KindName, Lane, NewJob, Wake, WorkerCard, WorkerName, Write
from mistnet.queue.opentelemetry import Tracing, tracing_to
from mistnet.queue.plugins import Feature, Plugin, load_plugin, require_own_kinds
from mistnet.queue.ports import Tools, untraced
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.enqueue import JobWriter, write_wakes
from mistnet.queue.store.inspect import Inspector
from mistnet.queue.store.operations import Operations
from mistnet.queue.store.upkeep import StoreUpkeep
from mistnet.queue.store.wakeups import DatabaseWakeups
from mistnet.queue.store.writes import Writer, Writers
from mistnet.queue.worker import Worker
from mistnet.settings import KindSettings, Settings
from mistnet.shops.plugins import ShopPlugin, shops_of
from mistnet.shops.store.links import links_in
from mistnet.social.model import Platform, Post, SocialSources
from mistnet.social.store.accounts import tracked_handles
from mistnet.social.store.ingests import Ingests, end_with_jobs
from mistnet.sources.collecting import Collecting
from mistnet.sources.market import PriceCollector
from mistnet.sources.reading import PageReader, ReadingLimits, ReadsApart, ReadsHere
from mistnet.sources.threads.source import ThreadsCollector
from mistnet.sources.web.source import WebCrawler
from mistnet.sources.x.client import COSTS, XClient
from mistnet.sources.x.source import hydration_of, x_source

if TYPE_CHECKING:
    from mistnet.operations.schedule.scheduler import Scheduler
    from mistnet.queue.store.wakeups import LocalWakeups

INGEST_GIVEN_UP = timedelta(hours=1)
"""No direct request takes longer: its process is gone."""


class Via(StrEnum):
    """How a worker gets its jobs: from the database, or by messages over RabbitMQ."""

    DB = "db"
    AMQP = "amqp"


class App:
    """All parts, put together for one process.

    `sources` are added to mistnet's own; `transports` replaces the network of sources, by their names.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        plugins: Sequence[Plugin] = (),
        sources: Sequence[Callable[[SourceContext], Source]] = (),
        transports: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        database: Database | None = None,
    ) -> None:
        self.settings = settings
        self.database = database or Database(settings.database_url.get_secret_value(), clock=clock)
        named = {name: load_plugin(name) for name in settings.plugins}
        plugins = [*plugins, *named.values()]
        self.shops = shops_of(plugins)
        self.metrics = EngineMetrics()
        self._tracing: Tracing | None = None
        context = SourceContext(
            settings=settings,
            database=self.database,
            store=DatabaseSourceStore(self.database),
            metrics=SourceMetrics(self.metrics.registry),
            on_call=self._called,
            transports=transports or {},
        )
        limits = ReadingLimits(seconds=settings.crawl_read_seconds, megabytes=settings.crawl_read_megabytes)
        self.reader: PageReader = (
            ReadsHere(self.shops)
            if "web" in context.transports
            else ReadsApart(most=settings.crawl_readers, limits=limits, plugins=settings.plugins)
        )
        self.feeds = ThreadsCollector(context)
        self.crawling = WebCrawler(context, self.reader, self.shops)
        self.valuing = PriceCollector(context, self.reader)
        declared = [
            x_source(context),
            self.feeds.source,
            *self.crawling.sources,
            *self.valuing.sources,
            *(make(context) for make in sources),
            *(make(context) for plugin in plugins for make in plugin.sources),
        ]
        self.sources = SourceRegistry(declared, context.store)
        self.platforms = [Platform(each.platform) for each in declared if each.platform]
        self.x: XClient = self.sources[X_SOURCE].client
        social = SocialSources([source.client for source in declared if source.client is not None])
        self.collecting = Collecting(settings, self.database, social, self.x)
        self.hydration = hydration_of(settings, self.database, self.x)
        self.ingests = Ingests(self.database)
        self.pruning = Pruning(settings, self.database)
        self.counts = CountMerging(self.database)
        self.outgoing = EventService(settings, self.database)
        self.segments = SegmentService(settings, self.database, x=self.sources[X_SOURCE], hydration=self.hydration)
        self.features: Sequence[Feature] = [
            self.collecting,
            self.crawling,
            self.feeds,
            self.valuing,
            self.outgoing,
            self.segments,
        ]
        brought: list[Feature | Source | Plugin] = [*self.features, *self.sources.values(), *plugins]
        for name, plugin in named.items():
            require_own_kinds(name, plugin, [kind for part in brought if part is not plugin for kind in part.kinds])
        self.kinds = KindRegistry([tuned(kind, settings) for part in brought for kind in part.kinds])
        for name in settings.kinds:
            # Raises UnknownKind.
            self.kinds[KindName(name)]
        self.dispatching = BrokerDispatch(settings, self.database, self.kinds, self.metrics)
        self.job_writer = JobWriter(self.kinds.rules)
        self.writers = Writers(self._writers(plugins), {Post: partial(links_in, shops=self.shops)})
        self.hydration.write_with(self.writers)
        self.queue = JobQueue(self.database, self.job_writer, self.writers, given_up=end_with_jobs)
        self.upkeep = StoreUpkeep(self.database, given_up=end_with_jobs)
        self.inspector = Inspector(self.database)
        self.price_watches = WatchStore(self.database, Watches.from_settings(settings, self.job_writer))
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
            sources=self.sources,
            targets=[(name, lane) for name, rules in self.kinds.rules.items() for lane in rules.lanes],
        )

    def _writers(self, plugins: Sequence[Plugin]) -> list[Writer[Any]]:
        """All writers in the order of their foreign keys. Jobs come last: they refer to what the others wrote."""
        jobs: Writer[NewJob] = Writer(NewJob, self.job_writer.write, parts=self.job_writer.parts)
        return [
            *(writer for feature in self.features for writer in feature.writers(self.job_writer)),
            *(writer for source in self.sources.values() for writer in source.writers),
            *(writer for plugin in plugins for writer in plugin.writers),
            jobs,
            Writer(Wake, write_wakes),
        ]

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
        """A worker; run it inside the block. By default it leaves lanes that are dispatched over RabbitMQ alone.

        One that takes these lanes from the database does not dispatch: it would give its own work away.
        """
        lanes = self.lanes_of(lanes, via)
        card = WorkerCard(
            name=worker_name(self.settings),
            host=socket.gethostname(),
            pid=os.getpid(),
            concurrency=concurrency or self.settings.concurrency,
            lanes=lanes if lanes is not None else self.kinds.lanes,
            version=__version__,
        )
        async with (
            DatabaseWakeups(self.database) as wakeup,
            self.sources.opened(),
            self.outgoing.opened(),
            self._traced(card.name),
            self.dispatching.opened(card.name) if via is not Via.DB else nullcontext(),
        ):
            await patiently(self._prepare_work, seconds=self.settings.database_wait_seconds)
            own_lanes = None if lanes is None else [Lane(lane) for lane in lanes]
            outage, feed, taken = self.outage(), None, None
            if via is Via.AMQP:
                feed = self.dispatching.broker_feed(card.name, own_lanes or [], self.policy, outage)
            elif via is Via.DB:
                every = [Lane(lane) for lane in card.lanes]
                taken = self.dispatching.claims_of_published(card.name, every, self.policy)
            tools = self.tools(wakeup, outage=outage)
            yield Worker(tools, card, lanes=own_lanes, until_idle=until_idle, feed=feed, claim_published=taken)
            await self.progress.close()
            if until_idle and self.dispatching.lanes and via is not Via.DB:
                await self.dispatching.wait_for_dead_letters()
            # The next check of any worker finds it.
            with suppress(DatabaseError):
                await self.watch.check_pauses()

    async def _prepare_work(self) -> None:
        await self.look_at_keys()
        await self.watch.close_no_workers()
        await self.sources.wake_for_budget()
        self.progress.know(await tracked_handles(self.database))

    @property
    def watchdog_seconds(self) -> float:
        """How long this process may hang before it ends itself: less than its leases last."""
        return self.settings.watchdog_seconds or max(self.settings.lease_seconds / 3, 10.0)

    def outage(self) -> Outage:
        """What the parts of one worker share about a database that fails."""
        chance = random.Random()  # noqa: S311 (it spreads waits)
        return Outage(self.database.clock, renewal_grace=self.policy.renewal_grace, chance=chance)

    def lanes_of(self, lanes: Sequence[str] | None, via: Via | None) -> Sequence[str] | None:
        """The lanes a worker works on: those given, or all for its way of getting jobs."""
        dispatched = self.dispatching.lanes
        if via is Via.AMQP:
            return self.dispatching.chosen(lanes)
        if via is None and lanes is None and dispatched:
            return [lane for lane in self.kinds.lanes if lane not in dispatched]
        return lanes

    def scheduler(self) -> Scheduler:
        """Checks accounts for new posts at their times and does the periodic duties, while it leads."""
        from mistnet.operations.schedule.scheduler import Scheduler  # noqa: PLC0415 (timers take long to load, and few commands schedule)

        return Scheduler(
            self.settings,
            self.database,
            self.job_writer,
            costs=COSTS,
            duties=[
                *self.watch.duties,
                *(duty for feature in self.features for duty in feature.duties(self.job_writer)),
                *(duty for source in self.sources.values() for duty in source.duties),
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
        return policy_of(self.settings)

    def tools(self, wakeup: LocalWakeups, **other: Any) -> Tools:
        """The parts that a worker of this app uses."""
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
            avoided_lanes=lambda: {name for name, each in self.sources.items() if each.governor.stands_aside},
            upkeep_tasks=[
                self.look_at_keys,
                self.watch.close_no_workers,
                *(task for feature in self.features for task in feature.upkeep_tasks(self.job_writer)),
                self.settle_runs,
                self.settle_ingests,
                self.pruning.look_after,
                *(task for source in self.sources.values() for task in source.upkeep_tasks),
                self.dispatching.take_back_undispatched,
            ],
            quick_tasks=[self.counts.merge] if self.database.dialect == "postgresql" else [],
            trace=self._tracing.jobs if self._tracing else untraced,
            **given,
        )

    async def look_at_keys(self) -> int:
        """Learn which keys are refused; a new key ends the old one's pause. Return how many alerts that changed."""
        await self.sources.look_at_keys()
        changes = await self.watch.check_pauses()
        return len(changes.opened) + len(changes.closed)

    async def settle_runs(self) -> int:
        """End runs whose jobs ended without a report and delete old runs; return how many accounts were ended."""
        now = self.database.clock.now()
        await self.runs.prune(now - timedelta(hours=self.settings.run_hours))
        ended = await self.runs.settle(now)
        for run in (await self.runs.page(now, limit=1)).items if ended else ():
            self.progress.report(run)
        return ended

    async def settle_ingests(self) -> int:
        """End ingests whose job or process ended without a report and delete old ones; return how many ended."""
        now = self.database.clock.now()
        if before := kept_since(now, self.settings.history_days):
            await self.ingests.prune(before)
        return await self.ingests.settle(now, lost_before=now - INGEST_GIVEN_UP)

    async def halted(self) -> Collection[str]:
        """Lanes whose work cannot go on: their source is paused, refuses us, or their receiver does not answer."""
        return {*await self.outgoing.away(), *await self.sources.paused_lanes(), *await self.sources.halts()}

    async def stopped_by(self, lanes: Sequence[str] | None = None) -> tuple[str, Halt] | None:
        """The source that keeps work of these lanes from going on, and why."""
        now = self.database.clock.now()
        for lane, halt in (await self.sources.halts()).items():
            if (lanes is None or lane in lanes) and await self.upkeep.work_left(list(self.kinds), [lane], now=now):
                return lane, halt
        return None

    @property
    def secrets(self) -> Sequence[str]:
        return [*self.settings.secrets, *(each for source in self.sources.values() for each in source.secrets())]


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    plugins: Sequence[Plugin] = (),
    sources: Sequence[Callable[[SourceContext], Source]] = (),
    checked: bool = True,
    create: bool = False,
    patient: bool = False,
) -> AsyncIterator[App]:
    """The app on a database that is ready for it. With `create`, a missing SQLite file is created.

    Services are `patient`: they wait for a database that starts later than they do.
    """
    app = App(settings, plugins=plugins, sources=sources)
    try:
        if checked:
            wait = settings.database_wait_seconds if patient else 0.0
            await patiently(lambda: ready(app.database, create=create), seconds=wait)
        yield app
    finally:
        await app.reader.close()
        await app.database.close()


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
    """A kind with the overrides of the settings."""
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
