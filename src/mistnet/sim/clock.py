"""Simulated time, numbers drawn from a seed, and post ids that carry their time and author."""

import time
from collections import OrderedDict
from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from hashlib import blake2b
from random import Random
from typing import Generic, TypeVar

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
    """The format of dates on posts and their authors."""
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    text = at.ctime()  # strftime is slow, and a page has many dates
    return f"{text[:8]}{at.day:02}{text[10:19]} +0000 {text[20:]}"


def iso_date(at_ms: int) -> str:
    """The format of dates on profiles."""
    return from_ms(at_ms - at_ms % 1000).strftime("%Y-%m-%dT%H:%M:%S.000000Z")


MASK = (1 << 64) - 1
# 4 November 2010, the time from which X counts in its ids.
SNOWFLAKE_EPOCH_MS = 1_288_834_974_657
# As in X's ids: below the time are 22 bits.
LOW_BITS = 22
LOW_MASK = (1 << LOW_BITS) - 1
SCATTER = 0x2545F5  # odd, so that it has an inverse
GATHER = pow(SCATTER, -1, 1 << LOW_BITS)

SECOND_MS = 1000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000


class Draw(IntEnum):
    """One number for each random decision, so that no two decisions draw the same values."""

    PERSON = 1
    PROFILE = 2
    HISTORY = 3
    DAY = 4
    PARENT = 5
    ORIGINAL = 6
    DELETION = 7
    TEXT = 8
    METRICS = 9
    CIRCLE = 10
    FOLLOW = 11
    LOW = 12
    STORY = 13
    GHOST = 14
    FAULT = 15
    LATENCY = 16
    VARIANT = 17
    LAG = 18
    UNREST = 20
    THREADS = 21


def mix(*parts: int) -> int:
    """A 64-bit hash of the parts, the same on every machine."""
    mixed = 0x243F6A8885A308D3
    for part in parts:
        # Odd factors, so that multiplication loses no bits.
        mixed = ((mixed ^ part) * 0x9E3779B97F4A7C15) & MASK
        mixed ^= mixed >> 32
        mixed = (mixed * 0xD6E8FEB86659FD93) & MASK
        mixed ^= mixed >> 29
    return mixed


def unit(*parts: int) -> float:
    """A hash of the parts as a number in [0, 1)."""
    return (mix(*parts) >> 11) / (1 << 53)


def chance(*parts: int) -> Random:
    """A random generator seeded by the parts."""
    return Random(mix(*parts))  # noqa: S311 - repeatable, not secret


def number_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def first_id_at(at_ms: int) -> int:
    """The smallest id of a millisecond. All older posts have smaller ids."""
    return max(at_ms - SNOWFLAKE_EPOCH_MS, 0) << LOW_BITS


def time_of(post_id: int) -> int:
    return (post_id >> LOW_BITS) + SNOWFLAKE_EPOCH_MS


class PostIds:
    """Post ids that encode their author, so that a post is found without an index."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def make(self, at_ms: int, author: int) -> int:
        return first_id_at(at_ms) | ((author * SCATTER + self._low(at_ms)) & LOW_MASK)

    def author_of(self, post_id: int) -> int:
        return ((post_id - self._low(time_of(post_id))) * GATHER) & LOW_MASK

    def _low(self, at_ms: int) -> int:
        return mix(self._seed, Draw.LOW, at_ms) & LOW_MASK


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SimCache(Generic[Key, Value]):
    """An LRU cache bounded by weight."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Value | None:
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: Key, value: Value, weight: int = 1) -> Value:
        self._kept[key] = (value, weight)
        self._total += weight
        # The newest stays even if it alone is too heavy: its caller is using it.
        while self._total > self._most and len(self._kept) > 1:
            self._total -= self._kept.popitem(last=False)[1][1]
        return value
