"""Reads structured data (JSON-LD, microdata, OpenGraph), and chooses the page's own product among all that it names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.currencies import THOUSANDTHS, WHOLE, code_of
from mistnet.shops.extraction.documents import documents, items, nodes
from mistnet.shops.extraction.facts import PageFinding, finding
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.extraction.words import availability_term
from mistnet.shops.model import Availability, Price

PRODUCTS: Final = frozenset(
    {
        *("Product", "ProductModel", "ProductGroup", "IndividualProduct", "SomeProducts", "Vehicle", "Car", "Book"),
        *("Event", "Course", "Hotel", "Accommodation", "Apartment", "House", "MusicAlbum"),
        *("SoftwareApplication", "MobileApplication"),
    }
)
OFFERS: Final = frozenset({"Offer", "AggregateOffer", "OfferForPurchase", "OfferForLease"})
# Objects below these keys are not about the page's own product.
ELSEWHERE: Final = frozenset(
    {"itemListElement", "isRelatedTo", "isSimilarTo", "isAccessoryOrSparePartFor", "isConsumableFor", "review"}
    | {"reviews", "hasOfferCatalog", "itemOffered", "makesOffer", "potentialAction", "publisher", "mainEntityOfPage"}
)
_OUT: Final = Availability.OUT_OF_STOCK
_TOO_LARGE: Final = 10**30
_MACHINE: Final = re.compile(r"\d+(?:\.\d+)?")
Node = Mapping[str, Any]


def types(node: Node) -> frozenset[str]:
    return frozenset(
        re.split(r"[/#:]", each.strip().rstrip("/"))[-1] for each in many(node.get("@type")) if isinstance(each, str)
    )


def many(value: Any) -> list[Any]:
    """A value as a list: JSON-LD writes a list of one as the value itself."""
    return [] if value is None else value if isinstance(value, list) else [value]


def text(value: Any, depth: int = 5) -> str | None:
    """The text of a value that may be text, a number, a list or a named object."""
    for each in many(value) if depth else ():
        match each:
            case str() if each.strip():
                return " ".join(each.split())
            case bool():
                continue
            case int():
                return _digits(Decimal(each))
            case Decimal():
                return _digits(each)
            case {"name": name} | {"@value": name} | {"value": name}:
                return text(name, depth - 1)
    return None


def _digits(number: Decimal) -> str | None:
    """A number without an exponent; None if it is too large to mean anything."""
    return f"{number:f}" if abs(number) < _TOO_LARGE else None


def count(value: Any) -> int | None:
    digits = re.sub(r"[\s,.]", "", text(value) or "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else None


def money(value: Any, currency: str | None, site: str | None) -> Decimal | None:
    """An amount in a data field: a plain number if it looks like one, else a price as people write it."""
    written = text(value)
    if written is None:
        return None
    # `24.990` in a currency without cents is 24,990.
    is_grouped = re.fullmatch(r"\d{1,3}\.\d{3}", written) and currency in WHOLE and currency not in THOUSANDTHS
    if _MACHINE.fullmatch(written) and len(written) < 20 and not is_grouped:
        return Decimal(written)
    found = parse_price(written, currency_hint=currency, site=site)
    return found.min if isinstance(found, ParsedPrice) else None


def product_findings(node: Node, *, path: str, confidence: float, site: str) -> Iterator[PageFinding]:
    for field, keys in _SCHEMA_ORG_TEXTS.items():
        for key in keys:
            if value := text(node.get(key)):
                yield from finding(field, value[:500], path=f"{path}.{key}", snippet=value, confidence=confidence)
                break
    yield from _sku(node, path, confidence)
    rating = next((each for each in many(node.get("aggregateRating")) if isinstance(each, dict)), {})
    for key in ("ratingCount", "reviewCount"):
        where = f"{path}.aggregateRating.{key}"
        yield from finding(
            "rating_count", count(rating.get(key)), path=where, snippet=text(rating.get(key)), confidence=confidence
        )
    yield from offer_findings(_offers(node), path=f"{path}.offers", confidence=confidence, site=site)


_SCHEMA_ORG_TEXTS: Final = {"title": ("name",), "brand": ("brand", "manufacturer"), "image_url": ("image",)}


def _sku(node: Node, path: str, confidence: float) -> Iterable[PageFinding]:
    """The shop's own number; else the maker's number or a barcode."""
    offered = [(each, ".offers") for each in _offers(node)]
    for key, weight in (("sku", 1.0), ("productID", 0.9), ("mpn", 0.75), ("gtin13", 0.7), ("gtin", 0.7), ("isbn", 0.7)):
        for holder, below in ((node, ""), *offered):
            value = text(holder.get(key))
            if value and len(value) <= 64:
                value = re.sub(r"^(?:sku|mpn|isbn|gtin)[:\s]+", "", value, flags=re.IGNORECASE)
                where = f"{path}{below}.{key}"
                return finding("sku", value, path=where, snippet=value, confidence=confidence * weight)
    return ()


def _offers(node: Node) -> Sequence[Node]:
    """All offers of a product, those inside an aggregate last."""
    found = [each for each in many(node.get("offers")) if isinstance(each, dict)]
    inner = [each for outer in found for each in many(outer.get("offers")) if isinstance(each, dict)]
    return found + inner


def offer_findings(offers: Sequence[Node], *, path: str, confidence: float, site: str) -> Iterator[PageFinding]:
    priced = [(each, price) for each in offers if (price := offer_price(each, site))]
    if priced:
        direct = [each for each in priced if not each[0].get("lowPrice")] if len(priced) > 1 else priced
        to_be_had = [each for each in direct if availability_term(text(each[0].get("availability"))) is not _OUT]
        yield from _price_findings(to_be_had or direct or priced, path, confidence)
        yield from _list_price(priced[0][0], priced[0][1], path, confidence, site)
    yield from _availability(offers, path, confidence)


def _price_findings(priced: Sequence[tuple[Node, Price]], path: str, confidence: float) -> Iterator[PageFinding]:
    """One offer is the price; several are a range from the lowest to the highest."""
    currency = next((each.currency for _, each in priced if each.currency), None)
    same = [each for _, each in priced if each.currency in (None, currency)]
    low = min(each.amount for each in same)
    high = max(each.amount_max or each.amount for each in same)
    price = Price(amount=low, amount_max=high if high > low else None, currency=currency)
    key = "lowPrice" if priced[0][0].get("lowPrice") and not priced[0][0].get("price") else "price"
    shown = f"{low}{f' - {high}' if high > low else ''} {currency or ''}"
    yield from finding("price", price, path=f"{path}.{key}", snippet=shown, confidence=confidence)


def offer_price(offer: Node, site: str) -> Price | None:
    specified = [each for each in many(offer.get("priceSpecification")) if isinstance(each, dict)]
    asked = [each for each in specified if "ListPrice" not in str(each.get("priceType"))] or specified
    currency = next((code for each in (offer, *asked) if (code := code_of(text(each.get("priceCurrency"))))), None)
    for holder in (offer, *asked):
        for low, high in (("price", None), ("lowPrice", "highPrice"), ("minPrice", "maxPrice"), ("highPrice", None)):
            amount = money(holder.get(low), currency, site)
            if amount is not None and amount > 0:
                most = money(holder.get(high), currency, site) if high else None
                written = currency or _written_currency(holder.get(low), site)
                return Price(amount=amount, amount_max=most if most and most > amount else None, currency=written)
    return None


def _written_currency(value: Any, site: str) -> str | None:
    """The currency of an amount that carries its own mark."""
    written = text(value) or ""
    if _MACHINE.fullmatch(written):
        return None
    found = parse_price(written, site=site)
    return found.currency if isinstance(found, ParsedPrice) else None


def _list_price(offer: Node, price: Price, path: str, confidence: float, site: str) -> Iterable[PageFinding]:
    for each in many(offer.get("priceSpecification")):
        if isinstance(each, dict) and re.search("ListPrice|SRP|MSRP|Strikethrough", str(each.get("priceType"))):
            amount = money(each.get("price"), price.currency, site)
            listed = Price(amount=amount, currency=price.currency) if amount else None
            return finding(
                "list_price", listed, path=f"{path}.priceSpecification", snippet=amount, confidence=confidence
            )
    return ()


def _availability(offers: Sequence[Node], path: str, confidence: float) -> Iterable[PageFinding]:
    """A product is in stock if any of its offers is."""
    said = [
        (term, each.get("availability"))
        for each in offers
        if (term := availability_term(text(each.get("availability"))))
    ]
    if not said:
        return ()
    in_stock = [each for each in said if each[0] is Availability.IN_STOCK]
    term, written = (in_stock or said)[0]
    return finding("availability", term, path=f"{path}.availability", snippet=text(written), confidence=confidence)


JSON_LD: Final = 0.95
MICRODATA: Final = 0.9
_LONE_OFFER: Final = 0.85
_VARIANT: Final = 0.72
_ID: Final = re.compile(r"[A-Za-z0-9]*\d[A-Za-z0-9]{3,}")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A product in the data, and whether it is mentioned as part of something else."""

    node: dict[str, Any]
    path: str
    confidence: float
    aside: bool


class PageName(msgspec.Struct, frozen=True, kw_only=True):
    """The page's own name: its address and its headings."""

    url: str
    headings: Sequence[str]

    def fits(self, candidate: Candidate) -> int:
        """How well a product fits the page; only the comparison matters."""
        node = candidate.node
        name = (text(node.get("name")) or "").casefold()
        url = text(node.get("url")) or text(node.get("@id")) or ""
        address = unquote(self.url).casefold()
        ids = [text(node.get(key)) or "" for key in ("sku", "productID", "mpn")]
        return (
            8 * (not candidate.aside)
            + 4 * bool(many(node.get("offers")))
            + 4 * any(name and (name in each or each in name) for each in self.headings if len(each) > 3)
            + 3 * same_page(url, self.url)
            + 2 * any(len(each) > 3 and each.casefold() in address for each in ids)
        )


def same_page(one: str, other: str) -> bool:
    try:
        first, second = urlsplit(one), urlsplit(other)
    except ValueError:
        return False
    return len(first.path) > 1 and unquote(first.path).rstrip("/") == unquote(second.path).rstrip("/")


def structured_findings(tree: LexborHTMLParser, page: PageName) -> Iterator[PageFinding]:
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


def _findings(main: Candidate, products: Sequence[Candidate], page: PageName) -> Iterator[PageFinding]:
    """The product's own values. A product on a list page of many has a lower confidence."""
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
    """Of several variants or offers, the one that the address names; else all of them."""
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
    """Whether the address names this variant: by its number in the query, or by the same query."""
    query = f"{urlsplit(url).query}#{urlsplit(url).fragment}" if "?" in url or "#" in url else ""
    sku = text(node.get("sku")) or ""
    own = text(node.get("url")) or ""
    return bool(query) and ((len(sku) > 3 and sku in query) or (own != "" and own.endswith(query.rstrip("#"))))


def _json_ld(tree: LexborHTMLParser) -> Iterator[Candidate]:
    for document in documents(tree):
        for node, way in nodes(document):
            if types(node) & (PRODUCTS | OFFERS) and not _is_own_offer(node, way):
                aside = bool(ELSEWHERE & set(way)) or "hasVariant" in way
                yield Candidate(node=node, path="json-ld:" + _kind(node), confidence=JSON_LD, aside=aside)


def _is_own_offer(node: dict[str, Any], way: Sequence[str]) -> bool:
    """An offer below `offers` is read with its product."""
    return bool(types(node) & OFFERS) and "offers" in way


def _kind(node: dict[str, Any]) -> str:
    return min(types(node) & (PRODUCTS | OFFERS))


def _microdata(tree: LexborHTMLParser) -> Iterator[Candidate]:
    for outer in items(tree):
        for node, way in nodes(outer):
            if types(node) & (PRODUCTS | OFFERS) and not _is_own_offer(node, way):
                aside = bool(ELSEWHERE & set(way))
                yield Candidate(node=node, path="microdata:" + _kind(node), confidence=MICRODATA, aside=aside)


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


def meta_findings(tree: LexborHTMLParser, url: str) -> Iterator[PageFinding]:
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


def _money(tags: dict[str, str], url: str) -> Iterator[PageFinding]:
    currency = next((code for name in _CURRENCIES if (code := code_of(tags.get(name)))), None)
    if currency:
        yield from finding("currency", currency, path="meta:currency", snippet=currency, confidence=META)
    for field, names in (("price", _PRICES), ("list_price", _LIST_PRICES)):
        for name in names:
            amount = money(tags.get(name), currency, url)
            price = Price(amount=amount, currency=currency) if amount else None
            yield from finding(field, price, path=f"meta:{name}", snippet=tags.get(name), confidence=META)
