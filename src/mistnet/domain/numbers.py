"""Whole numbers that people and programs write as text."""

from __future__ import annotations

from typing import Final

LARGEST_ID: Final = 2**63 - 1
_DIGITS_OF_AN_ID: Final = len(str(LARGEST_ID))


def read_number(written: str, *, most: int = LARGEST_ID) -> int | None:
    """Read what ASCII digits spell. Return None for any other text and for more than `most`.

    `int` alone raises ValueError for more than 4,300 digits, and reads the digits of every script.
    """
    if not (written.isascii() and written.isdecimal()):
        return None
    digits = written.lstrip("0") or "0"
    if len(digits) > _DIGITS_OF_AN_ID:
        return None
    number = int(digits)
    return number if number <= most else None


def read_id(written: str) -> int | None:
    """Read an id of a row. Return None for text that no row can have as its id."""
    return read_number(written) or None
