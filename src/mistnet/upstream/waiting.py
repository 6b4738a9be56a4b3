"""How long a server asks us to wait before we call again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from mistnet.domain.numbers import read_number


def retry_after(headers: Mapping[str, str], now: datetime, *, longest: timedelta) -> timedelta | None:
    """Read `Retry-After`: seconds or a date, of any length, never more than `longest`. None: it cannot be read."""
    told = next((value.strip() for name, value in headers.items() if name.lower() == "retry-after"), "")
    if told.isascii() and told.isdecimal():
        most = int(longest.total_seconds())
        seconds = read_number(told, most=most)
        return longest if seconds is None else timedelta(seconds=seconds)
    try:
        at = parsedate_to_datetime(told)
    except (ValueError, OverflowError):
        return None
    wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta(0)), longest)
