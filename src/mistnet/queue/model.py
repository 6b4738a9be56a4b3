"""What a job is, and what a handler may answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Final, Generic, NewType, TypeAlias, TypeVar

import msgspec

JobId = NewType("JobId", int)
KindName = NewType("KindName", str)
Lane = NewType("Lane", str)
WorkerName = NewType("WorkerName", str)


class JobState(StrEnum):
    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYABLE = "retryable"
    FAILED = "failed"
    DEAD = "dead"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"


LIVE_STATES = (JobState.PENDING, JobState.QUEUED, JobState.RUNNING, JobState.RETRYABLE)
"""Work still to be done. A job in any of these holds its unique key."""

GAP_STATES = (JobState.FAILED, JobState.DEAD)
"""Jobs in these states failed for good. They are kept until an operator requeues or accepts them."""


class JobClass(IntEnum):
    """The strict order of work: jobs of a lower class run first whenever any is due."""

    SWEEP = 1
    WALK = 2
    HYDRATION = 3
    SUGGESTION = 4


class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job is about. Each kind has its own subclass; an unknown field is refused."""


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a handler returns to be stored. Each subclass has its writer."""


class NewJob(Write, frozen=True, kw_only=True):
    """A job to add. A key makes it unique among the live jobs of its kind.

    `reason` says why it waits until `run_at`; without one, later means another day's work.
    """

    kind: KindName
    args: Args
    key: str | None = None
    lane: Lane | None = None
    run_at: datetime | None = None
    reason: str | None = None


class Wake(Write, frozen=True, kw_only=True):
    """Jobs of this kind that wait for this reason need wait no longer."""

    kind: KindName
    reason: str


A = TypeVar("A", bound=Args)

Claim: TypeAlias = tuple[JobId, int]
"""A job's id and the fence of one claim on it."""


class Job(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """A job as its handler sees it."""

    id: JobId
    kind: KindName
    key: str | None
    lane: Lane
    args: A
    attempt: int
    run_at: datetime
    created_at: datetime

    @property
    def is_first_try(self) -> bool:
        """Whether no answer to this very step can have been lost: only then a second look agrees with the first."""
        return self.attempt == 1


SUSPECT_ATTEMPTS: Final = 2


class Lease(msgspec.Struct, frozen=True):
    """A worker's time-limited right to one job, as claimed. The fence makes late writes void."""

    id: JobId
    fence: int
    worker: WorkerName
    kind: KindName
    key: str | None
    lane: Lane
    args: str
    attempts: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    alone: bool
    lost_by: WorkerName | None = None

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what ends its workers: it lost them, or spoilt its batch, and failed again alone."""
        return self.alone and self.attempts >= SUSPECT_ATTEMPTS

    @property
    def claim(self) -> Claim:
        """Names this lease among all that its job ever had."""
        return self.id, self.fence


class Done(msgspec.Struct, frozen=True):
    """Finished: the job leaves the live table for the history."""

    writes: Sequence[Write] = ()


class Continue(msgspec.Struct, frozen=True):
    """One step is done, and the job is not: it goes to the back of its class."""

    writes: Sequence[Write] = ()
    args: Args | None = None
    run_at: datetime | None = None
    reason: str | None = None


class Awaited(msgspec.Struct, frozen=True):
    """The live job that another one waits for. When it ends, the waiting jobs become due."""

    kind: KindName
    key: str


class Snooze(msgspec.Struct, frozen=True):
    """Not now. No attempt is spent; the reason is shown where waiting jobs are listed.

    If the awaited job has ended meanwhile, this one is due at once: the wake-up came too early to reach it.
    """

    until: datetime
    reason: str
    awaits: Awaited | None = None


class Retry(msgspec.Struct, frozen=True):
    """A transient fault: an attempt is spent, and the job waits longer each time.

    `alone` keeps the job out of batches from now on, so that it cannot spoil them. `within` is the longest wait that
    makes sense, however often it failed. `writes` are records of the fault itself.
    """

    error: str
    alone: bool = False
    within: timedelta | None = None
    writes: Sequence[Write] = ()


class Fail(msgspec.Struct, frozen=True):
    """A permanent fault: the job is kept with its error and not retried until an operator requeues it."""

    error: str
    writes: Sequence[Write] = ()


Outcome: TypeAlias = Done | Continue | Snooze | Retry | Fail


class KindRules(msgspec.Struct, frozen=True, kw_only=True):
    """How the queue treats jobs of one kind."""

    name: KindName
    job_class: JobClass
    lanes: Sequence[Lane]
    batch: int = 1
    max_attempts: int = 5
    running_cap: int | None = None
    live_cap: int | None = None


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """Result of adding jobs. Parked ones count as created."""

    created: int = 0
    duplicates: int = 0
    parked: int = 0


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """The next state of one leased job, and the writes that are stored with it."""

    lease: Lease
    state: JobState
    run_at: datetime
    attempts: int
    args: str | None = None
    error: str | None = None
    reason: str | None = None
    alone: bool = False
    awaits: Awaited | None = None
    writes: Sequence[Write] = ()


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One kind on one lane that a worker may claim from, and how much of it."""

    kind: KindName
    lane: Lane
    job_class: int
    take: int
    kind_cap: int | None = None
    lane_cap: int | None = None


class LostLease(msgspec.Struct, frozen=True, kw_only=True):
    """An expired lease: its worker, and the state of the job now."""

    id: JobId
    kind: KindName
    lane: Lane
    attempts: int
    lost_by: WorkerName
    state: JobState


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """When the next job of some targets is due, and whether a cap on running jobs holds back one that is due now."""

    next_due_at: datetime | None
    capped: bool


class WorkerCard(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker appears in the list of workers."""

    name: WorkerName
    host: str
    pid: int
    concurrency: int
    lanes: Sequence[str]
    version: str
    running: int = 0
    draining: bool = False


class HeldLeases(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs one worker holds. `seen_at` is None if the worker is no longer listed."""

    worker: WorkerName
    jobs: int
    seen_at: datetime | None
    lease_until: datetime

    def is_gone(self, *, seen_before: datetime) -> bool:
        return self.seen_at is None or self.seen_at < seen_before


class RemainingWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work that is left and cannot be started now: jobs leased to other workers, and jobs that are not due."""

    leases: Sequence[HeldLeases] = ()
    jobs: int = 0
    next_due_at: datetime | None = None
    reason: str | None = None


class DueMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A job's id on its way to the broker. The fence shows whether the job changed since."""

    job_id: JobId
    fence: int
    lane: Lane
    again: bool = False


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A failed or dead job and its last error."""

    job_id: JobId
    fence: int
    lane: Lane
    kind: KindName
    key: str | None
    state: JobState
    attempts: int
    error: str | None


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker holds for one lane: undelivered messages, consumers, dead letters."""

    ready: int
    consumers: int
    dead: int


class ClaimedById(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a claim by ids: leases, jobs held back by a cap, and jobs of kinds that this worker does not know."""

    leases: Sequence[Lease] = ()
    capped: Collection[JobId] = ()
    foreign: Collection[JobId] = ()
