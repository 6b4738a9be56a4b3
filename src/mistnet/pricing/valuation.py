"""What a thing is worth, from what was asked, bid and paid for it: a weighted median that says what it rests on.

The result depends on the points and the rates alone: not on their order, not on the day it is worked out.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from operator import attrgetter
from typing import Final

import msgspec

from mistnet.domain.items import Carrier, LeftOut, Valuation, WeighedPoint
from mistnet.domain.products import PriceKind
from mistnet.pricing.exchange import Rates, in_units

SHOWN: Final = 100
"""So many carriers are named, and so many that were left out; all are counted."""

_SALE, _WISH, _FLOOR = 1.0, 0.5, 0.3
"""A sale is proof; a price asked is a wish; a bid is a floor that others may still raise."""

_HALF_LIFE: Final = timedelta(days=90).total_seconds()
_FINE: Final = 1_000_000
"""Weights are whole numbers of this part, so that their sums are exact in any order."""

_ENOUGH: Final = 4
_FAR: Final = 3.5
_NEVER_FAR: Final = math.log(1.5)
_LIKE_A_DEVIATION: Final = 1.4826
_MIDDLE, _LOW, _HIGH = 5, 1, 9
"""In tenths of the weight."""

_MANY: Final = 4.0
_ROUNDED: Final = 1e-9


class _Weighed(msgspec.Struct, frozen=True, gc=False):
    """A point that counts, in the currency of the valuation."""

    amount: Decimal
    weight: int
    source: str
    dedupe_key: str
    point: WeighedPoint
    by: str | None


_PLACE: Final = attrgetter("amount", "weight", "source", "dedupe_key")
"""An order that no arrival can change."""


class _Unfit(msgspec.Struct, frozen=True):
    """A point that does not count, and what it would have weighed."""

    urgency: int
    weight: int
    point: WeighedPoint
    why: str
    amount: Decimal | None = None


_OUTLIER, _NO_RATE, _DOUBTED = range(3)


def valued(points: Sequence[WeighedPoint], *, currency: str | None, rates: Rates) -> Valuation | None:
    """In this currency, or in the one most points have. None where no point can carry it."""
    trusted = [point for point in points if not _unfit(point)]
    if not trusted:
        return None
    newest = max(point.observed_at for point in trusted)
    to = currency or _commonest(trusted)
    weighed, unconverted = _weigh(trusted, to, rates, newest)
    kept, outliers = _without_outliers(weighed)
    if not kept:
        return None
    unfit = [*outliers, *unconverted]
    if len(trusted) < len(points):
        doubted = ((point, _unfit(point)) for point in points)
        unfit += [_Unfit(_DOUBTED, _weight(point, newest), point, why) for point, why in doubted if why]
    return _estimated(kept, to, newest, unfit)


def _unfit(point: WeighedPoint) -> str | None:
    return point.doubt or (None if point.amount > 0 else "an amount of nothing is no price")


def _commonest(points: Iterable[WeighedPoint]) -> str:
    counted = Counter(point.currency for point in points)
    return min(counted, key=lambda currency: (-counted[currency], currency))


def _weigh(
    points: Sequence[WeighedPoint], to: str, rates: Rates, newest: datetime
) -> tuple[list[_Weighed], list[_Unfit]]:
    weighed, unconverted = [], []
    for point in points:
        weight = _weight(point, newest)
        if point.currency == to:
            weighed.append(_Weighed(point.amount, weight, point.source, point.dedupe_key, point, None))
            continue
        day = point.observed_at.astimezone(UTC).date()
        converted = rates.convert(point.amount, point.currency, to, day)
        if converted is None:
            why = f"no rate from {point.currency} to {to} is known for {day}"
            unconverted.append(_Unfit(_NO_RATE, weight, point, why))
        elif not converted.amount:
            why = f"{point.amount:f} {point.currency} is less than the smallest unit of {to}"
            unconverted.append(_Unfit(_NO_RATE, weight, point, why))
        else:
            weighed.append(_Weighed(converted.amount, weight, point.source, point.dedupe_key, point, converted.by))
    return sorted(weighed, key=_PLACE), unconverted


def _weight(point: WeighedPoint, newest: datetime) -> int:
    """A sale more than a wish, what fits well more than what fits a little, half of it for each 90 days of age."""
    kind = point.kind
    share = _SALE if kind is PriceKind.SOLD else _WISH if kind is PriceKind.ASK else _FLOOR
    age = (newest - point.observed_at).total_seconds() / _HALF_LIFE
    return round(share * 0.5**age * point.match_strength**2 * _FINE) or 1


def _without_outliers(weighed: list[_Weighed]) -> tuple[list[_Weighed], list[_Unfit]]:
    """Amounts far from the middle, measured in how far the others are. With few points nobody can tell."""
    if len(weighed) < _ENOUGH:
        return weighed, []
    middle = math.log(_quantiles(weighed)(_MIDDLE))
    ratios = [math.log(float(each.amount)) - middle for each in weighed]
    spread = sorted(map(abs, ratios))[len(weighed) // 2] * _LIKE_A_DEVIATION
    limit = max(_FAR * spread, _NEVER_FAR) + _ROUNDED
    if max(-ratios[0], ratios[-1]) <= limit:
        return weighed, []
    found = list(zip(weighed, ratios, strict=True))
    kept = [each for each, ratio in found if abs(ratio) <= limit]
    far = [(each, ratio) for each, ratio in found if abs(ratio) > limit]
    return kept, [_Unfit(_OUTLIER, each.weight, each.point, _outlying(ratio), each.amount) for each, ratio in far]


def _outlying(ratio: float) -> str:
    times = math.exp(ratio)
    return f"outlier: {times:.2g} times what most ask" if times > 1 else f"outlier: {times:.2g} of what most ask"


def _estimated(kept: list[_Weighed], to: str, newest: datetime, unfit: list[_Unfit]) -> Valuation:
    total = sum(each.weight for each in kept)
    quantile = _quantiles(kept)
    estimate, low, high = (_payable(quantile(share), kept, to) for share in (_MIDDLE, _LOW, _HIGH))
    heaviest = sorted(kept, key=lambda each: (-each.weight, each.source, each.dedupe_key))[:SHOWN]
    telling = sorted(unfit, key=lambda e: (e.urgency, -e.weight, e.point.source, e.point.dedupe_key))[:SHOWN]
    return Valuation(
        estimate=estimate,
        low=low,
        high=high,
        currency=to,
        points=len(kept),
        confidence=_confidence(kept, low, high, estimate),
        newest_at=newest,
        points_left_out=len(unfit),
        carriers=[
            Carrier(point_id=each.point.id, amount=each.amount, weight=round(each.weight / total, 6), rate=each.by)
            for each in heaviest
        ],
        left_out=[LeftOut(point_id=each.point.id, why=each.why, amount=each.amount) for each in telling],
    )


def _quantiles(weighed: Sequence[_Weighed]) -> Callable[[int], Decimal]:
    """The amount at which so many tenths of the weight lie below; exactly between two it is their mean."""
    passed = list(accumulate([each.weight * 10 for each in weighed]))

    def quantile(tenths: int) -> Decimal:
        goal = passed[-1] // 10 * tenths
        place = bisect_left(passed, goal)
        amount = weighed[place].amount
        if passed[place] == goal and place + 1 < len(weighed):
            return (amount + weighed[place + 1].amount) / 2
        return amount

    return quantile


def _payable(amount: Decimal, kept: Sequence[_Weighed], to: str) -> Decimal:
    """A mean is rounded to what can be paid, unless that led out of what was asked."""
    rounded = in_units(amount, to)
    return rounded if kept[0].amount <= rounded <= kept[-1].amount else amount


def _confidence(kept: Sequence[_Weighed], low: Decimal, high: Decimal, estimate: Decimal) -> float:
    """From 0 to 1: many points that weigh alike, that fit well and that agree make it sure."""
    weights = [each.weight for each in kept]
    total = sum(weights)
    alike = total**2 / sum([weight * weight for weight in weights])
    sales = sum([each.weight for each in kept if each.point.kind is PriceKind.SOLD]) / total
    fit = sum([each.weight * each.point.match_strength for each in kept]) / total
    agreed = 1 / (1 + float((high - low) / estimate))
    return round((1 - math.exp(-alike / _MANY)) * fit * agreed * (0.7 + 0.3 * sales), 2)
