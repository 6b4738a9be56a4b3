"""What the engine needs of the outside: a clock, a queue, wake-ups, and a broker where one carries job ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from mistnet.queue.model import Claim, JobId, JobState, KindName, Lane, Lease, LostLease, Settlement, Target, WorkerName


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
        lost_before: datetime | None = None,
    ) -> Sequence[Lease]:
        """Jobs that are due, and jobs whose lease ran out before `lost_before` (default: `now`)."""
        ...

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime) -> Collection[Claim]: ...

    async def extend(self, leases: Sequence[Lease], *, until: datetime) -> Collection[Claim]: ...

    async def release(self, leases: Sequence[Lease]) -> None: ...

    async def outlook(self, targets: Sequence[Target], *, now: datetime) -> Outlook: ...


class HeldLeases(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs one worker holds. `seen_at` None: it has signed out, or was forgotten."""

    worker: WorkerName
    jobs: int
    seen_at: datetime | None
    lease_until: datetime

    def is_gone(self, *, seen_before: datetime) -> bool:
        return self.seen_at is None or self.seen_at < seen_before


class RemainingWork(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to do and cannot be begun now: jobs in others' hands, and jobs whose time has not come."""

    leases: Sequence[HeldLeases] = ()
    jobs: int = 0
    next_due_at: datetime | None = None
    reason: str | None = None


class Upkeep(Protocol):
    """The chores around the queue that any worker may do for all."""

    async def correct_clock(self) -> timedelta: ...

    async def reclaim(
        self, *, now: datetime, limit: int, lost_before: datetime | None = None
    ) -> Sequence[LostLease]: ...

    async def unpark(self, caps: Mapping[KindName, int]) -> int: ...

    async def work_left(self, kinds: Collection[KindName], lanes: Collection[str], *, now: datetime) -> bool: ...

    async def awaited(self, kinds: Collection[KindName], lanes: Collection[str], *, now: datetime) -> RemainingWork: ...

    async def prune(self, *, before: datetime, limit: int) -> int: ...

    async def tidy(self) -> None: ...

    async def sign_in(self, card: WorkerCard, *, now: datetime) -> None: ...

    async def sign_out(self, worker: WorkerName) -> None: ...


class Wakeups(Protocol):
    """Rings when new work may be there. Silence proves nothing: polling is the fallback."""

    async def wait(self, seconds: float) -> None: ...

    def ring(self) -> None: ...


class JobFeed(Protocol):
    """Where a worker's leases come from: the table itself, or a broker that names jobs."""

    def opened(self) -> AbstractAsyncContextManager[object]:
        """For as long as leases are wanted or held."""
        ...

    async def take(self, slots: int) -> Sequence[Lease]:
        """Leases for so many free slots; none if there is nothing, or no way to ask."""
        ...

    def ring(self) -> None:
        """Ends a wait."""
        ...

    async def wait(self, *, leaving: bool) -> None:
        """Until there may be something to take. Somebody who leaves when nothing is left looks more often."""
        ...

    def ended(self, lease: Lease) -> None:
        """What became of this lease is written, or somebody else's to write."""
        ...

    async def stop(self) -> None:
        """No more is wanted: what was not taken goes back."""
        ...


class DueMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A job's id on its way to the broker. The fence tells whether the job has moved since."""

    job_id: JobId
    fence: int
    lane: Lane
    again: bool = False


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ended without its result, and what went wrong."""

    job_id: JobId
    fence: int
    lane: Lane
    kind: KindName
    key: str | None
    state: JobState
    attempts: int
    error: str | None


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker holds for one lane: messages nobody has in hand, consumers, dead letters."""

    ready: int
    consumers: int
    dead: int


class Broker(Protocol):
    """Carries job ids to workers. It only gives hints: the database alone knows what is to be done."""

    async def declare(self, lanes: Collection[Lane]) -> None: ...

    async def publish(self, letters: Sequence[DueMessage]) -> Collection[JobId]:
        """Those the broker has confirmed. One that was returned or never confirmed is not published."""
        ...

    async def bury(self, letters: Sequence[DeadLetter]) -> Collection[JobId]:
        """Puts dead letters where operators look for them; returns those the broker has confirmed."""
        ...

    async def depths(self, lanes: Collection[Lane]) -> Mapping[Lane, Depth]: ...


class BrokerDelivery(Protocol):
    """One message in hand. It goes back to the queue by itself if its connection is lost."""

    @property
    def lane(self) -> Lane: ...

    @property
    def job_id(self) -> JobId: ...

    async def accept(self) -> None:
        """It has served its purpose."""
        ...

    async def give_back(self) -> None:
        """Somebody else shall have it."""
        ...


class MessageConsumer(Protocol):
    """Messages as they come in, over a connection that is made anew whenever it breaks."""

    def opened(self) -> AbstractAsyncContextManager[object]: ...

    @property
    def waiting(self) -> int:
        """How many have arrived and were not taken out."""
        ...

    def arrived(self, limit: int) -> Sequence[BrokerDelivery]:
        """Takes out so many at most, those of the most important lane first."""
        ...

    def ring(self) -> None: ...

    async def wait(self, seconds: float) -> None:
        """Until something arrives, or so long."""
        ...

    async def stop(self) -> None:
        """Takes in no more; what was not taken out goes back."""
        ...


class ClaimedById(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a claim by ids: leases, jobs to ask for again shortly, jobs of kinds this worker does not know."""

    leases: Sequence[Lease] = ()
    capped: Collection[JobId] = ()
    foreign: Collection[JobId] = ()


class Dispatch(Protocol):
    """The queue as a dispatcher and its consumers see it. Each call is one transaction with its own guard."""

    async def to_publish(
        self, targets: Sequence[Target], *, window: int, limit: int, now: datetime
    ) -> Sequence[DueMessage]: ...

    async def mark_queued(self, letters: Sequence[DueMessage], *, now: datetime) -> int: ...

    async def queued(self, lanes: Collection[Lane], *, before: datetime) -> Mapping[Lane, tuple[int, int]]:
        """How many jobs of each lane are queued, and how many of them since before then."""
        ...

    async def unqueue(self, lane: Lane, *, before: datetime) -> int: ...

    async def unburied(self, targets: Sequence[Target], *, limit: int) -> Sequence[DeadLetter]: ...

    async def mark_buried(self, letters: Sequence[DeadLetter], *, now: datetime) -> None: ...

    async def forget_letters(self) -> None: ...

    async def claim_by_ids(
        self,
        ids: Sequence[JobId],
        *,
        worker: WorkerName,
        targets: Sequence[Target],
        lease: timedelta,
        now: datetime,
        lost_before: datetime | None = None,
    ) -> ClaimedById: ...
