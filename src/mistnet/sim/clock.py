"""Simulated time: stands still until told, or runs at a chosen speed."""

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

WORLD_START_AT = datetime(2026, 10, 1, tzinfo=UTC)


class SimClock:
    """`speed` is simulated seconds per real second; 0 leaves every move to `advance`."""

    def __init__(self, start_at: datetime = WORLD_START_AT, *, speed: float = 0.0) -> None:
        self._now = start_at
        self._speed = speed
        self._read = time.monotonic()

    def now(self) -> datetime:
        read = time.monotonic()
        self._now += timedelta(seconds=(read - self._read) * self._speed)
        self._read = read
        return self._now

    def advance(self, by: timedelta) -> datetime:
        self._now = self.now() + by
        return self._now


def to_ms(at: datetime) -> int:
    return int(at.timestamp()) * 1000 + at.microsecond // 1000


def from_ms(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC).replace(microsecond=at_ms % 1000 * 1000)


def legacy_date(at_ms: int) -> str:
    """As on posts and their authors."""
    day, seconds = divmod(at_ms // 1000, 86_400)
    before, after = _legacy_day(day)
    return f"{before} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} +0000 {after}"


@lru_cache(maxsize=10_000)
def _legacy_day(day: int) -> tuple[str, str]:
    at = datetime.fromtimestamp(day * 86_400, UTC)
    return at.strftime("%a %b %d"), at.strftime("%Y")


def iso_date(at_ms: int) -> str:
    """As on profiles."""
    return from_ms(at_ms - at_ms % 1000).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
