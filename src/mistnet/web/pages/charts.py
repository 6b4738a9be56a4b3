"""What pages draw: strips, heat maps and states of accounts and segments, and charts of amounts over time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from mistnet.graph.segments.listing import SegmentLine
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
from mistnet.social.store.account_pages import Listed, MonthOfPosts
from mistnet.web.pages.dashboard import AccountCounts
from mistnet.web.pages.plots import Plot, bar_plot, month_edges
from mistnet.web.pages.render import number

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


def doing(progress: AccountProgress) -> str:  # noqa: PLR0911 (one for each thing it may do)
    """What currently happens with an account, in a few words."""
    if progress.state is not AccountState.ACTIVE:
        return progress.state_reason or str(progress.state)
    if progress.gaps:
        return "collecting failed: see its jobs"
    if is_suspect(progress):
        return f"suspect: {few_stored(progress)}"
    if progress.alive(SweepKind.BACKFILL):
        return f"collected back to {progress.oldest_post_at:%b %Y}" if progress.oldest_post_at else "starts"
    if progress.alive(SweepKind.REPOSTS) and progress.reposts_backfilled_at is None:
        return "collects native retweets"
    if progress.alive(SweepKind.CATCH_UP):
        return "checks for new posts"
    if progress.backfilled_at is None:
        return "no job collects its history"
    return f"complete since {progress.oldest_post_at:%b %Y}" if progress.oldest_post_at else "complete"


def history_plots(months: Sequence[MonthOfPosts], begin: datetime, now: datetime) -> Mapping[str, Plot | None]:
    """An account's posts per month or quarter, and the likes that each has on average."""
    edges = month_edges(begin, now)
    posts, likes = [0.0] * (len(edges) - 1), [0.0] * (len(edges) - 1)
    liked = [0] * (len(edges) - 1)
    for month in months:
        # A post from before the account was opened counts for its first month.
        place = max(bisect_right(edges, month.since) - 1, 0)
        if place < len(posts):
            posts[place] += month.posts
            likes[place] += month.likes
            liked[place] += month.liked
    average = [some / many if many else 0.0 for some, many in zip(likes, liked, strict=True)]
    return {
        "posts": bar_plot(edges, posts, number, span=(begin, now)),
        "likes": bar_plot(
            edges, average, lambda some: number(some) if some >= 10 else f"{some:.1f}", span=(begin, now)
        ),
    }


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
    "": ("only on request", None),
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
        return "on request"
    size, unit = next((each for each in _UNITS if seconds >= each[0]), (1, "second"))
    amount = seconds / size
    return f"every {unit}" if amount == 1 else f"every {amount:g} {unit}s"


WIDTH, HEIGHT = 720, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 18, 30
_LINES: Final = 4
_STEPS: Final = (1, 2, 2.5, 5, 10)
_ROOM: Final = 0.12
_LEAST: Final = timedelta(minutes=10)
_SHORT: Final = timedelta(days=2)


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """The drawing area: from the first time to the last, from the lowest amount to the highest."""

    begin: datetime
    end: datetime
    low: float
    high: float

    def x(self, at: datetime) -> float:
        share = (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, amount: float) -> float:
        share = (min(max(amount, self.low), self.high) - self.low) / (self.high - self.low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    def box(self, begin: datetime, end: datetime, low: float, high: float) -> str:
        """The path around a span of times and amounts."""
        x = self.x(begin)
        return f"M{x} {self.y(low)}H{self.x(end)}V{self.y(high)}H{x}Z"

    def steps(self, spans: Sequence[tuple[datetime, datetime, Decimal]]) -> str:
        """The path along amounts, each from a time until another. It breaks between spans that do not meet."""
        parts: list[str] = []
        ended: datetime | None = None
        for begin, end, amount in spans:
            x, y = self.x(begin), self.y(float(amount))
            if ended == begin:
                parts.append(f"H{x}V{y}")
            else:
                parts.append(f"H{self.x(ended)}M{x} {y}" if ended else f"M{x} {y}")
            ended = end
        return "".join([*parts, f"H{self.x(ended)}"]) if ended else ""

    def dot(self, at: datetime, amount: Decimal, told: str) -> Dot:
        value = float(amount)
        beyond = "up" if value > self.high else "down" if value < self.low else None
        return Dot(x=self.x(at), y=self.y(value), told=told, beyond=beyond)

    @property
    def rules(self) -> Sequence[tuple[float, str]]:
        """Lines at round amounts: their place and label."""
        raw = (self.high - self.low) / _LINES
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(size * unit for size in _STEPS if size * unit >= raw)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        digits = max(0, -math.floor(math.log10(step)) + (1 if step / unit == 2.5 else 0))
        amounts = [place * step for place in range(first, last + 1)]
        return [(self.y(amount), f"{amount:,.{digits}f}") for amount in amounts]

    @property
    def moments(self) -> Sequence[tuple[float, str, str]]:
        """The labels of the time axis: their place, text and anchor."""
        whole = self.end - self.begin
        form = "%d %b %H:%M" if whole < _SHORT else "%d %b %Y"
        marks = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
        moments = [(self.begin + whole * share, anchor) for share, anchor in marks]
        return [(self.x(at), f"{at.astimezone(UTC):{form}}", anchor) for at, anchor in moments]


def paper_for(times: Sequence[datetime], amounts: Sequence[float]) -> Paper:
    """An area for these times and amounts, with some room above and below."""
    begin, end = min(times), max(times)
    low, high = min(amounts), max(amounts)
    room = max((high - low) * _ROOM, high * 0.04, 0.01)
    return Paper(begin=begin, end=max(end, begin + _LEAST), low=max(0.0, low - room), high=high + room)


class Dot(msgspec.Struct, frozen=True, kw_only=True):
    """One amount, in words as `told`. `beyond` is up or down if it lies outside of the area."""

    x: float
    y: float
    told: str
    beyond: str | None


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """What a page needs to draw amounts over time. `elsewhere` counts those in currencies that it does not show."""

    paper: Paper
    line: str
    band: str
    currency: str
    told: str
    elsewhere: int


class ItemChart(Chart, frozen=True, kw_only=True):
    """An item's valuations and its points."""

    marks: Sequence[tuple[ItemPoint, Dot]]

    @property
    def kinds(self) -> Sequence[PriceKind]:
        return [kind for kind in PriceKind if any(point.kind is kind for point, _ in self.marks)]

    @property
    def leaves_out(self) -> bool:
        return any(point.left_out for point, _ in self.marks)


def item_chart(past: Sequence[PastSummary], points: Sequence[ItemPoint], now: datetime) -> ItemChart | None:
    """In the currency of the last valuation, or of most points; None if there is nothing to draw."""
    currency = past[-1].currency if past else commonest_currency(points)
    if currency is None:
        return None
    own = [each for each in past if each.currency == currency]
    amounts_of = [(each, each.amount if each.currency == currency else each.converted) for each in points]
    placed = sorted(
        ((point, amount) for point, amount in amounts_of if amount is not None),
        key=lambda each: (each[0].observed_at, each[0].id),
    )
    # Points that were left out may be far off, and must not make the scale of the others flat.
    used = [amount for point, amount in placed if point.left_out is None] or [amount for _, amount in placed]
    amounts = [amount for each in own for amount in (each.low, each.high)] + used
    if not amounts:
        return None
    times = [each.valued_at for each in own] + [point.observed_at for point, _ in placed]
    paper = paper_for([*times, *([now] if own else [])], [float(amount) for amount in amounts])
    # Each valuation holds until the next one, or until it was withdrawn.
    ends = [*(each.valued_at for each in own[1:]), max([now, *(each.valued_at for each in own[-1:])])]
    spans = [(each, each.ended_at or end) for each, end in zip(own, ends, strict=False)]
    told = counted(len(placed), "point")
    if own:
        first, last = own[0], own[-1]
        course = f"from {first.estimate:,f} to {last.estimate:,f} {currency}"
        told = f"{course}, now within {last.low:,f} to {last.high:,f}; {told}"
    else:
        told = f"{told}, no valuation"
    return ItemChart(
        paper=paper,
        line=paper.steps([(each.valued_at, end, each.estimate) for each, end in spans]),
        band="".join(paper.box(each.valued_at, end, float(each.low), float(each.high)) for each, end in spans),
        marks=[(point, paper.dot(point.observed_at, amount, _in_words(point))) for point, amount in placed],
        currency=currency,
        told=told,
        elsewhere=len(points) - len(placed),
    )


def _in_words(point: ItemPoint) -> str:
    when = f"{point.observed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    why = f"; left out: {point.left_out}" if point.left_out else ""
    return f"{point.kind} {point.amount:,f} {point.currency}, {point.source}, {when}: {point.title[:120]}{why}"
