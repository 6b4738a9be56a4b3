"""Finds JSON-LD in a page and reads it, mending what is commonly broken."""

import html
import json
import re
from collections import deque
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from selectolax.lexbor import LexborHTMLParser

# What is never closed reaches to the end: looking for an end behind every quote and comment would take forever.
_STRING: Final = r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)'
_LONG_COMMENT: Final = r"/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)"
_COMMENT: Final = re.compile(rf"({_STRING})|<!--|-->|{_LONG_COMMENT}|<!\[CDATA\[|\]\]>|//[^\n]*", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r'\\(?!["\\/bfnrtu])')
_MOST_NODES: Final = 20_000
_LARGEST: Final = 2_000_000


def documents(tree: LexborHTMLParser) -> Iterator[Any]:
    """All JSON-LD documents of a page, in order; what cannot be mended is left out."""
    for script in tree.css('script[type*="ld+json"]'):
        text = script.text(deep=True).strip()
        if text and len(text) <= _LARGEST:
            yield from _mended(text)


def _mended(text: str) -> Iterator[Any]:
    """Each attempt gives up a little more of the letter: as is, without comments, without stray commas."""
    bare = _COMMENT.sub(_string_only, text).strip().rstrip(";").strip()
    tidy = _BAD_ESCAPE.sub(r"\\\\", _TRAILING_COMMA.sub(_string_only, bare))
    for attempt in (text, bare, tidy, _unescaped(tidy)):
        try:
            yield loads(attempt)
        except (ValueError, RecursionError):
            continue
        return
    yield from _first_part(tidy)


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a character reference with thousands of digits
        return text


def _string_only(found: re.Match[str]) -> str:
    """Strings stay as they are, whatever they look like; the rest of a match goes."""
    return found[1] or ""


def loads(text: str) -> Any:
    """JSON with exact numbers; raw line breaks inside strings are forgiven."""
    return json.loads(text, parse_float=_exact, strict=False)


def _exact(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return None
    return value if value.is_finite() else None


def _first_part(text: str) -> Iterator[Any]:
    """Something readable followed by rubbish."""
    try:
        yield json.JSONDecoder(parse_float=_exact, strict=False).raw_decode(text)[0]
    except (ValueError, RecursionError):
        return


def nodes(document: Any) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Every object of a document with the keys that lead to it, outermost first."""
    waiting: deque[tuple[Any, tuple[str, ...]]] = deque([(document, ())])
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        value, way = waiting.popleft()
        if isinstance(value, dict):
            yield value, way
            waiting += [(inner, (*way, str(key))) for key, inner in value.items() if isinstance(inner, (dict, list))]
        elif isinstance(value, list):
            waiting += [(inner, way) for inner in value]
