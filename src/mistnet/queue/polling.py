"""Lease jobs straight from the table, the most urgent first, and decide how long to wait when none is due."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.kinds import KindRegistry, Policy
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import Lane, Lease, Outlook, Target, WorkerName

if TYPE_CHECKING:
    from mistnet.queue.store.claims import JobQueue
    from mistnet.queue.store.wakeups import LocalWakeups

_CONTENDED_SECONDS: Final = 0.05
_CAPPED_SECONDS: Final = 1.0
_LAST_LOOK_SECONDS: Final = 0.5
_OUTLOOK_SECONDS: Final = 0.1
_PUBLISHED_SECONDS: Final = 1.0
"""Another process may publish a job before we see it, and that sends no wake-up."""

ClaimPublished: TypeAlias = Callable[[int], Awaitable[Sequence[Lease]]]
"""Leases up to this many jobs that were published to the broker."""


class Polling:
    """The feed of a worker that queries the table itself, when it is woken or a job falls due."""

    def __init__(  # noqa: PLR0913 (each is a part of its own)
        self,
        *,
        queue: JobQueue,
        wakeup: LocalWakeups,
        clock: Clock,
        policy: Policy,
        kinds: KindRegistry,
        worker: WorkerName,
        lanes: Sequence[Lane] | None,
        metrics: EngineMetrics,
        outage: Outage,
        unpark: Callable[[], Awaitable[int]],
        claim_published: ClaimPublished | None = None,
        avoided_lanes: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._queue = queue
        self._wakeup = wakeup
        self._clock = clock
        self._policy = policy
        self._kinds = kinds
        self._worker = worker
        self._lanes = lanes
        self._metrics = metrics
        self._outage = outage
        self._unpark = unpark
        self._claim_published = claim_published
        self._avoided_lanes = avoided_lanes
        self._looked_ahead_at = float("-inf")

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    def ring(self) -> None:
        self._wakeup.ring()

    def ended(self, lease: Lease) -> None:
        """Nothing to do: the table has the outcome."""

    async def stop(self) -> None:
        """Nothing to return: all that was taken is leased."""

    async def take(self, slots: int) -> Sequence[Lease]:
        now = self._clock.now()
        begun = time.perf_counter()
        try:
            leases = await self._queue.claim(
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
        self._metrics.claim_seconds.observe(time.perf_counter() - begun)
        return leases

    async def wait(self, *, leaving: bool) -> None:
        """Wait for a wake-up, the next due job, or the polling interval."""
        # While jobs keep arriving, wake-ups are enough and the outlook is skipped.
        if asyncio.get_running_loop().time() - self._looked_ahead_at < _OUTLOOK_SECONDS:
            await self._wakeup.wait(_OUTLOOK_SECONDS)
            return
        try:
            if await self._unpark():
                return
            ahead = await self._queue.outlook(self._targets(1), now=self._clock.now())
        except DatabaseError as error:
            await asyncio.sleep(self._outage.failed(error))
            return
        self._looked_ahead_at = asyncio.get_running_loop().time()
        await self._wakeup.wait(self._patience_for(ahead, leaving=leaving))

    def _patience_for(self, ahead: Outlook, *, leaving: bool) -> float:
        wait = self._policy.idle_poll.total_seconds()
        if leaving:
            wait = min(wait, _LAST_LOOK_SECONDS)
        if ahead.capped:
            wait = min(wait, _CAPPED_SECONDS)
        if self._claim_published:
            wait = min(wait, _PUBLISHED_SECONDS)
        if ahead.next_due_at is not None:
            due_in = (ahead.next_due_at - self._clock.now()).total_seconds()
            wait = min(wait, max(due_in, _CONTENDED_SECONDS))
        return wait

    def _targets(self, slots: int) -> list[Target]:
        lanes, others = self._lanes, self._avoided_lanes()
        if others:
            lanes = [Lane(lane) for lane in (self._kinds.lanes if lanes is None else lanes) if lane not in others]
        return self._kinds.targets(slots=slots, lanes=lanes, lane_caps=self._policy.lane_caps)
