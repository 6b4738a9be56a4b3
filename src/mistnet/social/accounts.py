"""Tracked accounts: their state and progress, how much a fetch may bring, and the values that job handlers write."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from math import ceil

import msgspec

from mistnet.queue.model import Write
from mistnet.social.model import Platform, PostId, UserId


class FetchRules(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the limit, the smoothing of the rate of new posts, and the safety margin."""

    default: int = 100
    least: int = 10
    most: int = 300
    alpha: float = 0.3
    margin: float = 1.2
    empties: int = 3


class FetchStats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of an account's fetches.

    `avg_new_rate` is the smoothed share of the largest limit that new posts filled, from 0 to 1.
    """

    last_fetch_at: datetime | None = None
    last_fetched_count: int = 0
    last_new_count: int = 0
    total_fetches: int = 0
    avg_new_rate: float = 0.0
    consecutive_empty_fetches: int = 0
    last_limit: int | None = None

    def expected(self, rules: FetchRules) -> float:
        """The expected number of new posts in the next fetch."""
        return rules.most * self.avg_new_rate


class Fetched(Write, frozen=True, kw_only=True):
    """A finished round of a catch-up or account of a run: its posts, how many were new, and its limit."""

    platform: Platform
    user_id: UserId
    fetched: int
    new: int
    limit: int | None = None


def after(stats: FetchStats, *, fetched: int, new: int, limit: int | None, at: datetime) -> FetchStats:
    """The statistics after one more fetch. The rate of the first fetch is not smoothed."""
    rules = FetchRules()
    # A rate that is smoothed from nothing would start far too low: the first one counts as it is.
    rate = min(new / rules.most, 1.0)
    smoothed = rules.alpha * rate + (1 - rules.alpha) * stats.avg_new_rate
    return FetchStats(
        last_fetch_at=at,
        last_fetched_count=fetched,
        last_new_count=new,
        total_fetches=stats.total_fetches + 1,
        avg_new_rate=min(max(smoothed, 0.0), 1.0) if stats.total_fetches else rate,
        consecutive_empty_fetches=0 if new else stats.consecutive_empty_fetches + 1,
        last_limit=limit if limit is not None else stats.last_limit,
    )


def next_limit(stats: FetchStats, rules: FetchRules = FetchRules()) -> int:  # noqa: B008 (a frozen value)
    """The limit of the next round."""
    if not stats.total_fetches:
        return rules.default
    # New posts filled the last limit: more may be there, so the rate says too little.
    last = stats.last_limit or rules.default
    if stats.last_new_count >= last:
        return _bounded(2 * last, rules)
    if stats.consecutive_empty_fetches >= rules.empties:
        return rules.least
    return _bounded(ceil(stats.expected(rules) * rules.margin), rules)


def _bounded(limit: int, rules: FetchRules) -> int:
    return min(max(limit, rules.least), rules.most)


class AccountState(StrEnum):
    """Whether an account's posts can be collected."""

    ACTIVE = "active"
    PROTECTED = "protected"
    SUSPENDED = "suspended"
    VANISHED = "vanished"
    UNTRACKED = "untracked"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A tracked user, with what a sweep needs."""

    platform: Platform
    user_id: UserId
    handle: str
    state: AccountState
    oldest_post_id: PostId | None = None
    newest_post_id: PostId | None = None
    newest_repost_id: PostId | None = None
    backfilled_at: datetime | None = None
    reposts_backfilled_at: datetime | None = None
    profiled_at: datetime | None = None
    posts_count: int | None = None
    suspect_since: datetime | None = None
    fetch: FetchStats = FetchStats()


class AccountTracked(Write, frozen=True, kw_only=True):
    """Start to track this user, or track them again."""

    platform: Platform
    user_id: UserId


class AccountStateChange(Write, frozen=True, kw_only=True):
    """The new state of an account, the reason, and the next check if its posts cannot be collected."""

    platform: Platform
    user_id: UserId
    state: AccountState
    reason: str | None = None
    next_look_at: datetime | None = None


class Swept(Write, frozen=True, kw_only=True):
    """Progress of a sweep. `oldest` only falls and `newest` only rises; None changes nothing.

    `found` is the number of posts of this step.
    """

    platform: Platform
    user_id: UserId
    oldest: PostId | None = None
    newest: PostId | None = None
    newest_repost: PostId | None = None
    backfilled: bool = False
    reposts_backfilled: bool = False
    found: int | None = None


class HistoryJudged(Write, frozen=True, kw_only=True):
    """Whether a complete sweep left implausibly few posts stored."""

    platform: Platform
    user_id: UserId
    suspect: bool


class SuggestionClosed(Write, frozen=True, kw_only=True):
    """A suggestion was accepted or refused."""

    platform: Platform
    handle: str
    accepted: bool
    reason: str | None = None
    user_id: UserId | None = None


class Missing(Write, frozen=True, kw_only=True):
    """The source was asked for this id and did not return it."""

    platform: Platform
    what: str
    id: int
    reason: str


class Frontier(msgspec.Struct, frozen=True):
    """The first post above a reply that is not stored, and its author, if known."""

    post_id: PostId
    user_id: UserId | None = None


class StoredProfile(msgspec.Struct, frozen=True):
    """A stored user's handle, and when their profile was fetched."""

    handle: str | None
    profiled_at: datetime | None
