"""Dispatch over RabbitMQ: publish due jobs and dead letters, elect who does it, and connect workers that consume.

Publishing a job twice is harmless: its claim is guarded.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from loguru import logger
from prometheus_client import Counter as Meter

from mistnet.kit.clock import Clock
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError, did_you_mean, unwrapped
from mistnet.kit.outage import Outage
from mistnet.queue import rabbitmq as amqp
from mistnet.queue.errors import BrokerError, BrokerUnreachable, NoBroker
from mistnet.queue.feeds import BrokerFeed, ClaimPublished
from mistnet.queue.kinds import KindRegistry, Policy
from mistnet.queue.leader import Leadership, LeaderTerm, StoreLeaders
from mistnet.queue.metrics import BrokerMetrics, EngineMetrics
from mistnet.queue.model import (
    GAP_STATES,
    DeadLetter,
    DueMessage,
    JobId,
    JobState,
    Lane,
    Lease,
    Target,
    WorkerName,
)
from mistnet.queue.store.dispatch import StoreDispatch
from mistnet.queue.store.operations import GapFilter, Operations
from mistnet.queue.store.upkeep import StoreUpkeep
from mistnet.queue.store.wakeups import DatabaseWakeups, LocalWakeups

if TYPE_CHECKING:
    from mistnet.queue.rabbitmq.publisher import DeadMessage
    from mistnet.settings import Settings

LEADERSHIP: Final = "dispatch"
_DEAD_LETTER_SECONDS: Final = 60.0
_DEAD_LETTER_LOOK_SECONDS: Final = 0.1
_SLICE: Final = 500
_LOOK_SECONDS: Final = 1.0
# The pause while jobs are due and the broker's queues are full.
_FULL_SECONDS: Final = 0.05
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 15.0
# Looking for dead letters reads all failed jobs: it takes at most one part in this many of the time.
_DEAD_LETTER_SHARE: Final = 20
_TIDY_EVERY: Final = timedelta(hours=1)


class Dispatcher:
    """Publishes what is due on its lanes. One per installation is enough; more do no harm.

    A lane's queue holds up to `window` messages. One that is older than `republish` may be lost.
    """

    def __init__(
        self,
        *,
        dispatch: StoreDispatch,
        broker: amqp.RabbitBroker,
        clock: Clock,
        window: int,
        republish: timedelta,
        targets: Sequence[Target],
        metrics: BrokerMetrics,
        unpark: Callable[[], Awaitable[int]],
    ) -> None:
        self._dispatch = dispatch
        self._broker = broker
        self._clock = clock
        self._window = window
        self._republish = republish
        self._targets = targets
        self._metrics = metrics
        self._unpark = unpark
        self._wait = _FIRST_WAIT
        self._tidied_at = clock.now()
        self._dead_letters_at = 0.0

    @property
    def lanes(self) -> list[Lane]:
        return sorted({target.lane for target in self._targets})

    async def run(self, wakeup: LocalWakeups) -> None:
        """Run until cancelled. A job that cannot be published stays due in the database and is published later."""
        while True:
            try:
                await self._broker.declare(self.lanes)
                while True:
                    await wakeup.wait(await self.round())
                    self._wait = _FIRST_WAIT
            except DatabaseError as error:
                logger.warning("cannot dispatch: {problem}; trying again", problem=str(error))
            except BrokerError as error:
                logger.warning("cannot dispatch: {problem}", problem=str(error))
                # Make jobs due again while the broker is unreachable, for workers that need no broker.
                before = self._clock.now() - self._republish
                try:
                    for lane in self.lanes:
                        await self._dispatch.unqueue(lane, before=before)
                except DatabaseError as problem:
                    logger.debug("cannot take jobs back: {problem}", problem=str(problem))
            await asyncio.sleep(self._wait)
            self._wait = min(self._wait * 2, _LONGEST_WAIT)

    async def round(self) -> float:
        """Do everything once. Return how many seconds to wait for the next round, unless woken."""
        before = self._clock.now() - self._republish
        queued = await self._dispatch.queued(self.lanes, before=before)
        overdue = {lane: jobs for lane, (jobs, late) in queued.items() if late}
        depths = await self._broker.depths(list(overdue)) if overdue else {}
        for lane, jobs in overdue.items():
            # Messages seem lost. While a queue holds a message for each of its jobs, none is.
            if depths[lane].ready < jobs:
                taken = await self._dispatch.unqueue(lane, before=before)
                logger.warning("{taken} messages of lane {lane} seem lost: publishing again", taken=taken, lane=lane)
        published = await self.publish()
        if time.monotonic() >= self._dead_letters_at:
            begun = time.monotonic()
            await self.publish_dead_letters()
            ended = time.monotonic()
            self._dead_letters_at = ended + max(_LOOK_SECONDS, _DEAD_LETTER_SHARE * (ended - begun))
        if published >= _SLICE:
            return 0.0
        if published:
            return _FULL_SECONDS
        await self._unpark()
        if self._clock.now() - self._tidied_at > _TIDY_EVERY:
            self._tidied_at = self._clock.now()
            await self._dispatch.delete_stale_dead_letters()
        return _LOOK_SECONDS

    async def publish(self) -> int:
        """Publish due jobs, then record those that the broker confirmed. Return their number.

        In this order: a job recorded first and not published would wait until its message counts as lost.
        """
        now = self._clock.now()
        messages = await self._dispatch.to_publish(self._targets, window=self._window, limit=_SLICE, now=now)
        if not messages:
            return 0
        confirmed = await self._broker.publish(messages)
        published = [message for message in messages if message.job_id in confirmed]
        await self._dispatch.mark_queued(published, now=self._clock.now())
        _count(self._metrics.published, published)
        _count(self._metrics.republished, [each for each in published if each.again])
        returned = [each for each in messages if each.job_id not in confirmed]
        for lane, number in _count(self._metrics.returned, returned).items():
            logger.warning("{number} messages of lane {lane} came back or were not confirmed", number=number, lane=lane)
        if len(published) < len(messages):
            # A deleted queue takes no messages: declare it again.
            await self._broker.declare(self.lanes)
        return len(published)

    async def publish_dead_letters(self) -> int:
        """Publish failed jobs to the dead-letter queues. Return how many were confirmed."""
        messages = await self._dispatch.unpublished_dead_letters(self._targets, limit=_SLICE)
        if not messages:
            return 0
        confirmed = await self._broker.publish_dead_letters(messages)
        published = [message for message in messages if message.job_id in confirmed]
        await self._dispatch.mark_dead_lettered(published, now=self._clock.now())
        _count(self._metrics.dead_lettered, published)
        return len(published)


def _count(meter: Meter, messages: Sequence[DueMessage | DeadLetter]) -> Counter[Lane]:
    by_lane = Counter(each.lane for each in messages)
    for lane, number in by_lane.items():
        meter.labels(lane).inc(number)
    return by_lane


class LaneDepth(msgspec.Struct, frozen=True, kw_only=True):
    """A lane in the database and in the broker: jobs published, and messages that the broker holds."""

    lane: Lane
    queued: int
    overdue: int
    ready: int
    consumers: int
    dead: int


class DeadRequeued(msgspec.Struct, frozen=True, kw_only=True):
    """Result of requeuing a lane's dead letters. Stale ones named jobs that are not dead now; unreadable ones stay."""

    requeued: Sequence[JobId]
    held: Sequence[JobId]
    stale: int = 0
    unreadable: int = 0
    problem: str | None = None


class BrokerDispatch:
    """Dispatch in one process: its dispatcher, its part in the election, its feeds and dead letters.

    Connects when jobs are first dispatched or consumed.
    """

    def __init__(self, settings: Settings, database: Database, kinds: KindRegistry, metrics: EngineMetrics) -> None:
        self._settings = settings
        self._database = database
        self._kinds = kinds
        self._metrics = metrics
        self._dispatch = StoreDispatch(database)
        self._upkeep = StoreUpkeep(database)

    @property
    def lanes(self) -> list[Lane]:
        """The lanes that are dispatched over the broker. Raises NoBroker if no kind has such a lane."""
        known = self._kinds.lanes
        for lane in self._settings.amqp_lanes:
            if lane not in known:
                raise NoBroker(f"amqp_lanes names {lane!r}, and no kind has that lane.{did_you_mean(lane, known)}")
        return sorted({Lane(lane) for lane in self._settings.amqp_lanes})

    def chosen(self, lanes: Sequence[str] | None) -> list[Lane]:
        """The lanes that a worker consumes: those it names, or all that are dispatched."""
        dispatched = self.lanes
        if not dispatched:
            raise NoBroker(
                "no lane is dispatched over RabbitMQ: name some in amqp_lanes, here and where jobs are added"
            )
        for lane in lanes or ():
            if lane not in dispatched:
                listed = ", ".join(dispatched)
                raise NoBroker(f"lane {lane!r} is not dispatched over RabbitMQ, only {listed}: add it to amqp_lanes")
        return [Lane(lane) for lane in lanes] if lanes else dispatched

    def line(self, name: str = "mistnet") -> amqp.BrokerConnector:
        url = self._settings.broker_url
        if url is None:
            raise NoBroker("MISTNET_BROKER_URL does not say where RabbitMQ is")
        address = amqp.BrokerAddress(
            url=url.get_secret_value(),
            ca_file=self._settings.broker_ca_file,
            cert_file=self._settings.broker_cert_file,
            key_file=self._settings.broker_key_file,
        )
        return amqp.BrokerConnector(address, name=name)

    @asynccontextmanager
    async def broker(self, name: str = "mistnet") -> AsyncIterator[amqp.RabbitBroker]:
        broker = amqp.RabbitBroker(self.line(name), queue_type=self._settings.amqp_queue_type)
        try:
            yield broker
        finally:
            await broker.close()

    @asynccontextmanager
    async def opened(self, holder: str) -> AsyncIterator[None]:
        """Take part in the election of the process that dispatches, if any lane is dispatched."""
        if not self.lanes:
            yield
            return
        async with self.broker(f"mistnet dispatcher of {holder}") as broker:
            try:
                await broker.declare(self.lanes)
            except BrokerUnreachable as error:  # it may come back; a refusal ends us, as only an operator can fix it
                logger.warning("{problem}", problem=str(error))

            async def lead(_term: LeaderTerm) -> None:
                async with DatabaseWakeups(self._database) as wakeup:
                    await self.dispatcher(broker).run(wakeup)

            leadership = Leadership(
                StoreLeaders(self._database),
                name=f"{LEADERSHIP} {', '.join(self.lanes)}",
                holder=holder,
                lease=timedelta(seconds=self._settings.leader_lease_seconds),
                clock=self._database.clock,
                lead=lead,
            )
            with unwrapped():
                async with asyncio.TaskGroup() as parts:
                    part = parts.create_task(leadership.run(), name="dispatch")
                    try:
                        yield
                    finally:
                        part.cancel()
                        await asyncio.wait([part])

    def dispatcher(self, broker: amqp.RabbitBroker) -> Dispatcher:
        priorities = self._settings.lane_priorities
        targets = self._kinds.targets(slots=1, lanes=self.lanes, lane_caps=self._settings.lane_caps)
        return Dispatcher(
            dispatch=self._dispatch,
            broker=broker,
            clock=self._database.clock,
            window=self._settings.amqp_window,
            republish=timedelta(seconds=self._settings.republish_seconds),
            targets=sorted(targets, key=lambda each: (-priorities.get(each.lane, 0), each.job_class)),
            metrics=self._metrics.broker,
            unpark=lambda: self._upkeep.unpark(self._kinds.live_caps),
        )

    def broker_feed(self, worker: WorkerName, lanes: Sequence[Lane], policy: Policy, outage: Outage) -> BrokerFeed:
        """The feed of a worker that consumes these lanes."""
        consumer = amqp.RabbitConsumer(
            self.line(f"mistnet worker {worker}"),
            lanes,
            queue_type=self._settings.amqp_queue_type,
            prefetch=self._settings.amqp_prefetch,
            priorities=self._settings.lane_priorities,
            on_unreadable=lambda lane: self._metrics.broker.rejected.labels(lane).inc(),
        )
        return BrokerFeed(
            consumer=consumer,
            dispatch=self._dispatch,
            clock=self._database.clock,
            policy=policy,
            kinds=self._kinds,
            worker=worker,
            lanes=lanes,
            metrics=self._metrics,
            outage=outage,
        )

    def claims_of_published(self, worker: WorkerName, lanes: Sequence[Lane], policy: Policy) -> ClaimPublished:
        """Lease jobs of these lanes that were published. Their message then arrives late and changes nothing."""
        targets = self._kinds.targets(slots=1, lanes=lanes, lane_caps=policy.lane_caps)

        async def lease(limit: int) -> Sequence[Lease]:
            ids = await self._dispatch.queued_ids(lanes, limit=limit)
            if not ids:
                return []
            claimed = await self._dispatch.claim_by_ids(
                ids, worker=worker, targets=targets, lease=policy.lease, now=self._database.clock.now()
            )
            return claimed.leases

        return lease

    async def take_back_undispatched(self) -> int:
        """Take back published jobs of lanes that are not dispatched any more."""
        before = self._database.clock.now() - timedelta(seconds=self._settings.republish_seconds)
        return await self._dispatch.unqueue_others(self.lanes, before=before)

    async def wait_for_dead_letters(self) -> bool:
        """Wait for the dispatching process to publish the dead letters of jobs that just ended. False: not in time."""
        targets = self._kinds.targets(slots=1, lanes=self.lanes, lane_caps={})
        deadline = asyncio.get_running_loop().time() + _DEAD_LETTER_SECONDS
        while await self._dispatch.unpublished_dead_letters(targets, limit=1):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_DEAD_LETTER_LOOK_SECONDS)
        return True

    async def declare(self) -> list[Lane]:
        lanes = self.chosen(None)
        async with self.broker() as broker:
            await broker.declare(lanes)
        return lanes

    async def depths(self) -> Sequence[LaneDepth]:
        """Each lane in the database and in the broker."""
        lanes = self.chosen(None)
        before = self._database.clock.now() - timedelta(seconds=self._settings.republish_seconds)
        queued = await self._dispatch.queued(lanes, before=before)
        async with self.broker() as broker:
            depths = await broker.depths(lanes)
        return [
            LaneDepth(
                lane=lane, queued=queued[lane][0], overdue=queued[lane][1], **msgspec.structs.asdict(depths[lane])
            )
            for lane in lanes
        ]

    async def requeue_dead(self, lane: Lane, operations: Operations, *, failed: bool = False) -> DeadRequeued:
        """Requeue the dead jobs of a lane, also those whose dead letter RabbitMQ lost; failed jobs only if `failed`.

        A lane that is not dispatched has no dead letters: its failed jobs are in the database alone.
        """
        wanted = GapFilter(lanes=[lane], states=GAP_STATES if failed else [JobState.DEAD])
        now = self._database.clock.now()
        if lane not in self.lanes:
            done = await operations.requeue(wanted, now=now)
            return DeadRequeued(requeued=done.requeued, held=done.held)
        named, stale, unreadable, problem = set[JobId](), 0, 0, None
        try:
            async with self.broker() as broker, broker.dead_letters(lane) as letters:
                unreadable = sum(letter.job_id is None for letter in letters)
                named = {letter.job_id for letter in letters if letter.job_id is not None}
                done = await operations.requeue(wanted, now=now)
                gaps = await self._remove_stale(lane, letters, operations)
                stale = len(named - set(done.requeued) - gaps)
        except BrokerError as error:
            problem = str(error)
            done = await operations.requeue(wanted, now=now)
        return DeadRequeued(requeued=done.requeued, held=done.held, stale=stale, unreadable=unreadable, problem=problem)

    async def remove_stale_dead_letters(self, lane: Lane, operations: Operations) -> None:
        """Remove a lane's dead letters of jobs that are not failed any more, if RabbitMQ can be reached."""
        if lane not in self.lanes:
            return
        # They do no harm: the next requeue of the lane removes them.
        with suppress(BrokerError):
            async with self.broker() as broker, broker.dead_letters(lane) as letters:
                await self._remove_stale(lane, letters, operations)

    async def _remove_stale(self, lane: Lane, letters: Sequence[DeadMessage], operations: Operations) -> set[JobId]:
        """Remove dead letters unless their job is still failed. Return the failed jobs."""
        gaps = set(await operations.gap_ids(GapFilter(lanes=[lane])))
        for letter in letters:
            if letter.job_id is not None and letter.job_id not in gaps:
                await letter.accept()
        return gaps
