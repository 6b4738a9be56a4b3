"""Draws small graphs: a deterministic force-directed layout, and its SVG."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from mistnet.graph.segments.model import SegmentId
from mistnet.graph.selection import Edges, Sample, sample
from mistnet.kit.database import Database
from mistnet.web.pages.cached_counts import KeptResults

Spot: TypeAlias = tuple[float, float]
Pair: TypeAlias = tuple[int, int]

_TURNS: Final = 60
_GOLDEN: Final = math.pi * (3 - math.sqrt(5))
_GRAVITY: Final = 0.06
_NEAR: Final = 1e-4
"""Added to squared distances: two dots in one place would otherwise repel each other infinitely."""


def layout(count: int, pairs: Sequence[Pair]) -> Sequence[Spot]:
    """A position in the unit square for each dot. Pairs attract, all dots repel, and each turn moves less."""
    if count < 2:
        return [(0.5, 0.5)] * count
    # The first dots in the middle, because they are the best connected.
    radii = [0.5 * math.sqrt((place + 0.5) / count) for place in range(count)]
    xs = [radius * math.cos(place * _GOLDEN) for place, radius in enumerate(radii)]
    ys = [radius * math.sin(place * _GOLDEN) for place, radius in enumerate(radii)]
    ideal = 1 / math.sqrt(count)
    for turn in range(_TURNS):
        reach = 0.12 * (1 - turn / _TURNS) + 0.002
        push_x, push_y = _pushes(xs, ys, ideal * ideal)
        for one, other in pairs:
            away_x, away_y = xs[one] - xs[other], ys[one] - ys[other]
            force = math.hypot(away_x, away_y) / ideal
            push_x[one] -= away_x * force
            push_y[one] -= away_y * force
            push_x[other] += away_x * force
            push_y[other] += away_y * force
        for place in range(count):
            step_x = push_x[place] - _GRAVITY * xs[place]
            step_y = push_y[place] - _GRAVITY * ys[place]
            length = math.hypot(step_x, step_y) or 1.0
            short = min(length, reach) / length
            xs[place] += step_x * short
            ys[place] += step_y * short
    return list(zip(_fit(xs), _fit(ys), strict=True))


def _pushes(xs: list[float], ys: list[float], strength: float) -> tuple[list[float], list[float]]:
    """The repulsion of all dots. Plain variables and no function calls, because this is the hot loop of the layout."""
    count = len(xs)
    push_x, push_y = [0.0] * count, [0.0] * count
    for one in range(count):
        own_x, own_y, sum_x, sum_y = xs[one], ys[one], 0.0, 0.0
        for other in range(one + 1, count):
            away_x, away_y = own_x - xs[other], own_y - ys[other]
            force = strength / (away_x * away_x + away_y * away_y + _NEAR)
            away_x *= force
            away_y *= force
            sum_x += away_x
            sum_y += away_y
            push_x[other] -= away_x
            push_y[other] -= away_y
        push_x[one] += sum_x
        push_y[one] += sum_y
    return push_x, push_y


def _fit(values: list[float]) -> list[float]:
    least, most = min(values), max(values)
    width = most - least
    return [(each - least) / width if width > _NEAR else 0.5 for each in values]


WIDTH, HEIGHT, MARGIN = 800, 480, 34
_NAMED, _WELL_NAMED = 24, 8
_MOST_LINES: Final = 1_500
_LONGEST_NAME: Final = 18
_LETTER, _LINE = 8.0, 16.0
"""The room of a letter and the height of a name, in units of the picture."""


class DrawnDot(msgspec.Struct, frozen=True, kw_only=True):
    """A circle with its tooltip `told`. `named`: its name is shown 2 always, 1 on wide screens only, 0 never."""

    x: float
    y: float
    radius: float
    label: str
    told: str
    named: int


class GraphPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A graph as shapes. All lines of one kind are one path."""

    dots: Sequence[DrawnDot]
    one_way: str
    both_ways: str
    lines: int
    candidates: int


class PictureKey(msgspec.Struct, frozen=True):
    """The graph of a segment as of one materialization."""

    segment_id: SegmentId
    edges: Edges
    as_of: datetime


def pictures_of(database: Database) -> KeptResults[PictureKey, GraphPicture]:
    """Draws in a thread: the layout takes a while, and other requests must not wait for it."""

    async def find(key: PictureKey) -> GraphPicture:
        return await asyncio.to_thread(draw, await sample(database, key.segment_id, key.edges), key.edges)

    return KeptResults(find)


def draw(found: Sample, edges: Edges) -> GraphPicture:
    """Well connected members are larger, and start nearer to the middle."""
    places = {dot.user_id: place for place, dot in enumerate(found.dots)}
    heaviest = sorted(found.lines, key=lambda line: (-line.weight, line.source, line.target))[:_MOST_LINES]
    ways = {(places[line.source], places[line.target]) for line in heaviest}
    pairs = sorted({(min(way), max(way)) for way in ways})
    mutual = {pair for pair in pairs if pair in ways and pair[::-1] in ways}
    spots = [
        (round(MARGIN + x * (WIDTH - 2 * MARGIN), 1), round(MARGIN + y * (HEIGHT - 2 * MARGIN), 1))
        for x, y in layout(len(places), pairs)
    ]
    gets: Mapping[int, int] = Counter(line.target for line in found.lines)
    gives: Mapping[int, int] = Counter(line.source for line in found.lines)
    most = max((gets[dot.user_id] for dot in found.dots), default=0) or 1
    words = ("followed by", "follows") if edges is Edges.FOLLOWS else ("answered by", "answers")
    dots: list[DrawnDot] = []
    boxes: list[_Box] = []
    for dot, (x, y) in zip(found.dots, spots, strict=True):
        own = dot.user_id
        who = f"@{dot.handle}" if dot.handle else dot.name or str(own)
        label = who if len(who) <= _LONGEST_NAME else f"{who[: _LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
        told = f"{who}: {words[0]} {gets[own]:,} and {words[1]} {gives[own]:,} of those drawn"
        radius = round(4 + 9 * math.sqrt(gets[own] / most), 1)
        named = (len(boxes) < _NAMED) + (len(boxes) < _WELL_NAMED)
        # Phones show the names of the best connected only, in twice the size.
        box = _box_of(label, x, y - radius, scale=2 if named == 2 else 1)
        if named and any(_overlap(box, other) for other in boxes):
            named = 0
        if named:
            boxes.append(box)
        dots.append(DrawnDot(x=x, y=y, radius=radius, label=label, told=told, named=named))
    return GraphPicture(
        dots=dots,
        one_way=_path(spots, [pair for pair in pairs if pair not in mutual]),
        both_ways=_path(spots, [pair for pair in pairs if pair in mutual]),
        lines=len(ways),
        candidates=found.candidates,
    )


_Box: TypeAlias = tuple[float, float, float, float]


def _box_of(label: str, x: float, y: float, *, scale: int) -> _Box:
    """The room of a name above its dot."""
    middle, half = min(max(x, 70), WIDTH - 70), len(label) * _LETTER * scale / 2
    return middle - half, y - 4 - _LINE * scale, middle + half, y - 4


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _path(spots: Sequence[tuple[float, float]], pairs: Sequence[tuple[int, int]]) -> str:
    return "".join(f"M{spots[one][0]} {spots[one][1]}L{spots[other][0]} {spots[other][1]}" for one, other in pairs)
