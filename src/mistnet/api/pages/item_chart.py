"""What an item is worth over time, as a drawing: its range a band, its estimate a line, points marks by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from mistnet.api.pages.chart_paper import Paper, Rule, paper_for
from mistnet.desk.item_documents import Bearings
from mistnet.domain.plural import counted
from mistnet.domain.products import PriceKind
from mistnet.store.item_pages import WorthThen
from mistnet.store.valuations import PointLine


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
    rules: Sequence[Rule]
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
