"""The upkeep any worker does for all: reclaim, unpark, prune, report its presence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import Outage
from mistnet.queue.kinds import KindRegistry, Policy
from mistnet.queue.model import LostLease
from mistnet.queue.ports import Upkeep, WorkerCard

_SLICE: Final = 1_000
_TIDY_AFTER: Final = 20_000
_TIDY_LOOK_SECONDS: Final = 1.0


class UpkeepObserver(Protocol):
    """Told of what the chores found."""

    def reclaimed(self, jobs: Sequence[LostLease]) -> None: ...

    def clock_corrected(self, drift_seconds: float) -> None: ...


class UpkeepLoop:
    """One per worker. A chore that fails is tried again at its next time."""

    def __init__(
        self,
        *,
        upkeep: Upkeep,
        clock: Clock,
        policy: Policy,
        kinds: KindRegistry,
        card: Callable[[], WorkerCard],
        witness: UpkeepObserver,
        wake: Callable[[], None],
        outage: Outage,
        chores: Sequence[Callable[[], Awaitable[int]]] = (),
    ) -> None:
        self._upkeep = upkeep
        self._clock = clock
        self._policy = policy
        self._kinds = kinds
        self._card = card
        self._witness = witness
        self._wake = wake
        self._outage = outage
        self._chores = chores
        self._settled_since = 0

    def count_settled(self) -> None:
        self._settled_since += 1

    async def run(self) -> None:
        async with asyncio.TaskGroup() as chores:
            chores.create_task(self._every(self._policy.heartbeat.total_seconds(), self.sign_in))
            chores.create_task(self._every(self._policy.reclaim.total_seconds(), self.look_after))
            chores.create_task(self._every(_TIDY_LOOK_SECONDS, self._tidy))

    async def _every(self, seconds: float, chore: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await chore()
            except DatabaseError as error:
                self._outage.failed(error)
            await asyncio.sleep(seconds)

    async def sign_in(self) -> None:
        try:
            await self._upkeep.sign_in(self._card(), now=self._clock.now())
        except DatabaseError as error:
            self._outage.failed(error, renewing=True)
        else:
            self._outage.over()

    async def look_after(self) -> None:
        """The reclaimer's look: the clock, silent workers, parked work, what others want looked after, old history."""
        self._witness.clock_corrected((await self._upkeep.correct_clock()).total_seconds())
        now = self._clock.now()
        lost_before = self._outage.lost_before(now)
        while lost := await self._upkeep.reclaim(now=now, limit=_SLICE, lost_before=lost_before):
            self._witness.reclaimed(lost)
            self._wake()
        if await self.unpark():
            self._wake()
        for chore in self._chores:
            if await chore():
                self._wake()
        if self._policy.retention is not None:
            while await self._upkeep.prune(before=now - self._policy.retention, limit=_SLICE) == _SLICE:
                pass

    async def unpark(self) -> int:
        caps = self._kinds.live_caps
        return await self._upkeep.unpark(caps) if caps else 0

    async def _tidy(self) -> None:
        if self._settled_since >= _TIDY_AFTER:
            self._settled_since = 0
            await self._upkeep.tidy()
