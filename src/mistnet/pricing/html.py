"""Parses HTML of strangers, however deep they nest it."""

import re
from collections import Counter
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from mistnet.domain.errors import PageUnreadable

# The parser looks through all open elements for every new one. Browsers show no more than 512 inside one another.
DEEPEST: Final = 1_000
_FEW_TAGS: Final = 2_000  # so few cannot nest deeply enough to take long, and are not looked at one by one
_NAME: Final = r"[a-zA-Z][^\s/>]*"
_TAG: Final = re.compile(rf"<(?:(?P<opens>{_NAME})|/(?P<closes>{_NAME})|(?P<comment>!--(?!-?>)))")
_COMMENT_ENDS: Final = re.compile("--!?>")
# What is inside is no markup.
_RAW_ENDS: Final = {
    name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "textarea", "title", "iframe")
}
# These hold nothing, or are closed by the next of their kind.
_NEVER_DEEP: Final = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track"),
        *("wbr", "p", "li", "dt", "dd", "td", "th", "tr", "tbody", "thead", "tfoot", "option", "optgroup", "a"),
        *("button", "html", "head", "body"),
    )
)
# The end of one of these ends all that is open inside; the end of any other (`</b>`) ends nothing beyond one of these.
_BLOCKS: Final = frozenset(
    (
        *("address", "article", "aside", "blockquote", "center", "details", "dialog", "dir", "div", "dl", "fieldset"),
        *("figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "main", "menu"),
        *("nav", "object", "ol", "pre", "section", "select", "summary", "table", "template", "ul"),
    )
)


def parse_html(text: str) -> LexborHTMLParser:
    """The tree of a page. Raises PageUnreadable if it nests deeper than any browser would show."""
    if text.count("<") > _FEW_TAGS:
        _require_shallow(text)
    return LexborHTMLParser(text)


def _require_shallow(text: str) -> None:
    """As far as its tags tell."""
    opened = _Opened()
    markup = 0  # where it goes on behind a comment or a script
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
    """The elements that are open, the innermost last."""

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
