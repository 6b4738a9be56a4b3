"""Where a URL ends and the sentence around it goes on."""

from __future__ import annotations

from typing import Final

_MARKS: Final = ".,;:!?'\"*~|$#@"
_PAIRS: Final = {")": "(", "]": "["}
_OPENING: Final = frozenset(_PAIRS.values())
# Two links without a blank between them; behind these marks the second belongs to the first.
GLUED: Final = r"(?<![\s=/?&#%:(\[<\"'])https?://"


def trimmed(url: str) -> str:
    """Without the punctuation behind it, and cut where a bracket opens or closes that has no partner inside."""
    url = _balanced(url)
    while True:
        shorter = url.rstrip(_MARKS)
        shorter = shorter[:-1] if shorter[-1:] in _OPENING else shorter
        if shorter == url:
            return url
        url = shorter


def _balanced(url: str) -> str:
    open_at: list[int] = []
    for place, mark in enumerate(url):
        if mark in _OPENING:
            open_at.append(place)
        elif mark in _PAIRS:
            if not open_at or url[open_at[-1]] != _PAIRS[mark]:
                return url[: min([place, *open_at[:1]])] if open_at else url[:place]
            open_at.pop()
    return url[: open_at[0]] if open_at else url
