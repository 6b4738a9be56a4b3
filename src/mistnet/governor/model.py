"""Sources, keys and calls: values and rules of the governor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
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
    """What a source charges for its answers, in credits."""

    least: int
    """For a call, even if it finds nothing."""

    post: int
    page: int


class Halt(StrEnum):
    """Why a source will not serve us until an operator acts or the day is over."""

    BUDGET = "budget"
    REFUSED = "refused"
    PAUSED = "paused"


class PausedBy(StrEnum):
    OPERATOR = "operator"
    SOURCE = "source"


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """The row of one source that all workers share. Credits include what is reserved."""

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
    """One key of a source, with its own rate and balance. The key itself is never stored."""

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
    """The fingerprint of the refused key with this label, until the source is resumed."""


class Meter(msgspec.Struct):
    """Adds up what the calls of one step cost."""

    credits: int = 0


class CallPurpose(msgspec.Struct, frozen=True):
    """The job and account that a call is made for, and the meter that adds up its cost."""

    job_id: JobId | None = None
    account_id: int | None = None
    meter: Meter | None = None


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call: a row of the ledger."""

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
    """The rows of sources and keys that all workers share."""

    async def change(
        self,
        source: SourceName,
        label: KeyLabel,
        decide: Callable[[SourceState, KeyState], tuple[SourceState, KeyState, T]],
    ) -> T:
        """Lock both rows, let `decide` compute the new ones, write what changed."""
        ...

    async def record(self, calls: Sequence[CallRecord]) -> None: ...

    async def another_works(self, source: SourceName, labels: Collection[KeyLabel], *, since: datetime) -> bool:
        """Whether another key than these was used since then and is not refused."""
        ...


class Call(Protocol):
    """One admitted call."""

    key: str

    def settle(self, *, items: int, credits_due: int) -> None:
        """Report a good answer: how many items it has and what it costs."""
        ...


class Gate(Protocol):
    """Admits calls to one source, or raises NotNow with the reason and the time."""

    def call(self, endpoint: str, *, most: int, purpose: CallPurpose) -> AbstractAsyncContextManager[Call]:
        """`most` is the highest price of this call: it is reserved before the call is made."""
        ...


LATELY: Final = timedelta(minutes=10)
"""A key that took slots within this time and is not refused works."""

OTHERS_WORK_WAIT: Final = timedelta(seconds=30)
"""How long a job waits if its key is refused and another process's key works: that process takes the job."""

PROBE: Final = timedelta(seconds=60)
"""How long a probe of the circuit breaker counts as alive without an extension."""

_ERROR_CHARACTERS: Final = 500


def day_start(now: datetime) -> datetime:
    """When that day (UTC) began."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def day_of(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()


def on_day(source: SourceState, now: datetime) -> SourceState:
    """Reset the credits of the day and the month when a new one begins."""
    today = day_of(now)
    if source.day == today:
        return source
    same_month = source.day is not None and source.day[:7] == today[:7]
    return msgspec.structs.replace(
        source, day=today, day_credits=0, month_credits=source.month_credits if same_month else 0
    )


def fingerprint(secret: str) -> str:
    """Identifies a key without revealing it."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


def is_refused(key: KeyState, own: str) -> bool:
    """Whether the stored refusal applies to this key. One without a fingerprint applies to every key of the label."""
    return key.paused_at is not None if key.fingerprint is None else key.fingerprint == own


def refuse_key(
    source: SourceState, key: KeyState, own: str, problem: str, now: datetime, *, last: bool
) -> tuple[SourceState, KeyState]:
    """Pause the key. If it was the last one, pause the source until an operator acts."""
    key = msgspec.structs.replace(key, paused_at=now, pause_reason=problem, fingerprint=own)
    if last and not source.paused_at:
        source = msgspec.structs.replace(source, paused_at=now, paused_by=PausedBy.SOURCE, pause_reason=problem)
    return source, key


def end_foreign_pauses(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState]:
    """End the pauses that other keys caused, for a key that is not refused. A pause by an operator stays.

    The fingerprint stays: the key that it identifies is still refused, and another process may have it.
    """
    if key.paused_at:
        key = msgspec.structs.replace(key, paused_at=None, pause_reason=None)
    if source.paused_at and source.paused_by is PausedBy.SOURCE:
        source = msgspec.structs.replace(source, paused_at=None, paused_by=None, pause_reason=None)
    return source, key


# The circuit breaker. Closed, calls go through and failures in a row are counted. Open (`opened_until` is ahead), none
# goes through. Half-open (it has passed), one call at a time tests the source: the probe, identified by its
# `probe_until`. Only the probe closes the breaker or opens it again; calls admitted before it opened may end at any
# time and decide nothing.


def is_open(source: SourceState, now: datetime) -> bool:
    return source.opened_until is not None and source.opened_until > now


def is_half_open(source: SourceState, now: datetime) -> bool:
    return source.opened_until is not None and source.opened_until <= now


def is_probed(source: SourceState, now: datetime) -> bool:
    return source.probe_until is not None and source.probe_until > now


def record_failure(
    source: SourceState, *, probe: datetime | None, problem: str, now: datetime, failures: int, cooldown: timedelta
) -> SourceState:
    """A failed call. A probe opens the breaker again; another call opens it only if it is closed."""
    streak = source.failure_streak + 1
    noted = msgspec.structs.replace(
        source, failure_streak=streak, last_failure_at=now, last_failure=problem[:_ERROR_CHARACTERS]
    )
    if _is_own(source, probe) or (source.opened_until is None and streak >= failures):
        return msgspec.structs.replace(
            noted, opened_until=now + cooldown, probe_until=None, pause_reason=_reason_of_pause(source)
        )
    return noted


def record_success(source: SourceState, *, probe: datetime | None) -> SourceState:
    """A successful call. A probe closes the breaker; another call resets the count of a closed one."""
    if not _is_own(source, probe) and source.opened_until is not None:
        return source
    return msgspec.structs.replace(
        source, failure_streak=0, opened_until=None, probe_until=None, pause_reason=_reason_of_pause(source)
    )


def release_probe(source: SourceState, *, probe: datetime | None) -> SourceState:
    """A probe without a result, such as a cancelled one: the next call may be the probe."""
    return msgspec.structs.replace(source, probe_until=None) if _is_own(source, probe) else source


def extend_probe(source: SourceState, *, probe: datetime, now: datetime) -> tuple[SourceState, datetime]:
    """Extend a slow probe, so that no second one starts. Return its new `probe_until`."""
    if not _is_own(source, probe):
        return source, probe
    return msgspec.structs.replace(source, probe_until=now + PROBE), now + PROBE


def _reason_of_pause(source: SourceState) -> str | None:
    """The reason of the pause, if there is one. The reason of an opened breaker is dropped."""
    return source.pause_reason if source.paused_at else None


def _is_own(source: SourceState, probe: datetime | None) -> bool:
    return probe is not None and source.probe_until == probe
