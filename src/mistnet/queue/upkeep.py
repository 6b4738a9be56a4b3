"""What a worker does beside its jobs: renew its leases, keep the queue in order, watch the event loop."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from loguru import logger

from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.journal import Journal
from mistnet.queue.kinds import RENEW_AGAIN
from mistnet.queue.model import JobId, Lease, WorkerCard
from mistnet.queue.ports import Tools

_SLICE: Final = 1_000
_VACUUM_AFTER: Final = 20_000
_VACUUM_CHECK_SECONDS: Final = 1.0
_QUICK_SECONDS: Final = 3.0
_TICK_SECONDS: Final = 1.0
STUCK: Final = 71
"""The exit code of a process that ended itself."""


class UpkeepLoop:
    """Upkeep by one worker. A task that fails runs again at its next time."""

    def __init__(self, tools: Tools, outage: Outage, journal: Journal, *, card: Callable[[], WorkerCard]) -> None:
        self._tools = tools
        self._upkeep = tools.upkeep
        self._policy = tools.policy
        self._card = card
        self._journal = journal
        self._outage = outage
        self._settled_since_vacuum = 0

    def count_settled(self) -> None:
        self._settled_since_vacuum += 1

    async def run(self) -> None:
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._repeat(self._policy.heartbeat.total_seconds(), self.sign_in))
            loops.create_task(self._repeat(self._policy.reclaim.total_seconds(), self.look_after))
            loops.create_task(self._repeat(_VACUUM_CHECK_SECONDS, self._vacuum))
            if self._tools.quick_tasks:
                loops.create_task(self._repeat(_QUICK_SECONDS, self._run_quick_tasks))

    async def _repeat(self, seconds: float, task: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await task()
            except DatabaseError as error:
                self._outage.failed(error)
            await asyncio.sleep(seconds)

    async def sign_in(self) -> None:
        """Write this worker's row with its heartbeat."""
        try:
            await self._upkeep.sign_in(self._card(), now=self._tools.clock.now())
        except DatabaseError as error:
            self._outage.failed(error, renewing=True)
        else:
            self._outage.over()

    async def look_after(self) -> None:
        """Correct the clock, reclaim expired leases, let parked jobs in, run the features' tasks, prune history."""
        self._journal.clock_corrected((await self._upkeep.correct_clock()).total_seconds())
        now = self._tools.clock.now()
        lost_before = self._outage.lost_before(now)
        while lost := await self._upkeep.reclaim(now=now, limit=_SLICE, lost_before=lost_before):
            self._journal.reclaimed(lost)
            self._tools.wakeup.ring()
        if await self.unpark():
            self._tools.wakeup.ring()
        for task in self._tools.upkeep_tasks:
            if await task():
                self._tools.wakeup.ring()
        if self._policy.retention is not None:
            while await self._upkeep.prune(before=now - self._policy.retention, limit=_SLICE) == _SLICE:
                pass

    async def _run_quick_tasks(self) -> None:
        for task in self._tools.quick_tasks:
            await task()

    async def unpark(self) -> int:
        return await self._upkeep.unpark(self._tools.kinds.live_caps)

    async def _vacuum(self) -> None:
        # The queue leaves dead rows faster than PostgreSQL's autovacuum removes them, and claims read past each.
        if self._settled_since_vacuum >= _VACUUM_AFTER:
            self._settled_since_vacuum = 0
            await self._upkeep.vacuum()


class LeaseKeeper:
    """The leases of this worker from claim to settlement. One statement renews them all."""

    def __init__(self, tools: Tools, outage: Outage, *, on_lost: Callable[[Collection[Lease]], None]) -> None:
        self._tools = tools
        self._heartbeat = tools.policy.heartbeat.total_seconds()
        self._outage = outage
        self._on_lost = on_lost
        self._held: dict[JobId, Lease] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> list[Lease]:
        return list(self._held.values())

    def holds(self, lease: Lease) -> bool:
        return self._held.get(lease.id) is lease

    def take(self, leases: Iterable[Lease]) -> None:
        self._held.update((lease.id, lease) for lease in leases)

    def drop(self, lease: Lease) -> None:
        # Not by id alone: this worker may have lost the job and claimed it again under a newer fence.
        if self.holds(lease):
            del self._held[lease.id]

    async def run(self) -> None:
        wait = self._heartbeat
        while True:
            await asyncio.sleep(wait)
            answered = await self.beat()
            wait = self._heartbeat if answered else min(wait, RENEW_AGAIN.total_seconds())

    async def beat(self) -> bool:
        """Renew all leases. Return whether the database answered: if it did not, none is lost yet."""
        leases = self.held
        if not leases:
            return True
        try:
            until = self._tools.clock.now() + self._tools.policy.lease
            ours = await self._tools.queue.extend(leases, until=until)
        except DatabaseError as error:
            self._outage.failed(error, renewing=True)
            return False
        self._outage.over(wrote=bool(ours))
        lost = [lease for lease in leases if lease.claim not in ours and self.holds(lease)]
        if lost:
            for lease in lost:
                self.drop(lease)
            self._on_lost(lost)
        return True


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """While open, the event loop must run at least once in this many seconds. Call it in the main thread.

    A process whose loop is blocked ends, before its leases expire and other workers meet the same job.

    Two watchers, because a loop can block in two ways. A loop that computes is ended by a kernel timer that counts
    CPU time: it fires even while C code holds the interpreter. A loop that waits for something is ended by a thread.
    Both leave a process alone that was itself stopped, by Ctrl-Z or a sleeping machine.
    """
    loop = asyncio.get_running_loop()
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(loop, seconds, over), name="watchdog", daemon=True)
    rearming = loop.create_task(_rearm(seconds), name="watchdog")
    before = signal.getsignal(signal.SIGPROF)
    # Ends the process, after faulthandler has written its stack.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    faulthandler.register(signal.SIGPROF, file=2, all_threads=True, chain=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        rearming.cancel()
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.unregister(signal.SIGPROF)
        signal.signal(signal.SIGPROF, before)
        thread.join()


async def _rearm(seconds: float) -> None:
    """Reset the timer as long as the loop runs."""
    while True:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        await asyncio.sleep(_TICK_SECONDS)


def _watch(loop: asyncio.AbstractEventLoop, seconds: float, over: threading.Event) -> None:
    turned, missed = threading.Event(), 0
    turned.set()
    while not over.wait(_TICK_SECONDS):
        if turned.is_set():
            missed = 0
            turned.clear()
            try:
                loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # the loop has ended
                return
        else:
            # Counted in this thread, which is suspended too while the process is stopped.
            missed += 1
            if missed * _TICK_SECONDS >= seconds:
                frames = sys._current_frames()  # noqa: SLF001 (the documented way to see another thread's stack)
                stack = "".join(traceback.format_stack(frames.get(threading.main_thread().ident or 0)))
                logger.critical(
                    "the event loop was blocked for {seconds:g} s; this process ends so that other workers take its "
                    "jobs. Stack:\n{stack}",
                    seconds=seconds,
                    stack=stack,
                )
                # Not sys.exit: it would wait for the loop that is blocked.
                os._exit(STUCK)
