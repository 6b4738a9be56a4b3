"""Which parts of a text a search found it by. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mistnet.domain.query import Query, Term
from mistnet.domain.words import search_text


def pattern(query: Query) -> re.Pattern[str]:
    """Finds what was looked for; the longest of what could be meant."""
    wanted = [_pattern_of(term) for choice in query.choices for term in choice]
    return re.compile("|".join(sorted(wanted, key=len, reverse=True)), re.IGNORECASE)


def _pattern_of(term: Term) -> str:
    """The term as a text may have it. Only where a script has blanks do words have edges."""
    words = _with_their_marks(term.words)
    begins = r"(?<!\w)" if search_text(words[0]) is None else ""
    ends = r"\w*" if term.prefix else r"(?!\w)" if search_text(words[-1]) is None else ""
    return begins + r"[\W_]*".join(map(re.escape, words)) + ends


def _with_their_marks(words: Sequence[str]) -> Sequence[str]:
    """Vowel signs and accents belong to the letter before them.

    As words of their own they could be part of what is between words, in more ways than can be tried.
    """
    joined: list[str] = []
    for word in words:
        if joined and not any(letter.isalnum() for letter in word):
            joined[-1] += word
        else:
            joined.append(word)
    return joined
