"""Decodes and parses HTML of unknown origin, however deep it is nested."""

import re
from collections import Counter
from typing import Final

from selectolax.lexbor import LexborHTMLParser
from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding, read_bom, resolve_encoding

from mistnet.shops.errors import PageUnreadable

# The parser searches all open elements for every new one. Browsers render at most 512 levels.
DEEPEST: Final = 1_000
_FEW_TAGS: Final = 2_000  # fewer cannot nest deeply enough to take long
_NAME: Final = r"[a-zA-Z][^\s/>]*"
_TAG: Final = re.compile(rf"<(?:(?P<opens>{_NAME})|/(?P<closes>{_NAME})|(?P<comment>!--(?!-?>)))")
_COMMENT_ENDS: Final = re.compile("--!?>")
# Their content is not markup.
_RAW_ENDS: Final = {
    name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "textarea", "title", "iframe")
}
# These are empty, or closed by the next of their kind.
_NEVER_DEEP: Final = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track"),
        *("wbr", "p", "li", "dt", "dd", "td", "th", "tr", "tbody", "thead", "tfoot", "option", "optgroup", "a"),
        *("button", "html", "head", "body"),
    )
)
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
    if text.count("<") > _FEW_TAGS:
        _require_shallow(text)
    return LexborHTMLParser(text)


def _require_shallow(text: str) -> None:
    """Raise PageUnreadable if the tags nest too deep."""
    opened = _Opened()
    markup = 0  # where markup continues behind a comment or a script
    for tag in _TAG.finditer(text):
        if tag.start() < markup:
            continue
        opens, closes, comment = tag.groups()
        name = (opens or closes or "").lower()
        if comment or (opens and name in _RAW_ENDS):
            ends = (_COMMENT_ENDS if comment else _RAW_ENDS[name]).search(text, tag.end())
            if ends is None:
                return
            markup = ends.end()
        elif closes:
            opened.close(name)
        elif name not in _NEVER_DEEP:
            opened.names.append(name)
            opened.counts[name] += 1
            if len(opened.names) > DEEPEST:
                raise PageUnreadable(f"more than {DEEPEST:,} of its elements are inside each other")


class _Opened:
    """The open elements, the innermost last."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.counts: Counter[str] = Counter()

    def close(self, name: str) -> None:
        if not self.counts[name]:
            return
        if name not in _BLOCKS:
            inner = next(each for each in reversed(self.names) if each == name or each in _BLOCKS)
            if inner != name:
                return
        while (last := self.names.pop()) != name:
            self.counts[last] -= 1
        self.counts[name] -= 1


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
    return _decode_leniently(body, known[0] if known else "cp1252")


def _decode_leniently(body: bytes, name: str) -> str:
    """Pages cut in the middle of a character, or with a few stray bytes, are still pages."""
    text = body.decode("utf-8", "replace")
    if text.count("\N{REPLACEMENT CHARACTER}") * 200 <= len(text):
        return text
    try:
        return body.decode(name, "replace")
    except (UnicodeError, LookupError, ValueError):
        return text
