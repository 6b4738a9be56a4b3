"""Reads the meta tags of a page: OpenGraph, product tags, Twitter cards, and the canonical link."""

from collections.abc import Iterator
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from mistnet.domain.products import Price
from mistnet.pricing.currencies import code_of
from mistnet.pricing.findings import Finding, finding
from mistnet.pricing.schema_org import money
from mistnet.pricing.stock import availability_term

META: Final = 0.85
_PRICES: Final = (
    "product:sale_price:amount",
    "product:price:amount",
    "og:price:amount",
    "og:product:price:amount",
    "product:price",
    "og:price",
    "twitter:data1:price",
)
_CURRENCIES: Final = (
    "product:sale_price:currency",
    "product:price:currency",
    "og:price:currency",
    "og:product:price:currency",
    "currency",
)
_LIST_PRICES: Final = ("product:original_price:amount", "og:price:standard_amount", "product:pretax_price:amount")
_AVAILABILITY: Final = ("product:availability", "og:availability", "availability")
_TEXTS: Final = {
    "title": ("og:title", "twitter:title"),
    "brand": ("product:brand", "og:brand"),
    "sku": ("product:retailer_item_id", "product:retailer_part_no", "product:sku", "og:sku", "sku"),
    "image_url": ("og:image", "og:image:url", "twitter:image"),
    "canonical_url": ("og:url",),
}


def meta_tags(tree: LexborHTMLParser) -> dict[str, str]:
    """All named meta tags; of repeated ones the first."""
    found: dict[str, str] = {}
    for node in tree.css("meta[content]"):
        attributes = node.attributes
        name = attributes.get("property") or attributes.get("name")
        if name and attributes.get("content"):
            found.setdefault(name.strip().lower(), (attributes["content"] or "").strip())
    return found


def meta_findings(tree: LexborHTMLParser, url: str) -> Iterator[Finding]:
    tags = meta_tags(tree)
    for field, names in _TEXTS.items():
        for name in names:
            yield from finding(
                field, tags.get(name, "")[:500], path=f"meta:{name}", snippet=tags.get(name), confidence=META
            )
    yield from _money(tags, url)
    for name in _AVAILABILITY:
        if name in tags:
            term = availability_term(tags[name])
            yield from finding("availability", term, path=f"meta:{name}", snippet=tags[name], confidence=META)
    canonical = tree.css_first('link[rel="canonical"]')
    href = (canonical.attributes.get("href") or "") if canonical else ""
    if href.startswith("http"):
        yield from finding("canonical_url", href, path="link:canonical", snippet=href, confidence=META)


def _money(tags: dict[str, str], url: str) -> Iterator[Finding]:
    currency = next((code for name in _CURRENCIES if (code := code_of(tags.get(name)))), None)
    if currency:
        yield from finding("currency", currency, path="meta:currency", snippet=currency, confidence=META)
    for field, names in (("price", _PRICES), ("list_price", _LIST_PRICES)):
        for name in names:
            amount = money(tags.get(name), currency, url)
            price = Price(amount=amount, currency=currency) if amount else None
            yield from finding(field, price, path=f"meta:{name}", snippet=tags.get(name), confidence=META)
