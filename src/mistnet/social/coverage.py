"""How much of an account or conversation is stored: verified, being swept, missing, not checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from math import ceil
from typing import Final

import msgspec

from mistnet.queue.model import LIVE_STATES, JobId, JobState
from mistnet.social.accounts import AccountState
from mistnet.social.model import Platform, PostId, UserId, X

TIMED_IDS: Final = frozenset({X})
"""The platforms whose ids carry their time. Of others, a sweep's bounds are known by the posts that are stored."""

_FIRST_ID_AT: Final = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=1_288_834_974_657)
_ID_BITS_BELOW_TIME: Final = 22

LEAST_COUNT: Final = 20
"""Smaller counts are not compared: deleted, hidden and late posts would distort them."""

LEAST_SHARE: Final = 0.5
"""The share of the profile's count that must be stored. Search hides some posts, and counts may be old."""

SUSPECT_LOOKS: Final = tuple(timedelta(hours=hours) for hours in (1, 6, 24, 72, 168))
"""The waits between checks of a suspect account. The last one repeats."""


class StretchState(StrEnum):
    """The state of a part of an account's history."""

    VERIFIED = "verified"
    NOT_LOOKED_AT = "not_looked_at"
    SWEEPING = "sweeping"
    MISSING = "missing"
    SUSPECT = "suspect"


class SweepKind(StrEnum):
    BACKFILL = "backfill"
    CATCH_UP = "catch_up"
    REPOSTS = "reposts"


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A live or failed sweep."""

    job_id: JobId
    kind: SweepKind
    state: JobState
    user_id: UserId
    floor: PostId = PostId(0)
    ceiling: PostId | None = None
    top: PostId | None = None
    mending: bool = False
    last_error: str | None = None
    wait_reason: str | None = None
    platform: Platform = X
    floor_at: datetime | None = None
    ceiling_at: datetime | None = None
    top_at: datetime | None = None

    @property
    def alive(self) -> bool:
        return self.state in LIVE_STATES


class AccountProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an account is collected."""

    user_id: UserId
    handle: str | None
    state: AccountState
    state_reason: str | None
    tracked_at: datetime
    born_at: datetime | None = None
    oldest_post_id: PostId | None = None
    oldest_post_at: datetime | None = None
    newest_post_id: PostId | None = None
    newest_post_at: datetime | None = None
    newest_repost_id: PostId | None = None
    backfilled_at: datetime | None = None
    reposts_backfilled_at: datetime | None = None
    last_fetched_at: datetime | None = None
    profiled_at: datetime | None = None
    posts_count: int | None = None
    suspect_since: datetime | None = None
    next_look_at: datetime | None = None
    stored: int = 0
    sweeps: Sequence[Sweep] = ()
    platform: Platform = X

    def alive(self, kind: SweepKind) -> bool:
        return any(each.kind is kind and each.alive and not each.mending for each in self.sweeps)

    @property
    def waits(self) -> bool:
        """Whether the first sweep has not found anything yet. Without a live sweep the history is missing."""
        known = (self.oldest_post_id, self.newest_post_id, self.backfilled_at)
        return all(each is None for each in known) and self.alive(SweepKind.BACKFILL)

    @property
    def gaps(self) -> Sequence[Sweep]:
        """Failed sweeps whose range no later sweep has covered."""
        found: list[Sweep] = []
        for sweep in self.sweeps:
            # A sweep starts where the one before ended: once a boundary has passed that, the failure no longer matters.
            match sweep.kind:
                case SweepKind.BACKFILL:
                    covered = self.backfilled_at is not None
                case SweepKind.CATCH_UP:
                    covered = self.newest_post_id is not None and sweep.floor < self.newest_post_id
                case SweepKind.REPOSTS:
                    passed = self.newest_repost_id is not None and sweep.floor < self.newest_repost_id
                    covered = passed or (sweep.floor == 0 and self.reposts_backfilled_at is not None)
            if not sweep.alive and (sweep.mending or not covered):
                found.append(sweep)
        return found

    @property
    def passed(self) -> StretchState:
        """The state of swept parts. In a suspect history no part is verified."""
        return StretchState.SUSPECT if self.suspect_since else StretchState.VERIFIED


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an account's history with one state."""

    since: datetime
    until: datetime
    standing: StretchState


def enough_stored(counted: int | None, *, with_reposts: bool) -> int:
    """The number of stored posts from which a complete history is plausible, given the profile's count.

    Profiles count native reposts. Until those are swept, only a history without any post is implausible.
    """
    if counted is None or counted < LEAST_COUNT:
        return 0
    return ceil(counted * LEAST_SHARE) if with_reposts else 1


def is_suspect(progress: AccountProgress) -> bool:
    """Whether an active account has implausibly few posts."""
    return progress.state is AccountState.ACTIVE and progress.suspect_since is not None


def few_stored(progress: AccountProgress) -> str:
    counted = "" if progress.posts_count is None else f" of the {progress.posts_count:,} posts its profile counts"
    return f"{progress.stored:,}{counted} {'is' if progress.stored == 1 else 'are'} stored"


def moment_of(post_id: PostId) -> datetime:
    """When a post was written: X's ids carry their time. Those from before November 2010 do not."""
    return _FIRST_ID_AT + timedelta(milliseconds=post_id >> _ID_BITS_BELOW_TIME)


def begin_of(progress: AccountProgress) -> datetime:
    """The earliest time of a first post."""
    known = (progress.born_at, progress.oldest_post_at or id_time(progress.platform, progress.oldest_post_id))
    return min((each for each in known if each), default=progress.tracked_at)


def own_posts(progress: AccountProgress, now: datetime) -> Sequence[Stretch]:
    """The states of an account's history, without native reposts.

    Everything between the oldest and newest post is swept. There was nothing newer when tracking began.
    """
    begin = begin_of(progress)
    if progress.waits:
        return _flatten([Stretch(since=begin, until=now, standing=StretchState.NOT_LOOKED_AT)], begin, now)
    oldest_at = progress.oldest_post_at or id_time(progress.platform, progress.oldest_post_id)
    newest_at = progress.newest_post_at or id_time(progress.platform, progress.newest_post_id)
    if progress.backfilled_at and not (progress.suspect_since and progress.alive(SweepKind.BACKFILL)):
        below = progress.passed
    else:
        below = StretchState.SWEEPING if progress.alive(SweepKind.BACKFILL) else StretchState.MISSING
    looked = oldest_at is not None or progress.backfilled_at is not None
    looked_until = max(newest_at or begin, progress.tracked_at) if looked else now
    swept = Stretch(since=oldest_at or begin, until=looked_until, standing=progress.passed)
    layers = [
        Stretch(since=begin, until=looked_until, standing=below),
        Stretch(since=looked_until, until=now, standing=StretchState.NOT_LOOKED_AT),
        *([swept] if looked else []),
        *_swept_by(progress, SweepKind.CATCH_UP, begin if newest_at else looked_until, now),
    ]
    return _flatten(layers, begin, now)


def reposts(progress: AccountProgress, now: datetime) -> Sequence[Stretch]:
    """The same for native reposts, which have their own sweep after the backfill."""
    begin = begin_of(progress)
    if progress.waits:
        return _flatten([Stretch(since=begin, until=now, standing=StretchState.NOT_LOOKED_AT)], begin, now)
    coming = progress.alive(SweepKind.REPOSTS) or progress.alive(SweepKind.BACKFILL)
    looked_until, below = now, StretchState.SWEEPING if coming else StretchState.MISSING
    if progress.reposts_backfilled_at:
        below = progress.passed
        newest_at = id_time(progress.platform, progress.newest_repost_id)
        looked_until = max(newest_at or begin, progress.backfilled_at or begin)
    layers = [
        Stretch(since=begin, until=looked_until, standing=below),
        Stretch(since=looked_until, until=now, standing=StretchState.NOT_LOOKED_AT),
        *_swept_by(progress, SweepKind.REPOSTS, begin, now),
    ]
    return _flatten(layers, begin, now)


def _swept_by(progress: AccountProgress, kind: SweepKind, begin: datetime, now: datetime) -> Iterator[Stretch]:
    """The done and remaining parts of range sweeps. Live sweeps cover failed ones, because they repeat them.

    A sweep without a floor reaches down to `begin`.
    """
    dead = [each for each in progress.gaps if each.kind is kind]
    live = [each for each in progress.sweeps if each.kind is kind and each.alive]
    for sweep in sorted([*dead, *live], key=lambda each: (each.mending, each.alive)):
        until = sweep.ceiling_at or id_time(sweep.platform, sweep.ceiling) or now
        since = sweep.floor_at or id_time(sweep.platform, sweep.floor or None) or min(begin, until)
        top_at = sweep.top_at or id_time(sweep.platform, sweep.top)
        if top_at is not None:
            yield Stretch(since=until, until=top_at, standing=StretchState.VERIFIED)
        # A sweep between two neighbouring posts would have no length, and could not be seen.
        left = StretchState.SWEEPING if sweep.alive else StretchState.MISSING
        yield Stretch(since=since, until=max(until, since + timedelta(milliseconds=1)), standing=left)


def _flatten(layers: Sequence[Stretch], begin: datetime, now: datetime) -> Sequence[Stretch]:
    """Merge layers, later ones on top, into one sequence of stretches from the beginning until now."""
    edges = {begin, now, *(layer.since for layer in layers), *(layer.until for layer in layers)}
    cuts = sorted(edge for edge in edges if begin <= edge <= now)
    seen: list[Stretch] = []
    for since, until in pairwise(cuts):
        standing = next(each.standing for each in reversed(layers) if each.since <= since and until <= each.until)
        joined = seen.pop().since if seen and seen[-1].standing is standing else since
        seen.append(Stretch(since=joined, until=until, standing=standing))
    return seen


def was_collected(progress: AccountProgress) -> bool:
    """Whether posts could be collected: an account that was never readable has no missing parts."""
    return progress.state is AccountState.ACTIVE or progress.oldest_post_id is not None


def strip(stretches: Sequence[Stretch], cells: int) -> Sequence[StretchState]:
    """The states in cells of equal length. In a cell, missing wins over suspect, and suspect over sweeping."""
    if not stretches:
        return ()
    begin, width = stretches[0].since, (stretches[-1].until - stretches[0].since) / cells
    states: list[StretchState] = []
    for place in range(cells):
        since, until = begin + width * place, begin + width * (place + 1)
        lengths: dict[StretchState, timedelta] = {}
        for each in stretches:
            if (shared := min(each.until, until) - max(each.since, since)) > timedelta():
                lengths[each.standing] = lengths.get(each.standing, timedelta()) + shared
        longest = max(lengths, key=lambda state: lengths[state], default=StretchState.NOT_LOOKED_AT)
        # However short: in a history of ten years, a missing day would never be the longest part of its cell.
        urgent = (StretchState.MISSING, StretchState.SUSPECT, StretchState.SWEEPING)
        states.append(next((state for state in urgent if state in lengths), longest))
    return states


def id_time(platform: Platform, post_id: PostId | None) -> datetime | None:
    """The time that an id carries; None on platforms whose ids carry none."""
    return moment_of(post_id) if post_id is not None and platform in TIMED_IDS else None


class Completeness(StrEnum):
    """Whether all ancestors of every stored reply are stored."""

    COMPLETE = "complete"
    IN_PROGRESS = "in progress"
    AS_FAR_AS_UPSTREAM = "complete as far as upstream has it"
    HAS_GAPS = "has gaps"


class MissingParent(msgspec.Struct, frozen=True, kw_only=True):
    """A missing post with replies. `gone`: the source no longer has it. `awaited`: a walk will fetch it."""

    post_id: PostId
    reply_id: PostId
    replies: int
    gone: bool
    awaited: bool

    @property
    def gap(self) -> bool:
        return not self.gone and not self.awaited


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """A live or failed walk of a conversation."""

    job_id: JobId
    state: JobState
    reply_id: PostId
    next_id: PostId
    last_error: str | None = None

    @property
    def alive(self) -> bool:
        return self.state in LIVE_STATES


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """The stored and missing posts of a conversation."""

    platform: Platform = X
    conversation_id: PostId
    posts: int
    parents: Sequence[MissingParent] = ()
    walks: Sequence[Walk] = ()

    @property
    def verdict(self) -> Completeness:
        if any(parent.gap for parent in self.parents):
            return Completeness.HAS_GAPS
        if any(walk.alive for walk in self.walks):
            return Completeness.IN_PROGRESS
        return Completeness.AS_FAR_AS_UPSTREAM if self.parents else Completeness.COMPLETE
