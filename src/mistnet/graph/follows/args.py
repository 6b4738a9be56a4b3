"""What a follow sync is about and how far it is, and how one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from mistnet.graph.follows.model import Side, Sync, SyncMode, SyncTally
from mistnet.queue.model import Args, Job, KindName, NewJob
from mistnet.social.ingests.model import IngestBegun
from mistnet.social.model import UserId, X

FOLLOW_SYNC: Final = KindName("follow_sync")
SECOND_LOOK: Final = "looks a second time before it believes that somebody is gone"


class FollowPhase(StrEnum):
    """What the next step does: look at the subject's profile, read a page, look at the profile again and judge, find
    out why a list is short, look at those whom two lists lack, or ask for one of them."""

    BEGIN = "begin"
    PAGES = "pages"
    JUDGE = "judge"
    EXPLAIN = "explain"
    DOUBTS = "doubts"
    CHECKS = "checks"


class FollowSyncArgs(Args, frozen=True):
    """`confirming` is a second look at what another sync missed. Counts are the profile's own.

    `cursors` are the latest ones followed; `known_pages` how many pages in a row held nothing new. `explained` are
    missing because they cannot be shown; None: that was not asked yet. `accounted` says that the list shows everybody
    the profile counts; `checks` are to be asked for one by one, `unsure` were left. `spent` of `max_credits` are.
    """

    user_id: UserId
    side: Side
    mode: SyncMode
    asked_by: str
    confirming: bool = False
    phase: FollowPhase = FollowPhase.BEGIN
    begun_at: datetime | None = None
    profiled_at: datetime | None = None
    handle: str = ""
    at_start: int | None = None
    cursor: str | None = None
    cursors: Sequence[str] = ()
    known_pages: int = 0
    tally: SyncTally = SyncTally()
    explained: int | None = None
    accounted: bool = False
    seen: int = 0
    after: UserId | None = None
    checks: Sequence[UserId] = ()
    unsure: int = 0
    max_credits: int | None = None
    spent: int = 0


def follow_sync(
    user_id: UserId,
    side: Side,
    *,
    asked_by: str,
    mode: SyncMode | Literal["full", "incremental"] = SyncMode.INCREMENTAL,
    max_credits: int | None = None,
) -> NewJob:
    """One live sync per user and side: whoever asks meanwhile shares it. An incremental one needs a full one before
    it, and becomes that where there is none."""
    args = FollowSyncArgs(user_id=user_id, side=side, mode=SyncMode(mode), asked_by=asked_by, max_credits=max_credits)
    return NewJob(kind=FOLLOW_SYNC, key=key_of(user_id, side), args=args)


def confirming_sync(at: FollowSyncArgs, run_at: datetime) -> NewJob:
    """The same list once more, whole, after a pause, with the same cap and what is spent of it."""
    args = FollowSyncArgs(
        user_id=at.user_id,
        side=at.side,
        mode=SyncMode.FULL,
        asked_by=at.asked_by,
        confirming=True,
        max_credits=at.max_credits,
        spent=at.spent,
    )
    return NewJob(kind=FOLLOW_SYNC, key=key_of(at.user_id, at.side), args=args, run_at=run_at, reason=SECOND_LOOK)


def key_of(user_id: UserId, side: Side) -> str:
    return f"{side}:{user_id}"


def begun(job: Job[FollowSyncArgs]) -> IngestBegun:
    at = job.args
    return IngestBegun(
        platform=X,
        kind=at.side.ingest_kind,
        job_id=job.id,
        asked_by=at.asked_by,
        subject_id=at.user_id,
        mode=at.mode,
    )


def sync_of(job: Job[FollowSyncArgs]) -> Sync:
    """Which edges this job is about."""
    at = job.args
    since = at.begun_at or job.created_at
    return Sync(platform=X, side=at.side, subject_id=at.user_id, job_id=job.id, since=since)
