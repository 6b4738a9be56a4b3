"""Values an item by what was asked, bid and paid for it: a weighted median with its evidence."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from hashlib import sha256
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from mistnet.prices.exchange import Rates, in_units
from mistnet.prices.model import Carrier, KnownPoint, LeftOut, PointLine, PricePoint, Valuation
from mistnet.shops.extraction.words import plain_text
from mistnet.shops.model import PriceKind

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
_NEVER_FAR: Final = math.log(1.5)
_LIKE_A_DEVIATION: Final = 1.4826
_MIDDLE, _LOW, _HIGH = 5, 1, 9
"""In tenths of the weight."""

_MANY: Final = 4.0
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
    trusted = [point for point in points if not _unfit(point)]
    to = currency or commonest_currency(trusted)
    if not trusted or to is None:
        return None
    newest = max(point.observed_at for point in trusted)
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
    return point.doubt or (None if point.amount > 0 else "an amount of 0 is not a price")


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
    return round(share * 0.5**age * point.match_strength**2 * _FINE) or 1


def _without_outliers(weighed: list[_Weighed]) -> tuple[list[_Weighed], list[_Unfit]]:
    """Separate amounts far from the median, measured by the spread of the others. Few points have no outliers."""
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


def _payable(amount: Decimal, kept: Sequence[_Weighed], to: str) -> Decimal:
    """Round a mean to the currency's unit, unless that leaves the range of the amounts."""
    rounded = in_units(amount, to)
    return rounded if kept[0].amount <= rounded <= kept[-1].amount else amount


def _confidence(kept: Sequence[_Weighed], low: Decimal, high: Decimal, estimate: Decimal) -> float:
    """From 0 to 1: higher for many points of similar weight that match well and agree."""
    weights = [each.weight for each in kept]
    total = sum(weights)
    alike = total**2 / sum([weight * weight for weight in weights])
    sales = sum([each.weight for each in kept if each.point.kind is PriceKind.SOLD]) / total
    fit = sum([each.weight * each.point.match_strength for each in kept]) / total
    agreed = 1 / (1 + float((high - low) / estimate))
    return round((1 - math.exp(-alike / _MANY)) * fit * agreed * (0.7 + 0.3 * sales), 2)


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


_DIGITS: Final = 16
_LONGEST: Final = 200
_BETWEEN: Final = "\x1f"
_PRECISION: Final = 200


def dedupe_key(
    *, external_id: str | None, url: str, title: str, amount: Decimal, observed_at: datetime, kind: PriceKind
) -> str:
    """The source's own id if there is one, else a hash of what was seen on that day (UTC)."""
    if external_id and external_id.strip():
        own = external_id.strip()
        # An id that is too long for an index is replaced by its hash.
        return f"ext_{own if len(own) <= _LONGEST else _hashed(own)}"
    day = observed_at.astimezone(UTC).date().isoformat()
    with localcontext(prec=_PRECISION):
        cents = f"{(amount * 100).quantize(Decimal(1), ROUND_HALF_EVEN):f}"
    parts = (_plain_url(url), plain_text(title), cents, day, kind.value)
    return f"hash_{_hashed(_BETWEEN.join(parts))[:_DIGITS]}"


def _plain_url(url: str) -> str:
    """Without query, fragment and trailing slash."""
    spelt = plain_text(url).replace(" ", "")
    try:
        parts = urlsplit(spelt)
    except ValueError:  # a malformed URL still identifies the listing
        return spelt.partition("#")[0].partition("?")[0].rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def _hashed(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()
