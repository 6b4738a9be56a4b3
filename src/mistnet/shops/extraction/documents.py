"""Decodes and parses pages of unknown origin; finds the data in them: JSON-LD, even broken, and microdata alike."""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from html import unescape
from itertools import filterfalse
from typing import Any, Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode
from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding, read_bom, resolve_encoding

from mistnet.shops.model import PageUnreadable

# The parser searches all open elements for every new one. Browsers render at most 512 levels.
DEEPEST: Final = 1_000
_FEW_TAGS: Final = 2_000  # fewer cannot nest deeply enough to take long
_RAW: Final = ("script", "style", "textarea", "title", "iframe")
# These are empty, or closed by the next of their kind.
_NEVER_DEEP: Final = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track"),
        *("wbr", "p", "li", "dt", "dd", "td", "th", "tr", "tbody", "thead", "tfoot", "option", "optgroup", "a"),
        *("button", "html", "head", "body"),
    )
)
# The name of each tag, with a slash before that of an end tag. Comments and raw elements match with all they hold, and
# without a name: what stands in them is not markup. One that is never closed reaches to the end.
_TAG: Final = re.compile(
    r"<(?:!--(?!-?>)[^-]*+(?:-(?!-!?>)[^-]*+)*|(?=[sStTiI])(?i:"
    + "|".join(rf"{name}(?=[\s/>])[^<]*+(?:<(?!/{name})[^<]*+)*" for name in _RAW)
    + r")|(/?[a-zA-Z][^ \t\n\f\r/>]*+))"
)
_NOT_COUNTED: Final = frozenset(("", *_NEVER_DEEP, *(f"/{name}" for name in (*_NEVER_DEEP, *_RAW))))
# The end of one of these closes all elements inside it; any other end tag (`</b>`) closes nothing beyond one of these.
_BLOCKS: Final = frozenset(
    (
        *("address", "article", "aside", "blockquote", "center", "details", "dialog", "dir", "div", "dl", "fieldset"),
        *("figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "main", "menu"),
        *("nav", "object", "ol", "pre", "section", "select", "summary", "table", "template", "ul"),
    )
)


def parse_html(text: str) -> LexborHTMLParser:
    """The tree of a page. Raises PageUnreadable if it nests deeper than browsers render."""
    tags = [*filterfalse(_NOT_COUNTED.__contains__, map(str.lower, _TAG.findall(text)))]
    if len(tags) > _FEW_TAGS and _is_deep(tags):
        raise PageUnreadable(f"more than {DEEPEST:,} of its elements are inside each other")
    return LexborHTMLParser(text)


def _is_deep(tags: Iterable[str]) -> bool:
    """Whether more elements than allowed are open at once, the innermost of which is the last."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for tag in tags:
        if tag[0] != "/":
            names.append(tag)
            counts[tag] = counts.get(tag, 0) + 1
            if len(names) > DEEPEST:
                return True
            continue
        name = tag[1:]
        if not counts.get(name):
            continue
        if name != names[-1]:
            inner = (
                name if name in _BLOCKS else next(each for each in reversed(names) if each == name or each in _BLOCKS)
            )
            if inner != name:
                continue
            while names[-1] != name:
                counts[names.pop()] -= 1
        names.pop()
        counts[name] -= 1
    return False


# A page that names more is not believed: each takes another pass over all of it.
_MOST_NAMES: Final = 5
_HEAD: Final = 4096
# Python's own text encodings, which no page is written in; some take time that grows with the square of the text.
_NO_CHARSETS: Final = frozenset(("punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined"))


def decode(body: bytes, *, content_type: str | None = None, charset: str | None = None) -> str:
    """The text of a page: by its byte-order mark, as strict UTF-8, by header, by meta tag, and at last with gaps."""
    marked, mark = read_bom(body)
    if marked and mark:
        return body[len(mark) :].decode(marked, "replace")
    header = http_content_type_encoding(content_type)
    named = [resolve_encoding(charset) if charset else None, header, html_body_declared_encoding(body[:_HEAD])]
    known = [*dict.fromkeys(each for each in named if each and each.replace("-", "_") not in _NO_CHARSETS)]
    for name in ("utf-8", *known[:_MOST_NAMES]):
        try:
            return body.decode(name)
        except (UnicodeError, LookupError, ValueError):
            continue
    # A page that is cut in the middle of a character, or has a few stray bytes, is UTF-8 still.
    text = body.decode("utf-8", "replace")
    if text.count("\N{REPLACEMENT CHARACTER}") * 200 > len(text):
        with suppress(UnicodeError, LookupError, ValueError):
            return body.decode(known[0] if known else "cp1252", "replace")
    return text


# A string or comment that is never closed reaches to the end: searching an end for each would take quadratic time.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)'
_LONG_COMMENT: Final = r"/\*.*?(?:\*/|\Z)"
_MARKUP_IN_JSON: Final = re.compile(rf"({_STRING})|<!--|-->|{_LONG_COMMENT}|<!\[CDATA\[|\]\]>|//[^\n]*", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r'\\(?!["\\/bfnrtu])')
_MOST_NODES: Final = 20_000
_LARGEST: Final = 2_000_000


def documents(tree: LexborHTMLParser) -> Iterator[Any]:
    """All JSON-LD documents of a page, in order, without those that cannot be repaired."""
    for script in tree.css('script[type*="ld+json"]'):
        text = script.text(deep=True).strip()
        if not text or len(text) > _LARGEST:
            continue
        # Strings, which are the first group of each pattern, stay as they are.
        bare = _MARKUP_IN_JSON.sub(r"\1", text).strip().rstrip(";").strip()
        tidy = _BAD_ESCAPE.sub(r"\\\\", _TRAILING_COMMA.sub(r"\1", bare))
        unescaped = tidy
        with suppress(ValueError):  # a character reference with thousands of digits
            unescaped = unescape(tidy)
        found: list[Any] = []
        # Each attempt is more lenient: as it is, without comments, without stray commas, unescaped.
        for attempt in (text, bare, tidy, unescaped):
            with suppress(ValueError, RecursionError):
                found = [loads(attempt)]
                break
        else:  # the first JSON value, if garbage follows it
            with suppress(ValueError, RecursionError):
                found = [json.JSONDecoder(parse_float=_exact, strict=False).raw_decode(tidy)[0]]
        yield from found


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
_DEEPEST_ITEM: Final = 200
_TEXT: Final = 2000


class Vocabulary(NamedTuple):
    """The attributes that mark an item, its type and its properties."""

    scope: str
    kind: str
    prop: str


MICRODATA: Final = Vocabulary("itemscope", "itemtype", "itemprop")
RDFA: Final = Vocabulary("typeof", "typeof", "property")


def items(tree: LexborHTMLParser, names: Vocabulary = MICRODATA) -> Iterator[dict[str, Any]]:
    """The outermost items of a page: those that are no property of another."""
    known: dict[int, bool] = {}
    for node in tree.css(f"[{names.scope}]"):
        inside, parent, passed = False, node.parent if names.prop in node.attributes else None, list[int]()
        # Up to an element that is known already, at most: a page may nest thousands of elements.
        while parent is not None and not inside:
            if parent.mem_id in known:
                inside = known[parent.mem_id]
                break
            passed.append(parent.mem_id)
            inside = parent.tag != "-undef" and bool(parent.attributes) and names.scope in parent.attributes
            parent = parent.parent
        known.update(dict.fromkeys(passed, inside))
        if not inside:
            yield item(node, names)


def item(node: LexborNode, names: Vocabulary, depth: int = 0) -> dict[str, Any]:
    kind = (node.attributes.get(names.kind) or "").strip().rstrip("/")
    found: dict[str, Any] = {"@type": re.split(r"[/:]", kind)[-1]}
    _collect(node, found, names, depth)
    return found


def _collect(node: LexborNode, into: dict[str, Any], vocabulary: Vocabulary, depth: int) -> None:
    if depth > _DEEPEST_ITEM:
        return
    for child in node.iter(include_text=False):
        attributes = child.attributes
        if names := (attributes.get(vocabulary.prop) or "").split():
            value = item(child, vocabulary, depth + 1) if vocabulary.scope in attributes else value_of(child)
            for name in names:
                into.setdefault(name.rpartition(":")[2], []).append(value)
        if vocabulary.scope not in attributes:
            _collect(child, into, vocabulary, depth + 1)


def value_of(node: LexborNode) -> str:
    """The value of an element as a property: from its attribute, else its text."""
    attributes = node.attributes
    for name in (*_BY_ATTRIBUTE.get(node.tag or "", ()), "content"):
        if value := attributes.get(name):
            return value.strip()[:_TEXT]
    return " ".join(node.text(deep=True, separator=" ").split())[:_TEXT]
