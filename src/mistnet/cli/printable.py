"""Makes text of unknown origin safe to print on a terminal."""

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str, *, one_line: bool = False) -> str:
    """Text of unknown origin must not steer a terminal, nor break out of its line."""
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.encode("utf-8", "replace").decode())
    return " ".join(shown.split()) if one_line else shown
