"""Reads structured data (JSON-LD, microdata, OpenGraph), and chooses the page's own product among all that it names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.currencies import THOUSANDTHS, WHOLE, code_of
from mistnet.shops.extraction.documents import RDFA, documents, items, nodes
from mistnet.shops.extraction.facts import Origin, PageFinding, finding
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.extraction.words import availability_term
from mistnet.shops.model import Availability, Evidence, Price

_PRODUCTS: Final = frozenset(
    {
        *("Product", "ProductModel", "ProductGroup", "IndividualProduct", "SomeProducts", "Vehicle", "Car", "Book"),
        *("Motorcycle", "Course", "CourseInstance", "MusicAlbum", "Trip", "TouristTrip"),
        *("Hotel", "HotelRoom", "Accommodation", "Apartment", "House"),
        *("Event", "MusicEvent", "TheaterEvent", "SportsEvent", "ComedyEvent", "DanceEvent", "ExhibitionEvent"),
        *("Festival", "EducationEvent", "BusinessEvent", "FoodEvent", "ScreeningEvent", "LiteraryEvent"),
        *("ChildrensEvent", "SocialEvent"),
        *("SoftwareApplication", "MobileApplication"),
    }
)
_OFFERS: Final = frozenset({"Offer", "AggregateOffer", "OfferForPurchase", "OfferForLease"})
# Objects below these keys are not about the page's own product.
_ELSEWHERE: Final = frozenset(
    {"itemListElement", "isRelatedTo", "isSimilarTo", "isAccessoryOrSparePartFor", "isConsumableFor", "review"}
    | {"reviews", "hasOfferCatalog", "itemOffered", "makesOffer", "potentialAction", "publisher", "mainEntityOfPage"}
)
_TOO_LARGE: Final = 10**30
_MACHINE: Final = re.compile(r"\d+(?:\.\d+)?")
_NUMBERS: Final = (("sku", 1.0), ("productID", 0.9), ("mpn", 0.75), ("gtin13", 0.7), ("gtin", 0.7), ("isbn", 0.7))
_LONGEST_NUMBER: Final = 64
_JSON_LD: Final = 0.95
_MICRODATA: Final = 0.9
_LONE_OFFER: Final = 0.85
_VARIANT: Final = 0.72
Node = Mapping[str, Any]


def types(node: Node) -> frozenset[str]:
    named = (
        re.split(r"[/#:]", each.strip().rstrip("/"))[-1] for each in many(node.get("@type")) if isinstance(each, str)
    )
    return frozenset(each[:1].upper() + each[1:] for each in named)


def many(value: Any) -> list[Any]:
    """A value as a list: JSON-LD writes a list of one as the value itself."""
    return [] if value is None else value if isinstance(value, list) else [value]


def objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in many(value) if isinstance(each, dict)]


def text(value: Any, depth: int = 5) -> str | None:
    """The text of a value that may be text, a number, a list or a named object."""
    for each in many(value) if depth else ():
        match each:
            case str() if each.strip():
                return " ".join(each.split())
            case bool():
                continue
            case int() | Decimal():  # without an exponent; one that is too large means nothing
                return f"{Decimal(each):f}" if abs(Decimal(each)) < _TOO_LARGE else None
            case {"name": name} | {"@value": name} | {"value": name}:
                return text(name, depth - 1)
    return None


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


def _product_findings(node: Node, origin: Origin, site: str) -> Iterator[PageFinding]:
    for field, keys in (("title", ("name",)), ("brand", ("brand", "manufacturer")), ("image_url", ("image",))):
        key = next((each for each in keys if text(node.get(each))), keys[0])
        value = text(node.get(key)) or ""
        yield from origin.finding(field, value[:500], f".{key}", value)
    # The shop's own number; else the maker's number or a barcode.
    holders = [(node, ""), *((each, ".offers") for each in _offers(node))]
    numbers = (
        (text(holder.get(key)) or "", f"{below}.{key}", weight) for key, weight in _NUMBERS for holder, below in holders
    )
    for number, key, weight in [each for each in numbers if 0 < len(each[0]) <= _LONGEST_NUMBER][:1]:
        bare = re.sub(r"^(?:sku|mpn|isbn|gtin)[:\s]+", "", number, flags=re.IGNORECASE)
        yield from origin.finding("sku", bare, key, bare, weight=weight)
    rating = next(iter(objects(node.get("aggregateRating"))), {})
    for key in ("ratingCount", "reviewCount"):
        counted = text(rating.get(key))
        yield from origin.finding("rating_count", count(counted), f".aggregateRating.{key}", counted)
    yield from _offer_findings(_offers(node), Origin(f"{origin.path}.offers", origin.confidence, origin.features), site)


def _offers(node: Node) -> Sequence[Node]:
    """All offers of a product, those inside an aggregate last."""
    found = objects(node.get("offers"))
    return found + [each for outer in found for each in objects(outer.get("offers"))]


_FORMER: Final = re.compile("ListPrice|SRP|MSRP|Strikethrough|Regular")
_USED: Final = re.compile("Used|Refurbished|Damaged", re.IGNORECASE)
_MOST_OFFERS: Final = 8


def _offer_findings(offers: Sequence[Node], origin: Origin, site: str) -> Iterator[PageFinding]:
    terms = [(availability_term(text(each.get("availability"))), each) for each in offers]
    priced = [(term, each, price) for term, each in terms if (price := _offer_price(each, site))]
    if priced:
        direct = [each for each in priced if not each[1].get("lowPrice")] if len(priced) > 1 else priced
        to_be_had = [each for each in direct if each[0] is not Availability.OUT_OF_STOCK]
        chosen = to_be_had or direct or priced
        # One offer is the price; several are a range from the lowest to the highest.
        new = [each for each in chosen if not _USED.search(str(each[1].get("itemCondition")))]
        new = new if 0 < len(new) < len(chosen) else chosen
        # One price for all that are in the first currency.
        currency = next((each.currency for _, _, each in new if each.currency), None)
        same = [each for _, _, each in new if each.currency in (None, currency)]
        low, high = min(each.amount for each in same), max(each.amount_max or each.amount for each in same)
        span = Price(amount=low, amount_max=high if high > low else None, currency=currency)
        key = "lowPrice" if chosen[0][1].get("lowPrice") and not chosen[0][1].get("price") else "price"
        seen: set[Decimal] = set()
        for _, offer, price in [*new, *chosen, *priced]:
            if price.amount in seen or len(seen) >= _MOST_OFFERS:
                continue
            seen.add(price.amount)
            features = ["low"] if key == "lowPrice" else []
            is_used = new is not chosen and _USED.search(str(offer.get("itemCondition")))
            features += ["used"] if is_used else []
            is_span = price.amount == span.amount
            most = f" - {span.amount_max}" if is_span and span.amount_max else ""
            features += ["other"] if not is_span else ["span"] if most else []
            shown, weight = (span, 1.0) if is_span else (price, 0.9)
            snippet = f"{shown.amount}{most} {shown.currency or ''}"
            yield from origin.finding("price", shown, f".{key}", snippet, weight=weight, features=features)
        _, first, asked = priced[0]
        for each in objects(first.get("priceSpecification")):
            if _FORMER.search(str(each.get("priceType"))):
                amount = money(each.get("price"), asked.currency, site)
                listed = Price(amount=amount, currency=asked.currency) if amount else None
                yield from origin.finding("list_price", listed, ".priceSpecification", amount)
                break
    # A product is in stock if any of its offers is.
    known = [(term, each.get("availability")) for term, each in terms if term]
    for term, written in sorted(known, key=lambda each: each[0] is not Availability.IN_STOCK)[:1]:
        yield from origin.finding("availability", term, ".availability", text(written))


def _offer_price(offer: Node, site: str) -> Price | None:
    specified = objects(offer.get("priceSpecification"))
    # Not list prices, prices of a unit such as a kilogram, and what is paid each month.
    asked = [
        each
        for each in specified
        if not (
            _FORMER.search(str(each.get("priceType"))) or each.get("referenceQuantity") or each.get("billingDuration")
        )
    ] or specified
    currency = next((code for each in (offer, *asked) if (code := code_of(text(each.get("priceCurrency"))))), None)
    for holder in (offer, *asked):
        for low, high in (("price", None), ("lowPrice", "highPrice"), ("minPrice", "maxPrice"), ("highPrice", None)):
            amount = money(holder.get(low), currency, site)
            if amount is not None and amount > 0:
                most = money(holder.get(high), currency, site) if high else None
                written = text(holder.get(low)) or ""
                if currency is None and not _MACHINE.fullmatch(written):  # the amount may carry its own mark
                    found = parse_price(written, site=site)
                    currency = found.currency if isinstance(found, ParsedPrice) else None
                return Price(amount=amount, amount_max=most if most and most > amount else None, currency=currency)
    return None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A product in the data, and whether it is mentioned as part of something else."""

    node: dict[str, Any]
    origin: Origin
    aside: bool


class PageName(msgspec.Struct, frozen=True, kw_only=True):
    """The page's own name: its address and its headings."""

    url: str
    headings: Sequence[str]

    def is_named(self, candidate: Candidate) -> bool:
        """Whether a heading of the page names a product."""
        name = (text(candidate.node.get("name")) or "").casefold()
        return any(name and (name in each or each in name) for each in self.headings if len(each) > 3)

    def fits(self, candidate: Candidate) -> int:
        """How well a product fits the page; only the comparison matters."""
        node = candidate.node
        url = text(node.get("url")) or text(node.get("@id")) or ""
        address = unquote(self.url).casefold()
        ids = [text(node.get(key)) or "" for key in ("sku", "productID", "mpn")]
        return (
            8 * (not candidate.aside)
            + 4 * bool(many(node.get("offers")))
            + 4 * self.is_named(candidate)
            + 3 * bool(_path_of(url) and _path_of(url) == _path_of(self.url))
            + 2 * any(len(each) > 3 and each.casefold() in address for each in ids)
        )


def _path_of(url: str) -> str:
    try:
        return unquote(urlsplit(url).path).rstrip("/")
    except ValueError:
        return ""


class StructuredData(msgspec.Struct, frozen=True, kw_only=True):
    """What the structured data of a page say: values, the types they name, and how many products."""

    findings: Sequence[PageFinding]
    details: Sequence[Evidence]
    types: frozenset[str]
    products: int
    fits: bool


def structured_data(tree: LexborHTMLParser, page: PageName) -> StructuredData:
    """JSON-LD, microdata and RDFa: the best product of each; a lone offer where there is no product."""
    found: list[PageFinding] = []
    details: list[Evidence] = []
    all_types: set[str] = set()
    most, fits = 0, False
    for collected, origin, elsewhere in (
        (documents(tree), Origin("json-ld:", _JSON_LD, {"json_ld": 1.0}), _ELSEWHERE | {"hasVariant"}),
        (items(tree), Origin("microdata:", _MICRODATA, {"microdata": 1.0}), _ELSEWHERE),
        (items(tree, RDFA), Origin("rdfa:", _MICRODATA, {"rdfa": 1.0}), _ELSEWHERE),
    ):
        candidates = _candidates(collected, origin, elsewhere, all_types)
        if products := [each for each in candidates if types(each.node) & _PRODUCTS]:
            main = max(products, key=page.fits)
            most = max(most, len({text(each.node.get("name")) for each in products if not each.aside}))
            fits = fits or page.is_named(main)
            found += _findings(main, products, page)
            details += structured_details(main.node, _offers(main.node), main.origin.path)
        elif offers := [each for each in candidates if not each.aside]:
            lone = Origin(offers[0].origin.path, _LONE_OFFER, {**origin.features, "lone": 1.0})
            found += _offer_findings([offers[0].node], lone, page.url)
    return StructuredData(findings=found, details=details, types=frozenset(all_types), products=most, fits=fits)


def _candidates(
    found: Iterable[Any], origin: Origin, elsewhere: frozenset[str], all_types: set[str]
) -> list[Candidate]:
    """All products and offers; the types of all objects are noted. An offer below `offers` is read with its product."""
    candidates = []
    for document in found:
        for node, way in nodes(document):
            named = types(node)
            all_types |= named
            if wanted := named & (_PRODUCTS | _OFFERS):
                if named & _OFFERS and "offers" in way:
                    continue
                own = Origin(origin.path + min(wanted), origin.confidence, origin.features)
                candidates.append(Candidate(node=node, origin=own, aside=not elsewhere.isdisjoint(way)))
    return candidates


def _findings(main: Candidate, products: Sequence[Candidate], page: PageName) -> Iterator[PageFinding]:
    """The product's own values. A product on a list page of many has a lower confidence."""
    best = page.fits(main)  # once: its name may be long, and its peers many
    peers = [each for each in products if each.aside == main.aside and page.fits(each) == best]
    is_crowded = len({text(each.node.get("name")) for each in peers}) > 2
    weight = 0.5 if is_crowded else 0.75 if main.aside else 1.0
    # Several products of one name and different numbers are sizes and colours of one thing.
    name = text(main.node.get("name"))
    numbers = {text(each.node.get("sku")) for each in products if text(each.node.get("name")) == name}
    said = {"crowded": is_crowded, "aside_data": main.aside, "fits": page.is_named(main)}
    features = {**main.origin.features, **{key: 1.0 for key, is_so in said.items() if is_so}}
    origin = Origin(main.origin.path, main.origin.confidence * weight, features)
    # Of a type that is not written as schema.org writes it, the price is compared with the page; the rest is ignored.
    is_proper = not any(each[:1].islower() for each in many(main.node.get("@type")) if isinstance(each, str))
    # Of several variants or offers, the one that the address names; else all of them.
    node, url = main.node, page.url
    variants, offers = objects(node.get("hasVariant")), objects(node.get("offers"))
    # It names one by its number in the query, or by the same query.
    query = "#".join(urlsplit(url)[3:]) if (offers or variants) and ("?" in url or "#" in url) else ""
    own = [(each, text(each.get("sku")) or "", text(each.get("url"))) for each in (offers or variants if query else ())]
    end = query.rstrip("#")
    named = [
        each for each, sku, address in own if (len(sku) > 3 and sku in query) or (address and address.endswith(end))
    ]
    if len(named) == 1 < len(offers):
        node = {**node, "offers": named}
    elif variants and not offers:
        offered = [offer for each in named or variants for offer in many(each.get("offers"))]
        node = {**node, **(named[0] if len(named) == 1 else {}), "offers": offered}
    for each in _product_findings(node, origin, url):
        if not is_proper and each.field not in ("price", "title"):
            continue
        is_one_of_many = each.field == "sku" and len(numbers) > 1
        yield msgspec.structs.replace(each, confidence=_VARIANT) if is_one_of_many else each


_DETAIL: Final = 0.8
_LONGEST_DETAIL: Final = 120
_OF_PRODUCT: Final[Mapping[str, Sequence[str]]] = {
    "gtin": ("gtin", "gtin13", "gtin14", "gtin12", "gtin8", "ean", "isbn"),
    "mpn": ("mpn",),
    "rating": ("aggregateRating.ratingValue",),
}
_OF_OFFER: Final[Mapping[str, Sequence[str]]] = {
    "condition": ("itemCondition",),
    "seller": ("seller.name", "offeredBy.name"),
    "shipping": ("shippingDetails.shippingRate.value",),
    "shipping_currency": ("shippingDetails.shippingRate.currency",),
    "period": ("priceSpecification.billingDuration", "priceSpecification.billingIncrement"),
    "ends_at": ("availabilityEnds", "validThrough", "priceValidUntil"),
}


def structured_details(
    product: Mapping[str, Any], offers: Sequence[Mapping[str, Any]], path: str
) -> Iterator[Evidence]:
    """What the data of a product say, each once."""
    for holders, fields, below in (((product,), _OF_PRODUCT, ""), (offers, _OF_OFFER, ".offers")):
        for field, keys in fields.items():
            for holder, key in ((holder, key) for holder in holders for key in keys):
                value: Any = holder
                for step in key.split("."):  # a list of one is written as the value itself
                    value = value.get(step) if isinstance(value, dict) else None
                    value = value[0] if isinstance(value, list) and value else value
                if isinstance(value, str | int | float | Decimal) and (plain := " ".join(str(value).split())):
                    plain = plain.rstrip("/").rpartition("/")[2] if field == "condition" else plain
                    snippet = plain[:_LONGEST_DETAIL]
                    yield Evidence(field=field, path=f"{path}{below}.{key}", snippet=snippet, confidence=_DETAIL)
                    break


_META: Final = 0.85
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
    """The contents of named meta tags; of repeated tags the first."""
    tags: dict[str, str] = {}
    for node in tree.css("meta[content]"):
        name = node.attributes.get("property") or node.attributes.get("name")
        if name and (content := node.attributes.get("content")):
            tags.setdefault(name.strip().lower(), content.strip())
    return tags


def meta_findings(tree: LexborHTMLParser, tags: Mapping[str, str], url: str) -> Iterator[PageFinding]:
    origin = Origin("meta:", _META, {"meta": 1.0})
    for field, names in _TEXTS.items():
        for name in names:
            yield from origin.finding(field, tags.get(name, "")[:500], name, tags.get(name))
    currency = next((code for name in _CURRENCIES if (code := code_of(tags.get(name)))), None)
    yield from origin.finding("currency", currency, "currency", currency)
    for field, names in (("price", _PRICES), ("list_price", _LIST_PRICES)):
        for name in names:
            amount = money(tags.get(name), currency, url)
            price = Price(amount=amount, currency=currency) if amount else None
            features = ("sale",) if "sale" in name else ()
            yield from origin.finding(field, price, name, tags.get(name), features=features)
    for name in _AVAILABILITY:
        yield from origin.finding("availability", availability_term(tags.get(name, "")), name, tags.get(name))
    canonical = tree.css_first('link[rel="canonical"]')
    href = (canonical.attributes.get("href") or "") if canonical else ""
    if href.startswith("http"):
        yield from finding("canonical_url", href, path="link:canonical", snippet=href, confidence=_META)
