"""Where some large shops keep their values, when their pages carry no structured data."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.findings import PageFinding, finding
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.extraction.stock import availability_words
from mistnet.shops.extraction.structured import count
from mistnet.shops.model import Price, PriceKind

SHOP: Final = 0.93


class ShopPage(msgspec.Struct, frozen=True, kw_only=True):
    """One shop's pages: which hosts, which places for which field, and how its addresses name the thing."""

    host: re.Pattern[str]
    places: Mapping[str, Sequence[str]]
    item: re.Pattern[str]


SHOPS: Final = (
    ShopPage(
        host=re.compile(
            r"(?:^|\.)amazon\.(?:com|ca|de|fr|it|es|nl|se|pl|in|sg|ae|sa|eg|cn|co\.uk|co\.jp|com\.(?:au|br|mx|tr|be))$"
        ),
        item=re.compile(r"/(?:dp|gp/product|gp/aw/d|exec/obidos/ASIN)/([A-Z0-9]{10})(?:[/?]|$)"),
        places={
            "price": (
                "#priceblock_dealprice",
                "#priceblock_saleprice",
                "#priceblock_ourprice",
                "#price_inside_buybox",
                "#newBuyBoxPrice",
                ".apexPriceToPay .a-offscreen",
                ".priceToPay .a-offscreen",
                "#corePrice_feature_div .a-price .a-offscreen",
                "#corePrice_desktop .a-price .a-offscreen",
                "#kindle-price",
                "#usedPrice",
                "#buyNewSection .offer-price",
                "#usedBuySection .offer-price",
                "#mediaNoAccordion .header-price",
                ".swatchElement.selected .a-color-price",
            ),
            "list_price": (".priceBlockStrikePriceString", "#listPrice", ".basisPrice .a-offscreen"),
            "availability": ("#availability", "#outOfStock", "#availabilityInsideBuyBox_feature_div"),
            "title": ("#productTitle", "#ebooksProductTitle"),
            "brand": ("#bylineInfo",),
            "rating_count": ("#acrCustomerReviewText",),
        },
    ),
    ShopPage(
        host=re.compile(r"(?:^|\.)ebay\.(?:com|ca|de|fr|it|es|nl|pl|ie|at|ch|be|ph|co\.uk|com\.(?:au|hk|my|sg))$"),
        item=re.compile(r"/itm/(?:[^/?]+/)?(\d{9,})"),
        places={
            "price": ("#prcIsum", "#mm-saleDscPrc", ".x-price-primary", '[data-testid="x-price-primary"]'),
            "bid": ("#prcIsum_bidPrice", ".x-bid-price", '[data-testid="x-bid-price"]'),
            "list_price": ("#orgPrc", "#mm-saleOrgPrc", ".x-additional-info__textual-display s"),
            "bid_count": ("#qty-test", ".x-bid-count"),
            "sold_count": (".vi-qtyS-hot-red", ".vi-qty-pur-lnk"),
            "title": ("#itemTitle", ".x-item-title__mainTitle"),
        },
    ),
)


def shop_findings(tree: LexborHTMLParser, url: str, hint: str | None) -> Iterator[PageFinding]:
    shop = next((each for each in SHOPS if each.host.search(_host(url))), None)
    if shop is None:
        return
    if named := shop.item.search(url):
        yield from finding("sku", named[1], path="url:item", snippet=named[0], confidence=0.99)
    for field, selectors in shop.places.items():
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


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
