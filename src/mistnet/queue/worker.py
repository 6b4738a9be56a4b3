"""The worker: claim, look, fetch, write, repeat, with many jobs at once in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import msgspec

from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.executor import Executor
from mistnet.queue.feeds import ClaimPublished, Polling
from mistnet.queue.journal import Journal, WaitReporter
from mistnet.queue.kinds import Kind
from mistnet.queue.model import Continue, Lane, Lease, WorkerCard, WorkerName
from mistnet.queue.ports import JobFeed, Tools
from mistnet.queue.settler import Finished, Settler
from mistnet.queue.upkeep import LeaseKeeper, UpkeepLoop

# A claim costs as much for one job as for many.
_GATHER_SECONDS: Final = 0.005
# Jobs that end sooner than a claim takes are claimed ahead, up to so many times the concurrency.
_MOST_AHEAD: Final = 8
_UNKNOWN: Final = float("inf")


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
        claim_published: ClaimPublished | None = None,
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
        self._ready: deque[tuple[Kind, Sequence[Lease]]] = deque()
        # The loop's time: in a simulation it is virtual, so that the speed of the machine decides nothing.
        self._loop_time = asyncio.get_running_loop().time
        self._ahead = 1
        self._slowest = _UNKNOWN
        self._suspects: list[Lease] = []
        outage = self._outage = tools.outage or Outage(
            tools.clock, renewal_grace=self._policy.renewal_grace, chance=tools.chance
        )
        self._journal = Journal(worker=card.name, metrics=tools.metrics, on_end=self._ended, observer=tools.observer)
        self._waits = WaitReporter(card.name)
        self._leases = LeaseKeeper(tools, outage, on_lost=self._abandon)
        tools.metrics.running.set_function(lambda: len(self._leases))
        self._settler = Settler(tools, outage, self._journal)
        self._upkeep = UpkeepLoop(tools, outage, self._journal, card=self._current_card)
        self._feed = feed or Polling(
            tools,
            outage,
            worker=card.name,
            lanes=lanes,
            unpark=self._upkeep.unpark,
            claim_published=claim_published,
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
        """Claim no more. Running jobs may finish within the grace time, then their leases are released."""
        self._draining.set()
        self._slot_freed.set()
        self._feed.ring()

    async def run(self) -> None:
        """Work until drained, or with `until_idle` until no work is left."""
        await self._until_answered(self._tools.upkeep.correct_clock)
        # Before any job: `spend --reconcile` corrects the ledger only while no worker is listed.
        await self._until_answered(
            lambda: self._tools.upkeep.sign_in(self._current_card(), now=self._tools.clock.now())
        )
        async with contextlib.AsyncExitStack() as cleanup:
            await cleanup.enter_async_context(self._feed.opened())
            background = [
                asyncio.create_task(part, name=name)
                for name, part in (
                    ("settler", self._settler.run()),
                    ("leases", self._leases.run()),
                    ("upkeep", self._upkeep.run()),
                )
            ]
            cleanup.push_async_callback(_stop, background)
            loop = asyncio.create_task(self._work(), name="work")
            cleanup.push_async_callback(_stop, [loop])
            parts = [loop, self._broken, *background]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done():
                    # A part that failed ends the worker; its leases expire and others take over.
                    part.result()
            await self._finish()

    async def _until_answered(self, ask: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await ask()
            except DatabaseError as error:
                await asyncio.sleep(self._outage.failed(error))
            else:
                return

    async def _work(self) -> None:
        while not self._draining.is_set():
            await self._wait_for_slot()
            if self._suspects:
                # It runs while nothing else runs here: if it kills this process, no other job loses an attempt.
                suspect = self._suspects.pop(0)
                await self._until_nothing_runs()
                if not self._draining.is_set() and self._leases.holds(suspect):
                    self._run_together([suspect])
                    await self._until_nothing_runs()
                continue
            slots = 0 if self._draining.is_set() else self._room
            begun = self._loop_time()
            leases = await self._feed.take(slots) if slots > 0 else []
            if leases:
                # Claim more at once while all jobs end sooner than a claim takes: workers would wait for claims alone.
                if self._slowest >= self._loop_time() - begun:
                    self._ahead = 1
                elif len(leases) >= slots:
                    self._ahead = min(self._ahead * 2, _MOST_AHEAD)
                self._slowest = 0.0
                self._journal.claimed(leases, self._tools.clock.now())
                self._leases.take(leases)
                self._suspects += [lease for lease in leases if lease.is_suspect]
                self._run_together([lease for lease in leases if not lease.is_suspect])
            elif await self._nothing_left():
                return
            elif not self._draining.is_set():
                await self._feed.wait(leaving=self._until_idle)

    async def _wait_for_slot(self) -> None:
        """Wait for a free slot, a moment longer for several, and until the settler has caught up."""
        # Handlers may be faster than the database: without a limit, outcomes would pile up in memory.
        await self._settler.until_below(4 * self._policy.settle_group)
        while self._room <= 0 and not self._draining.is_set():
            self._slot_freed.clear()
            await self._slot_freed.wait()
        if self._running and self._room < self._card.concurrency * self._ahead // 4:
            await asyncio.sleep(_GATHER_SECONDS)

    @property
    def _room(self) -> int:
        return self._card.concurrency * self._ahead - len(self._running) - len(self._ready)

    async def _until_nothing_runs(self) -> None:
        while self._running and not self._draining.is_set():
            self._slot_freed.clear()
            await self._slot_freed.wait()
        await self._settler.until_below(1)

    def _run_together(self, leases: Sequence[Lease]) -> None:
        """Group leases for their handlers. A job that once failed a batch runs alone.

        A batch has one lane: a fault of one source must not cost the jobs of another one an attempt.
        """
        for name, lane in dict.fromkeys((lease.kind, lease.lane) for lease in leases):
            kind = self._tools.kinds[name]
            own = [lease for lease in leases if (lease.kind, lease.lane) == (name, lane)]
            together = [lease for lease in own if not lease.alone]
            size = kind.rules.batch
            self._ready += [(kind, together[start : start + size]) for start in range(0, len(together), size)]
            self._ready += [(kind, [lease]) for lease in own if lease.alone]
        self._start_ready()

    def _start_ready(self) -> None:
        while self._ready and len(self._running) < self._card.concurrency and not self._draining.is_set():
            kind, claimed = self._ready.popleft()
            # A lease may be lost while it waits here.
            if batch := [lease for lease in claimed if self._leases.holds(lease)]:
                task = asyncio.create_task(self._execute(kind, batch), name=f"job {batch[0].id}")
                self._running[task] = batch
                task.add_done_callback(self._stopped)

    async def _execute(self, kind: Kind, batch: Sequence[Lease]) -> None:
        begun = self._loop_time()
        with self._tools.trace(kind, batch) as tell:
            outcomes = await self._executor.run(kind, batch)
            tell(outcomes)
        seconds = self._loop_time() - begun
        # Claimed ahead, a job that takes turns would wait here while those of a worker with fewer come round again.
        takes_turns = any(isinstance(outcome, Continue) for outcome in outcomes)
        self._slowest = max(self._slowest, _UNKNOWN if takes_turns else seconds)
        self._tools.metrics.run_seconds.labels(kind.name).observe(seconds)
        self._settler.put([Finished(lease, outcome, seconds) for lease, outcome in zip(batch, outcomes, strict=True)])

    def _stopped(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._start_ready()
        self._slot_freed.set()
        if not task.cancelled() and (error := task.exception()) and not self._broken.done():
            self._broken.set_exception(error)

    def _ended(self, lease: Lease) -> None:
        """A settlement was stored or refused: the lease is over, and another job of its class may be due."""
        self._leases.drop(lease)
        self._feed.ended(lease)
        self._upkeep.count_settled()
        self._tools.wakeup.ring()

    def _abandon(self, lost: Collection[Lease]) -> None:
        """Stop working on jobs that another worker has leased since."""
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
                self._waits.log(await self._tools.upkeep.awaited(kinds, open_lanes, now=now), now)
        except DatabaseError:
            pass
        return False

    async def _finish(self) -> None:
        """Let running jobs end within the grace time, then release the unfinished ones."""
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


async def _stop(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
