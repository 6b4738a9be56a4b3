"""Reads the price and the stock that people see, where a page has no better data: by names, places and words."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.findings import PageFinding, finding
from mistnet.shops.extraction.price_candidates import Outline, PageElement, is_old
from mistnet.shops.extraction.price_text import ParsedPrice, numerals, parse_price, plain
from mistnet.shops.extraction.stock import availability_words
from mistnet.shops.model import Availability, Price

_CURRENT: Final = re.compile(
    r"current|sale|now|final|special|our|actual|deal|offer|buy|main|pdp|detail|product-?price|selling|today",
    re.IGNORECASE,
)
_PICTURE: Final = re.compile(
    r"image|photo|picture|immagine|bild|imagen|imagem|obraz|фото|圖片|图片|画像", re.IGNORECASE
)
_FORMER: Final = (
    "del, s, strike, [class*='old'], [class*='Old'], [class*='original'], [class*='Original'], [class*='was'], "
    "[class*='strike'], [class*='regular'], [class*='rrp'], [class*='crossed'], [class*='before'], "
    "[class*='list-price']"
)
_PRICE_WORD: Final = re.compile(
    r"(?:price|[价價]|\bfor|preis|prix|precio|harga|giá|ราคา|cena|prezzo)\s*[:：]?\s*$", re.IGNORECASE
)
_SURE_ENOUGH: Final = 0.55
_CENTS_APART: Final = re.compile(r"^(\D{0,5}\d{1,3}(?:,?\d{3})*) (\d\d)(\D{0,5})$")
_TOO_MANY_HEADINGS: Final = 5
_CLOSE: Final = 80
_LEAST: Final = 0.45
_SUREST: Final = 0.8


class VisiblePrice(msgspec.Struct, frozen=True, kw_only=True):
    """A price on the page, and how likely it is the price of the page's product."""

    spot: PageElement
    price: ParsedPrice
    score: float


def former_price(tree: LexborHTMLParser, price: PageFinding | None, url: str) -> PageFinding | None:
    """The price in the page's data, if the page shows it struck out."""
    if price is None or not isinstance(price.value, Price) or price.path.startswith("shop:"):
        return None
    for node in tree.css(_FORMER)[:40]:
        said = node.text(deep=True, separator=" ", strip=True)
        found = parse_price(said, currency_hint=price.value.currency, site=url) if len(said) < 60 else None
        if isinstance(found, ParsedPrice) and found.min == price.value.amount:
            return price
    return None


def visible_price(
    page: Outline, *, url: str, hint: str | None, instead_of: PageFinding | None = None
) -> Iterable[PageFinding]:
    """The most likely visible price. To replace a former price it must be lower, and near the heading."""
    prices = list(_prices(page, url, hint))
    places = [each.place for each in page.headings if each.text]
    heading = places[0] if places and len(places) <= _TOO_MANY_HEADINGS else None
    same = [found.min for spot, found in prices if not spot.aside]
    seen = [
        VisiblePrice(spot=spot, price=found, score=_score(page, spot, heading) + 0.02 * min(same.count(found.min), 4))
        for spot, found in prices
    ]
    if instead_of is not None:
        return _instead(seen, instead_of)
    top = max(seen, key=lambda each: (each.score, -each.spot.place), default=None)
    if top is None or top.score < _LEAST:
        return ()
    found = top.price
    price = Price(amount=found.min, amount_max=found.max if found.max > found.min else None, currency=found.currency)
    return finding("price", price, path=_path(top.spot), snippet=top.spot.text, confidence=min(top.score, _SUREST))


def _instead(seen: Sequence[VisiblePrice], former: PageFinding) -> Iterable[PageFinding]:
    was = former.value
    lower = [
        each
        for each in seen
        if isinstance(was, Price)
        and was.amount / 10 < each.price.min < was.amount
        and each.price.currency in (None, was.currency)
        and not is_old(each.spot.name)
    ]
    top = max(lower, key=lambda each: (each.score, -each.spot.place), default=None)
    if top is None or top.score < _SURE_ENOUGH or not isinstance(was, Price):
        return ()
    price = Price(amount=top.price.min, currency=was.currency)
    confidence = min(former.confidence + 0.01, 0.99)
    listed = finding("list_price", was, path=former.path, snippet=former.snippet, confidence=confidence)
    return (*finding("price", price, path=_path(top.spot), snippet=top.spot.text, confidence=confidence), *listed)


def described_price(tree: LexborHTMLParser, *, url: str, hint: str | None) -> Iterable[PageFinding]:
    """The price in the page's description, where some shops have it alone."""
    for selector in ('meta[property="og:description"]', 'meta[name="description"]'):
        node = tree.css_first(selector)
        said = (node.attributes.get("content") or "") if node else ""
        money = [each for each in numerals(plain(said[:300])) if each.is_money]
        labelled = [each for each in money if _PRICE_WORD.search(plain(said[:300])[: each.reach[0]])]
        found = parse_price(said[labelled[0].reach[0] :][:40], currency_hint=hint, site=url) if labelled else None
        if isinstance(found, ParsedPrice) and found.currency:
            price = Price(amount=found.min, currency=found.currency)
            return finding("price", price, path=selector, snippet=said, confidence=0.4)
    return ()


def _prices(page: Outline, url: str, hint: str | None) -> Iterator[tuple[PageElement, ParsedPrice]]:
    for spot in page.prices:
        if spot.struck:
            continue
        said = _CENTS_APART.sub(r"\1.\2\3", spot.text or spot.attribute or "")
        found = parse_price(said, currency_hint=hint, site=url)
        if isinstance(found, ParsedPrice) and found.min > 0:
            yield spot, found


def _score(page: Outline, spot: PageElement, heading: int | None) -> float:
    """Likely: near heading and buy button, with a currency, named as current. Unlikely: aside, or named as former."""
    marked = 0.15 if re.search(r"[^\d\s.,:'-]", spot.text) else 0.05 if spot.attribute else -0.05
    behind = 0.0
    if heading is not None:
        distance = spot.place - heading
        behind = 0.2 * math.exp(-distance / 200) if distance >= 0 else 0.08 * math.exp(distance / 60) - 0.05
    button = min((abs(each.place - spot.place) for each in page.buttons if not each.aside), default=None)
    return (
        (0.4 if spot.named else 0.32)
        + marked
        + behind
        + (0.12 * math.exp(-button / 80) if button is not None else 0.0)
        + (0.08 if _CURRENT.search(spot.name) else 0.0)
        - (0.0 if not spot.aside else 0.2 if heading is not None and 0 <= spot.place - heading < _CLOSE else 0.4)
        - (0.25 if is_old(spot.name) else 0.0)
        - 0.001 * len(spot.text)
    )


def visible_stock(page: Outline, *, priced: bool) -> Iterable[PageFinding]:
    """The stock as the page states it; else a buy button means in stock; else a price does."""
    for spot in page.stocks:
        term = None if spot.aside or _PICTURE.search(spot.text) else availability_words(spot.text)
        if term:
            return finding("availability", term, path=_path(spot), snippet=spot.text, confidence=0.65)
    for spot in page.buttons:
        if not spot.aside:
            return finding("availability", Availability.IN_STOCK, path=_path(spot), snippet=spot.text, confidence=0.5)
    if priced:
        return finding(
            "availability", Availability.IN_STOCK, path="inferred:price", snippet="a price is asked", confidence=0.3
        )
    return ()


def _path(spot: PageElement) -> str:
    return ("visible:" + ".".join((spot.tag, *spot.name.split()[:3])))[:120]
