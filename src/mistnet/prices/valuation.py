"""Values an item by what was asked, bid and paid for it: a weighted median, in one currency, with its evidence."""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

from mistnet.prices.model import Carrier, KnownPoint, LeftOut, PointLine, PricePoint, Valuation
from mistnet.shops.extraction.currencies import CODES, THOUSANDTHS, WHOLE
from mistnet.shops.model import PriceKind

OLDEST: Final = timedelta(days=31)
"""How long after its day a rate is used."""

# The default of 28 digits is not enough to multiply an amount by a rate of 36 digits exactly.
_PRECISION: Final = 60
_DIGITS: Final = 18
_LARGEST: Final = Decimal(10) ** _DIGITS


class DatedRate(msgspec.Struct, frozen=True, kw_only=True):
    """On this day one unit of `base` was worth `rate` units of `quote`."""

    base: str
    quote: str
    day: date
    rate: Decimal


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """An amount in another currency, and the rates that led there."""

    amount: Decimal
    by: str | None = None


class _Step(msgspec.Struct, frozen=True):
    rate: Decimal
    backwards: bool
    text: str


_Pair: TypeAlias = tuple[str, str]
_Way: TypeAlias = tuple[_Step, ...]


class Rates:
    """All known rates, by day."""

    def __init__(self, rates: Iterable[DatedRate] = ()) -> None:
        pairs: dict[_Pair, dict[date, Decimal]] = {}
        for each in rates:
            pairs.setdefault((each.base, each.quote), {})[each.day] = each.rate
        self._days = {pair: sorted(days) for pair, days in pairs.items()}
        self._rates: Mapping[_Pair, Mapping[date, Decimal]] = pairs
        self._currencies = sorted({currency for pair in pairs for currency in pair})
        self._ways: dict[tuple[str, str, date], _Way | None] = {}

    def convert(self, amount: Decimal, currency: str, to: str, on: date) -> Converted | None:
        """Convert directly, by the inverse rate, or over a third currency; None if no rate is known."""
        if currency == to:
            return Converted(amount=amount)
        route = (currency, to, on)
        if route not in self._ways:
            over = ([currency, middle, to] for middle in self._currencies if middle not in (currency, to))
            ways = ([self._step(*pair, on) for pair in pairwise(path)] for path in ([currency, to], *over))
            self._ways[route] = next((tuple(filter(None, way)) for way in ways if None not in way), None)
        way = self._ways[route]
        if way is None:
            return None
        with localcontext(prec=_PRECISION):
            for step in way:
                amount = amount / step.rate if step.backwards else amount * step.rate
            return Converted(amount=in_units(amount, to), by=", ".join(step.text for step in way))

    def _step(self, here: str, there: str, on: date) -> _Step | None:
        """The rate of the latest day in either direction. Of the same day, the direct one is preferred."""
        straight, backwards = self._latest((here, there), on), self._latest((there, here), on)
        if straight and (not backwards or straight[0] >= backwards[0]):
            return _Step(straight[1], False, f"{here}/{there} {straight[1].normalize():f} of {straight[0]}")
        if backwards:
            return _Step(backwards[1], True, f"{there}/{here} {backwards[1].normalize():f} of {backwards[0]}")
        return None

    def _latest(self, pair: _Pair, on: date) -> tuple[date, Decimal] | None:
        days = self._days.get(pair, [])
        place = bisect_right(days, on)
        if not place or on - days[place - 1] > OLDEST:
            return None
        return days[place - 1], self._rates[pair][days[place - 1]]


def wrong_with(rate: DatedRate, *, today: date) -> str | None:
    """Why a rate is not valid; None if it is."""
    for currency in (rate.base, rate.quote):
        if currency not in CODES:
            return f"{currency[:20]!r} is no currency we know; write its code of three letters, such as EUR"
    if rate.base == rate.quote:
        return f"{rate.base} in {rate.base} needs no rate"
    if not rate.rate.is_finite() or rate.rate <= 0:
        return f"a rate is a number above 0, not {rate.rate}"
    if rate.rate >= _LARGEST or -int(rate.rate.as_tuple().exponent) > _DIGITS:
        return f"{rate.rate} has more digits than a rate has: at most {_DIGITS} before the point and as many after it"
    if rate.day > today + timedelta(days=1):
        return f"{rate.day} is not over yet: a rate is what was paid on a day"
    return None


def in_units(amount: Decimal, currency: str) -> Decimal:
    """Rounded to what can be paid in this currency."""
    places = 0 if currency in WHOLE else 3 if currency in THOUSANDTHS else 2
    with localcontext(prec=_PRECISION):
        return amount.quantize(Decimal(1).scaleb(-places))


WeighedPoint: TypeAlias = KnownPoint | PointLine

SHOWN: Final = 100
"""How many carriers a valuation names, and how many points left out. All of them are counted."""

_SALE, _ASK, _BID = 1.0, 0.5, 0.3
"""A sale proves a price, an ask is what the seller hopes for, and a bid may still be raised."""

_HALF_LIFE: Final = timedelta(days=90).total_seconds()
_FINE: Final = 1_000_000
"""Weights are integers in this unit, so that their sums are exact in any order."""

_ENOUGH: Final = 4
_FAR: Final = 3.5
# Where most ask the same amount the spread is 0, and every other amount would be an outlier.
_NEVER_FAR: Final = math.log(1.5)
# By this factor a median deviation equals the standard deviation of normally spread amounts.
_LIKE_A_DEVIATION: Final = 1.4826
_MIDDLE, _LOW, _HIGH = 5, 1, 9
"""In tenths of the weight."""

_MANY: Final = 4.0
# Logarithms are rounded: an amount at the very limit must not become an outlier by that.
_ROUNDED: Final = 1e-9


class _Weighed(msgspec.Struct, frozen=True, gc=False):
    """A point that counts, with its amount in the currency of the valuation."""

    amount: Decimal
    weight: int
    source: str
    dedupe_key: str
    point: WeighedPoint
    by: str | None


_PLACE: Final = attrgetter("amount", "weight", "source", "dedupe_key")
"""An order that does not depend on the order in which points arrived."""


class _Unfit(msgspec.Struct, frozen=True):
    """A point that does not count, and what it would have weighed. Lower urgency is listed first."""

    urgency: int
    weight: int
    point: WeighedPoint
    why: str
    amount: Decimal | None = None


_OUTLIER, _NO_RATE, _DOUBTED = range(3)


def value_points(points: Sequence[WeighedPoint], *, currency: str | None, rates: Rates) -> Valuation | None:
    """Value points in this currency, or in the one that most points have. None if no point can be used."""
    trusted = [point for point in points if point.doubt is None and point.amount > 0]
    to = currency or commonest_currency(trusted)
    if not trusted or to is None:
        return None
    newest = max(point.observed_at for point in trusted)
    weighed, unconverted = _weigh(trusted, to, rates, newest)
    kept, outliers = _split_outliers(weighed)
    if not kept:
        return None
    unfit = [*outliers, *unconverted]
    if len(trusted) < len(points):
        doubted = [point for point in points if point.doubt is not None or not point.amount > 0]
        why = "an amount of 0 is not a price"
        unfit += [_Unfit(_DOUBTED, _weight(point, newest), point, point.doubt or why) for point in doubted]
    return _estimate(kept, to, newest, unfit)


def commonest_currency(points: Iterable[WeighedPoint]) -> str | None:
    counted = Counter(point.currency for point in points)
    return min(counted, key=lambda currency: (-counted[currency], currency), default=None)


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
    """Sales weigh more than asks, close matches more than loose ones, and each 90 days of age halve a weight."""
    kind = point.kind
    share = _SALE if kind is PriceKind.SOLD else _ASK if kind is PriceKind.ASK else _BID
    age = (newest - point.observed_at).total_seconds() / _HALF_LIFE
    # At least 1: where all points are old, the sum of their weights must not be 0.
    return round(share * 0.5**age * point.match_strength**2 * _FINE) or 1


def _split_outliers(weighed: list[_Weighed]) -> tuple[list[_Weighed], list[_Unfit]]:
    """Separate amounts far from the median, measured by the spread of the others. Few points have no outliers."""
    if len(weighed) < _ENOUGH:
        return weighed, []
    middle = math.log(_quantiles(weighed)(_MIDDLE))
    # They are in order: where neither end is ever far, the spread need not be known.
    if max(middle - math.log(weighed[0].amount), math.log(weighed[-1].amount) - middle) <= _NEVER_FAR + _ROUNDED:
        return weighed, []
    ratios = [math.log(float(each.amount)) - middle for each in weighed]
    spread = sorted(map(abs, ratios))[len(weighed) // 2] * _LIKE_A_DEVIATION
    limit = max(_FAR * spread, _NEVER_FAR) + _ROUNDED
    if max(-ratios[0], ratios[-1]) <= limit:
        return weighed, []
    kept, outliers = [], []
    for each, ratio in zip(weighed, ratios, strict=True):
        if abs(ratio) <= limit:
            kept.append(each)
        else:
            why = f"outlier: {math.exp(ratio):.2g} {'times' if ratio > 0 else 'of'} what most ask"
            outliers.append(_Unfit(_OUTLIER, each.weight, each.point, why, each.amount))
    return kept, outliers


def _estimate(kept: list[_Weighed], to: str, newest: datetime, unfit: list[_Unfit]) -> Valuation:
    weights = [each.weight for each in kept]
    total = sum(weights)
    quantile = _quantiles(kept)
    # Rounded to what can be paid, unless that leaves the range of the amounts.
    exact = [quantile(share) for share in (_MIDDLE, _LOW, _HIGH)]
    payable = [(each, in_units(each, to)) for each in exact]
    estimate, low, high = (
        rounded if kept[0].amount <= rounded <= kept[-1].amount else amount for amount, rounded in payable
    )
    # The confidence is from 0 to 1: higher for many points of similar weight that match well and agree.
    alike = total**2 / sum([weight * weight for weight in weights])
    sales = sum([each.weight for each in kept if each.point.kind is PriceKind.SOLD]) / total
    fit = sum([each.weight * each.point.match_strength for each in kept]) / total
    agreed = 1 / (1 + float((high - low) / estimate))
    heaviest = sorted(kept, key=lambda each: (-each.weight, each.source, each.dedupe_key))[:SHOWN]
    telling = sorted(unfit, key=lambda e: (e.urgency, -e.weight, e.point.source, e.point.dedupe_key))[:SHOWN]
    return Valuation(
        estimate=estimate,
        low=low,
        high=high,
        currency=to,
        points=len(kept),
        confidence=round((1 - math.exp(-alike / _MANY)) * fit * agreed * (0.7 + 0.3 * sales), 2),
        newest_at=newest,
        points_left_out=len(unfit),
        carriers=[
            Carrier(point_id=each.point.id, amount=each.amount, weight=round(each.weight / total, 6), rate=each.by)
            for each in heaviest
        ],
        left_out=[LeftOut(point_id=each.point.id, why=each.why, amount=each.amount) for each in telling],
    )


def _quantiles(weighed: Sequence[_Weighed]) -> Callable[[int], Decimal]:
    """The amount below which this many tenths of the weight lie; exactly between two amounts it is their mean."""
    passed = list(accumulate([each.weight * 10 for each in weighed]))

    def quantile(tenths: int) -> Decimal:
        goal = passed[-1] // 10 * tenths
        place = bisect_left(passed, goal)
        amount = weighed[place].amount
        if passed[place] == goal and place + 1 < len(weighed):
            return (amount + weighed[place + 1].amount) / 2
        return amount

    return quantile


Rank: TypeAlias = tuple[Any, ...]


def head(point: Any) -> Rank:
    """What nearly always decides: the stronger match, then a point without doubt, then the later observation."""
    return point.match_strength, point.doubt is None, point.observed_at


def rank(point: PricePoint) -> Rank:
    """A total order: where `head` is equal, the values themselves decide. Equal ranks are equal points."""
    return (
        *head(point),
        (point.amount, f"{point.amount:f}"),
        point.currency,
        point.kind.value,
        *map(_none_first, (point.bid_count, point.condition, point.title, point.url, point.external_id)),
        *map(_none_first, (point.product_id, point.offer_id, point.doubt)),
    )


def _none_first(value: str | int | None) -> tuple[bool, str | int]:
    return value is not None, "" if value is None else value
