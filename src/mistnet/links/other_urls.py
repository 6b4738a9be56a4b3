"""URLs of any host in a text, as X would link them.

twitter-text is right but takes time that grows with the square of a text (Chinese prose is all "domain characters" to
it), so it only gets to see one place at a time where a URL can begin, and only as much as that URL can be.
"""
# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mistnet.links.trimming import GLUED
from mistnet.links.x_rules import url_by_x

# Where a path goes on: all visible ASCII, and the accented and Cyrillic letters that X allows there.
_PATH: Final = r"[!-~\u00a1-\u024f\u0253-\u02af\u0300-\u036f\u0400-\u052f\u1e00-\u1eff\u2013]"
_TAIL: Final = re.compile(rf"(?:(?!{GLUED}){_PATH})*", re.IGNORECASE)
_LONGEST_TAIL: Final = 4096
# No host has more labels or letters than this; longer runs are somebody's idea of a joke.
_HOST: Final = r"(?:(?!https?://)[^\s/?#:@.，。、！？；：（）「」『』【】《》〈〉…～]){1,63}"
_LABEL: Final = r"[A-Za-z0-9_\-\u00c0-\u024f]{1,63}"
_LABELS: Final = 9
_PLACE: Final = re.compile(
    rf"https?://{_HOST}(?:\.{_HOST}){{0,{_LABELS}}}\.?"
    rf"|(?<![A-Za-z0-9_\-.@\u00c0-\u024f]){_LABEL}(?:\.{_LABEL}){{1,{_LABELS}}}(?![A-Za-z0-9_\-]|\.[A-Za-z0-9_\-])",
    re.IGNORECASE,
)
_NEXT: Final = re.compile(GLUED, re.IGNORECASE)
_SCHEME_LAST: Final = re.compile(r"https?\Z", re.IGNORECASE)


def other_urls(text: str) -> Iterator[tuple[int, int]]:
    """Where each begins and ends. Two links written without a blank between them are two."""
    start, glued, reach = 0, -1, 0
    while True:
        place = _PLACE.search(text, start, glued if start < glued else len(text))
        if place is None and start >= glued:
            return
        if place is None:
            start = glued
            continue
        # The characters before and behind decide whether it is one (`@a.example` is none), unless a link is there.
        before = place.start() if place.start() == glued else max(place.start() - 1, 0)
        host_end = end = place.end()
        if text[end : end + 1] in (":", "/", "?", "#"):
            if end >= reach and (tail := _TAIL.match(text, end + 1)):
                reach = tail.end()
            end = min(reach, end + 1 + _LONGEST_TAIL)
        if _NEXT.match(text, end):
            glued = end
        told = url_by_x(text, before, host_end, end if end == glued else end + 1)
        yield from told.urls if told else ()
        start = max(told.end if told else _without_scheme(text, host_end), place.start() + 1)


def _without_scheme(text: str, end: int) -> int:
    """Where a host ends that runs into a link: `www.https://example.com`."""
    scheme = _SCHEME_LAST.search(text, end - 5, end) if text.startswith("://", end) else None
    return scheme.start() if scheme else end
