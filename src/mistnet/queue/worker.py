"""The worker: claim, look, fetch, write, repeat, with many jobs at once in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from loguru import logger

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.executor import Executor
from mistnet.queue.journal import Journal, Observer
from mistnet.queue.kinds import Kind, KindRegistry, Policy
from mistnet.queue.leases import LeaseKeeper
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import Lane, Lease, WorkerName
from mistnet.queue.polling import HandedOver, Polling
from mistnet.queue.ports import HeldLeases, JobFeed, Queue, RemainingWork, Upkeep, Wakeups, WorkerCard
from mistnet.queue.settler import Finished, Settler
from mistnet.queue.tracing import Trace, untraced
from mistnet.queue.upkeep import UpkeepLoop

WORTH_TELLING: Final = timedelta(seconds=2)
"""Who waits for less is not kept in the dark."""

TOLD_AGAIN: Final = timedelta(minutes=1)


class WaitReporter:
    """Tells it when it begins or changes, and once a minute."""

    def __init__(self, worker: WorkerName) -> None:
        self._worker = worker
        self._told: str | None = None
        self._again_at: datetime | None = None
        self._looked_at: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether to look at what is awaited: not at every turn, for that look counts jobs."""
        if self._looked_at is not None and now - self._looked_at < WORTH_TELLING:
            return False
        self._looked_at = now
        return True

    def tell(self, awaited: RemainingWork, now: datetime) -> None:
        line = waiting_for(awaited, now)
        repeated = line == self._told and self._again_at is not None and now < self._again_at
        if line is None or repeated:
            return
        self._told, self._again_at = line, now + TOLD_AGAIN
        logger.info("waiting for {what}", what=line, worker=self._worker)


def waiting_for(awaited: RemainingWork, now: datetime) -> str | None:
    return "; ".join(_parts(awaited, now)) or None


def _parts(awaited: RemainingWork, now: datetime) -> Iterator[str]:
    for held in awaited.leases:
        if held.lease_until - now > WORTH_TELLING:
            yield _leased(held)
    if awaited.jobs and awaited.next_due_at and awaited.next_due_at - now > WORTH_TELLING:
        why = f" ({awaited.reason})" if awaited.reason else ""
        later = f"{_jobs(awaited.jobs)} that {'is' if awaited.jobs == 1 else 'are'} not due yet"
        yield f"{later}, the next at {_time(awaited.next_due_at)}{why}"


def _leased(held: HeldLeases) -> str:
    seen = f"last seen at {_time(held.seen_at)}" if held.seen_at else "which has signed out"
    until = _time(held.lease_until)
    return f"{_jobs(held.jobs)} of worker {held.worker}, {seen}: if it is gone, its lease runs out at {until}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _time(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"


_GATHER_SECONDS: Final = 0.005
"""A claim costs as much for one job as for many."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker works with; the composition root chooses each."""

    queue: Queue
    upkeep: Upkeep
    wakeup: Wakeups
    clock: Clock
    kinds: KindRegistry
    policy: Policy
    metrics: EngineMetrics
    secrets: Sequence[str] = ()
    halted: Callable[[], Awaitable[Collection[str]]] | None = None
    left_to_others: Callable[[], Collection[str]] = tuple
    """Lanes from which nothing is claimed for now: other workers can do what this one cannot."""

    chores: Sequence[Callable[[], Awaitable[int]]] = ()
    outage: Outage | None = None
    """Given where the feed shares it."""

    trace: Trace = untraced
    observer: Observer | None = None
    chance: random.Random = msgspec.field(default_factory=random.Random)


class Worker:
    """One worker in one event loop. Any number of them share a database."""

    def __init__(
        self,
        tools: Tools,
        card: WorkerCard,
        *,
        lanes: Sequence[Lane] | None = None,
        until_idle: bool = False,
        feed: JobFeed | None = None,
        handed_over: HandedOver | None = None,
    ) -> None:
        self._tools = tools
        self._policy = tools.policy
        self._card = card
        self._lanes = lanes
        self._until_idle = until_idle
        self._draining = asyncio.Event()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slot_freed = asyncio.Event()
        self._running: dict[asyncio.Task[None], Sequence[Lease]] = {}
        self._suspects: list[Lease] = []
        outage = self._outage = tools.outage or Outage(tools.clock, mercy=self._policy.mercy, chance=tools.chance)
        self._journal = Journal(worker=card.name, metrics=tools.metrics, on_end=self._ended, observer=tools.observer)
        self._waits = WaitReporter(card.name)
        self._leases = LeaseKeeper(
            queue=tools.queue, clock=tools.clock, policy=self._policy, outage=outage, on_lost=self._abandon
        )
        tools.metrics.running.set_function(lambda: len(self._leases))
        self._settler = Settler(
            queue=tools.queue,
            clock=tools.clock,
            policy=self._policy,
            witness=self._journal,
            metrics=tools.metrics,
            outage=outage,
            chance=tools.chance,
        )
        self._caretaker = UpkeepLoop(
            upkeep=tools.upkeep,
            clock=tools.clock,
            policy=self._policy,
            kinds=tools.kinds,
            card=self._current_card,
            witness=self._journal,
            wake=tools.wakeup.ring,
            outage=outage,
            chores=tools.chores,
        )
        self._feed = feed or Polling(
            queue=tools.queue,
            wakeup=tools.wakeup,
            clock=tools.clock,
            policy=self._policy,
            kinds=tools.kinds,
            worker=card.name,
            lanes=lanes,
            metrics=tools.metrics,
            outage=outage,
            unpark=self._caretaker.unpark,
            handed_over=handed_over,
            left_to_others=tools.left_to_others,
        )
        self._executor = Executor(
            clock=tools.clock,
            timeout=self._policy.job_timeout,
            error_limit=self._policy.error_limit,
            secrets=tools.secrets,
        )

    @property
    def name(self) -> WorkerName:
        return self._card.name

    @property
    def settled_count(self) -> int:
        """How many outcomes were written, steps, snoozes and retries among them."""
        return self._journal.settled_count

    @property
    def ended_count(self) -> int:
        """How many jobs are over."""
        return self._journal.ended_count

    def drain(self) -> None:
        """No new claims; what runs may finish within the grace time, then leases are handed back."""
        self._draining.set()
        self._slot_freed.set()
        self._feed.ring()

    async def run(self) -> None:
        """Works until drained, or until nothing is left if that was asked for."""
        await self._learn_the_time()
        async with contextlib.AsyncExitStack() as cleanup:
            await cleanup.enter_async_context(self._feed.opened())
            background = [
                asyncio.create_task(part, name=name)
                for name, part in (
                    ("settler", self._settler.run()),
                    ("leases", self._leases.run()),
                    ("caretaker", self._caretaker.run()),
                )
            ]
            cleanup.push_async_callback(_stop, background)
            loop = asyncio.create_task(self._work(), name="work")
            cleanup.push_async_callback(_stop, [loop])
            parts = [loop, self._broken, *background]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done():
                    part.result()  # a part that broke takes the worker down; its leases run out
            await self._finish()

    async def _learn_the_time(self) -> None:
        while True:
            try:
                await self._tools.upkeep.correct_clock()
            except DatabaseError as error:
                await asyncio.sleep(self._outage.failed(error))
            else:
                return

    async def _work(self) -> None:
        while not self._draining.is_set():
            await self._room()
            if self._suspects:
                await self._isolate(self._suspects.pop(0))
                continue
            leases = await self._claim()
            if leases:
                self._start(leases)
            elif await self._nothing_left():
                return
            elif not self._draining.is_set():
                await self._feed.wait(leaving=self._until_idle)

    async def _room(self) -> None:
        """Waits for a free slot, a moment longer for a few of them, and for the settler not to fall behind."""
        await self._settler.until_below(4 * self._policy.settle_group)
        while len(self._running) >= self._card.concurrency and not self._draining.is_set():
            self._slot_freed.clear()
            await self._slot_freed.wait()
        if self._running and self._card.concurrency - len(self._running) < self._card.concurrency // 4:
            await asyncio.sleep(_GATHER_SECONDS)

    async def _claim(self) -> Sequence[Lease]:
        slots = self._card.concurrency - len(self._running)
        if slots <= 0 or self._draining.is_set():
            return []
        leases = await self._feed.take(slots)
        self._journal.claimed(leases, self._tools.clock.now())
        return leases

    def _start(self, leases: Sequence[Lease]) -> None:
        self._leases.take(leases)
        self._suspects += [lease for lease in leases if lease.is_suspect]
        self._run_together([lease for lease in leases if not lease.is_suspect])

    async def _isolate(self, suspect: Lease) -> None:
        """Runs one job while nothing else runs here: if it ends this process, no other job is lost with it."""
        await self._until_nothing_runs()
        if not self._draining.is_set() and self._leases.holds(suspect):
            self._run_together([suspect])
            await self._until_nothing_runs()

    async def _until_nothing_runs(self) -> None:
        while self._running and not self._draining.is_set():
            self._slot_freed.clear()
            await self._slot_freed.wait()
        await self._settler.until_below(1)

    def _run_together(self, leases: Sequence[Lease]) -> None:
        for kind, batch in _batches(self._tools.kinds, leases):
            task = asyncio.create_task(self._execute(kind, batch), name=f"job {batch[0].id}")
            self._running[task] = batch
            task.add_done_callback(self._stopped)

    async def _execute(self, kind: Kind, batch: Sequence[Lease]) -> None:
        begun = time.perf_counter()
        with self._tools.trace(kind, batch) as tell:
            outcomes = await self._executor.run(kind, batch)
            tell(outcomes)
        seconds = time.perf_counter() - begun
        self._tools.metrics.run_seconds.labels(kind.name).observe(seconds)
        self._settler.put([Finished(lease, outcome, seconds) for lease, outcome in zip(batch, outcomes, strict=True)])

    def _stopped(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._slot_freed.set()
        if not task.cancelled() and (error := task.exception()) and not self._broken.done():
            self._broken.set_exception(error)

    def _ended(self, lease: Lease) -> None:
        """A settlement was written or refused: the lease is over, and its class may have work again."""
        self._leases.drop(lease)
        self._feed.ended(lease)
        self._caretaker.count_settled()
        self._tools.wakeup.ring()

    def _abandon(self, lost: Collection[Lease]) -> None:
        """Stops working on jobs that somebody else holds now."""
        gone = {lease.id for lease in lost}
        for task, batch in list(self._running.items()):
            if all(lease.id in gone for lease in batch):
                task.cancel()
        for lease in lost:
            self._journal.lost(lease)

    async def _nothing_left(self) -> bool:
        if not self._until_idle or self._running or len(self._leases):
            return False
        try:
            halted = await self._tools.halted() if self._tools.halted else ()
            lanes = self._tools.kinds.lanes if self._lanes is None else self._lanes
            open_lanes = [lane for lane in lanes if lane not in halted]
            kinds, now = list(self._tools.kinds), self._tools.clock.now()
            if not open_lanes or not await self._tools.upkeep.work_left(kinds, open_lanes, now=now):
                return True
            if self._waits.is_due(now):
                self._waits.tell(await self._tools.upkeep.awaited(kinds, open_lanes, now=now), now)
        except DatabaseError:
            pass
        return False

    async def _finish(self) -> None:
        """Lets running jobs end within the grace time, then hands back what is unfinished."""
        await self._feed.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._policy.grace.total_seconds()):
                while self._running:
                    await asyncio.wait(list(self._running))
                await self._settler.until_below(1)
        unfinished = list(self._running)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        with contextlib.suppress(TimeoutError, DatabaseError):
            async with asyncio.timeout(self._policy.grace.total_seconds()):
                await self._tools.queue.release(self._leases.held)
                await self._tools.upkeep.sign_out(self.name)

    def _current_card(self) -> WorkerCard:
        return msgspec.structs.replace(self._card, running=len(self._leases), draining=self._draining.is_set())


def _batches(kinds: KindRegistry, leases: Sequence[Lease]) -> Iterator[tuple[Kind, Sequence[Lease]]]:
    """Leases grouped for their handlers. A job that once spoilt a batch runs alone.

    A batch has one lane: a fault of one source must not cost the jobs of another one an attempt.
    """
    for name, lane in dict.fromkeys((lease.kind, lease.lane) for lease in leases):
        kind = kinds[name]
        own = [lease for lease in leases if (lease.kind, lease.lane) == (name, lane)]
        together = [lease for lease in own if not lease.alone]
        size = kind.rules.batch
        for start in range(0, len(together), size):
            yield kind, together[start : start + size]
        for lease in own:
            if lease.alone:
                yield kind, [lease]


async def _stop(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
