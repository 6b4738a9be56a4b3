"""Lists as people write them: commas, blanks and line ends between the parts, in any mixture."""

from __future__ import annotations

import re
from typing import Final

_BETWEEN: Final = re.compile(r"[,\s]+")
_BEFORE_ADDRESS: Final = re.compile(r"(?<![,\s])[,\s]++(?=[A-Za-z][A-Za-z0-9+.-]*://)")


def split_list(*written: str) -> list[str]:
    """All parts of all texts, in order. None of them is empty."""
    return [part for text in written for part in _BETWEEN.split(text) if part]


def split_addresses(*written: str) -> list[str]:
    """The same for addresses, which may have commas of their own."""
    return [part.strip(" ,") for text in written for part in _BEFORE_ADDRESS.split(text.strip()) if part.strip(" ,")]
