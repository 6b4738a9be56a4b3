"""Judges whether a measure stays flat: the slope of its last half, by least squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

HOUR: Final = 3_600.0
FEWEST: Final = 8
"""With fewer samples in the last half, a slope says nothing."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was measured at one moment, by name."""

    seconds: float
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much a measure may grow over the last half of a run: an amount, a share of its mean, and so much an hour.

    The first two are for what goes up and down without growing. A leak grows with the time and passes them in the end.
    """

    amount: float
    share: float = 0.0
    per_hour: float = 0.0

    def allowed(self, mean: float, hours: float) -> float:
        return self.amount + self.share * mean + self.per_hour * hours


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`grown` is what the slope comes to over the last half."""

    name: str
    first: float
    last: float
    per_hour: float
    grown: float
    allowed: float
    judged: bool = True

    @property
    def flat(self) -> bool:
        return not self.judged or self.grown <= self.allowed


def slope_of(points: Sequence[tuple[float, float]]) -> float:
    """By least squares; 0 where all points have the same place."""
    middle = sum(x for x, _ in points) / len(points)
    mean = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    return sum((x - middle) * (y - mean) for x, y in points) / spread if spread else 0.0


def judge(name: str, samples: Sequence[Sample], limit: Limit | None) -> Judgement:
    """Without a limit, or with too few samples, it is only shown."""
    points = [(each.seconds, each.values[name]) for each in samples if name in each.values]
    half = points[len(points) // 2 :]
    slope = slope_of(half) if half else 0.0
    seconds = half[-1][0] - half[0][0] if half else 0.0
    mean = sum(value for _, value in half) / len(half) if half else 0.0
    return Judgement(
        name=name,
        first=points[0][1] if points else 0.0,
        last=points[-1][1] if points else 0.0,
        per_hour=slope * HOUR,
        grown=slope * seconds,
        allowed=limit.allowed(mean, seconds / HOUR) if limit else 0.0,
        judged=limit is not None and len(half) >= FEWEST,
    )


def table_of(judgements: Sequence[Judgement]) -> str:
    """One line for each measure, those that are not flat first."""
    lines = [f"{'measure':32}{'first':>12}{'last':>12}{'per hour':>12}{'grown':>12}{'allowed':>12}  verdict"]
    for each in sorted(judgements, key=lambda one: one.flat):
        verdict = "not judged" if not each.judged else "flat" if each.flat else "GROWS"
        figures = (each.first, each.last, each.per_hour, each.grown)
        shown = "".join(f"{figure:12,.1f}" for figure in figures)
        allowed = f"{each.allowed:12,.1f}" if each.judged else f"{'-':>12}"
        lines.append(f"{each.name:32}{shown}{allowed}  {verdict}")
    return "\n".join(lines)
