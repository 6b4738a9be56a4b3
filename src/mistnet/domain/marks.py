"""Which parts of a text a search found it by. Pure."""

from __future__ import annotations

import re

from mistnet.domain.query import Query, Term
from mistnet.domain.words import search_text


def pattern(query: Query) -> re.Pattern[str]:
    """Finds what was looked for; the longest of what could be meant."""
    wanted = [_pattern_of(term) for choice in query.choices for term in choice]
    return re.compile("|".join(sorted(wanted, key=len, reverse=True)), re.IGNORECASE)


def _pattern_of(term: Term) -> str:
    """The term as a text may have it. Only where a script has blanks do words have edges."""
    begins = r"(?<!\w)" if search_text(term.words[0]) is None else ""
    ends = r"\w*" if term.prefix else r"(?!\w)" if search_text(term.words[-1]) is None else ""
    return begins + r"[\W_]*".join(map(re.escape, term.words)) + ends
