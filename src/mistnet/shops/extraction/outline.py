"""The visible text of a page as one string, with the element that each part of it stands in.

Elements are numbered in reading order. The end of a line is `\\n`; between elements of one line stands `JOINT`.
The walk goes over the text of the parsed tree: to ask the tree for each element takes three times as long.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html import unescape
from itertools import islice, takewhile
from typing import Final

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.price_words import NameSays, may_say, name_says, says_any

JOINT: Final = "\x1f"
UNSEEN: Final = (
    *("script", "style", "noscript", "template", "svg", "select", "iframe", "textarea"),
    *("object", "video", "audio", "canvas"),
    # Written without escapes: what stands in them would be taken for tags.
    *("xmp", "noframes", "noembed", "plaintext"),
)
_MENUS: Final = ("nav", "footer")
_TAKEN_OUT: Final = ", ".join((*UNSEEN, *_MENUS))
# A tag or a comment, and the text behind it. Written trees have `&lt;` and `&gt;` for such signs in values. An element
# that holds nothing but text is one match with its end tag: there are fewer by a third.
_COMMENT: Final = r"!--[^-]*+(?:-(?!->)[^-]*+)*--"
_TAG: Final = re.compile(
    r"<(?:(?P<tag>[a-zA-Z][^ />]*+)(?P<attributes>[^>]*+)>(?P<text>[^<]*+)(?P<whole></(?P=tag)>)?"
    rf"|/(?P<closed>[a-zA-Z][^ />]*+)[^>]*+>|{_COMMENT}>)(?P<behind>[^<]*+)"
)
_VOID: Final = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track"),
        "wbr",
    )
)
_HEADINGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_LINES: Final = _HEADINGS | frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "br", "center", "dd", "details", "dialog", "div", "dl"),
        *("dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "li", "main", "menu", "nav"),
        *("ol", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul"),
    )
)
_ASIDE_TAGS: Final = frozenset(("footer", "nav", "aside"))
_PRESSED: Final = frozenset(("a", "button", "input"))
_STRUCK: Final = frozenset(("del", "s", "strike"))
_HIDDEN: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_CENTS_NAME: Final = re.compile(r"cent|fraction|decimal|penn|minor|sup", re.IGNORECASE)
_NO_PAGE: Final = ("#", "javascript:", "mailto:", "tel:")
_STEPS: Final = re.compile(r"[/?&._=-]+")
_NO_PRODUCT: Final = frozenset(
    (
        *("jpg", "jpeg", "png", "gif", "webp", "pdf", "cart", "basket", "wishlist", "login", "compare", "review"),
        *("reviews", "warenkorb", "panier", "carrito", "share", "sharer", "facebook", "twitter", "pinterest"),
    )
)
_CENTS: Final = 2  # digits
_MOST: Final = 60_000
_MOST_TEXT: Final = 1_000_000
_LONGEST_BUTTON: Final = 60
_MOST_SAID: Final = 2 * _LONGEST_BUTTON
_LONGEST_HEADING: Final = 300
_LONGEST_STOCK: Final = 120
_MAIN_HEADINGS: Final = 3
_MOST_LINKS: Final = 200


class PageElement(msgspec.Struct, frozen=True, kw_only=True):
    """An element of interest: its place in reading order, and its text."""

    place: int
    tag: str
    text: str
    aside: bool


def _value(attributes: str, name: str) -> str:
    """The value of an attribute. In a written tree no value holds a quotation mark, so this is found nowhere else."""
    value = attributes.partition(f' {name}="')[2].partition('"')[0]
    return unescape(value) if "&" in value else value


def _name(attributes: str) -> str:
    """The class and the id."""
    name = _value(attributes, "class")
    return f"{name} {_value(attributes, 'id')}".strip() if ' id="' in attributes else name.strip()


class Marks(msgspec.Struct, frozen=True):
    """What the attributes of an element say of it."""

    name: str
    says: NameSays
    hidden: bool = False
    struck: bool = False
    priced: bool = False
    stock: bool = False


@lru_cache(maxsize=16_384)
def _marks_of_name(name: str) -> Marks:
    says = name_says(name)
    return Marks(name, says, stock=says.stock)


def _marks(attributes: Iterable[str]) -> dict[str, Marks]:
    """What each of many different texts of attributes says."""
    found: dict[str, Marks] = {}
    for each in attributes:
        # Here `_name` is written out: a call for each element takes as long as all the rest.
        name = each.partition(' class="')[2].partition('"')[0]
        if "&" in name:
            name = unescape(name)
        if ' id="' in each:
            name = f"{name} {_value(each, 'id')}"
        marks = _marks_of_name(name.strip())
        # `in` is several times as quick as a call, and most elements have none of these.
        if ' style="' in each:
            style = _value(each, "style")
            hidden, struck = _HIDDEN.search(style) is not None, "line-through" in style
            marks = msgspec.structs.replace(marks, hidden=hidden, struck=struck) if hidden or struck else marks
        if " data-price" in each or ' itemprop="' in each:
            prop = _value(each, "itemprop")
            priced = " data-price" in each or prop in ("price", "lowPrice")
            marks = msgspec.structs.replace(marks, priced=priced, stock=marks.stock or prop == "availability")
        found[each] = marks
    return found


class Outline:
    """The visible text of a page, and the parts of it that matter to a buyer."""

    def __init__(self, html: str, own_path: str) -> None:
        # One entry for each element: what it stands in, what it is, its part of the text, the last element inside it.
        self.parents: list[int] = []
        self.tags: list[str] = []
        self.first: list[int] = []
        self.end: list[int] = []
        self.last: list[int] = []
        self._starts: list[int] = []
        self._owners: list[int] = []
        attributes, self.text = self._walk(html)
        # Pages repeat their elements: each different text of attributes is read once.
        known = _marks(set(attributes))
        self.marks = [*map(known.__getitem__, attributes)]
        headings = [place for place, tag in enumerate(self.tags) if tag in _HEADINGS]
        # What holds a heading is never side content, whatever its names say.
        self._main: set[int] = set()
        for each in [each for each in headings if self.tags[each] == "h1"][:_MAIN_HEADINGS]:
            self._main.update(self.above(each, _MOST))
        self._aside: dict[int, bool] = {-1: False}
        found = (self._element(each, _LONGEST_HEADING) for each in headings)
        self.headings = [each for each in found if each.text]
        found = (self._element(each, 2 * _LONGEST_STOCK) for each, marks in enumerate(self.marks) if marks.stock)
        self.stocks = [each for each in found if len(each.text) <= _LONGEST_STOCK]
        pressed = [(place, tag, attributes[place]) for place, tag in enumerate(self.tags) if tag in _PRESSED]
        self._own_path = own_path.strip("/").lower()
        self._anchors = {place: held for place, tag, held in pressed if tag == "a"}
        self._places_of_anchors = [*self._anchors]
        self._links: dict[int, bool] = {}
        self.passwords = sum(tag == "input" and _value(held, "type") == "password" for _, tag, held in pressed)
        self.buttons = [*self._find_buttons(pressed)]

    def _walk(self, html: str) -> tuple[list[str], str]:  # noqa: C901, PLR0912, PLR0915 (calls take longer)
        """Notes all elements. Returns the attributes of each, and the text.

        This runs for thousands of tags on each page: it does nothing that can be done later for the few that matter.
        """
        parents, tags, first, end, last = self.parents, self.tags, self.first, self.end, self.last
        all_attributes: list[str] = []
        parts: list[str] = []
        inner = -1  # the innermost element that is open
        length = said = 0
        before = "\n"  # the last part; several ends of a line or of elements in it are one
        for tag, attributes, text, whole, closed, behind in map(re.Match.groups, _TAG.finditer(html)):
            if tag:
                place = len(tags)
                if place >= _MOST or said >= _MOST_TEXT:
                    break
                sign = ends = "\n" if tag in _LINES else JOINT
                if sign == JOINT and len(text.strip()) == _CENTS and _is_cents(text, tag, attributes, parts):
                    sign = "."
                if "\n" != before != sign:
                    before = sign
                    parts.append(sign)
                    length += 1
                parents.append(inner)
                tags.append(tag)
                all_attributes.append(attributes)
                first.append(length)
                last.append(place)
                holder = inner if tag in _VOID else place
                end.append(length)
                if text and holder >= 0:
                    before = " " if text.isspace() else self._say(text, length, holder)
                    if before != " ":
                        said += len(before)
                    parts.append(before)
                    length += len(before)
                if not whole:
                    inner = holder
                    continue
                end[place] = length
            elif closed:
                if inner >= 0 and closed == tags[inner]:
                    end[inner], last[inner] = length, len(tags) - 1
                    inner = parents[inner]
                ends = "\n" if closed in _LINES else JOINT
            else:  # a comment ends nothing
                ends = before
            if "\n" != before != ends:
                before = ends
                parts.append(ends)
                length += 1
            if behind and inner >= 0:
                before = " " if behind.isspace() else self._say(behind, length, inner)
                if before != " ":
                    said += len(before)
                parts.append(before)
                length += len(before)
        while inner >= 0:
            end[inner], last[inner] = length, len(tags) - 1
            inner = parents[inner]
        return all_attributes, "".join(parts)

    def _say(self, text: str, begin: int, owner: int) -> str:
        """A part of the text with single blanks; a blank at either end shows that it touches nothing there."""
        words = " ".join((unescape(text) if "&" in text else text).split())
        if not words:
            return " "
        self._starts.append(begin)
        self._owners.append(owner)
        return f"{' ' if text[0].isspace() else ''}{words}{' ' if text[-1].isspace() else ''}"

    def _find_buttons(self, pressed: Sequence[tuple[int, str, str]]) -> Iterator[PageElement]:
        text, first, end = self.text, self.first, self.end
        presses: dict[str, bool] = {}  # the cards of a page repeat their buttons
        for place, tag, attributes in pressed:
            # What only its attributes say is part of it.
            if tag == "input":
                said = _value(attributes, "value") if _value(attributes, "type") != "hidden" else ""
                said = f"{said} {_value(attributes, 'title')}" if said else ""
            else:
                begin = first[place]
                said = text[begin : end[place]] if end[place] - begin < _MOST_SAID else text[begin : begin + _MOST_SAID]
                if ' title="' in attributes or ' aria-label="' in attributes:
                    said = f"{said} {_value(attributes, 'title') or _value(attributes, 'aria-label')}"
            # Most links say nothing of the kind, or hold a picture alone: their text is not even tidied.
            if not said or not may_say(said, "buy", "notify"):
                continue
            said = " ".join(said.replace(JOINT, " ").split())
            if said not in presses:
                presses[said] = 1 < len(said) <= _LONGEST_BUTTON and says_any(said, "buy", "notify")
            if presses[said]:
                yield PageElement(place=place, tag=tag, text=said, aside=self.is_aside(place))

    def _element(self, place: int, most: int) -> PageElement:
        return PageElement(
            place=place, tag=self.tags[place], text=self.text_of(place, most), aside=self.is_aside(place)
        )

    def is_aside(self, place: int) -> bool:
        """Whether an element stands in side content."""
        passed = []
        while place not in self._aside:
            passed.append(place)
            if place not in self._main and (self.marks[place].says.aside or self.tags[place] in _ASIDE_TAGS):
                self._aside[place] = True
            else:
                place = self.parents[place]
        self._aside.update(dict.fromkeys(passed, self._aside[place]))
        return self._aside[place]

    def is_hidden(self, place: int) -> bool:
        return any(self.marks[each].hidden for each in self.above(place, _MOST))

    def is_struck(self, place: int) -> bool:
        """Whether a line goes through an element."""
        return any(self.marks[each].struck or self.tags[each] in _STRUCK for each in self.above(place, _MOST))

    def text_of(self, place: int, most: int = 1_000) -> str:
        begin = self.first[place]
        return " ".join(self.text[begin : min(self.end[place], begin + most)].replace(JOINT, " ").split())

    def holder(self, begin: int, end: int) -> int:
        """The innermost element that holds all of a part of the text."""
        index = bisect_right(self._starts, begin) - 1
        place = self._owners[index] if index >= 0 else 0
        while place > 0 and not (self.first[place] <= begin and end <= self.end[place]):
            place = self.parents[place]
        return place

    def above(self, place: int, most: int) -> Iterator[int]:
        """An element and what it stands in, from the inside."""
        while place >= 0 and most:
            yield place
            place, most = self.parents[place], most - 1

    def is_link(self, place: int) -> bool:
        """Whether an element is a link to another page, which may show another product."""
        if place not in self._links:
            self._links[place] = place in self._anchors and _is_link(self._anchors[place], self._own_path)
        return self._links[place]

    def holds_link(self, place: int) -> bool:
        """Whether a link to another page is among the first few hundred links of an element."""
        begin = bisect_left(self._places_of_anchors, place)
        anchors = islice(self._places_of_anchors, begin, begin + _MOST_LINKS)
        return any(self.is_link(each) for each in takewhile(lambda each: each <= self.last[place], anchors))


def _is_cents(text: str, tag: str, attributes: str, parts: Sequence[str]) -> bool:
    """Whether two digits are cents, by their element: they are often set small behind a digit, without their point."""
    digits = text.strip()
    if len(digits) != _CENTS or not digits.isdecimal():
        return False
    if tag not in ("sup", "small") and not _CENTS_NAME.search(_name(attributes)):
        return False
    return next(filter(None, (each.rstrip(f"{JOINT} ") for each in reversed(parts[-4:]))), " ")[-1].isdigit()


def _is_link(attributes: str, own_path: str) -> bool:
    """Whether a link leads to another page, which may show another product."""
    href = _value(attributes, "href").strip().lower()
    if not href or href.startswith(_NO_PAGE):
        return False
    path = href.split("#", 1)[0].split("?", 1)[0]
    path = path.split("//", 1)[1].partition("/")[2] if "//" in path else path
    return path.strip("/") not in ("", own_path) and _NO_PRODUCT.isdisjoint(_STEPS.split(href))


def outline(tree: LexborHTMLParser, own_path: str = "") -> Outline:
    """The outline of a page. Takes what is unseen out of the tree, and menus and footers without a heading: they are
    long.

    From the last to the first: when the turn of an element comes, what is inside it has had its own.
    """
    for node in reversed(tree.css(_TAKEN_OUT)):
        if node.tag not in _MENUS or node.css_first("h1, h2, form") is None:
            node.decompose()
    return Outline(tree.body.html or "" if tree.body else "", own_path)
