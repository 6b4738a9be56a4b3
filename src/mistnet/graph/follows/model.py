"""Follow edges: the job that syncs one of a user's two lists, and when its result can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, Protocol

import msgspec

from mistnet.governor.model import CallPurpose
from mistnet.kit.text import are, counted
from mistnet.queue.model import Args, Job, JobId, KindName, NewJob, Write
from mistnet.social.ingests import IngestBegun, IngestId, IngestKind
from mistnet.social.model import Gathered, Platform, User, UserId, UserPage, X

FOLLOW_SYNC: Final = KindName("follow_sync")
SECOND_SYNC: Final = "runs a second time, to confirm who is missing"

PAGE_SIZE: Final = 200
"""A full page costs a third of what the same users cost on small ones."""

PROFILE_HOLDS: Final = timedelta(hours=1)
"""Handles can change owners: after this long the profile is read again before it is used in a request."""

SLACK: Final = 10
TOLERANCE: Final = 0.1
"""How far a list may differ from its profile's count: the larger of the two."""

FEWEST_CHECKS, MOST_CHECKS, SEEN_PER_CHECK = 20, 200, 2_000


class Side(StrEnum):
    """One of a user's two lists."""

    FOLLOWERS = "followers"
    FOLLOWINGS = "followings"

    @property
    def opposite(self) -> Side:
        """The other user's list that contains the same edge."""
        return Side.FOLLOWINGS if self is Side.FOLLOWERS else Side.FOLLOWERS

    @property
    def ingest_kind(self) -> IngestKind:
        return IngestKind.FOLLOWERS_SYNC if self is Side.FOLLOWERS else IngestKind.FOLLOWINGS_SYNC

    def count_of(self, user: User) -> int | None:
        """The length of this list according to the user's profile."""
        return user.followers_count if self is Side.FOLLOWERS else user.following_count


class SyncMode(StrEnum):
    """The whole list, or its newest part down to edges that are already stored."""

    FULL = "full"
    INCREMENTAL = "incremental"


class FollowKind(StrEnum):
    FOLLOWED = "followed"
    UNFOLLOWED = "unfollowed"


class Cause(StrEnum):
    """How a change is known: a list or a webhook showed it, or the reason why a user is no longer on a list."""

    SEEN = "seen"
    PUSHED = "pushed"
    UNFOLLOWED = "unfollowed"
    SUSPENDED = "suspended"
    VANISHED = "vanished"


class FollowLine(msgspec.Struct, frozen=True, kw_only=True):
    """One edge as seen from one of its ends: the user at the other end. `doubted`: the last full sync missed it."""

    user_id: UserId
    handle: str | None
    name: str | None
    first_seen_at: datetime
    last_seen_at: datetime
    doubted: bool
    ended_at: datetime | None


class FollowChange(msgspec.Struct, frozen=True, kw_only=True):
    """An edge that began or ended. `at` is when mistnet noticed, which may be long after it happened."""

    id: int
    follower_id: UserId
    follower_handle: str | None
    followed_id: UserId
    followed_handle: str | None
    kind: FollowKind
    cause: Cause
    at: datetime
    ingest_id: IngestId | None


class FollowsSeen(Write, frozen=True, kw_only=True):
    """These users are on one list of the subject now. All must be stored, or nothing is written.

    The ingest is `ingest_id`, or else the open one of the job.
    """

    platform: Platform
    side: Side
    subject_id: UserId
    ids: Sequence[UserId]
    job_id: JobId | None = None
    ingest_id: IngestId | None = None
    cause: Cause = Cause.SEEN


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """The list that a job syncs. Edges seen at or after `since` count as seen by it."""

    platform: Platform
    side: Side
    subject_id: UserId
    job_id: JobId
    since: datetime


class FollowsEnded(Sync, Write, frozen=True, kw_only=True):
    """These users are no longer on the list, for this cause. An edge seen since the sync began is kept."""

    ids: Sequence[UserId]
    cause: Cause


class SyncEnded(Sync, Write, frozen=True, kw_only=True):
    """A complete, plausible sync is over. Edges that it did not see are doubted from now on."""


class BelievedSync(msgspec.Struct, frozen=True, kw_only=True):
    """The last plausible sync that reached the end of the list."""

    ingest_id: IngestId
    started_at: datetime
    finished_at: datetime


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the first user follows the second, and the reverse."""

    following: bool
    followed_by: bool


class FollowSource(Protocol):
    """What follow syncs read from X. Lists are requested by handle and come newest follow first."""

    async def users(self, ids: Sequence[UserId], *, purpose: CallPurpose) -> Gathered: ...

    async def followers(self, handle: str, *, size: int, cursor: str | None, purpose: CallPurpose) -> UserPage: ...

    async def followings(self, handle: str, *, size: int, cursor: str | None, purpose: CallPurpose) -> UserPage: ...

    async def relation(self, source: str, target: str, *, purpose: CallPurpose) -> Relation | None:
        """None: one of the two does not exist."""
        ...


class SyncTally(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the pages of a sync. `listed` includes duplicates; `short` counts pages that were less than half
    full although more followed."""

    pages: int = 0
    listed: int = 0
    short: int = 0
    unreadable: int = 0

    def with_page(self, page: UserPage, *, listed: int) -> SyncTally:
        return SyncTally(
            pages=self.pages + 1,
            listed=self.listed + listed,
            short=self.short + (page.has_more and listed < PAGE_SIZE // 2),
            unreadable=self.unreadable + len(page.gathered.unreadable),
        )


class SyncVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a complete list is plausible, and whether it accounts for every user its profile counts.

    `lacking` is how many users are missing without an explanation, if they are too many.
    """

    plausible: bool
    accounted: bool = False
    problem: str | None = None
    lacking: int = 0


def judge_list(
    tally: SyncTally, *, seen: int, at_start: int | None, at_end: int | None, explained: int = 0
) -> SyncVerdict:
    """Compare a list that was read to its end with the profile's count before and after.

    Profiles also count users who are shown on no list; `explained` are the known ones. They make a short list
    plausible, but do not prove it complete: the profile may have stopped counting them.
    """
    counts = [each for each in (at_start, at_end) if each is not None]
    least, most = min(counts, default=seen), max(counts, default=seen)
    lacking = least - explained - seen
    problem = None
    # An empty list is never accepted while the profile counts someone, however few.
    if lacking > _allowed(least) or (seen == 0 < least - explained):
        problem = f"the list ended early: it shows {seen:,} of the {least:,} the profile counts"
        return SyncVerdict(plausible=False, problem=problem, lacking=lacking)
    if seen - most > _allowed(most):
        problem = f"the list shows {seen:,}, more than the {most:,} the profile counts"
    elif tally.listed - seen > _allowed(seen):
        problem = f"the list repeats itself: {counted(tally.listed, 'entry', 'entries')} show {counted(seen, 'user')}"
    elif tally.short > max(1, tally.pages // 4):
        problem = f"{tally.short:,} of {counted(tally.pages, 'page')} {are(tally.short)} less than half full"
    # Only counts that agree before and after, and with the list, prove that the list leaves out no user.
    exact = len(counts) == 2 and set(counts) == {seen} and not tally.unreadable
    return SyncVerdict(plausible=problem is None, accounted=exact and problem is None, problem=problem)


def _allowed(count: int) -> float:
    return max(SLACK, TOLERANCE * count)


def page_limit(at_start: int | None) -> int | None:
    """A sync that needs more pages is in a loop: even half-full pages would have ended by then."""
    return None if at_start is None else 10 + 4 * at_start // PAGE_SIZE


def check_limit(seen: int) -> int:
    """How many doubted edges one sync checks one by one: about a twentieth of what its pages cost."""
    return min(MOST_CHECKS, max(FEWEST_CHECKS, seen // SEEN_PER_CHECK))


def absence_cause(user: User | None) -> Cause | None:
    """Why this user can be on no list now; None if they are available. None as a user: upstream does not know them."""
    if user is None:
        return Cause.VANISHED
    if user.unavailable_reason is None:
        return None
    return Cause.SUSPENDED if "suspend" in user.unavailable_reason.lower() else Cause.VANISHED


class FollowPhase(StrEnum):
    """The next step: read the subject's profile, read a page, judge the list by the profile, count the missing users
    who are unavailable, look up those whom two syncs missed, or check one of them."""

    BEGIN = "begin"
    PAGES = "pages"
    JUDGE = "judge"
    EXPLAIN = "explain"
    DOUBTS = "doubts"
    CHECKS = "checks"


class FollowSyncArgs(Args, frozen=True):
    """The list and how far the sync is. Counts are the profile's own.

    `confirming` marks the second sync, which confirms what the first one missed. `cursors` are the last ones followed;
    `known_pages` how many pages in a row held nothing new. `explained` is how many missing users are unavailable (None:
    not counted yet). `accounted`: the list shows every user the profile counts. `checks` are left to check one by one,
    `unsure` could not be resolved. `spent` counts towards `max_credits`.
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
    """The job of a sync. Later requests share the live job of the same list. An incremental sync becomes a full one if
    the list was never read in full."""
    args = FollowSyncArgs(user_id=user_id, side=side, mode=SyncMode(mode), asked_by=asked_by, max_credits=max_credits)
    return NewJob(kind=FOLLOW_SYNC, key=f"{side}:{user_id}", args=args)


def confirming_sync(at: FollowSyncArgs, run_at: datetime) -> NewJob:
    """A second full sync of the same list after a pause. It continues with the same cap and what is already spent."""
    first = FollowSyncArgs(user_id=at.user_id, side=at.side, mode=SyncMode.FULL, asked_by=at.asked_by)
    args = msgspec.structs.replace(first, confirming=True, max_credits=at.max_credits, spent=at.spent)
    return NewJob(kind=FOLLOW_SYNC, key=f"{at.side}:{at.user_id}", args=args, run_at=run_at, reason=SECOND_SYNC)


def begin_ingest(job: Job[FollowSyncArgs]) -> IngestBegun:
    at = job.args
    kind, user_id = at.side.ingest_kind, at.user_id
    return IngestBegun(platform=X, kind=kind, job_id=job.id, asked_by=at.asked_by, subject_id=user_id, mode=at.mode)


def sync_of(job: Job[FollowSyncArgs]) -> Sync:
    at = job.args
    since = at.begun_at or job.created_at
    return Sync(platform=X, side=at.side, subject_id=at.user_id, job_id=job.id, since=since)
