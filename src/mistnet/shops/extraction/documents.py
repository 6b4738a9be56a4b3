"""Finds the structured data of a page: JSON-LD documents, even broken ones, and microdata in the same form."""

import html
import json
import re
from collections import deque
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

# A string or comment that is never closed reaches to the end: searching an end for each would take quadratic time.
_STRING: Final = r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)'
_LONG_COMMENT: Final = r"/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)"
_COMMENT: Final = re.compile(rf"({_STRING})|<!--|-->|{_LONG_COMMENT}|<!\[CDATA\[|\]\]>|//[^\n]*", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r'\\(?!["\\/bfnrtu])')
_MOST_NODES: Final = 20_000
_LARGEST: Final = 2_000_000


def documents(tree: LexborHTMLParser) -> Iterator[Any]:
    """All JSON-LD documents of a page, in order, without those that cannot be repaired."""
    for script in tree.css('script[type*="ld+json"]'):
        text = script.text(deep=True).strip()
        if text and len(text) <= _LARGEST:
            yield from _repair(text)


def _repair(text: str) -> Iterator[Any]:
    """Each attempt is more lenient: as it is, without comments, without stray commas, unescaped."""
    bare = _COMMENT.sub(_string_only, text).strip().rstrip(";").strip()
    tidy = _BAD_ESCAPE.sub(r"\\\\", _TRAILING_COMMA.sub(_string_only, bare))
    for attempt in (text, bare, tidy, _unescaped(tidy)):
        try:
            yield loads(attempt)
        except (ValueError, RecursionError):
            continue
        return
    # The first JSON value, if garbage follows it.
    try:
        yield json.JSONDecoder(parse_float=_exact, strict=False).raw_decode(tidy)[0]
    except (ValueError, RecursionError):
        return


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a character reference with thousands of digits
        return text


def _string_only(found: re.Match[str]) -> str:
    """Keep strings as they are; remove any other match."""
    return found[1] or ""


def loads(text: str) -> Any:
    """JSON with exact numbers. Raw line breaks inside strings are accepted."""
    return json.loads(text, parse_float=_exact, strict=False)


def _exact(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return None
    return value if value.is_finite() else None


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


_BY_ATTRIBUTE: Final = {
    "meta": ("content",),
    "link": ("href",),
    "a": ("content", "href"),
    "area": ("href",),
    "img": ("content", "src", "data-src"),
    "audio": ("src",),
    "video": ("src",),
    "iframe": ("src",),
    "source": ("src",),
    "object": ("data",),
    "data": ("value",),
    "meter": ("value",),
    "time": ("datetime",),
    "input": ("content", "value"),
}
_DEEPEST: Final = 200
_TEXT: Final = 2000


def items(tree: LexborHTMLParser) -> Iterator[dict[str, Any]]:
    """The outermost items of a page: those that are no property of another."""
    known: dict[int, bool] = {}
    for node in tree.css("[itemscope]"):
        if "itemprop" not in node.attributes or not _inside_item(node, known):
            yield item(node)


def item(node: LexborNode, depth: int = 0) -> dict[str, Any]:
    kind = (node.attributes.get("itemtype") or "").strip().rstrip("/").rpartition("/")[2]
    found: dict[str, Any] = {"@type": kind}
    _collect(node, found, depth)
    return found


def _collect(node: LexborNode, into: dict[str, Any], depth: int) -> None:
    if depth > _DEEPEST:
        return
    for child in node.iter(include_text=False):
        attributes = child.attributes
        if names := (attributes.get("itemprop") or "").split():
            value = item(child, depth + 1) if "itemscope" in attributes else value_of(child)
            for name in names:
                into.setdefault(name, []).append(value)
        if "itemscope" not in attributes:
            _collect(child, into, depth + 1)


def value_of(node: LexborNode) -> str:
    """The value of an element as a property: from its attribute, else its text."""
    attributes = node.attributes
    for name in (*_BY_ATTRIBUTE.get(node.tag or "", ()), "content"):
        if value := attributes.get(name):
            return value.strip()[:_TEXT]
    return " ".join(node.text(deep=True, separator=" ").split())[:_TEXT]


def _inside_item(node: LexborNode, known: dict[int, bool]) -> bool:
    """Walk up to an element that is known already, at most: a page may nest thousands of elements."""
    passed: list[int] = []
    parent, found = node.parent, False
    while parent is not None and not found:
        if parent.mem_id in known:
            found = known[parent.mem_id]
            break
        passed.append(parent.mem_id)
        found = parent.tag != "-undef" and bool(parent.attributes) and "itemscope" in parent.attributes
        parent = parent.parent
    known.update(dict.fromkeys(passed, found))
    return found
