"""Where the dots of a small graph stand: a force-directed layout, the same for the same graph, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

Spot: TypeAlias = tuple[float, float]
Pair: TypeAlias = tuple[int, int]

_TURNS: Final = 60
_GOLDEN: Final = math.pi * (3 - math.sqrt(5))
_GRAVITY: Final = 0.06
_NEAR: Final = 1e-4
"""Two dots in one place would push each other to infinity."""


def layout(count: int, pairs: Sequence[Pair]) -> Sequence[Spot]:
    """A place for each of `count` dots, between 0 and 1 both ways. Pairs pull, all push, and each turn moves less."""
    if count < 2:
        return [(0.5, 0.5)] * count
    xs, ys = _spiral(count)
    ideal = 1 / math.sqrt(count)
    for turn in range(_TURNS):
        reach = 0.12 * (1 - turn / _TURNS) + 0.002
        push_x, push_y = _pushes(xs, ys, ideal * ideal)
        _pull(xs, ys, pairs, ideal, push_x, push_y)
        for place in range(count):
            step_x = push_x[place] - _GRAVITY * xs[place]
            step_y = push_y[place] - _GRAVITY * ys[place]
            length = math.hypot(step_x, step_y) or 1.0
            short = min(length, reach) / length
            xs[place] += step_x * short
            ys[place] += step_y * short
    return list(zip(_fitted(xs), _fitted(ys), strict=True))


def _spiral(count: int) -> tuple[list[float], list[float]]:
    """The first in the middle: they are the best connected."""
    radii = [0.5 * math.sqrt((place + 0.5) / count) for place in range(count)]
    xs = [radius * math.cos(place * _GOLDEN) for place, radius in enumerate(radii)]
    ys = [radius * math.sin(place * _GOLDEN) for place, radius in enumerate(radii)]
    return xs, ys


def _pushes(xs: list[float], ys: list[float], strength: float) -> tuple[list[float], list[float]]:
    """All push each other away: as many steps as there are pairs, so nothing in it is written twice."""
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


def _pull(
    xs: list[float], ys: list[float], pairs: Sequence[Pair], ideal: float, push_x: list[float], push_y: list[float]
) -> None:
    for one, other in pairs:
        away_x, away_y = xs[one] - xs[other], ys[one] - ys[other]
        force = math.hypot(away_x, away_y) / ideal
        push_x[one] -= away_x * force
        push_y[one] -= away_y * force
        push_x[other] += away_x * force
        push_y[other] += away_y * force


def _fitted(values: list[float]) -> list[float]:
    least, most = min(values), max(values)
    width = most - least
    return [(each - least) / width if width > _NEAR else 0.5 for each in values]
