"""X's own rules for what is a link, as twitter-text-parser has them.

The package loads its emoji tables on import, by way of `pkg_resources`, which a Python without setuptools lacks; they
are not needed here and take longer to load than all else. So only its URL module is imported, on first use.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

import msgspec

_PACKAGE: Final = "twitter_text"
_PUNYCODE: Final = "xn--"
_PLAIN_RUN: Final = re.compile(r"[0-9a-z@+\-]*")
# The names in a pattern of the form `(?:(?:com|org)(?=[^0-9a-zA-Z@+-]|$))`.
_ENDING: Final = re.compile(r"(?<=[|:])[^\W\d_](?:[^|()?:\[\]]*)(?=[|)])")
# No path has so many pairs of brackets side by side, for each of which X's pattern reads all that follow.
_BRACKETS_IN_A_ROW: Final = re.compile(r"(?:\((?:[^()]|\([^()]*\))*+\)){17}")


class Told(msgspec.Struct, frozen=True):
    """The URLs X takes from one place, none where it is too long or cut off, and how far that place goes."""

    urls: Sequence[tuple[int, int]]
    end: int


class Rules(msgspec.Struct, frozen=True):
    """The patterns of the package, and its own function for a whole text."""

    place: re.Pattern[str]
    endings: frozenset[str]
    foreign_endings: tuple[str, ...]
    rest: re.Pattern[str]
    extract: Callable[[str], Sequence[dict[str, Any]]]

    def may_hold_domain(self, text: str) -> bool:
        """Whether a name stands behind a dot in which domains end."""
        for label in text.casefold().split(".")[1:]:
            plain = _PLAIN_RUN.match(label)
            if plain and (plain[0] in self.endings or plain[0].startswith(_PUNYCODE)):
                return True
            if label.startswith(self.foreign_endings):
                return True
        return False


def url_by_x(text: str, start: int, host_end: int, reach: int) -> Told | None:
    """The first place from `start` on that X takes for a URL, if it begins before the host ends.

    X's pattern is tried at every character and reads all that follows, each time. So it is not asked where no domain
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
    urls = [(start + told["indices"][0], start + told["indices"][1]) for told in x.extract(whole[: place.end()])]
    return Told(urls, start + place.end())


@cache
def rules() -> Rules:
    """All of them, to be used on texts that are not too long."""
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
    return Rules(
        place=module.extract_url,
        endings=frozenset(each for each in endings if each.isascii()),
        foreign_endings=tuple(each for each in endings if not each.isascii()),
        rest=re.compile(rf"(?::[0-9]+)?(?:/(?:{path})*+)?(?:\?{query}*+)?", re.IGNORECASE),
        extract=module.extract_urls_with_indices,
    )


def _pattern(name: str) -> str:
    found: re.Pattern[str] = getattr(import_module(f"{_PACKAGE}.regexp.{name}"), name)
    return found.pattern
