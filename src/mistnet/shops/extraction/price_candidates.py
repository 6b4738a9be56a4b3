"""Walks a page once for its headings, buy buttons, and elements that may hold a price, in reading order."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from mistnet.shops.extraction.currencies import CODES
from mistnet.shops.extraction.words import invites_to_buy

_PRICE_NAME: Final = re.compile(
    r"price|preis|precio|preco|preço|prix|prezzo|cena|pris(?![a-z])|harga|prijs|hinta|fiyat|amount|kaina|cijena|цена|cost|\bprc\b",
    re.IGNORECASE,
)
_ASIDE: Final = re.compile(
    r"relat|recommend|similar|carousel|slider|swiper|slick|upsell|cross-?sell|recent|viewed|also|bundle|accessor|sponsor|advert|"
    r"mini-?cart|basket-|cart-(?:item|total|summary|preview)|minibasket|minicart|shipping|delivery|versand|livraison|footer|"
    r"navbar|menu|\bnav\b|tooltip|review|compare-|wishlist|p13n|suggest|complement|others|warranty|insurance|finance|"
    r"instal?lment|loyalty|popular|bestseller-|trending|promo-?banner|coupon|voucher|modal|popup|product-?(?:list|grid|tile|card)s?|"
    r"product[-_]?item(?!-?info)|filter|facet|search|similar|\bads?\b",
    re.IGNORECASE,
)
_OLD: Final = re.compile(
    r"(?:^|[-_\s]|price|(?-i:[a-z](?=[A-Z])))(?:old|was|strike|striked|strikethrough|list|lst|rrp|msrp|uvp|pvpr|regular|original|orig|before|"
    r"crossed|cross|del|compare|std|standard|previous|prev|full|retail|recommended|vat|tax|net|excl|base|unit|per|ref|"
    r"sav|save|saving|savings|discount|off|shipping|delivery|rate|label|title)(?:$|[-_\s]|price|(?-i:[A-Z]))",
    re.IGNORECASE,
)
_STOCK_NAME: Final = re.compile(
    r"stock|avail|lager|disponib|dispo|lieferbar|voorraad|skladem|delivery-?status|bestand", re.IGNORECASE
)
_BUTTONS: Final = frozenset({"button", "a", "input"})
UNSEEN: Final = ("script", "style", "noscript", "template", "svg", "select", "iframe", "textarea")
_SIGN: Final = (
    r"(?:[A-Z]{0,3}\s?[$€£¥￥₹₽₩฿₫₱₪₺₴]|NT\$?|RM|Rp\.?|Rs\.?|zł|Kč|kr\.?|руб\.?|лв\.?|lei|Ft|บาท|đ|元|円|원|"
    + "|".join(sorted(CODES))
    + ")"
)
_MONEY: Final = re.compile(rf"{_SIGN}\s?\d[\d.,'\s]*|\d[\d.,'\s]*{_SIGN}")
_ASIDE_TAGS: Final = frozenset({"footer", "nav", "aside"})
_STRUCK: Final = frozenset({"del", "s", "strike"})
_CENTS_NAME: Final = re.compile(r"cent|fraction|decimal|penn|minor|sup", re.IGNORECASE)
_APART: Final = re.compile(r"(\d) ?([.,]) ?(\d\d)(?!\d)")
_LONG: Final = 120
_DEEPEST: Final = 40
_LONGEST_BUTTON: Final = 60
_MOST: Final = 60_000
_MOST_PRICES: Final = 500
_MOST_READ: Final = 20
"""Elements named for prices may be nested and are read with all their content: this limits how often a text is read."""


class _Says(msgspec.Struct, frozen=True, kw_only=True):
    price: bool = False
    stock: bool = False
    aside: bool = False


_NOTHING: Final = _Says()


class PageElement(msgspec.Struct, frozen=True, kw_only=True):
    """An element of interest: its place in reading order, its names, and its text."""

    place: int
    tag: str
    name: str
    text: str
    aside: bool
    struck: bool
    named: bool = True
    attribute: str | None = None


class _Stand(NamedTuple):
    """An element with what its ancestors say of it, and how often its text was read as part of theirs."""

    node: LexborNode
    aside: bool
    struck: bool
    read: int = 0


class Outline:
    """The parts of a page that matter to a buyer, collected while walking down it."""

    def __init__(self, main: frozenset[int]) -> None:
        self.headings: list[PageElement] = []
        self.prices: list[PageElement] = []
        self.stocks: list[PageElement] = []
        self.buttons: list[PageElement] = []
        self._main = main
        self._place = 0

    def walk(self, root: LexborNode) -> None:
        waiting = [_Stand(root, aside=False, struck=False)]
        while waiting and self._place < _MOST:
            stand = waiting.pop()
            if stand.node.tag not in UNSEEN:
                self._place += 1
                here = self._look(stand)
                waiting += reversed([_Stand(child, here.aside, here.struck, here.read) for child in stand.node.iter()])

    def _look(self, stand: _Stand) -> _Stand:
        """Keep an element of interest. Returns the context of its children."""
        node, tag, attributes = stand.node, stand.node.tag or "", stand.node.attributes
        name = f"{attributes.get('class') or ''} {attributes.get('id') or ''}" if attributes else ""
        says = _says(name)
        aside = stand.aside or ((says.aside or tag in _ASIDE_TAGS) and node.mem_id not in self._main)
        struck = stand.struck or tag in _STRUCK or "line-through" in (attributes.get("style") or "")
        here = _Stand(node, aside, struck, stand.read)
        if stand.read >= _MOST_READ:
            return here
        kept = self._kept
        named = says.price or attributes.get("itemprop") == "price" or "data-price" in attributes
        own = "" if named or says.stock else node.text(deep=False)
        is_money = 1 < len(own) < 80 and _MONEY.fullmatch(own.strip())
        if len(self.prices) < _MOST_PRICES and (named or is_money):
            self.prices.append(self._spot(here, name, named=named))
        if says.stock or attributes.get("itemprop") == "availability":
            self.stocks.append(self._spot(here, name))
        if tag == "h1":
            self.headings.append(self._spot(here, name))
        elif tag in _BUTTONS and not aside:
            said = attributes.get("value") if tag == "input" else node.text(deep=True, separator=" ", strip=True)
            said = f"{said or ''} {attributes.get('title') or ''}".strip()
            if 1 < len(said) <= _LONGEST_BUTTON and invites_to_buy(said):
                self.buttons.append(self._spot(here, name))
        return here if self._kept == kept and tag not in _BUTTONS else here._replace(read=stand.read + 1)

    @property
    def _kept(self) -> int:
        return len(self.prices) + len(self.stocks) + len(self.headings)

    def _spot(self, stand: _Stand, name: str, *, named: bool = False) -> PageElement:
        node, attributes = stand.node, stand.node.attributes
        is_price = attributes.get("itemprop") == "price"
        longest = 300 if node.tag == "h1" else _LONG
        text = ""
        # An element with much more text than a price is not worth walking through.
        if len(node.text(deep=True, strip=True, separator=" ")) <= 3 * longest:
            text = _APART.sub(r"\1\2\3", " ".join(" ".join(_words(node, _DEEPEST)).split()))
        return PageElement(
            place=self._place,
            tag=node.tag or "",
            name=" ".join(name.split()),
            text=text if len(text) <= longest else "",
            aside=stand.aside,
            struck=stand.struck,
            named=named,
            attribute=((attributes.get("content") if is_price else attributes.get("data-price")) or "")[:_LONG] or None,
        )


@lru_cache(maxsize=16_384)
def _says(name: str) -> _Says:
    """What the names of an element say of it. Cached, because pages repeat few names many times."""
    if len(name) < 3:
        return _NOTHING
    price = bool(_PRICE_NAME.search(name))
    return _Says(price=price, stock=bool(_STOCK_NAME.search(name)), aside=not price and bool(_ASIDE.search(name)))


def outline(tree: LexborHTMLParser) -> Outline:
    # The ancestors of the headings: they are never side content, whatever their names say.
    headings = tree.css("h1")
    found: set[int] = set()
    for heading in headings[:3]:
        node: LexborNode | None = heading
        while node is not None and node.mem_id not in found:
            found.add(node.mem_id)
            node = node.parent
    page = Outline(frozenset(found))
    if tree.body is not None:
        page.walk(tree.body)
    return page


@lru_cache(maxsize=4096)
def is_old(name: str) -> bool:
    """Whether an element's names say that its price is not the current one."""
    return bool(_OLD.search(name))


def _words(node: LexborNode, depth: int) -> Iterator[str]:
    """The element's text without struck and former prices."""
    for child in node.iter(include_text=True) if depth else ():
        tag = child.tag or ""
        if tag == "-text":
            yield child.text(deep=False)
            continue
        attributes = child.attributes
        name = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
        is_former = "line-through" in (attributes.get("style") or "") or (len(name) > 3 and is_old(name))
        if is_former or tag in UNSEEN or tag in _STRUCK:
            continue
        inner = " ".join(_words(child, depth - 1)).strip()
        # Cents are often set small, without their point.
        is_small = tag in ("sup", "small") or _CENTS_NAME.search(attributes.get("class") or "")
        yield f".{inner}" if is_small and len(inner) == 2 and inner.isdigit() else inner
