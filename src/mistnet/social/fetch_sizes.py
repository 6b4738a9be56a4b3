"""How many posts one round of a catch-up may fetch, estimated from earlier rounds."""

from __future__ import annotations

from datetime import datetime
from math import ceil

import msgspec

from mistnet.queue.model import Write
from mistnet.social.model import Platform, UserId


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

    def is_full(self, rules: FetchRules) -> bool:
        """Whether new posts filled the limit of the last fetch. There may be more."""
        return self.last_new_count >= (self.last_limit or rules.default)

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


def after(
    stats: FetchStats,
    *,
    fetched: int,
    new: int,
    limit: int | None,
    at: datetime,
    rules: FetchRules = FetchRules(),  # noqa: B008 (a frozen value)
) -> FetchStats:
    """The statistics after one more fetch. The rate of the first fetch is not smoothed."""
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
    if stats.is_full(rules):
        return _bounded(2 * (stats.last_limit or rules.default), rules)
    if stats.consecutive_empty_fetches >= rules.empties:
        return rules.least
    return _bounded(ceil(stats.expected(rules) * rules.margin), rules)


def _bounded(limit: int, rules: FetchRules) -> int:
    return min(max(limit, rules.least), rules.most)
