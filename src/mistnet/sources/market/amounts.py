"""Amounts, currencies and times as shops write them in their answers. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from typing import Final

from mistnet.prices.model import ItemRequest
from mistnet.shops.extraction.currencies import CODES

MOST: Final = Decimal(10) ** 15
"""A larger number is an article number or a mistake."""

# As seconds this is the year 5138, as milliseconds 1973.
_MILLISECONDS: Final = 10**11
_FINEST: Final = -9
_LONGEST_COUNT: Final = 9
_DIGITS: Final = re.compile(r"\d[\d.,' ]*")


class IllegibleAmount(Exception):
    """A value that cannot be read, and why."""


def exact(value: object) -> Decimal:
    """A number: a JSON number, or a text that contains only a number."""
    # bool is an int in Python, but true is no amount.
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise IllegibleAmount(f"{_shown(value)} is no amount")
    try:
        return believable(Decimal(value.strip() if isinstance(value, str) else value))
    except InvalidOperation:
        raise IllegibleAmount(f"{_shown(value)} is no amount") from None


def believable(amount: Decimal) -> Decimal:
    if not amount.is_finite() or not 0 < amount < MOST:
        raise IllegibleAmount(f"{_shown(amount)} is no price")
    exponent = amount.as_tuple().exponent
    if isinstance(exponent, int) and exponent < _FINEST:
        raise IllegibleAmount(f"{_shown(amount)} has more digits than any currency")
    return amount


def currency(value: object) -> str:
    code = value.strip().upper() if isinstance(value, str) else ""
    if code not in CODES:
        raise IllegibleAmount(f"{_shown(value)} is no currency; an ISO code such as USD is needed")
    return code


def moment(value: object) -> datetime:
    """A time in ISO 8601, as in e-mail, or in seconds or milliseconds since 1970. Without a zone it is UTC."""
    text = str(value).strip() if isinstance(value, int | str | Decimal) and not isinstance(value, bool) else ""
    try:
        if text.isdecimal():
            seconds = int(text) / 1000 if int(text) >= _MILLISECONDS else int(text)
            return datetime.fromtimestamp(seconds, UTC)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = parsedate_to_datetime(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        raise IllegibleAmount(
            f"{_shown(value)} is no time; ISO 8601 such as 2026-01-31T12:00:00Z can be read"
        ) from None


def count(value: object) -> int:
    """A number, or the first one in a text such as `3 bids`."""
    found = _DIGITS.search(value) if isinstance(value, str) else None
    text = re.sub(r"\D", "", found[0]) if found else ""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST:
        return value
    if not text or len(text) > _LONGEST_COUNT:
        raise IllegibleAmount(f"{_shown(value)} is no count")
    return int(text)


def _shown(value: object) -> str:
    return repr(str(value)[:60]) if value is not None else "nothing"


ASKED: Final = ("year", "mint_mark", "denomination", "series")
"""The attributes that a search contains. A cached answer is keyed by the same."""


def query_of(item: ItemRequest) -> str:
    """The title, and the attributes that it does not contain."""
    said = item.title.casefold()
    words = [item.title]
    for name in ASKED:
        value = item.attributes.get(name)
        if value and value.casefold() not in said:
            words.append(value)
    return " ".join(" ".join(words).split())


def remembered_as(source: str, item: ItemRequest, *, with_grade: bool = False) -> str:
    """`source|year|mintmark|denomination|series|title`. A `|` inside a value is escaped."""
    values = [item.attributes.get(name, "") for name in ASKED]
    values += [item.title, *([item.attributes.get("grade", "")] if with_grade else [])]
    return "|".join([source, *(value.replace("%7C", "%257C").replace("|", "%7C") for value in values)])
