"""Plots of amounts over time, each with one axis: bars for sums, a line for counts. No script draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mistnet.kit.text import counted

_DAY: Final = 86_400
_STEPS: Final = (1, 5, 15, 30, 60, 300, 900, 1_800, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, _DAY, 2 * _DAY, 7 * _DAY)
_MONTHS: Final = (1, 3, 6, 12, 24, 60, 120)
_ROUND: Final = (1, 2, 2.5, 5, 10)
_RULES: Final = 3
_MOMENTS: Final = 7
_HEADROOM: Final = 1.12
_LEAST_HEIGHT: Final = 1.5
"""The least height of a bar, so that a small amount beside large ones stays visible."""

_FORMS: Final = (
    (300, "%H:%M:%S"),
    (18 * 3_600, "%H:%M"),
    (3 * _DAY, "%H:%M"),
    (100 * _DAY, "%d %b"),
    (3 * 365 * _DAY, "%b %Y"),
    (math.inf, "%Y"),
)
_MARGIN: Final = 4
"""Labels nearer to an end than this would stand beside the plot."""

_MONTHLY: Final = 40
"""A history of more months than this has a bar for each quarter."""


class AxisTick(msgspec.Struct, frozen=True):
    """A label of an axis, and its place in percent."""

    at: float
    text: str


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One amount that is not zero: its place and size in percent, and what it says in words."""

    x: float
    width: float
    height: float
    told: str


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """Bars or a line in a box of 100 by 100. `cap` is the height of a limit."""

    told: str
    rules: Sequence[AxisTick]
    moments: Sequence[AxisTick]
    bars: Sequence[Bar] = ()
    line: str = ""
    cap: float | None = None


def bar_plot(
    edges: Sequence[datetime],
    amounts: Sequence[float],
    words: Callable[[float], str],
    *,
    cap: float | None = None,
    span: tuple[datetime, datetime] | None = None,
) -> Plot | None:
    """A bar for each time from one edge to the next; None if there is no amount. `words` writes an amount.

    A cap that is far above all amounts is left out: beside it they would be flat. `span` is the time that is shown,
    else that of all edges.
    """
    first, last = span or (edges[0], edges[-1])
    most = max(amounts, default=0)
    if most <= 0:
        return None
    cap = cap if cap and cap <= 4 * most else None
    top = max(most, cap or 0) * _HEADROOM
    bars = []
    for begin, end, amount in zip(edges, edges[1:], amounts, strict=False):
        if amount > 0:
            left, right = (min(max(_share(at, first, last), 0.0), 100.0) for at in (begin, end))
            height = round(max(amount / top * 100, _LEAST_HEIGHT), 2)
            x, width = round(left + (right - left) * 0.08, 3), round((right - left) * 0.84, 3)
            bars.append(Bar(x=x, width=width, height=height, told=f"{_span_words(begin, end)}: {words(amount)}"))
    return Plot(
        told=f"{_span_words(first, last)}: at most {words(most)}",
        rules=_rules(0, top, words),
        moments=_moments(first, last),
        bars=bars,
        cap=cap and round(cap / top * 100, 2),
    )


def line_plot(moments: Sequence[datetime], counts: Sequence[int], what: str) -> Plot | None:
    """Counts as steps, each until the next; None for less than two, which make no line."""
    if len(moments) < 2:
        return None
    low, high = min(counts), max(counts)
    # The axis need not begin at 0, but a level line must not look like a storm.
    room = max((high - low) * 0.15, high * 0.02, 2)
    low, top = max(0, math.floor(low - room)), math.ceil(high + room)
    steps: list[str] = []
    for at, count in zip(moments, counts, strict=True):
        x, y = round(_share(at, moments[0], moments[-1]), 2), round(100 - (count - low) / (top - low) * 100, 2)
        steps.append(f"H{x}V{y}" if steps else f"M{x} {y}")
    words = f"from {counts[0]:,} to {counts[-1]:,} {what}"
    return Plot(
        told=f"{counted(len(counts), 'count')} {_span_words(moments[0], moments[-1])}: {words}",
        rules=_rules(low, top, lambda amount: f"{amount:,.0f}"),
        moments=_moments(moments[0], moments[-1]),
        line="".join(steps),
    )


def month_edges(begin: datetime, end: datetime) -> Sequence[datetime]:
    """The beginnings of months, or of quarters in a long history, around a span."""
    step = 1 if (end.year - begin.year) * 12 + end.month - begin.month <= _MONTHLY else 3
    first = begin.year * 12 + (begin.month - 1) // step * step
    last = end.year * 12 + end.month - 1
    return [_month(each) for each in range(first, last + step + 1, step)]


def _month(number: int) -> datetime:
    return datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC)


def _share(at: datetime, begin: datetime, end: datetime) -> float:
    return (at - begin) / (end - begin) * 100


def _span_words(begin: datetime, end: datetime) -> str:
    length = (end - begin).total_seconds()
    if length < _DAY:
        return f"{begin:%d %b %H:%M:%S}" if length < 60 else f"{begin:%d %b %H:%M}"
    if length < 1.1 * _DAY:
        return f"{begin:%d %b %Y}"
    last = end - timedelta(seconds=1)
    whole_month = begin.day == 1 and length < 32 * _DAY
    return f"{begin:%b %Y}" if whole_month else f"{begin:%b %Y} to {last:%b %Y}"


def _rules(low: float, top: float, words: Callable[[float], str]) -> Sequence[AxisTick]:
    """Labels at round amounts."""
    raw = (top - low) / _RULES
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(size * unit for size in _ROUND if size * unit >= raw)
    places = (place * step for place in range(math.ceil(low / step), math.floor(top / step) + 1))
    ticks = [AxisTick(round((amount - low) / (top - low) * 100, 2), words(amount)) for amount in places if amount]
    # Counts have no halves: two labels that read alike would be one too many.
    return [tick for place, tick in enumerate(ticks) if tick.text not in {each.text for each in ticks[:place]}]


def _moments(begin: datetime, end: datetime) -> Sequence[AxisTick]:
    """Labels at round times."""
    length = (end - begin).total_seconds()
    form = next(form for longest, form in _FORMS if length <= longest)
    if length < 70 * _DAY:
        step = next((each for each in _STEPS if length / each <= _MOMENTS), _STEPS[-1])
        numbers = range(math.ceil(begin.timestamp() / step), math.floor(end.timestamp() / step) + 1)
        times = [datetime.fromtimestamp(number * step, UTC) for number in numbers]
    else:
        months = length / (30.4 * _DAY)
        step = next((each for each in _MONTHS if months / each <= _MOMENTS), _MONTHS[-1])
        first = -(-(begin.year * 12 + begin.month - 1) // step) * step
        times = [_month(number) for number in range(first, end.year * 12 + end.month, step)]
    # In a day or a few, midnight is the day that begins.
    days = 18 * 3_600 < length <= 3 * _DAY
    placed = [
        AxisTick(
            round(_share(at, begin, end), 2), f"{at:%d %b}" if days and not (at.hour or at.minute) else f"{at:{form}}"
        )
        for at in times
    ]
    return [tick for tick in placed if _MARGIN <= tick.at <= 100 - _MARGIN]
