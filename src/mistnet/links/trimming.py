"""Where a URL ends and the sentence around it goes on."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

_MARKS: Final = ".,;:!?'\"*~|$#@"
_PAIRS: Final = {")": "(", "]": "["}
_BRACKET: Final = re.compile(r"[()\[\]]")
# Two links without a blank between them; behind these marks the second belongs to the first.
GLUED: Final = r"(?<![\s=/?&#%:(\[<\"'])https?://"
_GLUED: Final = re.compile(GLUED, re.IGNORECASE)


class Endings:
    """Where the URLs of one text end.

    A text may hold thousands of URLs, each of which could go on to the end of it. So brackets are paired once for the
    whole text, not once more for every URL.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._glued = [found.start() for found in _GLUED.finditer(text)]
        self._brackets, self._partners = _paired(text)

    def end(self, start: int, end: int) -> int:
        """Where the URL at `start` ends, if it can reach no further than `end`.

        It ends before a second link, before a bracket without a partner inside, and before punctuation.
        """
        end = self._balanced(start, self._before_next(start, end))
        while end > start and self._text[end - 1] in _MARKS:
            end -= 1
        return end

    def _before_next(self, start: int, end: int) -> int:
        place = bisect_right(self._glued, start)
        return min(end, self._glued[place]) if place < len(self._glued) else end

    def _balanced(self, start: int, end: int) -> int:
        """A bracket and its partner are passed over together; the first that has none inside ends the URL."""
        place = bisect_right(self._brackets, start - 1)
        while place < len(self._brackets) and self._brackets[place] < end:
            partner = self._partners[place]
            if partner is None or self._brackets[partner] >= end:
                return self._brackets[place]
            place = partner + 1
        return end


def _paired(text: str) -> tuple[Sequence[int], Sequence[int | None]]:
    """The places of all brackets, and for each that opens the number of the one that closes it, if one does."""
    places: list[int] = []
    partners: list[int | None] = []
    waiting: list[int] = []
    for number, bracket in enumerate(_BRACKET.finditer(text)):
        places.append(bracket.start())
        partners.append(None)
        opening = _PAIRS.get(bracket[0])
        if opening is None:
            waiting.append(number)
        elif waiting and text[places[waiting[-1]]] == opening:
            partners[waiting.pop()] = number
        else:
            waiting.clear()  # what is open around a bracket of another kind cannot be closed behind it
    return places, partners
