"""Search queries: words, phrases, prefixes, alternatives and exclusions, and how each database is asked for them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import Final

import msgspec

from mistnet.social.errors import BadSearch

# Kana, Han, Hangul, Thai, Lao, Khmer, Burmese: written without blanks, or searched by part of a word.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f]+"
)


def search_text(text: str) -> str | None:
    """The text with spaces around such characters; None if it has none and can be searched as it is."""
    if text.isascii() or not _UNSPACED.search(text):
        return None
    return " ".join(_UNSPACED.sub(lambda run: f" {' '.join(run[0])} ", text).split())


LONGEST_QUERY: Final = 1_000
_PIECE: Final = re.compile(r'(?P<minus>-?)(?:["“”](?P<phrase>[^"“”]*)["“”]?(?P<star>\*?)|(?P<word>[^\s"“”]+))')


class SearchTerm(msgspec.Struct, frozen=True, kw_only=True):
    """Adjacent words. With `prefix`, the last one is only the beginning of a word."""

    text: str
    words: Sequence[str]
    prefix: bool = False


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A post matches if it has at least one term of every choice and no excluded one."""

    choices: Sequence[Sequence[SearchTerm]]
    excluded: Sequence[SearchTerm] = ()


def parse(given: str) -> SearchQuery:
    """Parse any text. Raises BadSearch if it contains nothing to search for."""
    if len(given) > LONGEST_QUERY:
        raise BadSearch(given, f"it is longer than {LONGEST_QUERY:,} characters")
    choices: list[tuple[SearchTerm, ...]] = []
    excluded: list[SearchTerm] = []
    joined = False
    # Databases refuse NUL and broken characters, even in a query.
    readable = given.encode("utf-8", "replace").decode().replace("\x00", " ")
    for piece in _PIECE.finditer(readable):
        if piece[0] == "OR":
            joined = bool(choices)
            continue
        written = piece["phrase"] if piece["word"] is None else piece["word"]
        # No database indexes text without a letter or digit.
        if not any(unicodedata.category(letter)[0] in "LN" for letter in written):
            continue
        text = search_text(written) or " ".join(written.split())
        # Words are runs of letters, digits and combining marks.
        words = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in text).split()
        prefix = bool(piece["star"]) or (piece["word"] or "").endswith("*")
        term = SearchTerm(text=text.rstrip("* "), words=tuple(words), prefix=prefix)
        if piece["minus"]:
            excluded.append(term)
        elif joined:
            choices[-1] += (term,)
        else:
            choices.append((term,))
        joined = False
    if not choices:
        raise BadSearch(given, "name at least one word to look for" + (" beside those to leave out" * bool(excluded)))
    return SearchQuery(choices=tuple(choices), excluded=tuple(excluded))


def pattern(query: SearchQuery) -> re.Pattern[str]:
    """A pattern that finds the terms in a text, longest first. Words have boundaries only in scripts with spaces."""
    wanted: list[str] = []
    for term in chain.from_iterable(query.choices):
        words: list[str] = []
        for word in term.words:
            # Vowel signs and accents belong to the letter before them. As words of their own they could be part of what
            # is between words, in more ways than can be tried.
            if words and not any(letter.isalnum() for letter in word):
                words[-1] += word
            else:
                words.append(word)
        begins = r"(?<!\w)" if search_text(words[0]) is None else ""
        ends = r"\w*" if term.prefix else r"(?!\w)" if search_text(words[-1]) is None else ""
        wanted.append(begins + r"[\W_]*".join(map(re.escape, words)) + ends)
    return re.compile("|".join(sorted(wanted, key=len, reverse=True)), re.IGNORECASE)


def fts5(query: SearchQuery) -> str:
    """The query for MATCH. All user input is inside quotes, as words without punctuation."""
    wanted = " AND ".join(f"({' OR '.join(map(_fts5_term, choice))})" for choice in query.choices)
    return f"({wanted}) NOT ({' OR '.join(map(_fts5_term, query.excluded))})" if query.excluded else wanted


def _fts5_term(term: SearchTerm) -> str:
    return f'"{" ".join(term.words)}"' + " *" * term.prefix


def tsquery(query: SearchQuery) -> str:
    """The query for to_tsquery. All user input is inside quotes."""
    wanted = " & ".join(f"({' | '.join(map(_tsquery_term, choice))})" for choice in query.choices)
    return f"{wanted} & !({' | '.join(map(_tsquery_term, query.excluded))})" if query.excluded else wanted


def _tsquery_term(term: SearchTerm) -> str:
    """PostgreSQL indexes `example.com`, `3.14` or `and/or` as one word. The query searches for it and for its parts."""
    *before, last = term.words
    in_parts = _quoted(" ".join(term.words))
    if term.prefix:
        in_parts = " <-> ".join([*([_quoted(" ".join(before))] if before else []), f"{_quoted(last)}:*"])
    if " ".join(term.words) == term.text:
        return f"({in_parts})"
    return f"({_quoted(term.text)}{':*' * term.prefix} | ({in_parts}))"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
