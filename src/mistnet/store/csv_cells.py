"""Values as the cells of a CSV file."""

from __future__ import annotations

import re
from typing import Any, Final

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
_QUOTED: Final = re.compile('[",\r\n]')


def csv_cell(value: Any) -> str:
    """RFC 4180. Nothing is nothing at all, an empty text is a pair of quotes."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case bytes() | str():
            text = str(as_text(value))
            return text if text and not _QUOTED.search(text) else '"' + text.replace('"', '""') + '"'
        case _:
            return str(value)


def safe_csv_cell(value: Any) -> str:
    """Text that a spreadsheet would take for a formula, and run, gets an apostrophe before it, which makes it text."""
    text = as_text(value)
    return csv_cell(f"'{text}" if isinstance(text, str) and text.startswith(_FORMULAS) else value)


def as_text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
