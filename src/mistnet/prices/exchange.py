"""Converts amounts by the exchange rates of a day. A missing rate is never guessed."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal, localcontext
from typing import Final, TypeAlias

import msgspec

from mistnet.shops.extraction.currencies import CODES, THOUSANDTHS, WHOLE

OLDEST: Final = timedelta(days=31)
"""How long after its day a rate is used."""

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
            over = ([middle, to] for middle in self._currencies if middle not in (currency, to))
            ways = (self._steps(currency, path, on) for path in ([to], *over))
            self._ways[route] = next((way for way in ways if way is not None), None)
        way = self._ways[route]
        if way is None:
            return None
        with localcontext(prec=_PRECISION):
            for step in way:
                amount = amount / step.rate if step.backwards else amount * step.rate
            return Converted(amount=in_units(amount, to), by=", ".join(step.text for step in way))

    def _steps(self, start: str, path: Sequence[str], on: date) -> _Way | None:
        steps, here = [], start
        for there in path:
            step = self._step(here, there, on)
            if step is None:
                return None
            steps.append(step)
            here = there
        return tuple(steps)

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
