"""From one currency to another, by rates somebody told us for a day. A rate nobody told is never guessed."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal, localcontext
from typing import Final

import msgspec

from mistnet.pricing.currency_marks import THOUSANDTHS, WHOLE

OLDEST: Final = timedelta(days=31)
"""A rate serves for so long after its day."""

_PRECISION: Final = 28


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


class Rates:
    """All rates that are known, asked by day."""

    def __init__(self, told: Iterable[DatedRate] = ()) -> None:
        pairs: dict[tuple[str, str], dict[date, Decimal]] = {}
        for each in told:
            pairs.setdefault((each.base, each.quote), {})[each.day] = each.rate
        self._days = {pair: sorted(days) for pair, days in pairs.items()}
        self._rates: Mapping[tuple[str, str], Mapping[date, Decimal]] = pairs
        self._currencies = sorted({currency for pair in pairs for currency in pair})

    def convert(self, amount: Decimal, currency: str, to: str, on: date) -> Converted | None:
        """Straight, backwards, or over one currency both have a rate with; None if nobody told."""
        if currency == to:
            return Converted(amount=amount)
        for path in ([to], *([middle, to] for middle in self._currencies if middle not in (currency, to))):
            steps = self._steps(currency, path, on)
            if steps is not None:
                return _led_by(amount, to, steps)
        return None

    def _steps(self, start: str, path: Sequence[str], on: date) -> list[tuple[Decimal, bool, str]] | None:
        steps, here = [], start
        for there in path:
            step = self._step(here, there, on)
            if step is None:
                return None
            steps.append(step)
            here = there
        return steps

    def _step(self, here: str, there: str, on: date) -> tuple[Decimal, bool, str] | None:
        """The rate of the latest day, whichever way round it was told; told straight goes before backwards."""
        straight, backwards = self._latest((here, there), on), self._latest((there, here), on)
        if straight and (not backwards or straight[0] >= backwards[0]):
            return straight[1], False, f"{here}/{there} {straight[1].normalize():f} of {straight[0]}"
        if backwards:
            return backwards[1], True, f"{there}/{here} {backwards[1].normalize():f} of {backwards[0]}"
        return None

    def _latest(self, pair: tuple[str, str], on: date) -> tuple[date, Decimal] | None:
        days = self._days.get(pair, [])
        place = bisect_right(days, on)
        if not place or on - days[place - 1] > OLDEST:
            return None
        return days[place - 1], self._rates[pair][days[place - 1]]


def _led_by(amount: Decimal, to: str, steps: Sequence[tuple[Decimal, bool, str]]) -> Converted:
    with localcontext(prec=_PRECISION):
        for rate, backwards, _ in steps:
            amount = amount / rate if backwards else amount * rate
        return Converted(amount=in_units(amount, to), by=", ".join(told for _, _, told in steps))


def in_units(amount: Decimal, currency: str) -> Decimal:
    """Rounded to what can be paid in this currency."""
    places = 0 if currency in WHOLE else 3 if currency in THOUSANDTHS else 2
    return amount.quantize(Decimal(1).scaleb(-places))
