"""Walks a page once: its visible text as one string, with the element that each part of it stands in.

Elements are numbered in reading order. The end of a line is `\\n`; between elements of one line stands `JOINT`.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from mistnet.shops.extraction.price_words import NameSays, name_says
from mistnet.shops.extraction.words import invites_to_buy

JOINT: Final = "\x1f"
UNSEEN: Final = ("script", "style", "noscript", "template", "svg", "select", "iframe", "textarea")
_SKIPPED: Final = frozenset((*UNSEEN, "-comment", "-undef", "head", "object", "video", "audio", "canvas"))
_HEADINGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_LINES: Final = _HEADINGS | frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "br", "center", "dd", "details", "dialog", "div", "dl"),
        *("dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "li", "main", "menu", "nav"),
        *("ol", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul"),
    )
)
_ASIDE_TAGS: Final = frozenset(("footer", "nav", "aside"))
_STRUCK: Final = frozenset(("del", "s", "strike"))
_HIDDEN: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_CENTS_NAME: Final = re.compile(r"cent|fraction|decimal|penn|minor|sup", re.IGNORECASE)
_NO_PAGE: Final = re.compile(
    r"^\s*(?:\#|javascript:|mailto:|tel:|$)|\.(?:jpe?g|png|gif|webp|pdf)\b|(?:^|[/?&._=-])(?:cart|basket|wishlist|login"
    r"|compare|reviews?|warenkorb|panier|carrito|share|sharer|facebook|twitter|pinterest)(?:[/?&._=-]|$)",
    re.IGNORECASE,
)
_MOST: Final = 60_000
_MOST_TEXT: Final = 1_000_000
_LONGEST_BUTTON: Final = 60
_LONGEST_HEADING: Final = 300
_LONGEST_STOCK: Final = 120


class PageElement(msgspec.Struct, frozen=True, kw_only=True):
    """An element of interest: its place in reading order, its names, and its text."""

    place: int
    tag: str
    name: str
    text: str = ""
    aside: bool = False


class Outline:
    """The visible text of a page, and the parts of it that matter to a buyer."""

    def __init__(self, own_path: str) -> None:
        self.text = ""
        # One entry for each element: what it stands in, what it is, what holds for all inside it, its part of the text.
        self.parents: list[int] = []
        self.tags: list[str] = []
        self.names: list[str] = []
        self.says: list[NameSays] = []
        self.aside: list[bool] = []
        self.struck: list[bool] = []
        self.hidden: list[bool] = []
        self.first: list[int] = []
        self.end: list[int] = []
        self.last: list[int] = []
        # The numbers of links to other pages, and of elements whose attributes promise a price.
        self.links: list[int] = []
        self.priced: list[int] = []
        self.headings: list[PageElement] = []
        self.stocks: list[PageElement] = []
        self.buttons: list[PageElement] = []
        self.passwords = 0
        self._own_path = own_path.strip("/")
        self._starts: list[int] = []
        self._owners: list[int] = []
        self._parts: list[str] = []
        self._length = 0

    def walk(self, root: LexborNode, main: frozenset[int]) -> None:
        waiting: list[LexborNode | None] = [root]
        path: list[int] = []
        while waiting:
            node = waiting.pop()
            if node is None:
                self._leave(path.pop())
                continue
            tag = node.tag or ""
            if tag == "-text":
                if path:
                    self._say(node.text(deep=False), path[-1])
            elif tag not in _SKIPPED and len(self.tags) < _MOST and self._length < _MOST_TEXT:
                self._enter(node, tag, path[-1] if path else -1, is_main=node.mem_id in main)
                path.append(len(self.tags) - 1)
                waiting.append(None)
                children = [*node.iter(include_text=True)]
                children.reverse()
                waiting += children
        self.text = "".join(self._parts)
        self._look_back()

    def _enter(self, node: LexborNode, tag: str, parent: int, *, is_main: bool) -> None:
        place, attributes = len(self.tags), node.attributes
        name = style = ""
        says = _NOTHING
        if attributes:
            name = f"{attributes.get('class') or ''} {attributes.get('id') or ''}".strip()
            says = name_says(name) if name else _NOTHING
            style = attributes.get("style") or ""
            self._note_attributes(attributes, place, tag, name)
        aside = (says.aside or tag in _ASIDE_TAGS) and not is_main
        struck = tag in _STRUCK or "line-through" in style
        hidden = bool(style) and bool(_HIDDEN.search(style))
        if parent >= 0:
            aside, struck = aside or self.aside[parent], struck or self.struck[parent]
            hidden = hidden or self.hidden[parent]
        self.parents.append(parent)
        self.tags.append(tag)
        self.names.append(name)
        self.says.append(says)
        self.aside.append(aside)
        self.struck.append(struck)
        self.hidden.append(hidden)
        if tag in _HEADINGS:
            self.headings.append(PageElement(place=place, tag=tag, name=name))
        if says.stock or (attributes and attributes.get("itemprop") == "availability"):
            self.stocks.append(PageElement(place=place, tag=tag, name=name))
        if tag in _LINES:
            self._end("\n")
        elif self._is_cents(node, tag, name):
            self._add(".")
        else:
            self._end(JOINT)
        self.first.append(self._length)
        self.end.append(self._length)
        self.last.append(place)

    def _note_attributes(self, attributes: Mapping[str, str | None], place: int, tag: str, name: str) -> None:
        if "data-price" in attributes or attributes.get("itemprop") in ("price", "lowPrice"):
            self.priced.append(place)
        if tag == "a" and _leads_away(attributes.get("href") or "", self._own_path):
            self.links.append(place)
        if tag in ("a", "button"):
            title = attributes.get("title") or attributes.get("aria-label") or ""
            self.buttons.append(PageElement(place=place, tag=tag, name=name, text=title))
        elif tag == "input":
            kind = attributes.get("type")
            self.passwords += kind == "password"
            if kind != "hidden" and (said := attributes.get("value")):
                title = attributes.get("title") or ""
                self.buttons.append(PageElement(place=place, tag=tag, name=name, text=f"{said} {title}"))

    def _is_cents(self, node: LexborNode, tag: str, name: str) -> bool:
        """Cents are often set small, without their point."""
        if not (tag in ("sup", "small") or (name and _CENTS_NAME.search(name))) or not self._ends_in_digit():
            return False
        cents = node.text(deep=True, strip=True)
        return len(cents) == len("99") and cents.isdigit()

    def _ends_in_digit(self) -> bool:
        return next(
            (each.rstrip()[-1:].isdigit() for each in reversed(self._parts[-4:]) if each.strip(f"{JOINT} ")), False
        )

    def _leave(self, place: int) -> None:
        self.end[place], self.last[place] = self._length, len(self.tags) - 1
        self._end("\n" if self.tags[place] in _LINES else JOINT)

    def _say(self, text: str, owner: int) -> None:
        words = " ".join(text.split())
        if words:
            if text[0].isspace():
                words = f" {words}"
            if text[-1].isspace():
                words += " "
            self._starts.append(self._length)
            self._owners.append(owner)
            self._add(words)
        elif text:
            self._add(" ")

    def _end(self, sign: str) -> None:
        """The end of a line, or of an element in it; several are one."""
        if self._parts and self._parts[-1] != "\n" and self._parts[-1] != sign:
            self._add(sign)

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _look_back(self) -> None:
        """What an element says is known only when its end is."""
        headings = (self._with_text(each, _LONGEST_HEADING) for each in self.headings)
        self.headings = [each for each in headings if each.text]
        stocks = (self._with_text(each, 2 * _LONGEST_STOCK) for each in self.stocks)
        self.stocks = [each for each in stocks if len(each.text) <= _LONGEST_STOCK]
        buttons = (self._with_text(each, 2 * _LONGEST_BUTTON) for each in self.buttons)
        self.buttons = [each for each in buttons if 1 < len(each.text) <= _LONGEST_BUTTON and invites_to_buy(each.text)]

    def _with_text(self, element: PageElement, most: int) -> PageElement:
        said = " ".join(f"{self.text_of(element.place, most)} {element.text}".split())
        return msgspec.structs.replace(element, text=said, aside=self.aside[element.place])

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

    def holds(self, place: int, sorted_places: Sequence[int]) -> bool:
        """Whether one of these elements stands in an element."""
        index = bisect_left(sorted_places, place)
        return index < len(sorted_places) and sorted_places[index] <= self.last[place]


_NOTHING: Final = name_says("")


@lru_cache(maxsize=4096)
def _leads_away(href: str, own_path: str) -> bool:
    """Whether a link leads to another page that may show another product."""
    if _NO_PAGE.search(href):
        return False
    path = href.split("#", maxsplit=1)[0].split("?", maxsplit=1)[0]
    path = path.split("//", 1)[1].partition("/")[2] if "//" in path else path
    return path.strip("/") not in ("", own_path)


def outline(tree: LexborHTMLParser, own_path: str = "") -> Outline:
    # The ancestors of the headings: they are never side content, whatever their names say.
    main: set[int] = set()
    for heading in tree.css("h1")[:3]:
        node: LexborNode | None = heading
        while node is not None and node.mem_id not in main:
            main.add(node.mem_id)
            node = node.parent
    page = Outline(own_path)
    if tree.body is not None:
        page.walk(tree.body, frozenset(main))
    return page
