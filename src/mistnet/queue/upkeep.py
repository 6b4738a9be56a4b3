"""What a worker does beside its jobs: renew its leases, and keep the queue in order for all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.journal import Journal
from mistnet.queue.kinds import RENEW_AGAIN
from mistnet.queue.model import JobId, Lease, WorkerCard
from mistnet.queue.ports import Tools

_SLICE: Final = 1_000
_VACUUM_AFTER: Final = 20_000
_VACUUM_CHECK_SECONDS: Final = 1.0


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
