"""Says why a price is not believed yet, given the earlier prices of the same product.

A well-formed response is no proof of a true price: shops are known to serve invented amounts to crawlers.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Final

import msgspec

from mistnet.shops.extraction.currencies import THOUSANDTHS, WHOLE
from mistnet.shops.model import PageFacts

_RECENT: Final = 20
_JUMP: Final = Decimal(5)
_MOVED: Final = Decimal("0.05")
_SLACK: Final = 0.02
_FELL: Final = 0.75
_SHAKY_WINDOW: Final = timedelta(hours=48)
_SHAKY_LOOKS: Final = 3
_MINUTES_APART: Final = timedelta(minutes=10)
# Currencies whose everyday prices have five and more digits.
_SMALL_UNITS: Final = frozenset(("VND", "IDR", "KRW", "LAK", "KHR", "MMK", "PYG", "COP", "CLP", "HUF"))


class EarlierPrice(msgspec.Struct, frozen=True, kw_only=True):
    """One earlier observation of the same product."""

    amount: Decimal
    currency: str
    observed_at: datetime
    sold_count: int | None = None
    rating_count: int | None = None


def find_doubt(new: PageFacts, earlier: Sequence[EarlierPrice], *, now: datetime | None = None) -> str | None:
    """Why an offer is doubted; None if nothing speaks against it.

    `earlier` are observations of the same product in any order, without the doubted ones. With `now`, two visits
    minutes apart are compared too.
    """
    if new.amount is None:
        return None
    known = sorted(earlier, key=lambda each: each.observed_at)[-_RECENT:]
    rules: Iterable[Callable[[], str | None]] = (
        lambda: "nothing tells the currency" if new.currency is None else None,
        lambda: _below_the_minor_unit(new),
        lambda: _placeholder(new, known),
        lambda: _other_currency(new, known),
        lambda: _jumped(new, known),
        lambda: _counters_fell(new, known),
        lambda: _shaky(new, known),
        lambda: _two_answers(new, known, now),
    )
    return next((why for rule in rules if (why := rule())), None)


def _below_the_minor_unit(new: PageFacts) -> str | None:
    """No price has parts of a dong, or thousandths of a dollar."""
    places = 0 if new.currency in WHOLE else 3 if new.currency in THOUSANDTHS else 2
    for amount in (new.amount, new.amount_max, new.list_amount):
        if amount is not None and amount != round(amount, places):
            return f"{amount} {new.currency} is not a whole number of the currency's smallest unit"
    return None


def _placeholder(new: PageFacts, known: Sequence[EarlierPrice]) -> str | None:
    """Sellers write 99,999 for products that are not for sale."""
    digits = f"{new.amount:f}".split(".")[0]
    least = 8 if new.currency in _SMALL_UNITS else 5
    odd = len(digits) >= least and (set(digits) in ({"9"}, {"1"}) or "123456789".startswith(digits))
    usual = any(each.amount == new.amount for each in known)
    return f"{new.amount} looks like a placeholder, not a price" if odd and not usual else None


def _other_currency(new: PageFacts, known: Sequence[EarlierPrice]) -> str | None:
    before = {each.currency for each in known}
    if known and new.currency not in before:
        return f"the currency changed from {known[-1].currency} to {new.currency}"
    return None


def _jumped(new: PageFacts, known: Sequence[EarlierPrice]) -> str | None:
    amounts = [each.amount for each in known if each.currency == new.currency and each.amount > 0]
    if not amounts or new.amount is None:
        return None
    usual, last = Decimal(median(amounts)), amounts[-1]
    if all(new.amount >= each * _JUMP or new.amount * _JUMP <= each for each in (usual, last)):
        return f"the price jumped from {last} to {new.amount}"
    return None


def _counters_fell(new: PageFacts, known: Sequence[EarlierPrice]) -> str | None:
    """Sales and ratings only grow. A fall by a quarter is enough to doubt, a smaller one if the price moved with it."""
    moved = _moved(new, known)
    for name, count, before in (
        ("sold", new.sold_count, [each.sold_count for each in known if each.sold_count is not None]),
        ("ratings", new.rating_count, [each.rating_count for each in known if each.rating_count is not None]),
    ):
        if count is None or not before:
            continue
        most = before[-1]
        if most >= 10 and count < most * _FELL:
            return f"the count of {name} fell from {most} to {count}"
        if moved and count < most - max(2, int(most * _SLACK)):
            return f"the price moved while the count of {name} fell from {most} to {count}"
    return None


def _moved(new: PageFacts, known: Sequence[EarlierPrice]) -> bool:
    last = known[-1].amount if known else None
    return bool(last) and new.amount is not None and last is not None and abs(new.amount / last - 1) >= _MOVED


def _shaky(new: PageFacts, known: Sequence[EarlierPrice]) -> str | None:
    """A new price at every visit, within two days."""
    late = known[-_SHAKY_LOOKS:]
    if len(late) < _SHAKY_LOOKS or late[-1].observed_at - late[0].observed_at > _SHAKY_WINDOW:
        return None
    values = {*(each.amount for each in late), new.amount}
    if len(values) > _SHAKY_LOOKS and all(each.currency == new.currency for each in late):
        return f"{len(values)} different prices in {len(values)} looks within two days"
    return None


def _two_answers(new: PageFacts, known: Sequence[EarlierPrice], now: datetime | None) -> str | None:
    if now is None or not known or now - known[-1].observed_at > _MINUTES_APART or not _moved(new, known):
        return None
    return f"two looks minutes apart disagree: {known[-1].amount} and {new.amount}"
