"""How long the rows of each table are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """`setting` says how long rows are kept; None means forever. `rows` says which are deleted, or why none are."""

    rows: str
    setting: str | None = None


def _pruned(setting: str, rows: str) -> Retention:
    return Retention(rows=rows, setting=setting)


def _kept(reason: str) -> Retention:
    return Retention(rows=reason)


_COLLECTED: Final = _kept("collected data")
_CHANGES: Final = _kept("one row per change, none per check")
_YOURS: Final = _kept("your requests and settings")
_ONE_EACH: Final = _kept("one row per object; does not grow with time")

RETENTION: Final[Mapping[str, Retention]] = {
    "account_posts": _ONE_EACH,
    "accounts": _COLLECTED,
    "alerts": _pruned("history_days", "closed ones"),
    "api_tokens": _YOURS,
    "cached_answers": _pruned("history_days", "cached pages; answers of price sources after a day at most"),
    "call_days": _pruned("calls_days", "sums of days without stored calls"),
    "call_deltas": _kept("merged within seconds into `call_hours` and `call_days`"),
    "call_hours": _pruned("calls_days", "sums of hours without stored calls"),
    "call_sums": _kept("one row per day, source, key, endpoint and account: the sums of pruned `calls`"),
    "calls": _pruned("calls_days", "all; their sums by day stay in `call_sums`"),
    "crawls": _pruned("crawls_days", "visits, except the latest of each link and those with a stored page"),
    "currency_rates": _YOURS,
    "dead_letters": _kept("deleted with its job"),
    "deliveries": _pruned("history_days", "those for subscribers that are no longer in the settings"),
    "events": _pruned("history_days", "those that every subscriber has received"),
    "feeds": _YOURS,
    "follow_events": _CHANGES,
    "follows": _COLLECTED,
    "hosts": _ONE_EACH,
    "ingest_events": _pruned("history_days", "hydrations and pushes; syncs stay, because edges refer to them"),
    "ingest_ids": _pruned("history_days", "deleted with their ingest"),
    "item_links": _YOURS,
    "item_looks": _ONE_EACH,
    "items": _YOURS,
    "job_errors": _pruned("history_days", "deleted with their job"),
    "job_history": _pruned("history_days", "finished jobs"),
    "jobs": _kept("live work and gaps"),
    "leaders": _ONE_EACH,
    "links": _COLLECTED,
    "missing": _kept("gaps"),
    "odd_listings": _kept("stay until they can be read"),
    "offer_corrections": _YOURS,
    "offers": _COLLECTED,
    "paused_kinds": _YOURS,
    "post_deltas": _kept("merged within seconds into `account_posts`"),
    "post_links": _COLLECTED,
    "posts": _COLLECTED,
    "price_point_versions": _CHANGES,
    "price_points": _COLLECTED,
    "price_watches": _YOURS,
    "product_words": _COLLECTED,
    "products": _COLLECTED,
    "quarantine": _pruned("history_days", "payloads that could be read later; others stay"),
    "run_accounts": _pruned("run_hours", "deleted with their run"),
    "run_posts": _pruned("run_hours", "deleted with their run; the posts stay"),
    "runs": _pruned("run_hours", "finished ones"),
    "segment_events": _CHANGES,
    "segment_inputs": _YOURS,
    "segment_members": _COLLECTED,
    "segment_snapshots": _pruned("history_days", "those without changes, except the first and the latest"),
    "segments": _YOURS,
    "sessions": _pruned("session_hours", "expired ones, at the next log-in"),
    "source_keys": _ONE_EACH,
    "sources": _ONE_EACH,
    "suggestions": _YOURS,
    "ticks": _pruned("history_days", "all but the latest of each group"),
    "user_versions": _CHANGES,
    "users": _COLLECTED,
    "valuation_history": _CHANGES,
    "valuations": _COLLECTED,
    "workers": _pruned("history_days", "those not seen for this time"),
}
