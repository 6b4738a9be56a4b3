"""Charts of amounts over time: the coordinates of times and amounts, the scale, and the chart of an item."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from mistnet.kit.text import counted
from mistnet.prices.model import ItemPoint, PastSummary
from mistnet.prices.valuation import commonest_currency
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
    """The drawing area: from the first time to the last, from the lowest amount to the highest."""

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
        """Where an amount lies that is outside of the area."""
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
        """The labels of the time axis: their place, text and anchor."""
        whole = self.end - self.begin
        form = "%d %b %H:%M" if whole < _SHORT else "%d %b %Y"
        marks = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
        moments = [(self.begin + whole * share, anchor) for share, anchor in marks]
        return [(self.x(at), f"{at.astimezone(UTC):{form}}", anchor) for at, anchor in moments]


def across(at: datetime, begin: datetime, end: datetime) -> float:
    """The horizontal coordinate of a time."""
    return round(_LEFT + (at - begin) / (end - begin) * (WIDTH - _LEFT - _RIGHT), 1)


def paper_for(times: Sequence[datetime], amounts: Sequence[float]) -> Paper:
    """An area for these times and amounts, with some room above and below."""
    begin, end = min(times), max(times)
    low, high = min(amounts), max(amounts)
    room = max((high - low) * _ROOM, high * 0.04, 0.01)
    return Paper(begin=begin, end=max(end, begin + _LEAST), low=max(0.0, low - room), high=high + room)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One point. `beyond` is up or down if its amount lies outside of the area."""

    x: float
    y: float
    kind: PriceKind
    told: str
    left_out: bool
    beyond: str | None


class ItemChart(msgspec.Struct, frozen=True, kw_only=True):
    """What a page needs to draw it. `elsewhere` counts points in currencies without a known rate."""

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
    """A point with its amount in the currency of the chart."""

    point: ItemPoint
    amount: Decimal


def item_chart(past: Sequence[PastSummary], points: Sequence[ItemPoint], now: datetime) -> ItemChart | None:
    """In the currency of the last valuation, or of most points; None if there is nothing to draw."""
    currency = past[-1].currency if past else commonest_currency(points)
    if currency is None:
        return None
    own = [each for each in past if each.currency == currency]
    placed = _placed(points, currency)
    used = [each for each in placed if each.point.left_out is None] or placed
    amounts = [amount for each in own for amount in (each.low, each.high)] + [each.amount for each in used]
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
        told=_summary(own, placed, currency),
        elsewhere=len(points) - len(placed),
    )


def _placed(points: Sequence[ItemPoint], currency: str) -> Sequence[_Placed]:
    amounts = [(each, each.amount if each.currency == currency else each.converted) for each in points]
    found = [_Placed(point, amount) for point, amount in amounts if amount is not None]
    return sorted(found, key=lambda each: (each.point.observed_at, each.point.id))


def _spans(past: Sequence[PastSummary], now: datetime) -> Sequence[tuple[PastSummary, datetime]]:
    """Each valuation holds until the next one, or until it was withdrawn."""
    nexts = [*(each.valued_at for each in past[1:]), max([now, *(each.valued_at for each in past[-1:])])]
    return [(each, each.ended_at or until) for each, until in zip(past, nexts, strict=True)] if past else []


def _line(spans: Sequence[tuple[PastSummary, datetime]], paper: Paper) -> str:
    parts: list[str] = []
    broken = True
    for each, until in spans:
        x, y = paper.x(each.valued_at), paper.y(float(each.estimate))
        parts.append(f"M{x} {y}" if broken else f"H{x}V{y}")
        parts.append(f"H{paper.x(until)}")
        broken = each.ended_at is not None
    return "".join(parts)


def _band(spans: Sequence[tuple[PastSummary, datetime]], paper: Paper) -> str:
    return "".join(
        f"M{paper.x(each.valued_at)} {paper.y(float(each.low))}H{paper.x(until)}"
        f"V{paper.y(float(each.high))}H{paper.x(each.valued_at)}Z"
        for each, until in spans
    )


def _mark(each: _Placed, paper: Paper) -> Mark:
    point, amount = each.point, float(each.amount)
    when = f"{point.observed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    why = f"; left out: {point.left_out}" if point.left_out else ""
    return Mark(
        x=paper.x(point.observed_at),
        y=paper.y(amount),
        kind=point.kind,
        told=f"{point.kind} {point.amount:,f} {point.currency}, {point.source}, {when}: {point.title[:120]}{why}",
        left_out=point.left_out is not None,
        beyond=paper.beyond(amount),
    )


def _summary(past: Sequence[PastSummary], placed: Sequence[_Placed], currency: str) -> str:
    """The chart in words, for those who cannot see it."""
    points = counted(len(placed), "point")
    if not past:
        return f"{points}, no valuation"
    first, last = past[0], past[-1]
    span = f"{last.low:,f} to {last.high:,f}"
    return f"from {first.estimate:,f} to {last.estimate:,f} {currency}, now within {span}; {points}"
