"""What the alert rules look at: the state of things at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from mistnet.domain.jobs import KindName
from mistnet.domain.social import UserId
from mistnet.domain.sources import KeyState, SourceState


class SourceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One source with the caps that count for it, and since when nothing but failures, or nothing but 429, came."""

    state: SourceState
    keys: Sequence[KeyState] = ()
    failing_since: datetime | None = None
    limited_since: datetime | None = None
    day_cap: int | None = None
    month_cap: int | None = None


class DeadJobs(msgspec.Struct, frozen=True, kw_only=True):
    kind: KindName
    jobs: int
    since: datetime
    error: str | None


class DueWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work on one lane that is due and that nobody has begun."""

    lane: str
    jobs: int
    since: datetime


class WorkerReading(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was seen lately."""

    name: str
    lanes: Sequence[str]
    running: int
    concurrency: int
    draining: bool


class LateDeliveries(msgspec.Struct, frozen=True, kw_only=True):
    """Events that wait for one subscriber. Unknown: nobody is configured under that name."""

    subscriber: str
    events: int
    since: datetime
    known: bool
    error: str | None = None


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the standing rules look at, at one moment."""

    at: datetime
    sources: Sequence[SourceReading] = ()
    dead: Sequence[DeadJobs] = ()
    due: Sequence[DueWork] = ()
    workers: Sequence[WorkerReading] = ()
    undelivered: Sequence[LateDeliveries] = ()


class SuspectAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account whose history was swept to its end with far fewer posts than its profile counts."""

    user_id: UserId
    handle: str
    stored: int
    counted: int
    since: datetime
    next_look_at: datetime | None


class QuietAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account whose newest post is some time ago, as a later look proved, and how it used to write."""

    user_id: UserId
    handle: str
    tracked_at: datetime
    newest_at: datetime
    looked_at: datetime
    gaps: Sequence[timedelta]
