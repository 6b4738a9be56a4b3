"""What amounts over time are drawn on: where a moment and an amount stand, and the lines and words of the scale."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from mistnet.kit.text import counted
from mistnet.prices.service import Bearings
from mistnet.prices.store.item_pages import WorthThen
from mistnet.prices.store.valuations import PointLine
from mistnet.shops.model import PriceKind

WIDTH, HEIGHT = 720, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 18, 30
_LINES: Final = 4
_STEPS: Final = (1, 2, 2.5, 5, 10)
_ROOM: Final = 0.12
_LEAST: Final = timedelta(minutes=10)
_SHORT: Final = timedelta(days=2)


class ScaleLine(msgspec.Struct, frozen=True, kw_only=True):
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
    def rules(self) -> Sequence[ScaleLine]:
        """Lines at round amounts."""
        raw = (self.high - self.low) / _LINES
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(size * unit for size in _STEPS if size * unit >= raw)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        digits = max(0, -math.floor(math.log10(step)) + (1 if step / unit == 2.5 else 0))
        amounts = [place * step for place in range(first, last + 1)]
        return [ScaleLine(y=self.y(amount), label=f"{amount:,.{digits}f}") for amount in amounts]

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


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One point. `beyond` is up or down where its amount lies outside of what is drawn."""

    x: float
    y: float
    kind: PriceKind
    told: str
    left_out: bool
    beyond: str | None


class ItemChart(msgspec.Struct, frozen=True, kw_only=True):
    """All that a page needs to draw it. `elsewhere` counts points of currencies without a known rate."""

    line: str
    band: str
    marks: Sequence[Mark]
    kinds: Sequence[PriceKind]
    rules: Sequence[ScaleLine]
    moments: Sequence[tuple[float, str, str]]
    currency: str
    told: str
    elsewhere: int

    @property
    def leaves_out(self) -> bool:
        return any(mark.left_out for mark in self.marks)


class _Placed(msgspec.Struct, frozen=True):
    point: PointLine
    amount: Decimal
    why: str | None


def item_chart(
    course: Sequence[WorthThen], points: Sequence[PointLine], bearings: Bearings, now: datetime
) -> ItemChart | None:
    """In the currency of the last valuation, or of most points; None where there is nothing to draw."""
    currency = course[-1].currency if course else _commonest(points)
    if currency is None:
        return None
    own = [each for each in course if each.currency == currency]
    placed = _placed(points, bearings, currency)
    counted = [each for each in placed if each.why is None] or placed
    amounts = [amount for each in own for amount in (each.low, each.high)] + [each.amount for each in counted]
    if not amounts:
        return None
    times = [each.valued_at for each in own] + [each.point.observed_at for each in placed]
    paper = paper_for([*times, *([now] if own else [])], [float(amount) for amount in amounts])
    spans = _spans(own, now)
    return ItemChart(
        line=_line(spans, paper),
        band=_band(spans, paper),
        marks=[_mark(each, paper) for each in placed],
        kinds=[kind for kind in PriceKind if any(each.point.kind is kind for each in placed)],
        rules=paper.rules,
        moments=paper.moments,
        currency=currency,
        told=_told(own, placed, currency),
        elsewhere=len(points) - len(placed),
    )


def _commonest(points: Sequence[PointLine]) -> str | None:
    counted = Counter(point.currency for point in points)
    return min(counted, key=lambda currency: (-counted[currency], currency), default=None)


def _placed(points: Sequence[PointLine], bearings: Bearings, currency: str) -> Sequence[_Placed]:
    found = []
    for point in points:
        bearing = bearings.of(point)
        amount = point.amount if point.currency == currency else bearing.amount
        if amount is not None:
            found.append(_Placed(point, amount, bearing.why))
    return sorted(found, key=lambda each: (each.point.observed_at, each.point.id))


def _spans(course: Sequence[WorthThen], now: datetime) -> Sequence[tuple[WorthThen, datetime]]:
    """Each valuation holds until the next one, or until it was taken back."""
    nexts = [*(each.valued_at for each in course[1:]), max([now, *(each.valued_at for each in course[-1:])])]
    return [(each, each.ended_at or until) for each, until in zip(course, nexts, strict=True)] if course else []


def _line(spans: Sequence[tuple[WorthThen, datetime]], paper: Paper) -> str:
    parts: list[str] = []
    broken = True
    for worth, until in spans:
        x, y = paper.x(worth.valued_at), paper.y(float(worth.estimate))
        parts.append(f"M{x} {y}" if broken else f"H{x}V{y}")
        parts.append(f"H{paper.x(until)}")
        broken = worth.ended_at is not None
    return "".join(parts)


def _band(spans: Sequence[tuple[WorthThen, datetime]], paper: Paper) -> str:
    return "".join(
        f"M{paper.x(worth.valued_at)} {paper.y(float(worth.low))}H{paper.x(until)}"
        f"V{paper.y(float(worth.high))}H{paper.x(worth.valued_at)}Z"
        for worth, until in spans
    )


def _mark(each: _Placed, paper: Paper) -> Mark:
    amount = float(each.amount)
    return Mark(
        x=paper.x(each.point.observed_at),
        y=paper.y(amount),
        kind=each.point.kind,
        told=_words(each),
        left_out=each.why is not None,
        beyond=paper.beyond(amount),
    )


def _words(each: _Placed) -> str:
    point = each.point
    when = f"{point.observed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    why = f"; left out: {each.why}" if each.why else ""
    return f"{point.kind} {point.amount:,f} {point.currency}, {point.source}, {when}: {point.title[:120]}{why}"


def _told(course: Sequence[WorthThen], placed: Sequence[_Placed], currency: str) -> str:
    """The drawing in words."""
    points = counted(len(placed), "point")
    if not course:
        return f"{points}, no valuation"
    first, last = course[0], course[-1]
    span = f"{last.low:,f} to {last.high:,f}"
    return f"from {first.estimate:,f} to {last.estimate:,f} {currency}, now within {span}; {points}"
