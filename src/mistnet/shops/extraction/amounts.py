"""Finds every amount of money in the visible text of a page, with the element that it stands in."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from decimal import Decimal
from typing import Final

import msgspec

from mistnet.shops.extraction import currencies
from mistnet.shops.extraction.outline import JOINT, Outline
from mistnet.shops.extraction.price_text import BETWEEN, plain, read_number
from mistnet.shops.extraction.price_words import left_says
from mistnet.shops.extraction.words import COUNTED, COUNTS, multiple_after

# Each of these goes on behind a first digit.
_GROUPS: Final = r"\d{0,2}(?:[ \u00a0\u202f\u2009'’]\d{3})+(?!\d)(?:[.,]\d{1,2}(?!\d))?"
# Some shops put every part of a number into an element of its own.
_PARTS: Final = (
    rf"\d{{0,2}}(?:(?:{JOINT}*,{JOINT}*\d\d(?!\d))*(?:{JOINT}*[.,'’]{JOINT}*|{JOINT}+ {JOINT}+)\d{{3}}(?!\d))+"
)
# Begins with one sign and only then looks back, because a search for one of a few signs is fast.
_NUMBER: Final = re.compile(
    rf"[.\d](?<!\d[.\d])(?:(?<=\d)(?:{_GROUPS}|{_PARTS}(?:[.,]\d+)?)|(?:(?<=\d)|\d)(?:[\d.,'’٫٬]*\d)?)"
)
# A dash for cents, perhaps in an element of its own: `1.149,-`.
_NO_CENTS: Final = re.compile(rf"{JOINT}{{0,3}}[.,]{JOINT}{{0,3}}[-–—−]{{1,2}}(?!\w)")
# Cents in an element of their own, or behind a blank: `55. 99`, `$ 64 90`, `1€40`.
_GAP: Final = rf"[\s{JOINT}]"
_CENTS: Final = re.compile(
    rf"(?:{_GAP}{{0,4}}[.,]{_GAP}{{0,3}}|\s?{JOINT}{_GAP}{{0,3}}|{_GAP}{{0,2}}€{_GAP}{{0,2}}[.,]?)(\d\d)(?!\d|[.,]\d|\s?%)"
)
_CENTS_END: Final = re.compile(rf"[^\w]*(?:[\n{JOINT}*€]|$)")
_DECIMALS: Final = re.compile(rf"{JOINT}*[.,]{JOINT}*\d\d")
_HAS_CENTS: Final = re.compile(r"[.,٫]\d\d?$")
_SHARE: Final = re.compile(r"\s?[%％٪]")
_TEASER: Final = re.compile(r"[\d.,]*[?*x]{1,3}(?![\w*])")
_MOST_NUMBERS: Final = 20_000
_MOST: Final = 400
_SHORT: Final = 60
_LEFT, _RIGHT = 60, 40
_LONGEST_PRICE: Final = 25
_TOO_DEAR: Final = 10**12
_WITHOUT_CENTS: Final = currencies.WHOLE - currencies.SOME_CENTS


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """An amount in the text: where it begins and ends with its mark, its value, and the element it stands in."""

    begin: int
    end: int
    value: Decimal
    most: Decimal | None = None
    currency: str | None
    marked: bool
    place: int
    struck: bool


def find_amounts(page: Outline, *, url: str, hint: str | None) -> list[Amount]:
    """All amounts in reading order: those with a currency, and bare numbers in elements that promise a price."""
    text = page.text
    flat = text.replace(JOINT, " ").replace("\n", " ")
    found: list[Amount] = []
    taken = count = 0
    for number in _NUMBER.finditer(text):
        count += 1
        if count > _MOST_NUMBERS or len(found) >= _MOST:
            break
        if number.start() < taken:
            continue
        amount = _read(page, text, flat, number, taken, url=url, hint=hint)
        if amount is None:
            continue
        taken = amount.end
        low = found[-1] if found and found[-1].most is None and found[-1].value < amount.value else None
        is_pair = low and (low.currency == amount.currency or not (low.marked and amount.marked))
        # Only a word for `to` stands between the two ends of a range.
        if low and is_pair and amount.begin - low.end < 12 and BETWEEN.fullmatch(flat[low.end : amount.begin]):
            found[-1] = msgspec.structs.replace(
                low, most=amount.value, end=amount.end, currency=low.currency or amount.currency, marked=True
            )
        else:
            found.append(amount)
    return found


def _read(
    page: Outline, text: str, flat: str, number: re.Match[str], taken: int, *, url: str, hint: str | None
) -> Amount | None:
    begin, end = number.span()
    before = currencies.mark_before(flat, begin)
    if before is not None and (before[0] < taken or _is_end_of_name(text, before[0], begin)):
        before = None
    if (before is None and flat[begin - 1 : begin].isalpha()) or _SHARE.match(flat, end):
        return None
    start, marked = before if before is not None else (begin, ())
    has_cents = currencies.choose(marked, hint=hint, site=url) not in _WITHOUT_CENTS
    written, end, after = _with_cents(page, text, flat, number) if has_cents else _as_written(number)
    dash = _NO_CENTS.match(text, end)
    end, factor = multiple_after(text, end) or (dash.end() if dash else end, None)
    reach = end
    if not after and (marks := currencies.mark_after(flat, end)) and not _is_next(text, flat, end, marks[0], before):
        reach, after = marks
    place = page.holder(start, reach)
    mark = flat[start:begin].strip(" .")
    # A single letter is more often a size or a name, except where the site's own currency is written so.
    is_letter = not after and len(mark) == 1 and mark.isalpha() and currencies.site_currency(url) not in marked
    if (is_letter or not (marked or after)) and not _is_promised(page, text, flat, (begin, end), place):
        return None
    if _TEASER.match(flat[end : end + 4]) or flat[begin - 1 : begin] == "?":
        return None
    possible = marked or after
    if marked and after:
        possible = tuple(each for each in marked if each in after) or min(marked, after, key=len)
    currency = currencies.choose(possible, hint=hint, site=url)
    value = read_number(plain(written), currency)
    if value is None or not 0 < value < _TOO_DEAR:
        return None
    if factor is not None:
        value = (value * factor).normalize() + 0
    # The line goes through the digits; the mark may stand outside: `¥<del>599</del>`.
    struck = page.is_struck(page.holder(*number.span()))
    return Amount(
        begin=start, end=reach, value=value, currency=currency, marked=bool(possible), place=place, struck=struck
    )


def _is_end_of_name(text: str, start: int, begin: int) -> bool:
    """Whether a mark of one letter is the last of a word or of the line above: `Nr. NC700B`, and below it `2 490,-`."""
    mark = text[start:begin].strip(" .\n")
    return len(mark) == 1 and mark.isalpha() and (text[start - 1 : start].isalnum() or "\n" in text[start:begin])


def _with_cents(page: Outline, text: str, flat: str, number: re.Match[str]) -> tuple[str, int, tuple[str, ...]]:
    """The number with cents that stand apart from it, where it ends, and a currency that they show."""
    cents = None if _HAS_CENTS.search(number[0]) else _CENTS.match(text, number.end())
    # The end of a line or of an element follows; behind a decimal mark also a currency: `149,<span>99 zł</span>`.
    if cents and (
        _CENTS_END.match(text, cents.end())
        or (_DECIMALS.fullmatch(cents[0]) and currencies.mark_after(flat, cents.end()))
    ):
        sign = cents[0].strip(f" \n{JOINT}0123456789")
        # Two digits beside the number are cents if the element around both holds nothing else, or if they are all that
        # an element says that touches it.
        holder = page.text_of(page.holder(number.start(), cents.end()), _SHORT)
        digits = re.sub(r"\D", "", number[0] + cents[1])
        alone = JOINT in cents[0] and text[cents.end(1) : cents.end(1) + 1] == JOINT
        touches = not cents[0].strip(f"{JOINT}0123456789")
        is_money = currencies.mark_before(flat, number.start()) or currencies.mark_after(flat, cents.end(1))
        if (
            sign
            or (alone and (touches or is_money))
            or (re.sub(r"\D", "", holder) == digits and len(holder) < _LONGEST_PRICE)
        ):
            whole = re.sub(r"\D", "", number[0])
            return f"{whole}.{cents[1]}", cents.end(1), ("EUR",) if "€" in sign else ()
    return _as_written(number)


def _as_written(number: re.Match[str]) -> tuple[str, int, tuple[str, ...]]:
    return number[0].replace(JOINT, ""), number.end(), ()


def _is_next(text: str, flat: str, end: int, reach: int, before: object) -> bool:
    """Whether a mark behind a number belongs to the next one: `$5 $6`, or a mark in the next line."""
    if "\n" in text[end:reach]:
        return True
    if JOINT in text[reach : reach + 2] and before is None:
        return False
    if not re.match(r"[.]?\s?[.]?\d", flat[reach : reach + 4]):
        return False
    following = _NUMBER.search(flat, reach, reach + 24)
    # `240 元 2期`: what counts something has no mark.
    behind = flat[following.end() : following.end() + _RIGHT] if following else " "
    if not behind[:1].isspace() and COUNTED.match(behind):
        return False
    return before is not None or following is None or currencies.mark_after(flat, following.end()) is None


def _is_promised(page: Outline, text: str, flat: str, span: tuple[int, int], place: int) -> bool:
    """Whether a number without a currency is a price: the names around it or the words before it say so."""
    begin, end = span
    if any(each.isalpha() or each in "-_/#" for each in text[begin - 1 : begin] + text[end : end + 1]):
        return False
    named = False
    for each in page.above(place, 3):
        if page.end[each] - page.first[each] > _SHORT:
            break
        named = named or page.marks[each].says.price or page.marks[each].priced
    if not named:
        named = "price" in left_says(line_before(text, begin))
    return named and not (
        COUNTED.match(flat[end : end + _RIGHT]) or COUNTS.search(flat[max(begin - _RIGHT, 0) : begin])
    )


def line_before(text: str, begin: int) -> str:
    return text[max(begin - _LEFT, 0) : begin].rsplit("\n", 1)[-1].replace(JOINT, " ")
