"""What the engine needs of the outside: a clock, a queue, a bell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from mistnet.domain.jobs import Claim, KindName, Lease, LostLease, Settlement, Target, WorkerName


class Clock(Protocol):
    """Time as a value. In production it is the database's, so that no machine's own clock matters."""

    def now(self) -> datetime: ...


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """When the next job of the wanted targets falls due, and whether a concurrency cap hides one."""

    next_due_at: datetime | None
    capped: bool


class WorkerCard(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker introduces itself to the others."""

    name: WorkerName
    host: str
    pid: int
    concurrency: int
    lanes: Sequence[str]
    version: str
    running: int = 0
    draining: bool = False


class Queue(Protocol):
    """The durable queue. Each call is one transaction; each change of a job is guarded by its fence."""

    async def claim(
        self,
        *,
        worker: WorkerName,
        targets: Sequence[Target],
        room: int,
        lease: timedelta,
        now: datetime,
        aged_before: datetime | None,
    ) -> Sequence[Lease]: ...

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime) -> Collection[Claim]: ...

    async def extend(self, leases: Sequence[Lease], *, until: datetime) -> Collection[Claim]: ...

    async def release(self, leases: Sequence[Lease]) -> None: ...

    async def outlook(self, targets: Sequence[Target], *, now: datetime) -> Outlook: ...


class Upkeep(Protocol):
    """The chores around the queue that any worker may do for all."""

    async def correct_clock(self) -> timedelta: ...

    async def reclaim(self, *, now: datetime, limit: int) -> Sequence[LostLease]: ...

    async def unpark(self, caps: Mapping[KindName, int]) -> int: ...

    async def work_left(self, kinds: Collection[KindName], lanes: Collection[str], *, now: datetime) -> bool: ...

    async def prune(self, *, before: datetime, limit: int) -> int: ...

    async def tidy(self) -> None: ...

    async def sign_in(self, card: WorkerCard, *, now: datetime) -> None: ...

    async def sign_out(self, worker: WorkerName) -> None: ...


class Bell(Protocol):
    """Rings when new work may be there. Silence proves nothing: polling is the fallback."""

    async def wait(self, seconds: float) -> None: ...

    def ring(self) -> None: ...
