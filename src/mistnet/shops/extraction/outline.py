"""Walks a page once: its visible text as one string, with the element that each part of it stands in.

Elements are numbered in reading order. The end of a line is `\\n`; between elements of one line stands `JOINT`.
The walk goes over the text of the parsed tree: to ask the tree for each element takes three times as long.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from html import unescape
from typing import Final

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.price_words import NameSays, name_says, says_any

JOINT: Final = "\x1f"
UNSEEN: Final = (
    *("script", "style", "noscript", "template", "svg", "select", "iframe", "textarea"),
    *("object", "video", "audio", "canvas", "xmp"),
)
_TAG: Final = re.compile(
    r"<(?:(?P<closes>/)?(?P<tag>[a-zA-Z][^\s/>]*+)(?P<attributes>(?:\s++[^\s=>\"]++(?:=\"[^\"]*+\")?)*)\s*+/?>|!--)"
)
_TWO_DIGITS: Final = re.compile(r"\s{0,9}\d\d\s{0,9}<")
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
_MOST: Final = 60_000
_MOST_TEXT: Final = 1_000_000
_LONGEST_BUTTON: Final = 60
_LONGEST_HEADING: Final = 300
_LONGEST_STOCK: Final = 120
_MAIN_HEADINGS: Final = 3


class PageElement(msgspec.Struct, frozen=True, kw_only=True):
    """An element of interest: its place in reading order, its names, and its text."""

    place: int
    tag: str
    name: str
    text: str = ""
    aside: bool = False


def _value(attributes: str, name: str) -> str:
    """The value of an attribute. In a written tree no value holds a quotation mark, so this is found nowhere else."""
    begin = attributes.find(f' {name}="')
    if begin < 0:
        return ""
    begin += len(name) + 3
    value = attributes[begin : attributes.find('"', begin)]
    return unescape(value) if "&" in value else value


_NOTHING: Final = name_says("")


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
        self._own_path = own_path.strip("/").lower()
        self._starts: list[int] = []
        self._owners: list[int] = []
        self._parts: list[str] = []
        self._length = 0

    def walk(self, html: str) -> None:
        path: list[int] = []
        place = 0
        for tag in _TAG.finditer(html):
            if tag.start() < place:  # inside a comment
                continue
            if tag.start() > place and path:
                self._say(html[place : tag.start()], path[-1])
            place = tag.end()
            name = tag["tag"]
            if name is None:
                end = html.find("-->", place)
                place = end + 3 if end >= 0 else len(html)
            elif tag["closes"]:
                if path and name == self.tags[path[-1]]:
                    self._leave(path.pop())
            elif len(self.tags) >= _MOST or self._length >= _MOST_TEXT:
                break
            else:
                is_cents = bool(_TWO_DIGITS.match(html, place))
                self._enter(name, tag["attributes"], path[-1] if path else -1, is_cents=is_cents)
                if name in _VOID:
                    self._leave(len(self.tags) - 1)
                else:
                    path.append(len(self.tags) - 1)
        while path:
            self._leave(path.pop())
        self.text = "".join(self._parts)
        self._look_back()

    def _enter(self, tag: str, attributes: str, parent: int, *, is_cents: bool) -> None:
        place, name, says = len(self.tags), "", _NOTHING
        hidden, struck = (self.hidden[parent], self.struck[parent]) if parent >= 0 else (False, False)
        if attributes:
            name = f"{_value(attributes, 'class')} {_value(attributes, 'id')}".strip()
            says = name_says(name)
            if style := _value(attributes, "style"):
                hidden, struck = hidden or bool(_HIDDEN.search(style)), struck or "line-through" in style
            self._note_attributes(attributes, place, tag, name, is_stock=says.stock)
        elif tag == "button":
            self.buttons.append(PageElement(place=place, tag=tag, name=name))
        self.parents.append(parent)
        self.tags.append(tag)
        self.names.append(name)
        self.says.append(says)
        self.aside.append(says.aside or tag in _ASIDE_TAGS)
        self.struck.append(struck or tag in _STRUCK)
        self.hidden.append(hidden)
        if tag in _HEADINGS:
            self.headings.append(PageElement(place=place, tag=tag, name=name))
        if tag in _LINES:
            self._end("\n")
        # Cents are often set small behind a digit, without their point.
        elif (
            is_cents
            and (tag in ("sup", "small") or _CENTS_NAME.search(name))
            and next(filter(None, (each.rstrip(f"{JOINT} ") for each in reversed(self._parts[-4:]))), " ")[-1].isdigit()
        ):
            self._add(".")
        else:
            self._end(JOINT)
        self.first.append(self._length)
        self.end.append(self._length)
        self.last.append(place)

    def _note_attributes(self, attributes: str, place: int, tag: str, name: str, *, is_stock: bool) -> None:
        held = _value(attributes, "itemprop")
        if held in ("price", "lowPrice") or " data-price" in attributes:
            self.priced.append(place)
        if is_stock or held == "availability":
            self.stocks.append(PageElement(place=place, tag=tag, name=name))
        if tag == "a":
            href = _value(attributes, "href").strip().lower()
            path = href.split("#")[0].split("?")[0]
            path = path.split("//", 1)[1].partition("/")[2] if "//" in path else path
            # Another page, which may show another product.
            is_page = path.strip("/") not in ("", self._own_path) and not href.startswith(_NO_PAGE)
            if is_page and _NO_PRODUCT.isdisjoint(_STEPS.split(href)):
                self.links.append(place)
        if tag in ("a", "button"):
            title = _value(attributes, "title") or _value(attributes, "aria-label")
            self.buttons.append(PageElement(place=place, tag=tag, name=name, text=title))
        elif tag == "input":
            kind = _value(attributes, "type")
            self.passwords += kind == "password"
            if kind != "hidden" and (said := _value(attributes, "value")):
                said = f"{said} {_value(attributes, 'title')}"
                self.buttons.append(PageElement(place=place, tag=tag, name=name, text=said))

    def _leave(self, place: int) -> None:
        self.end[place], self.last[place] = self._length, len(self.tags) - 1
        self._end("\n" if self.tags[place] in _LINES else JOINT)

    def _say(self, text: str, owner: int) -> None:
        words = " ".join((unescape(text) if "&" in text else text).split())
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
        """What an element says is known only when its end is, and so is what holds the headings of the page."""
        main: set[int] = set()
        for each in [each for each in self.headings if each.tag == "h1"][:_MAIN_HEADINGS]:
            main.update(self.above(each.place, _MOST))
        for place, parent in enumerate(self.parents):
            # What holds a heading is never side content, whatever its names say.
            self.aside[place] = (self.aside[place] and place not in main) or (parent >= 0 and self.aside[parent])
        headings = (self._with_text(each, _LONGEST_HEADING) for each in self.headings)
        self.headings = [each for each in headings if each.text]
        stocks = (self._with_text(each, 2 * _LONGEST_STOCK) for each in self.stocks)
        self.stocks = [each for each in stocks if len(each.text) <= _LONGEST_STOCK]
        buttons = (self._with_text(each, 2 * _LONGEST_BUTTON) for each in self.buttons)
        self.buttons = [
            each for each in buttons if 1 < len(each.text) <= _LONGEST_BUTTON and says_any(each.text, "buy", "notify")
        ]

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


def outline(tree: LexborHTMLParser, own_path: str = "") -> Outline:
    """The outline of a page whose unseen elements were removed. Menus and footers are left out: they are long."""
    page = Outline(own_path)
    if tree.body is not None:
        for aside in tree.body.css("nav, footer"):
            if aside.css_first("h1, h2, form") is None:
                aside.decompose()
        page.walk(tree.body.html or "")
    return page
