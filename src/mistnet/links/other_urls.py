"""URLs of any host in a text, as X would link them.

twitter-text is right but takes time that grows with the square of a text (Chinese prose is all "domain characters" to
it), so it only gets to see the places where a URL can begin.
"""
# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mistnet.links.trimming import GLUED
from mistnet.links.x_rules import urls_by_x

# Where a path goes on: all visible ASCII, and the accented and Cyrillic letters that X allows there.
_PATH: Final = r"[!-~\u00a1-\u024f\u0253-\u02af\u0300-\u036f\u0400-\u052f\u1e00-\u1eff\u2013]"
_TAIL: Final = rf"(?:[:/?#](?:(?!{GLUED}){_PATH}){{0,4096}})?"
# No host has more labels or letters than this; longer runs are somebody's idea of a joke.
_HOST: Final = r"(?:(?!https?://)[^\s/?#:@.，。、！？；：（）「」『』【】《》〈〉…～]){1,63}"
_LABEL: Final = r"[A-Za-z0-9_\-\u00c0-\u024f]{1,63}"
_LABELS: Final = 9
_PLACE: Final = re.compile(
    rf"https?://{_HOST}(?:\.{_HOST}){{0,{_LABELS}}}\.?{_TAIL}"
    rf"|(?<![A-Za-z0-9_\-.@\u00c0-\u024f]){_LABEL}(?:\.{_LABEL}){{1,{_LABELS}}}(?![A-Za-z0-9_\-]|\.[A-Za-z0-9_\-]){_TAIL}",
    re.IGNORECASE,
)
_NEXT: Final = re.compile(GLUED, re.IGNORECASE)


def other_urls(text: str) -> Iterator[tuple[int, int]]:
    """Where each begins and ends. Two links written without a blank between them are two."""
    last = -1
    for place in _PLACE.finditer(text):
        # The characters before and behind decide whether it is one (`@a.example` is none), unless a link is there.
        start = place.start() if place.start() == last else max(place.start() - 1, 0)
        last = place.end()
        end = last if _NEXT.match(text, last) else last + 1
        for begins, ends in urls_by_x(text[start:end]):
            yield start + begins, start + ends
