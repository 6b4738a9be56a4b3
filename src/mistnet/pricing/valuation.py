"""What a thing is worth, from what was asked, bid and paid for it: a weighted median that says what it rests on.

The result depends on the points and the rates alone: not on their order, not on the day it is worked out.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from mistnet.domain.items import Carrier, LeftOut, StoredPoint, Valuation
from mistnet.domain.products import PriceKind
from mistnet.pricing.exchange import Rates, in_units

_BY_KIND: Final[Mapping[PriceKind, float]] = {PriceKind.SOLD: 1.0, PriceKind.ASK: 0.5, PriceKind.BID: 0.3}
"""A sale is proof; a price asked is a wish; a bid is a floor that others may still raise."""

_HALF_LIFE: Final = timedelta(days=90)
_FINE: Final = 1_000_000
"""Weights are whole numbers of this part, so that their sums are exact in any order."""

_ENOUGH: Final = 4
_FAR: Final = 3.5
_NEVER_FAR: Final = math.log(1.5)
_LIKE_A_DEVIATION: Final = 1.4826
_LOW, _HIGH = 0.1, 0.9
_MANY: Final = 4.0


class _Weighed(msgspec.Struct, frozen=True):
    point: StoredPoint
    amount: Decimal
    weight: int
    by: str | None


def valued(points: Sequence[StoredPoint], *, currency: str | None, rates: Rates) -> Valuation | None:
    """In this currency, or in the one most points have. None where no point can carry it."""
    trusted = [point for point in points if not _unfit(point)]
    left_out = [LeftOut(point_id=point.id, why=why) for point in points if (why := _unfit(point))]
    to = currency or _commonest(trusted)
    if to is None:
        return None
    newest = max(point.observed_at for point in trusted) if trusted else None
    weighed, unconverted = _weigh(trusted, to, rates, newest)
    kept, outliers = _without_outliers(weighed)
    if not kept or newest is None:
        return None
    left_out += [*unconverted, *outliers]
    return _estimated(kept, to, newest, sorted(left_out, key=lambda each: each.point_id))


def _unfit(point: StoredPoint) -> str | None:
    return point.doubt or (None if point.amount > 0 else "an amount of nothing is no price")


def _commonest(points: Iterable[StoredPoint]) -> str | None:
    counted = Counter(point.currency for point in points)
    return min(counted, key=lambda currency: (-counted[currency], currency), default=None)


def _weigh(
    points: Sequence[StoredPoint], to: str, rates: Rates, newest: datetime | None
) -> tuple[list[_Weighed], list[LeftOut]]:
    weighed, unconverted = [], []
    for point in points:
        day = point.observed_at.date()
        converted = rates.convert(point.amount, point.currency, to, day)
        if converted is None:
            why = f"nobody told a rate from {point.currency} to {to} for {day}"
            unconverted.append(LeftOut(point_id=point.id, why=why))
        else:
            age = (newest - point.observed_at) / _HALF_LIFE if newest else 0.0
            weight = _BY_KIND[point.kind] * 0.5**age * point.match_strength**2
            weighed.append(_Weighed(point, converted.amount, max(round(weight * _FINE), 1), converted.by))
    return sorted(weighed, key=_place), unconverted


def _place(each: _Weighed) -> tuple[Decimal, int, str, str]:
    """An order that does not depend on when a point came."""
    return each.amount, each.weight, each.point.source, each.point.dedupe_key


def _without_outliers(weighed: list[_Weighed]) -> tuple[list[_Weighed], list[LeftOut]]:
    """Amounts far from the middle, measured in how far the others are. With few points nobody can tell."""
    if len(weighed) < _ENOUGH:
        return weighed, []
    middle = math.log(_quantile(weighed, 0.5))
    distances = {id(each): abs(math.log(each.amount) - middle) for each in weighed}
    spread = sorted(distances.values())[len(weighed) // 2] * _LIKE_A_DEVIATION
    limit = max(_FAR * spread, _NEVER_FAR)
    kept = [each for each in weighed if distances[id(each)] <= limit]
    far = [each for each in weighed if distances[id(each)] > limit]
    return kept, [LeftOut(point_id=each.point.id, why=_outlying(each, middle), amount=each.amount) for each in far]


def _outlying(each: _Weighed, middle: float) -> str:
    times = math.exp(math.log(each.amount) - middle)
    return f"outlier: {times:.2g} times what most ask" if times > 1 else f"outlier: {times:.2g} of what most ask"


def _estimated(kept: list[_Weighed], to: str, newest: datetime, left_out: Sequence[LeftOut]) -> Valuation:
    total = sum(each.weight for each in kept)
    estimate, low, high = (in_units(_quantile(kept, share), to) for share in (0.5, _LOW, _HIGH))
    return Valuation(
        estimate=estimate,
        low=low,
        high=high,
        currency=to,
        points=len(kept),
        confidence=_confidence(kept, low, high, estimate),
        newest_at=newest,
        carriers=[
            Carrier(point_id=each.point.id, amount=each.amount, weight=round(each.weight / total, 6), rate=each.by)
            for each in sorted(kept, key=lambda each: (-each.weight, each.point.id))
        ],
        left_out=left_out,
    )


def _quantile(weighed: Sequence[_Weighed], share: float) -> Decimal:
    """The amount at which so much of the weight lies below; exactly between two it is their mean."""
    goal = round(share * 10) * sum(each.weight for each in weighed)
    passed = 0
    for place, each in enumerate(weighed):
        passed += each.weight * 10
        if passed == goal and place + 1 < len(weighed):
            return (each.amount + weighed[place + 1].amount) / 2
        if passed >= goal:
            return each.amount
    return weighed[-1].amount


def _confidence(kept: Sequence[_Weighed], low: Decimal, high: Decimal, estimate: Decimal) -> float:
    """From 0 to 1: many points that weigh alike, that fit well and that agree make it sure."""
    weights = [each.weight for each in kept]
    alike = sum(weights) ** 2 / sum(weight * weight for weight in weights)
    sales = sum(each.weight for each in kept if each.point.kind is PriceKind.SOLD) / sum(weights)
    fit = sum(each.weight * each.point.match_strength for each in kept) / sum(weights)
    agreed = 1 / (1 + float((high - low) / estimate)) if estimate else 0.0
    return round((1 - math.exp(-alike / _MANY)) * fit * agreed * (0.7 + 0.3 * sales), 4)
