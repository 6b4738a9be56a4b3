"""Reads schema.org products and offers, whether they came as JSON-LD or as microdata."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from mistnet.domain.products import Availability, Price
from mistnet.pricing.currencies import code_of
from mistnet.pricing.currency_marks import THOUSANDTHS, WHOLE
from mistnet.pricing.findings import Finding, finding
from mistnet.pricing.price_text import ParsedPrice, parse_price
from mistnet.pricing.stock import availability_term

PRODUCTS: Final = frozenset(
    {
        *("Product", "ProductModel", "ProductGroup", "IndividualProduct", "SomeProducts", "Vehicle", "Car", "Book"),
        *("Event", "Course", "Hotel", "Accommodation", "Apartment", "House", "MusicAlbum"),
        *("SoftwareApplication", "MobileApplication"),
    }
)
OFFERS: Final = frozenset({"Offer", "AggregateOffer", "OfferForPurchase", "OfferForLease"})
# Objects below these keys are about something else than the page's own thing.
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
    """One or several are written alike; here they are always several."""
    return [] if value is None else value if isinstance(value, list) else [value]


def text(value: Any, depth: int = 5) -> str | None:
    """The words of a value that may be text, a number, a list or a named thing."""
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
    """A number without an exponent; none where it is beyond anything people count."""
    return f"{number:f}" if abs(number) < _TOO_LARGE else None


def count(value: Any) -> int | None:
    digits = re.sub(r"[\s,.]", "", text(value) or "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else None


def money(value: Any, currency: str | None, site: str | None) -> Decimal | None:
    """An amount in a data field: a machine's number where it looks like one, else as people write it."""
    written = text(value)
    if written is None:
        return None
    if _MACHINE.fullmatch(written) and len(written) < 20 and not _groups(written, currency):
        return Decimal(written)
    found = parse_price(written, currency_hint=currency, site=site)
    return found.min if isinstance(found, ParsedPrice) else None


def _groups(written: str, currency: str | None) -> bool:
    """`24.990` in a currency without cents is 24,990."""
    return bool(re.fullmatch(r"\d{1,3}\.\d{3}", written)) and currency in WHOLE and currency not in THOUSANDTHS


def product_findings(node: Node, *, path: str, confidence: float, site: str) -> Iterator[Finding]:
    for field, keys in _TEXTS.items():
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


_TEXTS: Final = {"title": ("name",), "brand": ("brand", "manufacturer"), "image_url": ("image",)}


def _sku(node: Node, path: str, confidence: float) -> Iterable[Finding]:
    """A shop's own number first; a maker's number or a barcode is the next best name."""
    offered = [(each, ".offers") for each in _offers(node)]
    for key, worth in (("sku", 1.0), ("productID", 0.9), ("mpn", 0.75), ("gtin13", 0.7), ("gtin", 0.7), ("isbn", 0.7)):
        for holder, below in ((node, ""), *offered):
            value = text(holder.get(key))
            if value and len(value) <= 64:
                value = re.sub(r"^(?:sku|mpn|isbn|gtin)[:\s]+", "", value, flags=re.IGNORECASE)
                where = f"{path}{below}.{key}"
                return finding("sku", value, path=where, snippet=value, confidence=confidence * worth)
    return ()


def _offers(node: Node) -> Sequence[Node]:
    """All offers of a thing, those inside an aggregate last."""
    found = [each for each in many(node.get("offers")) if isinstance(each, dict)]
    inner = [each for outer in found for each in many(outer.get("offers")) if isinstance(each, dict)]
    return found + inner


def offer_findings(offers: Sequence[Node], *, path: str, confidence: float, site: str) -> Iterator[Finding]:
    priced = [(each, price) for each in offers if (price := offer_price(each, site))]
    if priced:
        direct = [each for each in priced if not each[0].get("lowPrice")] if len(priced) > 1 else priced
        to_be_had = [each for each in direct if availability_term(text(each[0].get("availability"))) is not _OUT]
        yield from _price_findings(to_be_had or direct or priced, path, confidence)
        yield from _list_price(priced[0][0], priced[0][1], path, confidence, site)
    yield from _availability(offers, path, confidence)


def _price_findings(priced: Sequence[tuple[Node, Price]], path: str, confidence: float) -> Iterator[Finding]:
    """One offer is the price; several are a span from the lowest to the highest."""
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
                told = currency or _written_currency(holder.get(low), site)
                return Price(amount=amount, amount_max=most if most and most > amount else None, currency=told)
    return None


def _written_currency(value: Any, site: str) -> str | None:
    """The currency of an amount that carries its own mark."""
    written = text(value) or ""
    if _MACHINE.fullmatch(written):
        return None
    found = parse_price(written, site=site)
    return found.currency if isinstance(found, ParsedPrice) else None


def _list_price(offer: Node, price: Price, path: str, confidence: float, site: str) -> Iterable[Finding]:
    for each in many(offer.get("priceSpecification")):
        if isinstance(each, dict) and re.search("ListPrice|SRP|MSRP|Strikethrough", str(each.get("priceType"))):
            amount = money(each.get("price"), price.currency, site)
            listed = Price(amount=amount, currency=price.currency) if amount else None
            return finding(
                "list_price", listed, path=f"{path}.priceSpecification", snippet=amount, confidence=confidence
            )
    return ()


def _availability(offers: Sequence[Node], path: str, confidence: float) -> Iterable[Finding]:
    """A thing is in stock if any of its offers is."""
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
