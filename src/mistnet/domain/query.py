"""What people type into a search, taken apart: words, phrases, beginnings of words, choices, exclusions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

import msgspec

from mistnet.domain.errors import BadSearch
from mistnet.domain.words import search_text

LONGEST_QUERY: Final = 1_000
_PIECE: Final = re.compile(r'(?P<minus>-?)(?:["“”](?P<phrase>[^"“”]*)["“”]?(?P<star>\*?)|(?P<word>[^\s"“”]+))')


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """Words that must stand side by side. With `prefix`, the last of them is a beginning only."""

    text: str
    words: Sequence[str]
    prefix: bool = False


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A post is found if it has at least one term of every choice, and none that is excluded."""

    choices: Sequence[Sequence[Term]]
    excluded: Sequence[Term] = ()


def parse(given: str) -> Query:
    """Reads any text whatever; only one that asks for nothing is refused."""
    if len(given) > LONGEST_QUERY:
        raise BadSearch(given, f"it is longer than {LONGEST_QUERY:,} characters")
    choices: list[tuple[Term, ...]] = []
    excluded: list[Term] = []
    joined = False
    for piece in _PIECE.finditer(_readable(given)):
        if piece[0] == "OR":
            joined = bool(choices)
            continue
        term = _term(piece)
        if term is None:
            continue
        if piece["minus"]:
            excluded.append(term)
        elif joined:
            choices[-1] += (term,)
        else:
            choices.append((term,))
        joined = False
    if not choices:
        raise BadSearch(given, "name at least one word to look for" + (" beside those to leave out" * bool(excluded)))
    return Query(choices=tuple(choices), excluded=tuple(excluded))


def _readable(given: str) -> str:
    """Databases refuse NUL and broken characters, even in a question."""
    return given.encode("utf-8", "replace").decode().replace("\x00", " ")


def _term(piece: re.Match[str]) -> Term | None:
    """None for what has no letter and no digit: no database keeps it as a word."""
    written = piece["phrase"] if piece["word"] is None else piece["word"]
    if not any(_is_spoken(letter) for letter in written):
        return None
    prefix = bool(piece["star"]) or (piece["word"] or "").endswith("*")
    text = search_text(written) or " ".join(written.split())
    return Term(text=text.rstrip("* "), words=_words(text), prefix=prefix)


def _is_spoken(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LN"


def _words(text: str) -> tuple[str, ...]:
    """Runs of letters, digits and the marks upon them."""
    return tuple("".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in text).split())
