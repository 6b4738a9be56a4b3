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


_COLLECTED: Final = _kept("what was collected")
_CHANGES: Final = _kept("how it changed: one row per change, none per look")
_YOURS: Final = _kept("what you asked for or set")
_ONE_EACH: Final = _kept("one row each; does not grow with time")

RETENTION: Final[Mapping[str, Retention]] = {
    "account_posts": _ONE_EACH,
    "accounts": _COLLECTED,
    "alerts": _pruned("history_days", "closed ones"),
    "api_tokens": _YOURS,
    "cached_answers": _pruned("history_days", "answers of pages; those of price sources after a day at most"),
    "call_days": _pruned("calls_days", "sums of days whose calls are all pruned"),
    "call_deltas": _kept("merged within seconds into `call_hours` and `call_days`"),
    "call_hours": _pruned("calls_days", "sums of hours whose calls are all pruned"),
    "call_sums": _kept("one row per day, source, key, endpoint and account: what `calls` becomes"),
    "calls": _pruned("calls_days", "all; their sums by day stay in `call_sums`"),
    "crawls": _pruned("crawls_days", "visits, but the latest of each link and those with a kept page"),
    "currency_rates": _YOURS,
    "dead_letters": _kept("goes with its job"),
    "deliveries": _pruned("history_days", "those for subscribers that the settings do not name any more"),
    "events": _pruned("history_days", "those that every subscriber has taken"),
    "feeds": _YOURS,
    "follow_events": _CHANGES,
    "follows": _COLLECTED,
    "hosts": _ONE_EACH,
    "ingest_events": _pruned("history_days", "hydrations and pushes; syncs stay, because edges refer to them"),
    "ingest_ids": _pruned("history_days", "go with their ingest"),
    "item_links": _YOURS,
    "item_looks": _ONE_EACH,
    "items": _YOURS,
    "job_errors": _pruned("history_days", "go with their job"),
    "job_history": _pruned("history_days", "finished jobs"),
    "jobs": _kept("live work and gaps"),
    "leaders": _ONE_EACH,
    "links": _COLLECTED,
    "missing": _kept("gaps"),
    "odd_listings": _kept("waits until it can be read"),
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
    "quarantine": _pruned("history_days", "payloads that could be read later; all others wait"),
    "run_accounts": _pruned("run_hours", "go with their run"),
    "run_posts": _pruned("run_hours", "go with their run; the posts stay"),
    "runs": _pruned("run_hours", "finished ones"),
    "segment_events": _CHANGES,
    "segment_inputs": _YOURS,
    "segment_members": _COLLECTED,
    "segment_snapshots": _pruned("history_days", "those that changed nothing, but the first and the latest"),
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
    "workers": _pruned("history_days", "those not seen for so long"),
}
