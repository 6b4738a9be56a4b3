"""Finds URLs in the text of a post: the shops' own forms first, then everything that X would link."""

# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

import msgspec

from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.links.naming import META_HOSTS

_MARKS: Final = ".,;:!?'\"*~|$#@"
_PAIRS: Final = {")": "(", "]": "["}
_BRACKET: Final = re.compile(r"[()\[\]]")
# Two links without a blank between them; behind these marks the second belongs to the first.
GLUED: Final = r"(?<![\s=/?&#%:(\[<\"'])https?://"
_GLUED: Final = re.compile(GLUED, re.IGNORECASE)


class Endings:
    """Where the URLs of one text end.

    A text may hold thousands of URLs, each of which could reach to its end. So brackets are paired once for the whole
    text: pairing them for each URL would take quadratic time.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._glued = [found.start() for found in _GLUED.finditer(text)]
        # The places of all brackets, and for each opening one the number of its closing one, if there is one.
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
        self._brackets, self._partners = places, partners

    def end(self, start: int, end: int) -> int:
        """Where the URL at `start` ends, if it can reach no further than `end`.

        It ends before a second link, before a bracket without a partner inside, and before punctuation.
        """
        place = bisect_right(self._glued, start)
        end = min(end, self._glued[place]) if place < len(self._glued) else end
        bracket = bisect_right(self._brackets, start - 1)
        while bracket < len(self._brackets) and self._brackets[bracket] < end:
            partner = self._partners[bracket]
            if partner is None or self._brackets[partner] >= end:
                end = self._brackets[bracket]
                break
            bracket = partner + 1
        while end > start and self._text[end - 1] in _MARKS:
            end -= 1
        return end


_PACKAGE: Final = "twitter_text"
_PUNYCODE: Final = "xn--"
_PLAIN_RUN: Final = re.compile(r"[0-9a-z@+\-]*")
# The names in a pattern of the form `(?:(?:com|org)(?=[^0-9a-zA-Z@+-]|$))`.
_ENDING: Final = re.compile(r"(?<=[|:])[^\W\d_](?:[^|()?:\[\]]*)(?=[|)])")
# No path has so many pairs of brackets in a row, and X's pattern reads all that follow for each of them.
_BRACKETS_IN_A_ROW: Final = re.compile(r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)){17}")


class UrlsInSpan(msgspec.Struct, frozen=True):
    """The URLs that X finds at one place, none if it is too long or cut off, and where that place ends."""

    urls: Sequence[tuple[int, int]]
    end: int


class UrlPatterns(msgspec.Struct, frozen=True):
    """The patterns of the package, and its own function for a whole text."""

    place: re.Pattern[str]
    endings: frozenset[str]
    foreign_endings: tuple[str, ...]
    rest: re.Pattern[str]
    extract: Callable[[str], Sequence[dict[str, Any]]]

    def may_hold_domain(self, text: str) -> bool:
        """Whether a top-level domain follows a dot."""
        for label in text.casefold().split(".")[1:]:
            plain = _PLAIN_RUN.match(label)
            if plain and (plain[0] in self.endings or plain[0].startswith(_PUNYCODE)):
                return True
            if label.startswith(self.foreign_endings):
                return True
        return False


def url_by_x(text: str, start: int, host_end: int, reach: int) -> UrlsInSpan | None:
    """The first URL that X finds from `start` on, if it begins before the host ends.

    X's pattern is tried at every character and reads all that follows, each time. So it is skipped where no domain
    ends, and of what follows the host it sees only as much as a URL can have, and nothing from `reach` on.
    """
    x = rules()
    head = text[start : min(host_end + 1, reach)]
    place = x.place.search(head) if x.may_hold_domain(head) else None
    if place is None:
        return None
    whole = head
    if (rest := x.rest.match(text, host_end, reach)) and rest[0]:
        whole = text[start : min(rest.end() + 1, reach)]
        crowded = _BRACKETS_IN_A_ROW.search(whole)
        place = x.place.match(whole, place.start(), crowded.start() if crowded else len(whole)) or place
    urls = [(start + each["indices"][0], start + each["indices"][1]) for each in x.extract(whole[: place.end()])]
    return UrlsInSpan(urls, start + place.end())


@cache
def rules() -> UrlPatterns:
    """The patterns of the package. They are slow on long texts."""
    whole = sys.modules.get(_PACKAGE)
    if whole is None and (spec := find_spec(_PACKAGE)):
        sys.modules[_PACKAGE] = module_from_spec(spec)
    try:
        module = import_module(f"{_PACKAGE}.extract_urls")
        endings = {each for name in ("valid_gtld", "valid_cctld") for each in _ENDING.findall(_pattern(name))}
        path = "|".join(map(_pattern, ("valid_general_url_path_chars", "valid_url_balanced_parens")))
        query = _pattern("valid_url_query_chars")
    finally:
        if whole is None:
            sys.modules.pop(_PACKAGE, None)
    return UrlPatterns(
        place=module.extract_url,
        endings=frozenset(each for each in endings if each.isascii()),
        foreign_endings=tuple(each for each in endings if not each.isascii()),
        rest=re.compile(rf"(?::[0-9]+)?(?:/(?:{path})*)?(?:\?{query}*)?", re.IGNORECASE),
        extract=module.extract_urls_with_indices,
    )


def _pattern(name: str) -> str:
    found: re.Pattern[str] = getattr(import_module(f"{_PACKAGE}.regexp.{name}"), name)
    return found.pattern


# Where a path goes on: all visible ASCII, and the accented and Cyrillic letters that X allows there.
_PATH: Final = r"[!-~\u00a1-\u024f\u0253-\u02af\u0300-\u036f\u0400-\u052f\u1e00-\u1eff\u2013]"
_TAIL: Final = re.compile(rf"(?:(?!{GLUED}){_PATH})*", re.IGNORECASE)
_LONGEST_TAIL: Final = 4096
# No host has more labels or letters than this.
_HOST: Final = r"(?:(?!https?://)[^\s/?#:@.，。、！？；：（）「」『』【】《》〈〉…～]){1,63}"
_LABEL: Final = r"[A-Za-z0-9_\-\u00c0-\u024f]{1,63}"
_LABELS: Final = 9
_PLACE: Final = re.compile(
    rf"https?://{_HOST}(?:\.{_HOST}){{0,{_LABELS}}}\.?"
    rf"|(?<![A-Za-z0-9_\-.@\u00c0-\u024f]){_LABEL}(?:\.{_LABEL}){{1,{_LABELS}}}(?![A-Za-z0-9_\-]|\.[A-Za-z0-9_\-])",
    re.IGNORECASE,
)

_SCHEME_LAST: Final = re.compile(r"https?\Z", re.IGNORECASE)


def other_urls(text: str) -> Iterator[tuple[int, int]]:
    """The start and end of each. Two links without a blank between them are two."""
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
        if _GLUED.match(text, end):
            glued = end
        found = url_by_x(text, before, host_end, end if end == glued else end + 1)
        yield from found.urls if found else ()
        # A host may run into a link: `www.https://example.com`.
        scheme = _SCHEME_LAST.search(text, host_end - 5, host_end) if text.startswith("://", host_end) else None
        start = max(found.end if found else scheme.start() if scheme else host_end, place.start() + 1)


# What a URL may be made of after its host. Chinese text goes on right behind a link, without a blank.
_ASCII: Final = r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%|]"
# Not in the middle of a word, of an address or of another URL.
_BEGINS: Final = (
    r"(?=[A-Za-z0-9/])(?:(?<![=/&?%#])https?://|(?<![A-Za-z0-9@\-_.%=/&?#:])//|(?<![A-Za-z0-9@\-_.%=/&?#]))"
)
_BELOW: Final = r"(?:[A-Za-z0-9\-]{1,63}\.){0,4}"
_PORT: Final = r"(?::[0-9]{1,5})?"
_ENDS: Final = r"(?![A-Za-z0-9\-_@])(?!\.[A-Za-z0-9])"
_REST: Final = re.compile(rf"{_ASCII}*")
_HINTS_OF_WRAPPERS: Final = ("l.", "lm.")
_TELLING: Final = 4


class ShopPatterns(msgspec.Struct, frozen=True, eq=False):
    """The patterns of all shops' URLs, and words of which each of these has one: most texts have none."""

    hints: tuple[str, ...]
    slug: re.Pattern[str] | None
    shop: re.Pattern[str]


@cache
def patterns_of(shops: ShopCatalog) -> ShopPatterns:
    names = [*shops.domains, *META_HOSTS]
    hosts = "(?:" + "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True)) + ")"
    slugs = "|".join(shop.slugs for shop in shops.shops if shop.slugs)
    slug = rf"{_BEGINS}(?:{slugs})(?:(?P<goes_on>/?[?#])|/(?![A-Za-z0-9]))?"
    # A domain's longest label, or all of it where that is too short to be rare.
    longest = {domain: max(domain.split("."), key=len) for domain in shops.domains}
    hints = {label if len(label) >= _TELLING else domain for domain, label in longest.items()}
    return ShopPatterns(
        hints=(*sorted(hints), *_HINTS_OF_WRAPPERS),
        slug=re.compile(slug, re.IGNORECASE) if slugs else None,
        shop=re.compile(rf"{_BEGINS}{_BELOW}{hosts}{_PORT}{_ENDS}(?P<goes_on>[/?#])?", re.IGNORECASE),
    )


def shop_urls(text: str, shops: ShopCatalog) -> Iterator[tuple[int, int]]:
    """The start and end of each; those with a slug first, because only they may hold more than ASCII."""
    patterns, lower = patterns_of(shops), text.casefold()
    if not any(hint in lower for hint in patterns.hints):
        return
    taken = [*_matches(patterns.slug, text)] if patterns.slug else []
    yield from taken
    yield from _matches(patterns.shop, blank_out(text, taken))


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Each character is read once, however many URLs could reach it."""
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


def blank_out(text: str, spans: Iterable[tuple[int, int]], mark: str = " ") -> str:
    """The text with each character of these spans replaced by a mark. Spans are in order and do not overlap."""
    pieces: list[str] = []
    last = 0
    for start, end in spans:
        pieces += [text[last:start], mark * (end - start)]
        last = end
    return "".join([*pieces, text[last:]])


class FoundUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL as written: `text[start:end]`."""

    url: str
    start: int
    end: int


def find_urls(text: str, shops: ShopCatalog = CATALOG) -> Sequence[FoundUrl]:
    """Every occurrence, in order, each an unchanged piece of the text."""
    if "." not in text:
        return []
    spans = sorted(shop_urls(text, shops))
    spans += other_urls(blank_out(text, spans))
    return [FoundUrl(url=text[start:end], start=start, end=end) for start, end in sorted(spans)]
