"""Sources: how fast each may be called, at what price, and how a call may be refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NewType, Protocol, TypeVar

import msgspec

from mistnet.queue.model import JobId

SourceName = NewType("SourceName", str)
KeyLabel = NewType("KeyLabel", str)
T = TypeVar("T")

X_SOURCE = SourceName("x")
THREADS_SOURCE = SourceName("threads")


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What a source asks for its answers, in credits."""

    least: int
    """For a call, however little it finds."""

    post: int
    page: int


class Halt(StrEnum):
    """Why a source will not serve us until somebody acts or the day is over."""

    BUDGET = "budget"
    REFUSED = "refused"
    PAUSED = "paused"


class PausedBy(StrEnum):
    OPERATOR = "operator"
    SOURCE = "source"


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """One source as all workers share it. Credits count what was set aside as well as what was spent."""

    name: SourceName
    paused_at: datetime | None = None
    paused_by: PausedBy | None = None
    pause_reason: str | None = None
    failure_streak: int = 0
    opened_until: datetime | None = None
    probe_until: datetime | None = None
    last_success_at: datetime | None = None
    last_failure_at: datetime | None = None
    last_failure: str | None = None
    day: str | None = None
    day_credits: int = 0
    month_credits: int = 0
    day_cap: int | None = None
    month_cap: int | None = None


class KeyState(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a source: its own rate, its own purse. The key itself is never stored."""

    source: SourceName
    label: KeyLabel
    rate_per_minute: float | None = None
    slowdown: float = 1.0
    slowed_at: datetime | None = None
    next_at: datetime | None = None
    paused_at: datetime | None = None
    pause_reason: str | None = None
    balance: int | None = None
    balance_at: datetime | None = None
    fingerprint: str | None = None
    """Of the key that was refused under this label, until the source is resumed."""


class Meter(msgspec.Struct):
    """Adds up what the calls of one step cost."""

    credits: int = 0


class CallPurpose(msgspec.Struct, frozen=True):
    """On whose behalf a call is made, and where its cost is added up if that is wanted."""

    job_id: JobId | None = None
    account_id: int | None = None
    meter: Meter | None = None


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call: the money ledger and the provenance of what came of it."""

    source: SourceName
    key_label: KeyLabel
    endpoint: str
    at: datetime
    seconds: float
    status: int | None
    items: int
    credits: int
    job_id: JobId | None = None
    account_id: int | None = None
    error: str | None = None


class SourceStore(Protocol):
    """What all workers know of the sources together."""

    async def change(
        self,
        source: SourceName,
        label: KeyLabel,
        decide: Callable[[SourceState, KeyState], tuple[SourceState, KeyState, T]],
    ) -> T:
        """Reads both rows under lock, lets `decide` choose, writes what changed."""
        ...

    async def record(self, calls: Sequence[CallRecord]) -> None: ...

    async def another_works(self, source: SourceName, labels: Collection[KeyLabel], *, since: datetime) -> bool:
        """Whether a key besides these has been used since then and is not refused."""
        ...


class Call(Protocol):
    """One call that was let through."""

    key: str

    def settle(self, *, items: int, credits_due: int) -> None:
        """The answer was good: this is what it brought and what it costs."""
        ...


class Gate(Protocol):
    """Lets calls to one source through, or raises NotNow with the reason and the time."""

    def call(self, endpoint: str, *, most: int, purpose: CallPurpose) -> AbstractAsyncContextManager[Call]:
        """`most` is the highest price this call can have: so much is set aside before it is made."""
        ...


LATELY: Final = timedelta(minutes=10)
"""A key that took moments for calls since then, and is not refused, works."""

OTHERS_WORK_WAIT: Final = timedelta(seconds=30)
"""How long a job waits whose key is refused while another process's key works: that one takes it."""


def fingerprint(secret: str) -> str:
    """Tells keys apart and gives none away."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


def binds(key: KeyState, own: str) -> bool:
    """Whether the refusal on record is of this very key. One without a fingerprint binds every key of the label."""
    return key.paused_at is not None if key.fingerprint is None else key.fingerprint == own


def put_down(
    source: SourceState, key: KeyState, own: str, problem: str, now: datetime, *, last: bool
) -> tuple[SourceState, KeyState]:
    """The key is no good any more. With no key left the source itself is paused, until an operator acts."""
    key = msgspec.structs.replace(key, paused_at=now, pause_reason=problem, fingerprint=own)
    if last and not source.paused_at:
        source = msgspec.structs.replace(source, paused_at=now, paused_by=PausedBy.SOURCE, pause_reason=problem)
    return source, key


def left_behind(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState]:
    """For a key that was not refused: ends the pauses that belonged to others. What an operator paused stays paused.

    The fingerprint stays: the key it names is still refused, should another process have it.
    """
    if key.paused_at:
        key = msgspec.structs.replace(key, paused_at=None, pause_reason=None)
    if source.paused_at and source.paused_by is PausedBy.SOURCE:
        source = msgspec.structs.replace(source, paused_at=None, paused_by=None, pause_reason=None)
    return source, key
