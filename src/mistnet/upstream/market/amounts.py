"""Amounts, currencies and times as shops write them in their answers. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from typing import Final

from mistnet.pricing.currency_marks import CODES

MOST: Final = Decimal(10) ** 15
"""Beyond this it is an article number or a mistake."""

_MILLISECONDS: Final = 10**11
_FINEST: Final = -9
_LONGEST_COUNT: Final = 9
_DIGITS: Final = re.compile(r"\d[\d.,' ]*")


class Illegible(Exception):
    """A value that cannot be read, and why."""


def exact(value: object) -> Decimal:
    """A number as it is written in JSON, or a text that is nothing but one."""
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise Illegible(f"{_shown(value)} is no amount")
    try:
        return believable(Decimal(value.strip() if isinstance(value, str) else value))
    except InvalidOperation:
        raise Illegible(f"{_shown(value)} is no amount") from None


def believable(amount: Decimal) -> Decimal:
    if not amount.is_finite() or not 0 < amount < MOST:
        raise Illegible(f"{_shown(amount)} is no price")
    exponent = amount.as_tuple().exponent
    if isinstance(exponent, int) and exponent < _FINEST:
        raise Illegible(f"{_shown(amount)} has more digits than any currency")
    return amount


def currency(value: object) -> str:
    code = value.strip().upper() if isinstance(value, str) else ""
    if code not in CODES:
        raise Illegible(f"{_shown(value)} is no currency; an ISO code such as USD is needed")
    return code


def moment(value: object) -> datetime:
    """ISO 8601, a mail date, or seconds or milliseconds since 1970. Without a zone it is UTC."""
    text = str(value).strip() if isinstance(value, int | str | Decimal) and not isinstance(value, bool) else ""
    try:
        if text.isdecimal():
            seconds = int(text) / 1000 if int(text) >= _MILLISECONDS else int(text)
            return datetime.fromtimestamp(seconds, UTC)
        found = _iso(text) or parsedate_to_datetime(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        raise Illegible(f"{_shown(value)} is no time; ISO 8601 such as 2026-01-31T12:00:00Z can be read") from None


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def count(value: object) -> int:
    """A number, or the first one in a text such as `3 bids`."""
    found = _DIGITS.search(value) if isinstance(value, str) else None
    text = re.sub(r"\D", "", found[0]) if found else ""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST:
        return value
    if not text or len(text) > _LONGEST_COUNT:
        raise Illegible(f"{_shown(value)} is no count")
    return int(text)


def _shown(value: object) -> str:
    return repr(str(value)[:60]) if value is not None else "nothing"
