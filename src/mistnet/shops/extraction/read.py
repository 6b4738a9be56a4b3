"""Reads one page or shop answer into facts, each value with its evidence."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.extraction import gates
from mistnet.shops.extraction.currencies import site_currency
from mistnet.shops.extraction.documents import loads
from mistnet.shops.extraction.findings import PageFinding, best, finding, is_sure, settle
from mistnet.shops.extraction.html import decode, parse_html
from mistnet.shops.extraction.identity import identity_findings, scripted, without_variant
from mistnet.shops.extraction.price_candidates import UNSEEN, outline
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.extraction.stock import availability_words
from mistnet.shops.extraction.structured import PageName, count, meta_findings, structured_findings
from mistnet.shops.extraction.visible import described_price, former_price, visible_price, visible_stock
from mistnet.shops.model import PageFacts, PageVerdict, Price, PriceKind
from mistnet.shops.shop import AnswerReader, Shop

_CALLBACK: Final = re.compile(r"^[\w.$\s]{1,60}\(\s*(?=[{\[])")
_LONGEST_HEADING: Final = 1_000
"""Every product of a page is compared with its headings."""


def read_page(
    body: bytes,
    *,
    url: str,
    content_type: str | None,
    charset: str | None = None,
    shops: ShopCatalog = CATALOG,
) -> PageFacts:
    """The facts of a saved page or shop answer. A block is never "no price".

    Raises PageUnreadable for a page that nests without end, and nothing else, whatever the bytes.
    """
    text = decode(body, content_type=content_type, charset=charset)
    payload = _json(text)
    if payload is not None:
        own = _reader_of(shops.shop_of_pages(_host(url)))
        others = (_reader_of(shop) for shop in shops.shops)
        reader = own or next((each for each in others if each and each.recognizes(payload)), None)
        if reader:
            return reader.read_answer(payload, url=url)
        return PageFacts(verdict=PageVerdict.NO_PRICE, reason="a JSON answer of a kind not known here")
    return _read_html(text, url, shops)


def _json(text: str) -> Any:
    """The document if the text is JSON, with or without a callback around it; else None."""
    start = _CALLBACK.sub("", text[:200].lstrip())[:1]
    if start not in ("{", "["):
        return None
    bare = _CALLBACK.sub("", text.strip(), count=1)
    try:
        return loads(bare if bare is text.strip() else bare.rstrip(" ;)\n"))
    except (ValueError, RecursionError):
        return None


def _reader_of(shop: Shop | None) -> AnswerReader | None:
    return shop.pages.reader() if shop and shop.pages.reader else None


def _read_html(text: str, url: str, shops: ShopCatalog) -> PageFacts:
    tree, shop = parse_html(text), shops.shop_of_pages(_host(url))
    # The data meant for machines, the shop's own first.
    page, reader = PageName(url=url, headings=headings(tree)), _reader_of(shop)
    found = list(reader.script_findings(text)) if reader else []
    found += structured_findings(tree, page)
    found += meta_findings(tree, url)
    found += _shop_findings(tree, shop, url, _currency(found))
    if not is_sure(best(found, "sku")):
        found += scripted(text)
    tree.strip_tags(list(UNSEEN))
    said = gates.visible_text(tree)
    if ended := gates.ended_listing(tree, shops):
        return ended
    if not is_sure(best(found, "price")) and (kept_out := gates.wall(tree, url, said, shops) or gates.gone(tree, said)):
        return kept_out
    facts = settle([_absolute(each, url) for each in _with_currency(_with_visible(tree, found, url, said), url)])
    if facts.verdict is PageVerdict.NO_PRICE and (empty := gates.shell(shop, said)):
        return empty
    return facts


def _with_visible(tree: LexborHTMLParser, found: list[PageFinding], url: str, said: str) -> list[PageFinding]:
    """What people see, where the data for machines is missing or outdated."""
    known = best(found, "sku")
    found += without_variant(known, said) if known and is_sure(known) else identity_findings(tree, url, said)
    former = former_price(tree, best(found, "price"), url)
    if former or not (best(found, "price") and best(found, "availability")):
        seen, hint = outline(tree), _currency(found)
        found += visible_price(seen, url=url, hint=hint, instead_of=former)
        found += described_price(tree, url=url, hint=hint)
        found += visible_stock(seen, priced=best(found, "price") is not None)
    if not best(found, "title") and tree.css_first("h1, title"):
        name = next(iter(_headings(tree)), "")
        found += finding("title", name[:500], path="html:heading", snippet=name, confidence=0.6)
    return found


def _with_currency(found: list[PageFinding], url: str) -> list[PageFinding]:
    """A price without a currency is in the currency of the site, if its address has one."""
    price = best(found, "price")
    if price and isinstance(price.value, Price) and price.value.currency is None and (local := site_currency(url)):
        found += finding("currency", local, path="url:country", snippet=_host(url), confidence=0.5)
    return found


def _absolute(found: PageFinding, url: str) -> PageFinding:
    """Pages may write addresses relative to their own."""
    if found.field not in ("image_url", "canonical_url") or not isinstance(found.value, str):
        return found
    try:
        return msgspec.structs.replace(found, value=urljoin(url, found.value))
    except ValueError:
        return found


def _currency(found: Sequence[PageFinding]) -> str | None:
    known = best(found, "currency")
    return known.value if known and isinstance(known.value, str) else None


def headings(tree: LexborHTMLParser) -> list[str]:
    return [each[:_LONGEST_HEADING].casefold() for each in _headings(tree)]


def _headings(tree: LexborHTMLParser) -> list[str]:
    found = [node.text(deep=True, separator=" ") for node in tree.css("h1")[:3]]
    found += [node.text(deep=True) for node in tree.css("title")[:1]]
    return [" ".join(each.split()) for each in found if each.strip()]


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


_SHOP: Final = 0.93


def _shop_findings(tree: LexborHTMLParser, shop: Shop | None, url: str, hint: str | None) -> Iterator[PageFinding]:
    """The values in the places that the shop keeps them in, and the item's number in the address."""
    if shop is None:
        return
    if shop.pages.item and (named := shop.pages.item.search(url)):
        yield from finding("sku", named[1], path="url:item", snippet=named[0], confidence=0.99)
    for field, selectors in shop.pages.places.items():
        for selector in selectors:
            node = tree.css_first(selector)
            said = " ".join(node.text(deep=True, separator=" ").split())[:300] if node else ""
            found = list(_read_place(field, said, selector, url, hint)) if said else []
            yield from found
            if found:
                break


def _read_place(field: str, said: str, selector: str, url: str, hint: str | None) -> Iterator[PageFinding]:
    path = f"shop:{selector}"
    match field:
        case "price" | "list_price" | "bid":
            yield from _read_money(field, said, path, url, hint)
        case "availability":
            yield from finding(field, availability_words(said), path=path, snippet=said, confidence=_SHOP)
        case "rating_count" | "bid_count" | "sold_count":
            number = re.search(r"\d[\d.,\s]*", said)
            yield from finding(field, count(number[0]) if number else None, path=path, snippet=said, confidence=_SHOP)
        case _:
            yield from finding(field, said, path=path, snippet=said, confidence=0.9)


def _read_money(field: str, said: str, path: str, url: str, hint: str | None) -> Iterator[PageFinding]:
    found = parse_price(re.sub(r"(\d) ([.,]\d)", r"\1\2", said), currency_hint=hint, site=url)
    if not isinstance(found, ParsedPrice):
        return
    price = Price(amount=found.min, amount_max=found.max if found.max > found.min else None, currency=found.currency)
    yield from finding("price" if field == "bid" else field, price, path=path, snippet=said, confidence=_SHOP)
    if field == "bid":
        yield from finding("kind", PriceKind.BID, path=path, snippet=said, confidence=_SHOP)
