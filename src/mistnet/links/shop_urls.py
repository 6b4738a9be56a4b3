"""URLs of the shops in a text, with the forms each of them uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mistnet.links.hosts import SHOPEE_REGIONS, SITES
from mistnet.links.trimming import Endings
from mistnet.links.wrappers import META_HOSTS


def _any_of(names: Sequence[str]) -> str:
    return "(?:" + "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True)) + ")"


# What a URL may be made of after its host. Chinese text goes on right behind a link, without a blank.
_ASCII: Final = r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%|]"
# Not in the middle of a word, of an address or of another URL.
_BEGINS: Final = (
    r"(?=[A-Za-z0-9/])(?:(?<![=/&?%#])https?://|(?<![A-Za-z0-9@\-_.%=/&?#:])//|(?<![A-Za-z0-9@\-_.%=/&?#]))"
)
_BELOW: Final = r"(?:[A-Za-z0-9\-]{1,63}\.){0,4}"
_PORT: Final = r"(?::[0-9]{1,5})?"
_ENDS: Final = r"(?![A-Za-z0-9\-_@])(?!\.[A-Za-z0-9])"
_SHOPEE: Final = _any_of([f"shopee.{region}" for region in SHOPEE_REGIONS])
_HOSTS: Final = _any_of([*SITES, *META_HOSTS])
# A slug may hold any letters, but no blank and no slash, and ends in the two ids.
_SLUG: Final = re.compile(
    rf"{_BEGINS}(?:(?:www|m|mall)\.)?{_SHOPEE}{_PORT}/(?:universal-link/)?"
    rf"[^\s/?#<>\"\u200b]{{0,500}}-i\.[0-9]+\.[0-9]+(?:(?P<goes_on>/?[?#])|/(?![A-Za-z0-9]))?",
    re.IGNORECASE,
)
_SHOP: Final = re.compile(rf"{_BEGINS}{_BELOW}{_HOSTS}{_PORT}{_ENDS}(?P<goes_on>[/?#])?", re.IGNORECASE)
_REST: Final = re.compile(rf"{_ASCII}*")
# No shop's host is without one of these.
_HINTS: Final = ("shop", "shp.ee", "xiapibuy", "taobao", "tmall", "tb.cn", "goofish", "ebay", "amazon", "amzn", "a.co")
_MORE_HINTS: Final = ("l.", "lm.")


def shop_urls(text: str) -> Iterator[tuple[int, int]]:
    """Where each begins and ends; those with a slug first, for only they may hold more than ASCII."""
    lower = text.casefold()
    if not any(hint in lower for hint in (*_HINTS, *_MORE_HINTS)):
        return
    taken = [*_matches(_SLUG, text)]
    yield from taken
    yield from _matches(_SHOP, blanked(text, taken))


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Each character is looked at once, however many URLs could reach as far as it."""
    endings = Endings(text)
    start = reach = 0
    while match := pattern.search(text, start):
        whole = match.end()
        if match["goes_on"]:
            if whole > reach and (rest := _REST.match(text, whole)):
                reach = rest.end()
            whole = max(whole, reach)
        end = endings.end(match.start(), whole)
        start = max(end, match.start() + 1)
        yield match.start(), end


def blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with these pieces, which are in order, as blanks; every other character in its place."""
    return replaced(text, spans, " ")


def replaced(text: str, spans: Iterable[tuple[int, int]], mark: str) -> str:
    """The text with as many marks in the place of each piece. Pieces are in order and do not overlap."""
    pieces: list[str] = []
    last = 0
    for start, end in spans:
        pieces += [text[last:start], mark * (end - start)]
        last = end
    return "".join([*pieces, text[last:]])
