"""What amounts over time are drawn on: where a moment and an amount stand, and the lines and words of the scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

WIDTH, HEIGHT = 720, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 18, 30
_LINES: Final = 4
_STEPS: Final = (1, 2, 2.5, 5, 10)
_ROOM: Final = 0.12
_LEAST: Final = timedelta(minutes=10)
_SHORT: Final = timedelta(days=2)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the scale."""

    y: float
    label: str


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """As wide as its times, as high as its amounts."""

    begin: datetime
    end: datetime
    low: float
    high: float

    def x(self, at: datetime) -> float:
        return across(min(max(at, self.begin), self.end), self.begin, self.end)

    def y(self, amount: float) -> float:
        share = (min(max(amount, self.low), self.high) - self.low) / (self.high - self.low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    def beyond(self, amount: float) -> str | None:
        """Where an amount lies that has no place on it."""
        return "up" if amount > self.high else "down" if amount < self.low else None

    @property
    def rules(self) -> Sequence[Rule]:
        """Lines at round amounts."""
        raw = (self.high - self.low) / _LINES
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(size * unit for size in _STEPS if size * unit >= raw)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        digits = max(0, -math.floor(math.log10(step)) + (1 if step / unit == 2.5 else 0))
        amounts = [place * step for place in range(first, last + 1)]
        return [Rule(y=self.y(amount), label=f"{amount:,.{digits}f}") for amount in amounts]

    @property
    def moments(self) -> Sequence[tuple[float, str, str]]:
        """Where on the axis, what it says there, and how the words stand to their place."""
        whole = self.end - self.begin
        form = "%d %b %H:%M" if whole < _SHORT else "%d %b %Y"
        marks = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
        moments = [(self.begin + whole * share, anchor) for share, anchor in marks]
        return [(self.x(at), f"{at.astimezone(UTC):{form}}", anchor) for at, anchor in moments]


def across(at: datetime, begin: datetime, end: datetime) -> float:
    """Where a moment stands from left to right."""
    return round(_LEFT + (at - begin) / (end - begin) * (WIDTH - _LEFT - _RIGHT), 1)


def paper_for(times: Sequence[datetime], amounts: Sequence[float]) -> Paper:
    """With some room above and below."""
    begin, end = min(times), max(times)
    low, high = min(amounts), max(amounts)
    room = max((high - low) * _ROOM, high * 0.04, 0.01)
    return Paper(begin=begin, end=max(end, begin + _LEAST), low=max(0.0, low - room), high=high + room)
