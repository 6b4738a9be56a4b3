"""URLs of the shops in a text, with the forms each of them uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from mistnet.links.hosts import SHOPEE_REGIONS, SITES
from mistnet.links.trimming import GLUED, trimmed
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
    rf"[^\s/?#<>\"\u200b]{{0,500}}-i\.[0-9]+\.[0-9]+(?:/?[?#]{_ASCII}*|/(?![A-Za-z0-9]))?",
    re.IGNORECASE,
)
_SHOP: Final = re.compile(rf"{_BEGINS}{_BELOW}{_HOSTS}{_PORT}{_ENDS}(?:[/?#]{_ASCII}*)?", re.IGNORECASE)
_NEXT: Final = re.compile(GLUED, re.IGNORECASE)
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
    start = 0
    while match := pattern.search(text, start):
        whole = match[0]
        cut = _NEXT.search(whole, 1)
        url = trimmed(whole[: cut.start()] if cut else whole)
        start = match.start() + max(len(url), 1)
        yield match.start(), match.start() + len(url)


def blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with these pieces as blanks, every other character in its place."""
    for start, end in spans:
        text = text[:start] + " " * (end - start) + text[end:]
    return text
