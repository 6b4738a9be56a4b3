"""Who follows whom: what a sync of one side of a user's follows sees, and when it may be believed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from mistnet.governor.model import CallPurpose
from mistnet.kit.text import are, counted
from mistnet.queue.model import JobId, Write
from mistnet.social.ingests.model import IngestId, IngestKind
from mistnet.social.model import Gathered, Platform, User, UserId, UserPage

PAGE_SIZE: Final = 200
"""A full page costs a third of what the same users cost on small ones."""

SLACK: Final = 10
TOLERANCE: Final = 0.1
"""How far a list may stray from its profile's count, whichever of the two allows more."""

FEWEST_CHECKS, MOST_CHECKS, SEEN_PER_CHECK = 20, 200, 2_000


class Side(StrEnum):
    """Which of a user's two lists."""

    FOLLOWERS = "followers"
    FOLLOWINGS = "followings"

    @property
    def opposite(self) -> Side:
        """On which of the other's lists the same follow stands."""
        return Side.FOLLOWINGS if self is Side.FOLLOWERS else Side.FOLLOWERS

    @property
    def ingest_kind(self) -> IngestKind:
        return IngestKind.FOLLOWERS_SYNC if self is Side.FOLLOWERS else IngestKind.FOLLOWINGS_SYNC

    def count_of(self, user: User) -> int | None:
        """How long the user's own profile says this list is."""
        return user.followers_count if self is Side.FOLLOWERS else user.following_count


class SyncMode(StrEnum):
    """The whole list, or the newest part of it down to what is known."""

    FULL = "full"
    INCREMENTAL = "incremental"


class FollowKind(StrEnum):
    FOLLOWED = "followed"
    UNFOLLOWED = "unfollowed"


class Cause(StrEnum):
    """How a change is known: a list or a webhook showed it, or why somebody is on a list no more."""

    SEEN = "seen"
    PUSHED = "pushed"
    UNFOLLOWED = "unfollowed"
    SUSPENDED = "suspended"
    VANISHED = "vanished"


class FollowLine(msgspec.Struct, frozen=True, kw_only=True):
    """One edge as seen from one of its ends: the user at the other. `doubted` since a sync missed it."""

    user_id: UserId
    handle: str | None
    name: str | None
    first_seen_at: datetime
    last_seen_at: datetime
    doubted: bool
    ended_at: datetime | None


class FollowChange(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody followed or ceased to, as far as the cause is known. The last sighting is `at`, not the deed itself."""

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
    """These are on one side of the subject now. All of them are stored users, or nothing is written.

    The ingest is the open one of the job, or the one that is named.
    """

    platform: Platform
    side: Side
    subject_id: UserId
    ids: Sequence[UserId]
    job_id: JobId | None = None
    ingest_id: IngestId | None = None
    cause: Cause = Cause.SEEN


class FollowsEnded(Write, frozen=True, kw_only=True):
    """These are there no more, and this is why. An edge that was seen since the sync began stays."""

    platform: Platform
    side: Side
    subject_id: UserId
    ids: Sequence[UserId]
    cause: Cause
    job_id: JobId
    since: datetime


class SyncEnded(Write, frozen=True, kw_only=True):
    """A complete, plausible sync is over: what it did not see is doubted from now on."""

    platform: Platform
    side: Side
    subject_id: UserId
    job_id: JobId
    since: datetime


class BelievedSync(msgspec.Struct, frozen=True, kw_only=True):
    """The last sync that reached its end and could be believed."""

    ingest_id: IngestId
    started_at: datetime
    finished_at: datetime


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the first follows the second, and the other way round."""

    following: bool
    followed_by: bool


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """Which edges a question is about, and since when they count as seen by the sync of this job."""

    platform: Platform
    side: Side
    subject_id: UserId
    job_id: JobId
    since: datetime


class FollowLook(Protocol):
    """What a sync asks the store. Nothing is locked, nothing stays open."""

    async def last_sync(self, platform: Platform, side: Side, subject_id: UserId) -> BelievedSync | None: ...

    async def known_edges(
        self, platform: Platform, side: Side, subject_id: UserId, ids: Collection[UserId], known: BelievedSync
    ) -> set[UserId]:
        """Those whose edge lives, was there when that sync ended, and was seen by it or later."""
        ...

    async def seen(self, sync: Sync) -> int:
        """How many different users were seen since it began."""
        ...

    async def missed(self, sync: Sync, *, after: UserId | None, limit: int) -> Sequence[UserId]:
        """Edges that an earlier sync missed, and this one too, by id."""
        ...

    async def unseen(self, sync: Sync, *, after: UserId | None, limit: int) -> Sequence[UserId]:
        """Edges that this sync has missed, whether or not it is the first to, by id."""
        ...

    async def hidden(self, sync: Sync) -> int:
        """How many edges ended because the user at their other end could no longer be shown."""
        ...

    async def newly_missed(self, sync: Sync) -> bool:
        """Whether there is an edge that this sync is the first to miss."""
        ...

    async def handle(self, platform: Platform, user_id: UserId) -> str | None: ...

    async def stalest_users(self, platform: Platform, limit: int, without: Collection[UserId]) -> Sequence[UserId]: ...


class FollowSource(Protocol):
    """The part of X that knows who follows whom. Lists are asked for by handle, newest follow first."""

    async def users(self, ids: Sequence[UserId], *, purpose: CallPurpose) -> Gathered: ...

    async def followers(self, handle: str, *, size: int, cursor: str | None, purpose: CallPurpose) -> UserPage: ...

    async def followings(self, handle: str, *, size: int, cursor: str | None, purpose: CallPurpose) -> UserPage: ...

    async def relation(self, source: str, target: str, *, purpose: CallPurpose) -> Relation | None:
        """None: one of the two is nobody."""
        ...


class SyncTally(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages of a sync amount to. `listed` counts doubles as often as they came; `short` are pages that
    were less than half full and not the last."""

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
    """Whether a complete list can be believed, and whether it accounts for everybody its profile counts.

    `lacking` is how many are missing from it without an explanation, if those are too many.
    """

    plausible: bool
    accounted: bool = False
    problem: str | None = None
    lacking: int = 0


def verdict(
    tally: SyncTally, *, seen: int, at_start: int | None, at_end: int | None, explained: int = 0
) -> SyncVerdict:
    """A list that was read to its end, against the profile's own count before and after.

    Profiles count some who are shown on no list: `explained` are those of them we know. They make a short list
    plausible; that it accounts for everybody they cannot prove, because nobody says whether they are counted still.
    """
    counts = [each for each in (at_start, at_end) if each is not None]
    least = min(counts, default=seen)
    if least - explained - seen > _allowed(least) or (seen == 0 < least - explained):
        short = f"the list ended early: it shows {seen:,} of the {least:,} the profile counts"
        return SyncVerdict(plausible=False, problem=short, lacking=least - explained - seen)
    if problem := _problem(tally, seen, max(counts, default=seen)):
        return SyncVerdict(plausible=False, problem=problem)
    exact = len(counts) == 2 and set(counts) == {seen} and not tally.unreadable
    return SyncVerdict(plausible=True, accounted=exact)


def _problem(tally: SyncTally, seen: int, most: int) -> str | None:
    if seen - most > _allowed(most):
        return f"the list shows {seen:,}, more than the {most:,} the profile counts"
    if tally.listed - seen > _allowed(seen):
        return f"the list repeats itself: {counted(tally.listed, 'entry', 'entries')} show {counted(seen, 'user')}"
    if tally.short > max(1, tally.pages // 4):
        return f"{tally.short:,} of {counted(tally.pages, 'page')} {are(tally.short)} less than half full"
    return None


def _allowed(count: int) -> float:
    return max(SLACK, TOLERANCE * count)


def pages_at_most(at_start: int | None) -> int | None:
    """More pages than that and the list goes in circles: even half-full pages would have ended."""
    return None if at_start is None else 10 + 4 * at_start // PAGE_SIZE


def checks_at_most(seen: int) -> int:
    """How many doubted edges one sync asks for one by one: about a twentieth of what its pages cost."""
    return min(MOST_CHECKS, max(FEWEST_CHECKS, seen // SEEN_PER_CHECK))


def cause_of(user: User) -> Cause | None:
    """Why this user can be on nobody's list now; None if nothing keeps him from it."""
    if user.unavailable_reason is None:
        return None
    return Cause.SUSPENDED if "suspend" in user.unavailable_reason.lower() else Cause.VANISHED
