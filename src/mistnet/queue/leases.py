"""Renews the leases of a worker's jobs while they run, and notices when one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.kinds import RENEW_AGAIN, Policy
from mistnet.queue.model import JobId, Lease
from mistnet.queue.ports import Queue


class LeaseKeeper:
    """Every lease from claim to settlement. A beat lengthens them all in one statement."""

    def __init__(
        self,
        *,
        queue: Queue,
        clock: Clock,
        policy: Policy,
        outage: Outage,
        on_lost: Callable[[Collection[Lease]], None],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._policy = policy
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
        if self._held.get(lease.id) is lease:
            del self._held[lease.id]

    async def run(self) -> None:
        wait = self._policy.heartbeat.total_seconds()
        while True:
            await asyncio.sleep(wait)
            answered = await self.beat()
            wait = self._policy.heartbeat.total_seconds() if answered else min(wait, RENEW_AGAIN.total_seconds())

    async def beat(self) -> bool:
        """One heartbeat; returns whether the database answered. If not, nothing is lost yet: the next may reach it."""
        leases = self.held
        if not leases:
            return True
        try:
            ours = await self._queue.extend(leases, until=self._clock.now() + self._policy.lease)
        except DatabaseError as error:
            self._outage.failed(error, renewing=True)
            return False
        self._outage.over(wrote=bool(ours))
        lost = [lease for lease in leases if lease.claim not in ours and self._held.get(lease.id) is lease]
        if lost:
            for lease in lost:
                self.drop(lease)
            self._on_lost(lost)
        return True
