"""Chooses the page's own product among all that its structured data names."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.pricing import jsonld, microdata
from mistnet.pricing.findings import Finding
from mistnet.pricing.schema_org import ELSEWHERE, OFFERS, PRODUCTS, many, offer_findings, product_findings, text, types

JSON_LD: Final = 0.95
MICRODATA: Final = 0.9
_LONE_OFFER: Final = 0.85
_VARIANT: Final = 0.72
_ID: Final = re.compile(r"[A-Za-z0-9]*\d[A-Za-z0-9]{3,}")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A product some data speaks of, and whether it is spoken of as part of something else."""

    node: dict[str, Any]
    path: str
    confidence: float
    aside: bool


class PageName(msgspec.Struct, frozen=True, kw_only=True):
    """How the page calls itself: its address and its headings."""

    url: str
    headings: Sequence[str]

    def fits(self, candidate: Candidate) -> int:
        """How well a product fits the page; only the comparison matters."""
        node = candidate.node
        name = (text(node.get("name")) or "").casefold()
        url = text(node.get("url")) or text(node.get("@id")) or ""
        return (
            8 * (not candidate.aside)
            + 4 * bool(many(node.get("offers")))
            + 4 * any(name and (name in each or each in name) for each in self.headings if len(each) > 3)
            + 3 * same_page(url, self.url)
            + 2 * self._names_id(node)
        )

    def _names_id(self, node: dict[str, Any]) -> bool:
        address = unquote(self.url).casefold()
        ids = [text(node.get(key)) or "" for key in ("sku", "productID", "mpn")]
        return any(len(each) > 3 and each.casefold() in address for each in ids)


def same_page(one: str, other: str) -> bool:
    try:
        first, second = urlsplit(one), urlsplit(other)
    except ValueError:
        return False
    return len(first.path) > 1 and unquote(first.path).rstrip("/") == unquote(second.path).rstrip("/")


def structured_findings(tree: LexborHTMLParser, page: PageName) -> Iterator[Finding]:
    """JSON-LD and microdata: the best product of each; a lone offer where there is no product."""
    for candidates in (list(_json_ld(tree)), list(_microdata(tree))):
        products = [each for each in candidates if types(each.node) & PRODUCTS]
        if products:
            main = max(products, key=page.fits)
            yield from _findings(main, products, page)
            continue
        for each in candidates:
            if types(each.node) & OFFERS and not each.aside:
                yield from offer_findings([each.node], path=each.path, confidence=_LONE_OFFER, site=page.url)
                break


def _findings(main: Candidate, products: Sequence[Candidate], page: PageName) -> Iterator[Finding]:
    """The product's own values. A product that is one of many alike on a list page is believed less."""
    best = page.fits(main)  # once: its name may be long, and its peers many
    peers = [each for each in products if each.aside == main.aside and page.fits(each) == best]
    crowded = len({text(each.node.get("name")) for each in peers}) > 2
    confidence = main.confidence * (0.5 if crowded else 0.75 if main.aside else 1.0)
    node = _with_variant(main.node, page)
    for each in product_findings(node, path=main.path, confidence=confidence, site=page.url):
        is_one_of_many = each.field == "sku" and _names_variants(main, products)
        yield msgspec.structs.replace(each, confidence=_VARIANT) if is_one_of_many else each


def _names_variants(main: Candidate, products: Sequence[Candidate]) -> bool:
    """Several products of one name and different numbers are sizes and colours of one thing."""
    name = text(main.node.get("name"))
    return len({text(each.node.get("sku")) for each in products if text(each.node.get("name")) == name}) > 1


def _with_variant(node: dict[str, Any], page: PageName) -> dict[str, Any]:
    """Of several variants or offers, the one the address names; else all of them."""
    variants = [each for each in many(node.get("hasVariant")) if isinstance(each, dict)]
    offers = [each for each in many(node.get("offers")) if isinstance(each, dict)]
    if variants and not offers:
        named = [each for each in variants if _is_named(each, page.url)]
        chosen = named or variants
        offered = [offer for each in chosen for offer in many(each.get("offers"))]
        return {**node, **(named[0] if len(named) == 1 else {}), "offers": offered}
    if len(offers) > 1:
        named = [each for each in offers if _is_named(each, page.url)]
        if len(named) == 1:
            return {**node, "offers": named}
    return node


def _is_named(node: dict[str, Any], url: str) -> bool:
    """The address asks for this very variant: by its number in the query, or by the same query."""
    query = f"{urlsplit(url).query}#{urlsplit(url).fragment}" if "?" in url or "#" in url else ""
    sku = text(node.get("sku")) or ""
    own = text(node.get("url")) or ""
    return bool(query) and ((len(sku) > 3 and sku in query) or (own != "" and own.endswith(query.rstrip("#"))))


def _json_ld(tree: LexborHTMLParser) -> Iterator[Candidate]:
    for document in jsonld.documents(tree):
        for node, way in jsonld.nodes(document):
            if types(node) & (PRODUCTS | OFFERS) and not _is_own_offer(node, way):
                aside = bool(ELSEWHERE & set(way)) or "hasVariant" in way
                yield Candidate(node=node, path="json-ld:" + _kind(node), confidence=JSON_LD, aside=aside)


def _is_own_offer(node: dict[str, Any], way: Sequence[str]) -> bool:
    """An offer below `offers` is read with its product."""
    return bool(types(node) & OFFERS) and "offers" in way


def _kind(node: dict[str, Any]) -> str:
    return min(types(node) & (PRODUCTS | OFFERS))


def _microdata(tree: LexborHTMLParser) -> Iterator[Candidate]:
    for outer in microdata.items(tree):
        for node, way in jsonld.nodes(outer):
            if types(node) & (PRODUCTS | OFFERS) and not _is_own_offer(node, way):
                aside = bool(ELSEWHERE & set(way))
                yield Candidate(node=node, path="microdata:" + _kind(node), confidence=MICRODATA, aside=aside)
