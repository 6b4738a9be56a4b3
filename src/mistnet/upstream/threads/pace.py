"""Heeds what the Graph API says of our usage: slower near the limit, silent just below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from mistnet.domain.errors import NotNow
from mistnet.domain.sources import THREADS_SOURCE

SLOW_FROM: Final = 75.0
STOP_FROM: Final = 95.0
_PERCENTAGES: Final = ("call_count", "total_time", "total_cputime")
_REGAIN: Final = "estimated_time_to_regain_access"
_SHORTEST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(seconds=30)
_STOP: Final = timedelta(minutes=5)
_MOST_MINUTES: Final = 1_440.0


class Usage(msgspec.Struct, frozen=True):
    """The highest of the percentages we were told, and how long to stay away if that was said."""

    percent: float = 0.0
    regain: timedelta | None = None


class Pace:
    """What this process knows of how close to its limit the app is. Every process is told so by each answer."""

    def __init__(self) -> None:
        self._free_at: datetime | None = None
        self._percent = 0.0

    def require_free(self, now: datetime) -> None:
        if self._free_at is not None and now < self._free_at:
            reason = f"{THREADS_SOURCE}: {self._percent:.0f} % of what it allows is used, calls are spread out"
            raise NotNow(self._free_at, reason)

    def note(self, headers: Mapping[str, str], now: datetime) -> None:
        usage = usage_of(headers)
        wait = pause_after(usage)
        self._percent = usage.percent
        self._free_at = now + wait if wait else None


def pause_after(usage: Usage) -> timedelta | None:
    """Between calls: nothing at first, then ever longer, then long enough for the window to move on."""
    if usage.percent >= STOP_FROM:
        return max(usage.regain or _STOP, _STOP)
    if usage.percent < SLOW_FROM:
        return None
    part = (usage.percent - SLOW_FROM) / (STOP_FROM - SLOW_FROM)
    return _SHORTEST + (_LONGEST - _SHORTEST) * part


def usage_of(headers: Mapping[str, str]) -> Usage:
    """From `X-App-Usage`, and from `X-Business-Use-Case-Usage`, which lists the same by id."""
    shown = {name.lower(): value for name, value in headers.items()}
    found = [*_objects(shown.get("x-app-usage")), *_objects(shown.get("x-business-use-case-usage"))]
    percents = [_number(each.get(name)) for each in found for name in _PERCENTAGES]
    minutes = max((_number(each.get(_REGAIN)) for each in found), default=0.0)
    regain = timedelta(minutes=min(minutes, _MOST_MINUTES)) if minutes > 0 else None
    return Usage(max(percents, default=0.0), regain)


def _objects(written: str | None) -> Iterator[Mapping[str, Any]]:
    """The object, or those in the lists of it. What cannot be read says nothing."""
    try:
        found = msgspec.json.decode(written or "null")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    yield found
    for listed in found.values():
        if isinstance(listed, list):
            yield from (each for each in listed if isinstance(each, dict))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e6 else 0.0
