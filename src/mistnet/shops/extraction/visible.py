"""Reads what people see, where a page has no better data: the price and stock, and the shop's number of the product."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.documents import value_of
from mistnet.shops.extraction.facts import PageFinding, finding
from mistnet.shops.extraction.price_candidates import Outline, PageElement, is_old
from mistnet.shops.extraction.price_text import ParsedPrice, numerals, parse_price, plain
from mistnet.shops.extraction.words import availability_words
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
# With more headings than this, none of them is the product's.
_TOO_MANY_HEADINGS: Final = 5
_CLOSE: Final = 80
_LEAST: Final = 0.45
_SUREST: Final = 0.8


class PriceCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A price on the page, and how likely it is the price of the page's product."""

    spot: PageElement
    price: ParsedPrice
    score: float

    def finding(self, price: Price, confidence: float) -> Iterable[PageFinding]:
        return finding("price", price, path=_path(self.spot), snippet=self.spot.text, confidence=confidence)


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


def price_candidates(page: Outline, *, url: str, hint: str | None) -> Sequence[PriceCandidate]:
    """All prices of a page that are not struck out, the likeliest first; of equals, as they stand."""
    prices: list[tuple[PageElement, ParsedPrice]] = []
    for spot in page.prices:
        said = _CENTS_APART.sub(r"\1.\2\3", spot.text or spot.attribute or "")
        found = None if spot.struck else parse_price(said, currency_hint=hint, site=url)
        if isinstance(found, ParsedPrice) and found.min > 0:
            prices.append((spot, found))
    places = [each.place for each in page.headings if each.text]
    heading = places[0] if places and len(places) <= _TOO_MANY_HEADINGS else None
    # The page's own price stands there several times.
    same = [found.min for spot, found in prices if not spot.aside]
    candidates = [
        PriceCandidate(spot=spot, price=found, score=_score(page, spot, heading) + 0.02 * min(same.count(found.min), 4))
        for spot, found in prices
    ]
    return sorted(candidates, key=lambda each: (-each.score, each.spot.place))


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


def visible_price(page: Outline, *, url: str, hint: str | None) -> Iterable[PageFinding]:
    """The most likely visible price."""
    top = next(iter(price_candidates(page, url=url, hint=hint)), None)
    return top.finding(top.price.price, min(top.score, _SUREST)) if top and top.score >= _LEAST else ()


def lower_price(page: Outline, former: PageFinding, *, url: str, hint: str | None) -> Iterable[PageFinding]:
    """The visible price that replaces the former one of the page's data, which becomes the list price."""
    was = former.value
    if not isinstance(was, Price):
        return ()
    for each in price_candidates(page, url=url, hint=hint):
        is_lower = was.amount / 10 < each.price.min < was.amount and each.price.currency in (None, was.currency)
        if is_lower and not is_old(each.spot.name):
            if each.score < _SURE_ENOUGH:
                return ()
            confidence = min(former.confidence + 0.01, 0.99)
            return (
                *each.finding(Price(amount=each.price.min, currency=was.currency), confidence),
                *finding("list_price", was, path=former.path, snippet=former.snippet, confidence=confidence),
            )
    return ()


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


_LABELLED: Final = 0.8
_MARKED: Final = 0.75
_SCRIPTED: Final = 0.7
_ADDRESSED: Final = 0.5
_SHORTEST: Final = 6
_NUMBER: Final = r"(?P<number>(?=[\w./-]{0,29}\d)[A-Za-z0-9][\w./-]{2,28}[A-Za-z0-9])"
_LABEL: Final = re.compile(
    r"""(?<!\w)(?:
      SKU|Art(?:ikel|icle|\.)?[\s.-]*(?:Nr|No|Nummer|Number|N°|Code)|Artikelnr|Best(?:ell)?[\s.-]*(?:Nr|Nummer)
    | (?:Item|Product|Model|Style|Part|Catalog(?:ue)?|Stock|Prod)[\s.-]*(?:No|Nr|Number|Code|ID|\#)|(?:Item
        |Model)\s?\#|Web\s?ID
    | R[ée]f(?:[ée]rence|er[êe]ncia|\.)?|C[óo]d(?:igo|ice|e|\.)?(?:\s+(?:de|do|del|art[íi]culo|produto|producto
        |prodotto|produs))*
    | Cod(?:ul)?\s+produs|Kód(?:\s+produktu)?|Kod(?:\s+produktu)?|Koda(?:\s+izdelka)?|Šifra|Nr\s+(?:ref|kat
        |art)\w*|Preces\s+kods|Tootekood|Varenr|Varenummer|Artnr|Tuotenumero|Cikkszám
    | Артикул|Код(?:\s+товара)?|商品[编編][号號]|商品[代型][号號碼码]|[货貨][号號]|[产產]品[编編][号號]|品番
        |商品コード|상품번호|Mã\s+(?:sản\s+phẩm|SP
        |hàng)|รหัส(?:สินค้า)?|Kode\s+(?:produk|barang)|Ad\s?ID|post\s+id|listing\s+id
    )\s*(?:[:：#.]|(?<=[号號碼码])|Nr\.?|\s)\s*[:：#–-]?\s*"""
    + _NUMBER,
    re.VERBOSE | re.IGNORECASE,
)
_MARKUP: Final = (
    '[itemprop="sku"], [itemprop="productID"], [itemprop="productId"], [data-sku], [data-product-sku], '
    '[data-item-sku], input[name="sku"], input[name="product_sku"], [class="sku"], [id="sku"]'
)
_REFERENCE: Final = (
    '[class*="product-code"], [class*="productCode"], [class*="product-sku"], [class*="productSku"], '
    '[class*="product-ref"], [class*="article-n"], [class*="articleN"], [class*="item-number"], [class*="itemNumber"], '
    '[data-qa-qualifier*="reference"], [data-testid*="sku"], [data-testid*="product-code"]'
)
_IN_SCRIPT: Final = re.compile(r"[\"']sku[\"']\s*:\s*[\"']([\w./-]{3,40})[\"']")
_QUERY: Final = ("sku", "childSku", "skuId", "pid", "productId", "product_id", "itemId", "item_id", "goods_id", "id")
_TAIL: Final = re.compile(r"(?:^|[^0-9])(?P<number>(?<![A-Za-z])[A-Z]\d{5,14}|\d{5,14})$")
_DIGITS: Final = re.compile(r"\d+")
_ENDING: Final = re.compile(r"\.(?:html?|php|aspx?|jsp|do)$", re.IGNORECASE)
_REACH: Final = 60_000
_BEFORE, _BEHIND = 120, 60
"""A label with its number is at most this long before and after a digit."""


def identity_findings(tree: LexborHTMLParser, url: str, said: str) -> Iterator[PageFinding]:
    """The shop's number of the product: in markup, by a label on the page, or in the address."""
    for node in tree.css(_MARKUP)[:3]:
        attributes = node.attributes
        named = attributes.get("data-sku") or attributes.get("data-product-sku") or attributes.get("data-item-sku")
        value = (named or value_of(node)).strip()
        if found := re.fullmatch(rf"(?:\D{{0,20}}[:\s#])?{_NUMBER}", value):
            yield from finding("sku", found["number"], path="markup:sku", snippet=value, confidence=_MARKED)
            break
    # Elements whose name promises a number and that hold nothing else.
    for node in tree.css(_REFERENCE)[:5]:
        held = " ".join(node.text(deep=True, separator=" ")[:80].split())
        if found := re.fullmatch(rf"(?:[^\d:#]{{0,24}}[:\s#-]\s?)?{_NUMBER}", held):
            yield from finding("sku", found["number"], path="visible:reference", snippet=held, confidence=_LABELLED)
            break
    yield from labelled_number(said)
    yield from _number_in_address(url)


def scripted_number(html: str) -> Iterable[PageFinding]:
    """The number in the page's scripts, if there is exactly one."""
    found = set(_IN_SCRIPT.findall(html))
    return (
        finding("sku", found.pop(), path="script:sku", snippet="sku", confidence=_SCRIPTED) if len(found) == 1 else ()
    )


def without_variant(known: PageFinding, said: str) -> Iterable[PageFinding]:
    """`K55121-2` in the data and `K55121` on the page: the page names the product, the data a variant of it."""
    number = str(known.value)
    if "-" not in number and "_" not in number:
        return ()
    for each in labelled_number(said):
        visible = str(each.value)
        if len(visible) >= _SHORTEST and number.startswith((f"{visible}-", f"{visible}_")):
            return finding("sku", visible, path=each.path, snippet=each.snippet, confidence=0.96)
    return ()


def labelled_number(said: str) -> Iterable[PageFinding]:
    """The first labelled number in the visible text."""
    said = said[:_REACH]
    for begin, end in _around_digits(said):
        found = _LABEL.search(said, begin, end)
        if found:
            return finding("sku", found["number"], path="visible:label", snippet=found[0], confidence=_LABELLED)
    return ()


def _around_digits(text: str) -> Iterator[tuple[int, int]]:
    """The parts of a text near its digits: a label elsewhere has no number."""
    begin = end = 0
    for digits in _DIGITS.finditer(text):
        if digits.start() - _BEFORE > end:
            if end:
                yield begin, end
            begin = digits.start() - _BEFORE
        end = digits.end() + _BEHIND
    if end:
        yield max(begin, 0), end


def _number_in_address(url: str) -> Iterable[PageFinding]:
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
    except ValueError:
        return ()
    for name in _QUERY:
        value = query.get(name, "")
        if re.fullmatch(r"[A-Za-z]{0,3}\d{4,20}", value):
            return finding("sku", value, path=f"url:{name}", snippet=f"{name}={value}", confidence=_ADDRESSED)
    for segment in reversed(unquote(parts.path).split("/")):
        found = _TAIL.search(_ENDING.sub("", segment))
        if found:
            return finding("sku", found["number"], path="url:path", snippet=segment, confidence=_ADDRESSED)
    return ()
