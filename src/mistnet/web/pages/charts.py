"""What pages draw: strips, heat maps and states of accounts and segments, and charts of amounts over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from mistnet.graph.follows.listing import Counted
from mistnet.graph.follows.model import Side
from mistnet.graph.segments.listing import SegmentLine
from mistnet.graph.segments.model import Snapshot
from mistnet.graph.segments.rules import in_words
from mistnet.kit.text import counted
from mistnet.prices.model import ItemPoint, PastSummary
from mistnet.prices.valuation import commonest_currency
from mistnet.shops.model import PriceKind
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
_LEAST_WIDTH: Final = 6.0
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
    if not whole:
        return ()
    parts = []
    for each in sorted(stretches, key=lambda each: each.standing is not StretchState.VERIFIED):
        least = 0.0 if each.standing is StretchState.VERIFIED else _LEAST_WIDTH
        part = {
            "x": round(min((each.since - begin) / whole * _LENGTH, _LENGTH - least), 1),
            "width": round(max((each.until - each.since) / whole * _LENGTH, least), 1),
            "standing": each.standing,
            "told": f"{each.since:%Y-%m-%d} to {each.until:%Y-%m-%d}: {each.standing.replace('_', ' ')}",
        }
        parts.append(part)
    return parts


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
    return _chart([count.at for count in counts], {"members": [count.members for count in counts]})


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

    def box(self, begin: datetime, end: datetime, low: float, high: float) -> str:
        """The path around a span of times and amounts."""
        x = self.x(begin)
        return f"M{x} {self.y(low)}H{self.x(end)}V{self.y(high)}H{x}Z"

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


class PlacedPoint(msgspec.Struct, frozen=True):
    """A point with its amount in the currency of the chart."""

    point: ItemPoint
    amount: Decimal


def item_chart(past: Sequence[PastSummary], points: Sequence[ItemPoint], now: datetime) -> ItemChart | None:
    """In the currency of the last valuation, or of most points; None if there is nothing to draw."""
    currency = past[-1].currency if past else commonest_currency(points)
    if currency is None:
        return None
    own = [each for each in past if each.currency == currency]
    amounts_of = [(each, each.amount if each.currency == currency else each.converted) for each in points]
    placed = sorted(
        (PlacedPoint(point, amount) for point, amount in amounts_of if amount is not None),
        key=lambda each: (each.point.observed_at, each.point.id),
    )
    used = [each for each in placed if each.point.left_out is None] or placed
    amounts = [amount for each in own for amount in (each.low, each.high)] + [each.amount for each in used]
    if not amounts:
        return None
    times = [each.valued_at for each in own] + [each.point.observed_at for each in placed]
    paper = paper_for([*times, *([now] if own else [])], [float(amount) for amount in amounts])
    # Each valuation holds until the next one, or until it was withdrawn.
    ends = [*(each.valued_at for each in own[1:]), max([now, *(each.valued_at for each in own[-1:])])]
    spans = [(each, each.ended_at or end) for each, end in zip(own, ends, strict=False)]
    return ItemChart(
        line=_line(spans, paper),
        band="".join(paper.box(each.valued_at, end, float(each.low), float(each.high)) for each, end in spans),
        marks=[_mark(each, paper) for each in placed],
        kinds=[kind for kind in PriceKind if any(each.point.kind is kind for each in placed)],
        rules=paper.rules,
        moments=paper.moments,
        currency=currency,
        told=_summary(own, placed, currency),
        elsewhere=len(points) - len(placed),
    )


def _line(spans: Sequence[tuple[PastSummary, datetime]], paper: Paper) -> str:
    parts: list[str] = []
    broken = True
    for each, until in spans:
        x, y = paper.x(each.valued_at), paper.y(float(each.estimate))
        parts.append(f"M{x} {y}" if broken else f"H{x}V{y}")
        parts.append(f"H{paper.x(until)}")
        broken = each.ended_at is not None
    return "".join(parts)


def _mark(each: PlacedPoint, paper: Paper) -> Mark:
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


def _summary(past: Sequence[PastSummary], placed: Sequence[PlacedPoint], currency: str) -> str:
    """The chart in words, for those who cannot see it."""
    points = counted(len(placed), "point")
    if not past:
        return f"{points}, no valuation"
    first, last = past[0], past[-1]
    span = f"{last.low:,f} to {last.high:,f}"
    return f"from {first.estimate:,f} to {last.estimate:,f} {currency}, now within {span}; {points}"
