"""Reads a price as people write it: amounts, currency, and what kind of price it is."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from operator import attrgetter
from typing import Final

import msgspec
from price_parser.parser import parse_number

from mistnet.shops.extraction import currencies, words
from mistnet.shops.extraction.currencies import THOUSANDTHS
from mistnet.shops.model import Price, PriceKind

# With more digits it is an article number or a mistake.
_MOST_DIGITS: Final = 18
_FULL_WIDTH: Final = {0xFF01 + place: 0x21 + place for place in range(94)} | {
    0x3000: " ",
    0xFFE5: "¥",
    0xFFE1: "£",
    0xFFE6: "₩",
    0xFF0D: "-",
    0x00A0: " ",
    0x202F: " ",
    0x2009: " ",
    0x200F: None,
    0x200E: None,
    0x2212: "-",
    0x066B: ".",  # the decimal and the thousands sign of Arabic
    0x066C: ",",
}
_GROUPED: Final = r"\d{1,3}(?:[ ]\d{3})+(?!\d)(?:[.,]\s?\d{1,2}(?!\d)|[.,]\d{3}(?![\d.,]))?"
# A point behind letters ends them (`NT.480`); elsewhere it may begin the number (`$.99`).
_DENSE: Final = r"(?:(?<![^\W\d_])[.])?\d(?:[\d.,'’]*\d)?(?:[.,]\s\d\d(?!\d))?"
_APART: Final = re.compile(r"(\d) ([.,]) (\d\d)(?!\d)")
_TWO_MARKS: Final = re.compile(
    r"\d{1,3}(?:(?P<group>[.,'’ ])\d{2,3})(?:(?P=group)\d{2,3})*(?P<last>(?!(?P=group))[.,])\d{3}"
)
_NUMBER: Final = re.compile(rf"{_GROUPED}|{_DENSE}")
_CENTS_BEHIND: Final = re.compile(r"^\s?€\s?(\d\d)(?!\d|\s?€|[.,]\d)")
_CHINESE_REST: Final = re.compile(r"[千仟万萬億亿](\d{1,4}(?=[百千仟万萬])|\d(?![\d.,]))([百千仟万萬]?)")
_VIETNAMESE: Final = re.compile(r"^(tr|triệu|tỷ|m)(\d{1,3})(?!\d)", re.IGNORECASE)


class Numeral(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a text, from start to end, with its multiple."""

    start: int
    end: int
    written: str
    multiple: Decimal | None
    before: tuple[str, ...]
    after: tuple[str, ...]
    reach: tuple[int, int]

    @property
    def is_money(self) -> bool:
        return bool(self.before or self.after)

    @property
    def possible(self) -> tuple[str, ...]:
        """The currencies both of its marks allow; where they disagree, the more exact one."""
        if not (self.before and self.after):
            return self.before or self.after
        both = tuple(each for each in self.before if each in self.after)
        return both or min(self.before, self.after, key=len)

    def amount(self, currency: str | None, *, multiple: Decimal | None = None) -> Decimal | None:
        value = read_number(self.written, currency)
        factor = self.multiple or multiple
        return value if value is None or factor is None else _plainly(value * factor)


def _plainly(value: Decimal) -> Decimal:
    """A multiple of ten thousand has no cents left to write down."""
    return value.quantize(Decimal(1)) if value == value.to_integral_value() else value.normalize()


def plain(text: str) -> str:
    """The text with full-width signs, special spaces and foreign digits replaced by plain ones."""
    text = _APART.sub(r"\1\2\3", text.translate(_FULL_WIDTH))
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(each, each)) for each in text)


def numerals(text: str) -> Iterator[Numeral]:
    """All numbers of a plain text with the marks and multiples beside them, from left to right."""
    taken = place = 0
    while found := _NUMBER.search(text, place):
        start = found.start()
        written, end, multiple = _with_tail(text, found)
        before = currencies.mark_before(text, start)
        if before and before[0] < taken:
            before = None
        after = currencies.mark_after(text, end)
        # `£5 £6`: a mark between two numbers belongs to the second where marks stand in front.
        if after and before is not None and re.match(r"\s?[.]?\d", text[after[0] : after[0] + 3]):
            after = None
        place, taken = max(end, found.end()), after[0] if after else end
        yield Numeral(
            start=start,
            end=end,
            written=written,
            multiple=multiple,
            before=before[1] if before else (),
            after=("EUR",) if "€" in written else after[1] if after else (),
            reach=(before[0] if before else start, taken),
        )


def _with_tail(text: str, found: re.Match[str]) -> tuple[str, int, Decimal | None]:
    """The number with what is part of it: cents behind a euro sign, a multiple, the Vietnamese `1tr2`."""
    written, end = found[0], found.end()
    if not re.search(r"[.,]\d\d$", written) and (cents := _CENTS_BEHIND.match(text[end : end + 6])):
        return f"{written}€{cents[1]}", end + cents.end(), None
    if split := _VIETNAMESE.match(text[end : end + 9]):
        multiple = words.multiple_after(split[1], 0)
        return f"{written}.{split[2]}0000", end + split.end(), multiple[1] if multiple else None
    found_multiple = words.multiple_after(text, end)
    if found_multiple is None:
        return written, end, None
    end, factor = found_multiple
    # `1萬2千` and, shorter, `1萬2`: the next smaller unit follows at once.
    rest = _CHINESE_REST.match(text[end - 1 : end + 6])
    value = read_number(written) if rest else None
    if rest is not None and value is not None:
        unit = words.multiple_after(rest[2], 0) if rest[2] else (0, factor / 10)
        if unit is not None and unit[1] < factor:
            return f"{_plainly(value * factor + int(rest[1]) * unit[1]):f}", end + rest.end() - 1, None
    return written, end, factor


def read_number(written: str, currency: str | None = None) -> Decimal | None:
    """The value of a number as written. Where one mark stands alone, three decimals are those of dinars and rials."""
    bare = written.replace("'", "").replace("’", "").replace(" ", "")
    bare = bare if bare.count(".") == 1 else bare.lstrip(".,")
    if sum(each.isdigit() for each in bare) > _MOST_DIGITS:
        return None
    # No group begins with a zero: `0.085` is less than one.
    if re.fullmatch(r"0[.,]\d+", bare):
        return Decimal(bare.replace(",", "."))
    three = currency in THOUSANDTHS and re.fullmatch(r"\d+\.\d{3}", bare)
    # Of two different marks the last is that of the decimals, however many follow it.
    both = _TWO_MARKS.fullmatch(written)
    return parse_number(bare, "." if three else both["last"] if both else None)


_LONGEST: Final = 2000
_MOST_NUMBERS: Final = 200
"""A text with more numbers is a table, not a price."""
_CONTEXT: Final = 40
_NAME: Final = "part of a name, not a price"
_COUNT: Final = "a count, not a price"
_TEASER: Final = re.compile(
    r"[\d$¥€£₫đ฿₱][.,]?\?|\?[.,]?\d|\d[.,]?(?:x{2,}|\*{2,})(?!\w)|[$¥₫฿₱]\s?(?:x{1,3}|\*+)[.,\d]"
)
BETWEEN: Final = re.compile(
    r"\s*(?:-|–|—|~|〜|～|至|到|to|a|à|bis|до|hasta|sampai|s/d|đến|tới|ถึง|until|and up to|até|ate)\s*", re.IGNORECASE
)


class ParsedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """One amount, or a range. The currency is an ISO code, or None if it is unknown."""

    min: Decimal
    max: Decimal
    currency: str | None
    kind: PriceKind

    @property
    def price(self) -> Price:
        most = self.max if self.max > self.min else None
        return Price(amount=self.min, amount_max=most, currency=self.currency)


class NoPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A text without a price, and why it has none."""

    reason: str


def parse_price(text: str, *, currency_hint: str | None = None, site: str | None = None) -> ParsedPrice | NoPrice:
    """The price in a text. Counts, percentages, instalments, savings and shipping are not prices."""
    written = plain(text[:_LONGEST])
    if _TEASER.search(written):
        return NoPrice(reason="part of the amount is hidden")
    found = [*islice(numerals(written), _MOST_NUMBERS)]
    verdicts = [_why_not(written, each) for each in found]
    fit = [each for each, why in zip(found, verdicts, strict=True) if why is None]
    if not fit or (any(each.is_money for each in found) and not any(_is_money(written, each, fit) for each in fit)):
        if reasons := [each for each in verdicts if each]:
            return NoPrice(reason=next((each for each in reasons if each != _COUNT), _COUNT))
        if words.FREE.search(written):
            zero, currency = Decimal(0), currencies.choose((), hint=currency_hint, site=site)
            return ParsedPrice(min=zero, max=zero, currency=currency, kind=PriceKind.ASK)
        on_request = words.ON_REQUEST.search(written)
        return NoPrice(reason="the price is available on request only" if on_request else "no amount")
    # Money before bare numbers, current prices before former ones, the first before the rest.
    money = [each for each in fit if _is_money(written, each, fit)] or fit
    current = [each for each in money if not words.LIST_LEFT.search(written[: each.reach[0]][-_CONTEXT:])] or money
    return _read_amounts(written, current[0], found, hint=currency_hint, site=site)


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


def _is_money(text: str, numeral: Numeral, fit: Sequence[Numeral]) -> bool:
    """A number with a currency. `26 to 50 €`: the mark of the upper end speaks for both."""
    other = None if numeral.is_money else _other_end(text, numeral, fit)
    return numeral.is_money or (other is not None and other.is_money)


def _read_amounts(
    text: str, first: Numeral, found: Sequence[Numeral], *, hint: str | None, site: str | None
) -> ParsedPrice | NoPrice:
    second = _other_end(text, first, found)
    possible = first.possible or (second.possible if second else ())
    if first.possible and second and len(second.possible) == 1:
        possible = second.possible
    currency = currencies.choose(possible, hint=hint, site=site)
    multiple = second.multiple if second and first.multiple is None else None
    if second and multiple is not None:
        # `1-2万`: the multiple of the upper end counts for both, if that keeps them in order.
        bare, most = first.amount(None), second.amount(None)
        multiple = multiple if bare is not None and most is not None and bare * multiple <= most else None
    low = first.amount(currency, multiple=multiple)
    high = second.amount(currency) if second else low
    if low is None:
        return NoPrice(reason="the amount cannot be read")
    if high is None or high < low:
        high = low
    around = f"{text[: first.reach[0]][-_CONTEXT:]} | {text[first.reach[1] :][:_CONTEXT]}"
    kind = PriceKind.SOLD if words.SOLD.search(around) else PriceKind.BID if words.BID.search(around) else PriceKind.ASK
    return ParsedPrice(min=low, max=high, currency=currency, kind=kind)


def _other_end(text: str, first: Numeral, found: Sequence[Numeral]) -> Numeral | None:
    """The upper end of a span, if only a word for `to` stands between this number and the next."""
    place = bisect_right(found, first.start, key=attrgetter("start"))
    later = found[place] if place < len(found) else None
    if later is None or not BETWEEN.fullmatch(text[first.reach[1] : later.reach[0]]):
        return None
    return None if _why_not(text, later) and not later.is_money else later
