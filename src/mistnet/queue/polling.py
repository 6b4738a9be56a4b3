"""Lease jobs straight from the table, the most urgent first, and decide how long to wait when none is due."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.model import Lane, Lease, Target, WorkerName
from mistnet.queue.ports import Tools

# A due job that could not be claimed is locked by another worker's claim, which is over in a moment.
_CONTENDED_SECONDS: Final = 0.05
# Another worker's job makes room under a cap when it ends, and no wake-up may reach this process.
_CAPPED_SECONDS: Final = 1.0
_LAST_LOOK_SECONDS: Final = 0.5
_OUTLOOK_SECONDS: Final = 0.1
# Another process may publish a job before we see it, and that sends no wake-up.
_PUBLISHED_SECONDS: Final = 1.0

ClaimPublished: TypeAlias = Callable[[int], Awaitable[Sequence[Lease]]]
"""Leases up to this many jobs that were published to the broker."""


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
