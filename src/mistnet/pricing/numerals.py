"""Finds the numbers in a text and reads their separators."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import msgspec
from price_parser.parser import parse_number

from mistnet.pricing import currencies, words
from mistnet.pricing.currency_marks import THOUSANDTHS

# Beyond this many digits it is an article number or a mistake, whatever stands beside it.
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
}
_GROUPED: Final = r"\d{1,3}(?:[ ]\d{3})+(?!\d)(?:[.,]\s?\d{1,2}(?!\d))?"
# A point behind letters ends them (`NT.480`); elsewhere it may begin the number (`$.99`).
_DENSE: Final = r"(?:(?<![^\W\d_])[.])?\d(?:[\d.,'’]*\d)?(?:[.,]\s\d\d(?!\d))?"
_APART: Final = re.compile(r"(\d) ([.,]) (\d\d)(?!\d)")
_NUMBER: Final = re.compile(rf"{_GROUPED}|{_DENSE}")
_CENTS_BEHIND: Final = re.compile(r"^\s?€\s?(\d\d)(?!\d|\s?€|[.,]\d)")
_CHINESE_REST: Final = re.compile(r"[千仟万萬億亿](\d{1,4}(?=[百千仟万萬])|\d(?![\d.,]))([百千仟万萬]?)")
_VIETNAMESE: Final = re.compile(r"^(tr|triệu|tỷ|m)(\d{1,3})(?!\d)", re.IGNORECASE)


class Numeral(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a text: what is written from start to end, its multiple included."""

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
    """The same text with full-width signs, odd spaces and foreign digits as the plain ones."""
    text = _APART.sub(r"\1\2\3", text.translate(_FULL_WIDTH))
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(each, each)) for each in text)


def numerals(text: str) -> Iterator[Numeral]:
    """All numbers of a plain text with the marks and multiples beside them, from left to right."""
    taken, place = 0, 0
    while found := _NUMBER.search(text, place):
        numeral = _read(text, found, taken)
        yield numeral
        place, taken = max(numeral.end, found.end()), numeral.reach[1]


def _read(text: str, found: re.Match[str], taken: int) -> Numeral:
    written, end, multiple = _with_tail(text, found)
    before = currencies.mark_before(text, found.start())
    if before and before[0] < taken:
        before = None
    after = currencies.mark_after(text, end)
    if after and _belongs_to_next(text, after[0], has_own=before is not None):
        after = None
    return Numeral(
        start=found.start(),
        end=end,
        written=written,
        multiple=multiple,
        before=before[1] if before else (),
        after=("EUR",) if "€" in written else after[1] if after else (),
        reach=(before[0] if before else found.start(), after[0] if after else end),
    )


def _with_tail(text: str, found: re.Match[str]) -> tuple[str, int, Decimal | None]:
    """The number with what is part of it: cents behind a euro sign, a multiple, the Vietnamese `1tr2`."""
    written, end = found[0], found.end()
    if not re.search(r"[.,]\d\d$", written) and (cents := _CENTS_BEHIND.match(text[end : end + 6])):
        return f"{written}€{cents[1]}", end + cents.end(), None
    if split := _VIETNAMESE.match(text[end : end + 9]):
        multiple = words.multiple_after(split[1], 0)
        return f"{written}.{split[2]}0000", end + split.end(), multiple[1] if multiple else None
    multiple = words.multiple_after(text, end)
    return _with_rest(text, written, *multiple) if multiple else (written, end, None)


def _with_rest(text: str, written: str, end: int, multiple: Decimal) -> tuple[str, int, Decimal | None]:
    """`1萬2千` and, shorter, `1萬2`: the next smaller unit follows at once."""
    rest = _CHINESE_REST.match(text[end - 1 : end + 6])
    value = read_number(written) if rest else None
    if rest is None or value is None:
        return written, end, multiple
    unit = words.multiple_after(rest[2], 0) if rest[2] else (0, multiple / 10)
    if unit is None or unit[1] >= multiple:
        return written, end, multiple
    return f"{_plainly(value * multiple + int(rest[1]) * unit[1]):f}", end + rest.end() - 1, None


def _belongs_to_next(text: str, mark_end: int, *, has_own: bool) -> bool:
    """`£5 £6`: a mark between two numbers belongs to the second where marks stand in front."""
    return has_own and bool(re.match(r"\s?[.]?\d", text[mark_end : mark_end + 3]))


def read_number(written: str, currency: str | None = None) -> Decimal | None:
    """The value of a number as written. Dinars of a thousand parts may have three decimals; nothing else has."""
    bare = written.replace("'", "").replace("’", "").replace(" ", "")
    bare = bare if bare.count(".") == 1 else bare.lstrip(".,")
    if sum(each.isdigit() for each in bare) > _MOST_DIGITS:
        return None
    three = currency in THOUSANDTHS and re.fullmatch(r"\d+\.\d{3}", bare)
    return parse_number(bare, "." if three else None)
