"""The least that was ever asked for: 1,000 posts inserted in 10 s, and 100 accounts in 5 minutes at a real latency."""

import asyncio
from dataclasses import replace

from bench.collect.common import SECONDS, Figure, Options
from bench.collect.side import Side, collected, kind_of, stored, wanted
from bench.collect.source import holding, running

ACCOUNTS = 100
NEVER_SWEPT = 3
"""Of the first accounts of a world: protected, suspended, not searchable."""

POSTS_EACH = 100
LATENCY_S = 1.0


def floors(side: Side, options: Options) -> list[Figure]:
    return [_thousand_posts(side, replace(options, dsn=f"{options.dsn}.posts")), _hundred_accounts(side, options)]


def _thousand_posts(side: Side, options: Options) -> Figure:
    """From the start of the command, its imports and all, from a source that asks for no politeness."""
    with running(holding(2_000)) as source:
        done = collected(side, options, source, source.accounts())
    at = sorted(asyncio.run(stored(options)).values())
    return _figure(side, options, "1,000 posts stored (asked: 10 s)", at[999] - done.started_at, 1_000, len(at[:1000]))


def _hundred_accounts(side: Side, options: Options) -> Figure:
    """Backfilled whole, 100 posts each, with their threads, the settings as they come; every answer takes a second."""
    plan = holding(ACCOUNTS * POSTS_EACH, stars=ACCOUNTS + NEVER_SWEPT, even=True, latency=LATENCY_S)
    with running(plan) as source:
        handles = source.accounts()
        expected = wanted(source, handles)
        done = collected(side, options, source, handles, AS_THEY_COME)
        seconds = (done.ended_ns - source.first_call_ns()) / 1e9
    found = asyncio.run(stored(options))
    what = f"{len(handles)} accounts at {LATENCY_S:g} s latency (asked: 300 s)"
    return _figure(side, options, what, seconds, len(expected), len(expected & found.keys()))


AS_THEY_COME = {
    "MISTNET_X_RATE_PER_MINUTE": "900",
    "MISTNET_X_BURST": "5",
    "MISTNET_SECOND_LOOK_SECONDS": "30",
    "MISTNET_BATCH_FILL_SECONDS": "30",
}


def _figure(side: Side, options: Options, what: str, seconds: float, expected: int, got: int) -> Figure:
    return Figure(
        name=f"floors, {kind_of(options)}",
        side=side.name,
        setting=what,
        figure=seconds,
        unit=SECONDS,
        expected=expected,
        got=got,
    )
