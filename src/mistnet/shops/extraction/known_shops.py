"""Reads a shop's pages in the places that the shop's module names, where they carry no structured data."""

import re
from collections.abc import Iterator
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.findings import PageFinding, finding
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.extraction.stock import availability_words
from mistnet.shops.extraction.structured import count
from mistnet.shops.model import Price, PriceKind
from mistnet.shops.shop import Shop

SHOP: Final = 0.93


def shop_findings(tree: LexborHTMLParser, shop: Shop | None, url: str, hint: str | None) -> Iterator[PageFinding]:
    """The values in the places that the shop keeps them in, and the item's number in the address."""
    if shop is None:
        return
    if shop.pages.item and (named := shop.pages.item.search(url)):
        yield from finding("sku", named[1], path="url:item", snippet=named[0], confidence=0.99)
    for field, selectors in shop.pages.places.items():
        for selector in selectors:
            node = tree.css_first(selector)
            said = " ".join(node.text(deep=True, separator=" ").split())[:300] if node else ""
            found = list(_read(field, said, selector, url, hint)) if said else []
            yield from found
            if found:
                break


def _read(field: str, said: str, selector: str, url: str, hint: str | None) -> Iterator[PageFinding]:
    path = f"shop:{selector}"
    match field:
        case "price" | "list_price" | "bid":
            yield from _money(field, said, path, url, hint)
        case "availability":
            yield from finding(field, availability_words(said), path=path, snippet=said, confidence=SHOP)
        case "rating_count" | "bid_count" | "sold_count":
            number = re.search(r"\d[\d.,\s]*", said)
            yield from finding(field, count(number[0]) if number else None, path=path, snippet=said, confidence=SHOP)
        case _:
            yield from finding(field, said, path=path, snippet=said, confidence=0.9)


def _money(field: str, said: str, path: str, url: str, hint: str | None) -> Iterator[PageFinding]:
    found = parse_price(re.sub(r"(\d) ([.,]\d)", r"\1\2", said), currency_hint=hint, site=url)
    if not isinstance(found, ParsedPrice):
        return
    price = Price(amount=found.min, amount_max=found.max if found.max > found.min else None, currency=found.currency)
    yield from finding("price" if field == "bid" else field, price, path=path, snippet=said, confidence=SHOP)
    if field == "bid":
        yield from finding("kind", PriceKind.BID, path=path, snippet=said, confidence=SHOP)
