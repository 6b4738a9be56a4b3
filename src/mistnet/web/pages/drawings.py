"""What pages draw and say of accounts and segments: strips, heat maps, charts, and states in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from mistnet.graph.follows.listing import Counted
from mistnet.graph.follows.model import Side
from mistnet.graph.segments.listing import SegmentLine
from mistnet.graph.segments.model import Snapshot
from mistnet.graph.segments.rules import in_words
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import (
    AccountProgress,
    Stretch,
    StretchState,
    SweepKind,
    few_stored,
    is_suspect,
    own_posts,
    was_collected,
)
from mistnet.social.store.account_pages import Listed
from mistnet.web.pages.dashboard import AccountCounts

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LEVELS: Final = 5
_LENGTH: Final = 1000
_LEAST: Final = 6.0
"""The least width of a part that is missing, so that it stays visible."""


def account_rows(listed: Sequence[Listed], account_counts: AccountCounts, now: datetime) -> Sequence[Mapping[str, Any]]:
    return [account_row(each, account_counts, now) for each in listed]


def account_row(listed: Listed, account_counts: AccountCounts, now: datetime) -> Mapping[str, Any]:
    own = listed.progress.user_id
    progress = msgspec.structs.replace(
        listed.progress,
        stored=account_counts.stored.get(own, 0),
        sweeps=listed.progress.sweeps or account_counts.sweeps.get(own, ()),
    )
    # Sweeps and counts are as old as the counts: beside them, a younger account would look broken.
    unfinished = progress.backfilled_at is None and not listed.progress.sweeps
    young = unfinished and progress.tracked_at >= account_counts.at
    waits = young or progress.waits
    return {
        "progress": progress,
        "name": listed.name,
        "strip": strip_of(own_posts(progress, now)) if was_collected(progress) and not waits else (),
        "stored": None if waits else progress.stored,
        "spent": account_counts.spent.get(own),
        "doing": "waits to begin" if waits and progress.state is AccountState.ACTIVE else doing(progress),
        "suspect": is_suspect(progress),
    }


def strip_of(stretches: Sequence[Stretch]) -> Sequence[Mapping[str, Any]]:
    """Stretches as parts of a line. The unverified ones come last, so that they are drawn on top."""
    if not stretches:
        return ()
    begin, whole = stretches[0].since, stretches[-1].until - stretches[0].since
    drawn = [_part(each, begin, whole / _LENGTH) for each in stretches if whole]
    return sorted(drawn, key=lambda part: part["standing"] is not StretchState.VERIFIED)


def _part(stretch: Stretch, begin: datetime, unit: timedelta) -> Mapping[str, Any]:
    least = 0.0 if stretch.standing is StretchState.VERIFIED else _LEAST
    return {
        "x": round(min((stretch.since - begin) / unit, _LENGTH - least), 1),
        "width": round(max((stretch.until - stretch.since) / unit, least), 1),
        "standing": stretch.standing,
        "told": f"{stretch.since:%Y-%m-%d} to {stretch.until:%Y-%m-%d}: {stretch.standing.replace('_', ' ')}",
    }


def doing(progress: AccountProgress) -> str:
    """What currently happens with an account, in a few words."""
    if progress.state is not AccountState.ACTIVE:
        return progress.state_reason or str(progress.state)
    if progress.gaps:
        return "a sweep ended without its result"
    if is_suspect(progress):
        return f"suspect: {few_stored(progress)}"
    done = f"complete since {progress.oldest_post_at:%b %Y}" if progress.oldest_post_at else "complete"
    return _under_way(progress) or ("waits to begin" if progress.backfilled_at is None else done)


def _under_way(progress: AccountProgress) -> str | None:
    if progress.alive(SweepKind.BACKFILL):
        return f"back to {progress.oldest_post_at:%b %Y}" if progress.oldest_post_at else "begins"
    if progress.alive(SweepKind.REPOSTS) and progress.reposts_backfilled_at is None:
        return "native retweets"
    return "looks for what is new" if progress.alive(SweepKind.CATCH_UP) else None


def heat_map(hours: Mapping[int, int]) -> Mapping[str, Any]:
    """Posts by weekday and hour, each with one of five levels."""
    most = max(hours.values(), default=0)
    rows = [
        {
            "day": name,
            "cells": [
                {"hour": hour, "posts": posts, "level": -(-posts * _LEVELS // most) if most else 0}
                for hour in range(24)
                for posts in [hours.get(day * 24 + hour, 0)]
            ],
        }
        for day, name in enumerate(_DAYS)
    ]
    return {"rows": rows, "posts": sum(hours.values()), "most": most, "levels": range(_LEVELS + 1)}


RHYTHMS: Final[Mapping[str, tuple[str, float | None]]] = {
    "": ("only when asked", None),
    "hour": ("every hour", 3_600.0),
    "day": ("every day", 86_400.0),
    "week": ("every week", 604_800.0),
}
_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def segment_row(line: SegmentLine) -> Mapping[str, Any]:
    rule = in_words(line.rule, f"@{line.subject}" if line.subject else None)
    return {"line": line, "rule": rule, "rhythm": rhythm_of(line.every_seconds)}


def rhythm_of(seconds: float | None) -> str:
    if seconds is None:
        return "when asked"
    size, unit = next((each for each in _UNITS if seconds >= each[0]), (1, "second"))
    amount = seconds / size
    return f"every {unit}" if amount == 1 else f"every {amount:g} {unit}s"


def members_chart(counts: Sequence[Snapshot]) -> str | None:
    """The data of the plot; one snapshot alone makes no line."""
    drawn = {"members": [count.members for count in counts]}
    return _chart([count.at for count in counts], drawn)


def follows_chart(counts: Mapping[Side, Sequence[Counted]]) -> str | None:
    """Both sides over one time axis, with null where only the other side was counted."""
    moments = sorted({each.at for side in counts.values() for each in side})
    known = {side: {each.at: each.users for each in some} for side, some in counts.items()}
    return _chart(moments, {str(side): [known[side].get(at) for at in moments] for side in Side})


def _chart(moments: Sequence[datetime], series: Mapping[str, Sequence[int | None]]) -> str | None:
    if len(moments) < 2:
        return None
    lines = [{"name": name, "values": values} for name, values in series.items()]
    return msgspec.json.encode({"at": [int(at.timestamp()) for at in moments], "lines": lines}).decode()
