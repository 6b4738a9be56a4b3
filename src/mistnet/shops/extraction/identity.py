"""Finds the shop's number of a product: by a label on the page, by markup, or in the address."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.documents import value_of
from mistnet.shops.extraction.findings import PageFinding, finding

LABELLED: Final = 0.8
MARKED: Final = 0.75
SCRIPTED: Final = 0.7
ADDRESSED: Final = 0.5
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
    yield from _marked(tree)
    yield from _referred(tree)
    yield from _labelled(said)
    yield from _addressed(url)


def scripted(html: str) -> Iterable[PageFinding]:
    """The number in the page's scripts, if there is exactly one."""
    found = set(_IN_SCRIPT.findall(html))
    return finding("sku", found.pop(), path="script:sku", snippet="sku", confidence=SCRIPTED) if len(found) == 1 else ()


def without_variant(known: PageFinding, said: str) -> Iterable[PageFinding]:
    """`K55121-2` in the data and `K55121` on the page: the page names the product, the data a variant of it."""
    number = str(known.value)
    if "-" not in number and "_" not in number:
        return ()
    for each in _labelled(said):
        visible = str(each.value)
        if len(visible) >= _SHORTEST and number.startswith((f"{visible}-", f"{visible}_")):
            return finding("sku", visible, path=each.path, snippet=each.snippet, confidence=0.96)
    return ()


def _referred(tree: LexborHTMLParser) -> Iterable[PageFinding]:
    """Elements whose name promises a number and that hold nothing else."""
    for node in tree.css(_REFERENCE)[:5]:
        said = " ".join(node.text(deep=True, separator=" ")[:80].split())
        found = re.fullmatch(rf"(?:[^\d:#]{{0,24}}[:\s#-]\s?)?{_NUMBER}", said)
        if found:
            return finding("sku", found["number"], path="visible:reference", snippet=said, confidence=LABELLED)
    return ()


def _marked(tree: LexborHTMLParser) -> Iterable[PageFinding]:
    for node in tree.css(_MARKUP)[:3]:
        attributes = node.attributes
        named = attributes.get("data-sku") or attributes.get("data-product-sku") or attributes.get("data-item-sku")
        value = (named or value_of(node)).strip()
        found = re.fullmatch(rf"(?:\D{{0,20}}[:\s#])?{_NUMBER}", value)
        if found:
            return finding("sku", found["number"], path="markup:sku", snippet=value, confidence=MARKED)
    return ()


def _labelled(said: str) -> Iterable[PageFinding]:
    """The first labelled number in the visible text."""
    said = said[:_REACH]
    for begin, end in _around_digits(said):
        found = _LABEL.search(said, begin, end)
        if found:
            return finding("sku", found["number"], path="visible:label", snippet=found[0], confidence=LABELLED)
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


def _addressed(url: str) -> Iterable[PageFinding]:
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
    except ValueError:
        return ()
    for name in _QUERY:
        value = query.get(name, "")
        if re.fullmatch(r"[A-Za-z]{0,3}\d{4,20}", value):
            return finding("sku", value, path=f"url:{name}", snippet=f"{name}={value}", confidence=ADDRESSED)
    for segment in reversed(unquote(parts.path).split("/")):
        found = _TAIL.search(_ENDING.sub("", segment))
        if found:
            return finding("sku", found["number"], path="url:path", snippet=segment, confidence=ADDRESSED)
    return ()
