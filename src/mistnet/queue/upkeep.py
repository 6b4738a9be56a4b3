"""What a worker does beside its jobs: renew its leases, and keep the queue in order for all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.journal import Journal
from mistnet.queue.kinds import RENEW_AGAIN, KindRegistry, Policy
from mistnet.queue.model import JobId, Lease, WorkerCard

if TYPE_CHECKING:
    from mistnet.queue.store.claims import JobQueue
    from mistnet.queue.store.upkeep import StoreUpkeep

_SLICE: Final = 1_000
_VACUUM_AFTER: Final = 20_000
_VACUUM_CHECK_SECONDS: Final = 1.0


class UpkeepLoop:
    """Upkeep by one worker. A task that fails runs again at its next time."""

    def __init__(
        self,
        *,
        upkeep: StoreUpkeep,
        clock: Clock,
        policy: Policy,
        kinds: KindRegistry,
        card: Callable[[], WorkerCard],
        journal: Journal,
        wake: Callable[[], None],
        outage: Outage,
        tasks: Sequence[Callable[[], Awaitable[int]]] = (),
    ) -> None:
        self._upkeep = upkeep
        self._clock = clock
        self._policy = policy
        self._kinds = kinds
        self._card = card
        self._journal = journal
        self._wake = wake
        self._outage = outage
        self._tasks = tasks
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
            await self._upkeep.sign_in(self._card(), now=self._clock.now())
        except DatabaseError as error:
            self._outage.failed(error, renewing=True)
        else:
            self._outage.over()

    async def look_after(self) -> None:
        """Correct the clock, reclaim expired leases, let parked jobs in, run the features' tasks, prune history."""
        self._journal.clock_corrected((await self._upkeep.correct_clock()).total_seconds())
        now = self._clock.now()
        lost_before = self._outage.lost_before(now)
        while lost := await self._upkeep.reclaim(now=now, limit=_SLICE, lost_before=lost_before):
            self._journal.reclaimed(lost)
            self._wake()
        if await self.unpark():
            self._wake()
        for task in self._tasks:
            if await task():
                self._wake()
        if self._policy.retention is not None:
            while await self._upkeep.prune(before=now - self._policy.retention, limit=_SLICE) == _SLICE:
                pass

    async def unpark(self) -> int:
        caps = self._kinds.live_caps
        return await self._upkeep.unpark(caps) if caps else 0

    async def _vacuum(self) -> None:
        # The queue leaves dead rows faster than PostgreSQL's autovacuum removes them, and claims read past each.
        if self._settled_since_vacuum >= _VACUUM_AFTER:
            self._settled_since_vacuum = 0
            await self._upkeep.vacuum()


class LeaseKeeper:
    """The leases of this worker from claim to settlement. One statement renews them all."""

    def __init__(
        self,
        *,
        queue: JobQueue,
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
        # Not by id alone: this worker may have lost the job and claimed it again under a newer fence.
        if self.holds(lease):
            del self._held[lease.id]

    async def run(self) -> None:
        wait = self._policy.heartbeat.total_seconds()
        while True:
            await asyncio.sleep(wait)
            answered = await self.beat()
            wait = self._policy.heartbeat.total_seconds() if answered else min(wait, RENEW_AGAIN.total_seconds())

    async def beat(self) -> bool:
        """Renew all leases. Return whether the database answered: if it did not, none is lost yet."""
        leases = self.held
        if not leases:
            return True
        try:
            ours = await self._queue.extend(leases, until=self._clock.now() + self._policy.lease)
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
