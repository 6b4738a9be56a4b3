"""Reads a price as people write it: amounts, currency, and what kind of price it is."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from itertools import islice
from operator import attrgetter
from typing import Final

import msgspec

from mistnet.domain.products import PriceKind
from mistnet.pricing import currencies, words
from mistnet.pricing.numerals import Numeral, numerals, plain

_LONGEST: Final = 2000
_MOST_NUMBERS: Final = 200
"""What has more numbers than this is a table, not a price."""
_CONTEXT: Final = 40
_NAME: Final = "part of a name, not a price"
_COUNT: Final = "a count, not a price"
_TEASER: Final = re.compile(
    r"[\d$¥€£₫đ฿₱][.,]?\?|\?[.,]?\d|\d[.,]?(?:x{2,}|\*{2,})(?!\w)|[$¥₫฿₱]\s?(?:x{1,3}|\*+)[.,\d]"
)
_BETWEEN: Final = re.compile(
    r"\s*(?:-|–|—|~|〜|～|至|到|to|a|à|bis|до|hasta|sampai|s/d|đến|tới|ถึง|until|and up to|até|ate)\s*", re.IGNORECASE
)


class ParsedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """One amount, or a span of amounts. The currency is an ISO code, or None where nothing tells it."""

    min: Decimal
    max: Decimal
    currency: str | None
    kind: PriceKind


class NoPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A text without a price, and why it has none."""

    reason: str


def parse_price(text: str, *, currency_hint: str | None = None, site: str | None = None) -> ParsedPrice | NoPrice:
    """The price a text states. Counts, percentages, instalments, savings and carriage are no prices."""
    written = plain(text[:_LONGEST])
    if _TEASER.search(written):
        return NoPrice(reason="part of the amount is hidden")
    found = [*islice(numerals(written), _MOST_NUMBERS)]
    verdicts = [_why_not(written, each) for each in found]
    fit = [each for each, why in zip(found, verdicts, strict=True) if why is None]
    if not fit or (any(each.is_money for each in found) and not any(_is_money(written, each, fit) for each in fit)):
        return _nothing(written, verdicts, hint=currency_hint, site=site)
    return _priced(written, _best(written, fit), found, hint=currency_hint, site=site)


def _why_not(text: str, numeral: Numeral) -> str | None:
    """What a number is, if it is not a price."""
    left = text[max(numeral.reach[0] - _CONTEXT, 0) : numeral.reach[0]]
    right = text[numeral.reach[1] : numeral.reach[1] + _CONTEXT]
    if words.PART_LEFT.search(left) or words.PART_RIGHT.match(right):
        return "an instalment, not the price"
    if words.NO_PRICE_LEFT.search(left) or words.NO_PRICE_RIGHT.match(right):
        return "a saving, a threshold or a charge, not the price"
    if numeral.is_money:
        return None
    for is_so, why in (
        (re.search(r"[A-Za-z]-?$", left[-2:]) or re.match(r"-?[A-Z]\d|[A-Za-z]{2,}\d", right), _NAME),
        (words.COUNTED.match(right) or words.COUNTS.search(left), _COUNT),
        (words.MONTH_NAME.search(left), "a date, not a price"),
    ):
        if is_so:
            return why
    return None


def _best(text: str, fit: Sequence[Numeral]) -> Numeral:
    """Money before bare numbers, prices now before prices once, the first before the rest."""
    money = [each for each in fit if _is_money(text, each, fit)] or fit
    current = [each for each in money if not words.LIST_LEFT.search(text[: each.reach[0]][-_CONTEXT:])] or money
    return current[0]


def _is_money(text: str, numeral: Numeral, fit: Sequence[Numeral]) -> bool:
    """A number with a currency. `26 to 50 €`: the mark of the upper end speaks for both."""
    other = None if numeral.is_money else _other_end(text, numeral, fit)
    return numeral.is_money or (other is not None and other.is_money)


def _priced(
    text: str, first: Numeral, found: Sequence[Numeral], *, hint: str | None, site: str | None
) -> ParsedPrice | NoPrice:
    second = _other_end(text, first, found)
    possible = first.possible or (second.possible if second else ())
    if first.possible and second and len(second.possible) == 1:
        possible = second.possible
    currency = currencies.choose(possible, hint=hint, site=site)
    low = first.amount(currency, multiple=second.multiple if second and _shares(first, second) else None)
    high = second.amount(currency) if second else low
    if low is None:
        return NoPrice(reason="the amount cannot be read")
    if high is None or high < low:
        high = low
    return ParsedPrice(min=low, max=high, currency=currency, kind=_kind(text[: first.reach[0]], text[first.reach[1] :]))


def _other_end(text: str, first: Numeral, found: Sequence[Numeral]) -> Numeral | None:
    """The upper end of a span, if only a word for `to` stands between this number and the next."""
    place = bisect_right(found, first.start, key=attrgetter("start"))
    later = found[place] if place < len(found) else None
    if later is None or not _BETWEEN.fullmatch(text[first.reach[1] : later.reach[0]]):
        return None
    return None if _why_not(text, later) and not later.is_money else later


def _shares(first: Numeral, second: Numeral) -> bool:
    """`1-2万`: the multiple of the upper end counts for both, if that keeps them in order."""
    if first.multiple is not None or second.multiple is None:
        return False
    low, high = first.amount(None), second.amount(None)
    return low is not None and high is not None and low * second.multiple <= high


def _kind(before: str, after: str) -> PriceKind:
    said = before[-_CONTEXT:] + " | " + after[:_CONTEXT]
    if words.SOLD.search(said):
        return PriceKind.SOLD
    return PriceKind.BID if words.BID.search(said) else PriceKind.ASK


def _nothing(text: str, verdicts: Sequence[str | None], *, hint: str | None, site: str | None) -> ParsedPrice | NoPrice:
    reasons = [each for each in verdicts if each]
    if reasons:
        return NoPrice(reason=next((each for each in reasons if each != _COUNT), _COUNT))
    if words.FREE.search(text):
        zero = Decimal(0)
        return ParsedPrice(min=zero, max=zero, currency=currencies.choose((), hint=hint, site=site), kind=PriceKind.ASK)
    if words.ON_REQUEST.search(text):
        return NoPrice(reason="the price is told on request only")
    return NoPrice(reason="no amount")
