"""Where a worker's leases come from: the table itself, or a broker whose messages name jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.kinds import KindRegistry, Policy
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import Claim, ClaimedById, Lane, Lease, Target, WorkerName
from mistnet.queue.ports import Tools

if TYPE_CHECKING:
    from mistnet.queue.rabbitmq.consumer import RabbitConsumer, RabbitDelivery
    from mistnet.queue.store.dispatch import StoreDispatch

# A due job that could not be claimed is locked by another worker's claim, which is over in a moment.
_CONTENDED_SECONDS: Final = 0.05
# Another worker's job makes room under a cap when it ends, and no wake-up may reach this process.
_CAPPED_SECONDS: Final = 1.0
# A worker that ends when nothing is left should notice that soon.
_LAST_LOOK_SECONDS: Final = 0.5
_OUTLOOK_SECONDS: Final = 0.1
# Another process may publish a job before we see it, and that sends no wake-up.
_PUBLISHED_SECONDS: Final = 1.0

ClaimPublished: TypeAlias = Callable[[int], Awaitable[Sequence[Lease]]]
"""Leases up to this many jobs that were published to the broker."""
# How soon a message is tried again whose job a cap holds back, or whose kind only other workers know.
_AGAIN_SECONDS: Final = 1.0
_LONGEST_GATHERING: Final = 0.01


class Polling:
    """The feed of a worker that queries the table itself, when it is woken or a job falls due."""

    def __init__(
        self,
        tools: Tools,
        outage: Outage,
        *,
        worker: WorkerName,
        lanes: Sequence[Lane] | None,
        unpark: Callable[[], Awaitable[int]],
        claim_published: ClaimPublished | None = None,
    ) -> None:
        self._tools = tools
        self._policy = tools.policy
        self._outage = outage
        self._worker = worker
        self._lanes = lanes
        self._unpark = unpark
        self._claim_published = claim_published
        self._looked_ahead_at = float("-inf")

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    def ring(self) -> None:
        self._tools.wakeup.ring()

    def ended(self, lease: Lease) -> None:
        """Nothing to do: the table has the outcome."""

    async def stop(self) -> None:
        """Nothing to return: all that was taken is leased."""

    async def take(self, slots: int) -> Sequence[Lease]:
        now = self._tools.clock.now()
        begun = time.perf_counter()
        try:
            leases = await self._tools.queue.claim(
                worker=self._worker,
                targets=self._targets(slots),
                room=slots,
                lease=self._policy.lease,
                now=now,
                aged_before=now - self._policy.aging if self._policy.aging else None,
                lost_before=self._outage.lost_before(now),
            )
            if self._claim_published and len(leases) < slots:
                leases = [*leases, *await self._claim_published(slots - len(leases))]
        except DatabaseError as error:
            await asyncio.sleep(self._outage.failed(error))
            return []
        self._outage.over(wrote=bool(leases))
        self._tools.metrics.claim_seconds.observe(time.perf_counter() - begun)
        return leases

    async def wait(self, *, leaving: bool) -> None:
        """Wait for a wake-up, the next due job, or the polling interval."""
        # While jobs keep arriving, wake-ups are enough and the outlook is skipped.
        if asyncio.get_running_loop().time() - self._looked_ahead_at < _OUTLOOK_SECONDS:
            await self._tools.wakeup.wait(_OUTLOOK_SECONDS)
            return
        try:
            if await self._unpark():
                return
            ahead = await self._tools.queue.outlook(self._targets(1), now=self._tools.clock.now())
        except DatabaseError as error:
            await asyncio.sleep(self._outage.failed(error))
            return
        self._looked_ahead_at = asyncio.get_running_loop().time()
        wait = self._policy.idle_poll.total_seconds()
        if leaving:
            wait = min(wait, _LAST_LOOK_SECONDS)
        if ahead.capped:
            wait = min(wait, _CAPPED_SECONDS)
        if self._claim_published:
            wait = min(wait, _PUBLISHED_SECONDS)
        if ahead.next_due_at is not None:
            due_in = (ahead.next_due_at - self._tools.clock.now()).total_seconds()
            wait = min(wait, max(due_in, _CONTENDED_SECONDS))
        await self._tools.wakeup.wait(wait)

    def _targets(self, slots: int) -> list[Target]:
        lanes, others = self._lanes, self._tools.avoided_lanes()
        if others:
            lanes = [Lane(lane) for lane in (self._tools.kinds.lanes if lanes is None else lanes) if lane not in others]
        return self._tools.kinds.targets(slots=slots, lanes=lanes, lane_caps=self._policy.lane_caps)


class DeferredMessage(msgspec.Struct, frozen=True):
    """A message to try again: a cap holds its job back, or only other workers know its kind."""

    delivery: RabbitDelivery
    until: float
    foreign: bool = False


class BrokerFeed:
    """The feed of a worker that consumes messages. A message is acknowledged when its job's outcome is stored."""

    def __init__(
        self,
        *,
        consumer: RabbitConsumer,
        dispatch: StoreDispatch,
        clock: Clock,
        policy: Policy,
        kinds: KindRegistry,
        worker: WorkerName,
        lanes: Sequence[Lane],
        metrics: EngineMetrics,
        outage: Outage,
    ) -> None:
        self._consumer = consumer
        self._dispatch = dispatch
        self._clock = clock
        self._policy = policy
        self._targets = kinds.targets(slots=1, lanes=lanes, lane_caps=policy.lane_caps)
        self._worker = worker
        self._metrics = metrics
        self._outage = outage
        self._leased: dict[Claim, RabbitDelivery] = {}
        self._deferred: list[DeferredMessage] = []
        self._done: list[RabbitDelivery] = []
        self._acknowledge_now = asyncio.Event()
        self._claim_seconds = 0.0

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self._consumer.opened():
            accepting = asyncio.create_task(self._acknowledge_forever(), name="acknowledging")
            try:
                yield
            finally:
                accepting.cancel()
                await asyncio.gather(accepting, return_exceptions=True)
                await self._acknowledge_all()

    async def take(self, slots: int) -> Sequence[Lease]:
        # A claim costs as much for one job as for many: while others run, wait a moment for more messages.
        if self._leased and 0 < self._consumer.waiting < slots:
            await asyncio.sleep(min(self._claim_seconds / 2, _LONGEST_GATHERING))
        deliveries = self._due(slots)
        if not deliveries:
            return []
        begun, now = time.perf_counter(), self._clock.now()
        named = {each.job_id: each for each in deliveries}
        try:
            claimed = await self._dispatch.claim_by_ids(
                list(named),
                worker=self._worker,
                targets=self._targets,
                lease=self._policy.lease,
                now=now,
                lost_before=self._outage.lost_before(now),
            )
        except DatabaseError as error:
            failed_at = time.monotonic()
            self._deferred += [DeferredMessage(each, failed_at) for each in deliveries]
            await asyncio.sleep(self._outage.failed(error))
            return []
        self._outage.over(wrote=bool(claimed.leases))
        self._claim_seconds = time.perf_counter() - begun
        self._metrics.claim_seconds.observe(self._claim_seconds)
        self._sort(deliveries, claimed)
        places = {job_id: place for place, job_id in enumerate(named)}
        return sorted(claimed.leases, key=lambda lease: places[lease.id])

    def _due(self, slots: int) -> list[RabbitDelivery]:
        """Deferred messages whose time has come, then those that have arrived."""
        now = time.monotonic()
        for deferred in [each for each in self._deferred if each.until <= now and each.foreign]:
            self._deferred.remove(deferred)
            asyncio.ensure_future(deferred.delivery.give_back())  # noqa: RUF006 (it sends one frame, or its connection is gone)
        ready = [each for each in self._deferred if each.until <= now][:slots]
        self._deferred = [each for each in self._deferred if each not in ready]
        new = self._consumer.arrived(slots - len(ready))
        for each in new:
            self._metrics.broker.consumed.labels(each.lane).inc()
        return [*(each.delivery for each in ready), *new]

    def _sort(self, deliveries: Sequence[RabbitDelivery], claimed: ClaimedById) -> None:
        """Keep a message until its lease ends, defer it, or acknowledge it."""
        leased = {lease.id: lease for lease in claimed.leases}
        again = time.monotonic() + _AGAIN_SECONDS
        for delivery in deliveries:
            lease = leased.pop(delivery.job_id, None)
            if lease is not None:
                self._leased[lease.claim] = delivery
            elif delivery.job_id in claimed.capped:
                self._deferred.append(DeferredMessage(delivery, again))
            elif delivery.job_id in claimed.foreign:
                self._deferred.append(DeferredMessage(delivery, again, foreign=True))
            else:
                self._acknowledge(delivery)

    def ring(self) -> None:
        self._consumer.ring()

    async def wait(self, *, leaving: bool) -> None:
        wait = self._policy.idle_poll.total_seconds()
        if leaving:
            wait = min(wait, _LAST_LOOK_SECONDS)
        if self._deferred:
            wait = min(wait, max(min(each.until for each in self._deferred) - time.monotonic(), 0.0))
        await self._consumer.wait(wait)

    def ended(self, lease: Lease) -> None:
        delivery = self._leased.pop(lease.claim, None)
        if delivery is not None:
            self._acknowledge(delivery)
        if self._deferred:
            self._deferred = [each if each.foreign else DeferredMessage(each.delivery, 0.0) for each in self._deferred]
            # There is room under a cap again.
            self._consumer.ring()

    async def stop(self) -> None:
        """Return messages whose job was not started. Those of running jobs are kept until the jobs end."""
        await self._consumer.stop()
        deferred, self._deferred = self._deferred, []
        for each in deferred:
            await each.delivery.give_back()

    def _acknowledge(self, delivery: RabbitDelivery) -> None:
        self._done.append(delivery)
        self._acknowledge_now.set()

    async def _acknowledge_forever(self) -> None:
        while True:
            self._acknowledge_now.clear()
            await self._acknowledge_all()
            if not self._done:
                await self._acknowledge_now.wait()

    async def _acknowledge_all(self) -> None:
        done, self._done = self._done, []
        for delivery in done:
            await delivery.accept()
            self._metrics.broker.acked.labels(delivery.lane).inc()
