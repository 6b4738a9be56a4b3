"""Reads one page or shop answer into facts, each value with its evidence.

Login and CAPTCHA pages, and pages of products that are gone, are told from product pages first.
"""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.extraction.currencies import site_currency
from mistnet.shops.extraction.documents import decode, loads, parse_html
from mistnet.shops.extraction.facts import Origin, PageFinding, best, finding, is_sure, settle
from mistnet.shops.extraction.price_candidates import UNSEEN, outline
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.extraction.reading import PageReading
from mistnet.shops.extraction.structured import PageName, count, meta_findings, structured_findings
from mistnet.shops.extraction.visible import (
    described_price,
    former_price,
    identity_findings,
    lower_price,
    scripted_number,
    visible_price,
    visible_stock,
    without_variant,
)
from mistnet.shops.extraction.words import availability_words
from mistnet.shops.model import PageFacts, PageVerdict, Price, PriceKind
from mistnet.shops.shop import AnswerReader, Shop

_PAGE: Final = Origin("", 0.8)
_SMALL: Final = 1500
_WALL_URLS: Final = r"/captcha|/challenge(?:/|$|\?)"
_WALL_TITLES: Final = re.compile(
    r"robot check|captcha|are you (?:a )?(?:human|robot)|access denied|attention required|just a moment"
    r"|security (?:check|verification)"
    r"|pardon our interruption|verify(?:ing)? (?:you are|that you)|human verification|bot (?:check|protection)"
    r"|request (?:blocked|rejected)|403 forbidden"
    r"|unusual traffic|验证码|安全验证|滑动验证|訪問驗證|访问验证|人机验证|ddos protection|shield\W*square"
    r"|one more step",
    re.IGNORECASE,
)
_WALL_WORDS: Final = re.compile(
    r"verify (?:that )?you(?:'re| are) (?:a )?human|are you a (?:human|robot)|not a robot"
    r"|enter the characters you see|unusual traffic|automated (?:access|queries|requests)"
    r"|access to this page has been denied|you have been blocked|enable (?:javascript and )?cookies to continue"
    r"|checking your browser|complete the security check|slide to verify"
    r"|traffic (?:limit|anomal)|too many requests|请(?:先)?登录|請先登入|请按住滑块|滑块|亲，请登录|扫码登录"
    r"|訪問(?:過|过)於頻繁|访问(?:过于)?频繁|系统繁忙|安全验证"
    r"|log ?in to (?:continue|see|view)|sign in to (?:continue|see|view)|please (?:log|sign) in|đăng nhập để"
    r"|masuk untuk|เข้าสู่ระบบเพื่อ",
    re.IGNORECASE,
)
_WALL_MARKUP: Final = (
    "#px-captcha, #challenge-form, #captcha-form, #cf-wrapper, #challenge-running, "
    'iframe[src*="captcha-delivery"], iframe[src*="_Incapsula_"], #sec-if-cpt-container'
)
_GONE_TITLES: Final = re.compile(
    r"\b404\b|\b410\b|(?:page|product|item|listing|article) (?:was )?not found|(?:page|product|item"
    r"|listing) (?:is )?(?:unavailable|removed|no longer)|seite nicht gefunden|page introuvable"
    r"|página no encontrada|página não encontrada"
    r"|pagina non trovata|страница не найдена|找不到(?:頁面|页面|商品)|(?:宝贝|寶貝|商品)(?:不存在|已下架|已刪除"
    r"|已删除)|ページが見つかりません"
    r"|không tìm thấy|halaman tidak ditemukan|ไม่พบ(?:หน้า|สินค้า)",
    re.IGNORECASE,
)
_GONE_WORDS: Final = re.compile(
    r"(?:this |the )?(?:item|product|listing|page|ad|posting) (?:you(?:'re| are) looking for )?(?:is|was|has been"
    r"|has) (?:no longer (?:available|exists?)|removed|deleted|ended|expired|not found|flagged for removal)"
    r"|no longer (?:available|for sale)|doesn'?t exist|does not exist|this listing (?:was|has) ended|listing ended"
    r"|we looked everywhere|couldn'?t find (?:that|this|the) (?:page|item|product)"
    r"|您查看的(?:宝贝|商品)不存在|(?:宝贝|寶貝|商品)(?:不存在|已下架|已刪除|已删除|可能已下架)|此商品(?:已|不)"
    r"|產品不存在"
    r"|sản phẩm (?:này )?không (?:còn )?tồn tại|produk (?:ini )?tidak (?:ditemukan|tersedia lagi)|ไม่พบสินค้า"
    r"|artikel (?:ist )?nicht mehr verfügbar|(?:produit|article|annonce) n'est plus disponible|no longer listed",
    re.IGNORECASE,
)
_ENDED: Final = re.compile(
    r"\bended\b|no longer available|beendet|terminée|terminata|finalizad|zakończon|已结束|已結束", re.IGNORECASE
)


_CALLBACK: Final = re.compile(r"^[\w.$\s]{1,60}\(\s*(?=[{\[])")
_LONGEST_HEADING: Final = 1_000
"""Every product of a page is compared with its headings."""

_MOST_SEEN: Final = 200_000


class _GateRules(msgspec.Struct, frozen=True, eq=False):
    """The wall patterns of all shops together: a page may be served from a host that is not the shop's."""

    wall_urls: re.Pattern[str]
    wall_markup: str
    ended_markup: str


@cache
def _gate_rules(shops: ShopCatalog) -> _GateRules:
    pages = [shop.pages for shop in shops.shops]
    return _GateRules(
        re.compile("|".join([_WALL_URLS, *(each.wall_urls for each in pages if each.wall_urls)]), re.IGNORECASE),
        ", ".join([_WALL_MARKUP, *(each.wall_markup for each in pages if each.wall_markup)]),
        ", ".join(each.ended_markup for each in pages if each.ended_markup),
    )


def _wall(tree: LexborHTMLParser, url: str, said: str, shops: ShopCatalog) -> PageFacts | None:
    """A page that keeps readers out, recognised by its address, its title, its markup, or its short text."""
    title, rules = _title(tree), _gate_rules(shops)
    if rules.wall_urls.search(url):
        return _PAGE.verdict(PageVerdict.BLOCKED, "the shop asks to log in or to prove being human", "url", url)
    if _WALL_TITLES.search(title):
        return _PAGE.verdict(PageVerdict.BLOCKED, "the page asks for proof of being human", "html:title", title)
    if len(said) < 2 * _SMALL and tree.css_first(rules.wall_markup) is not None:
        return _PAGE.verdict(PageVerdict.BLOCKED, "the page asks for proof of being human", "html:captcha", said)
    words = _WALL_WORDS.search(said[:_SMALL])
    if words and len(said) < _SMALL:
        return _PAGE.verdict(PageVerdict.BLOCKED, "the page keeps readers out", "visible:text", said[words.start() :])
    return None


def _gone_page(tree: LexborHTMLParser, said: str) -> PageFacts | None:
    title, why = _title(tree), "the page says that the thing is gone"
    if _GONE_TITLES.search(title):
        return _PAGE.verdict(PageVerdict.GONE, why, "html:title", title)
    headings = " ".join(filter(None, map(_text_of, tree.css("h1, h2")[:4])))[:300]
    place = said if len(said) < _SMALL else headings
    words = _GONE_WORDS.search(place) or _GONE_TITLES.search(headings)
    return _PAGE.verdict(PageVerdict.GONE, why, "visible:text", words.string[words.start() :]) if words else None


def _title(tree: LexborHTMLParser) -> str:
    node = tree.css_first("title")
    return " ".join(node.text(deep=True).split())[:300] if node else ""


def _text_of(node: LexborNode) -> str:
    return " ".join(node.text(deep=True, separator=" ").split())


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
    return explain_page(body, url=url, content_type=content_type, charset=charset, shops=shops).facts


def explain_page(
    body: bytes,
    *,
    url: str,
    content_type: str | None,
    charset: str | None = None,
    shops: ShopCatalog = CATALOG,
) -> PageReading:
    """What `read_page` reads, with what it was decided on."""
    text = decode(body, content_type=content_type, charset=charset)
    payload = _json(text)
    if payload is not None:
        others = (_reader_of(shop) for shop in shops.shops)
        own = _reader_of(shops.shop_of_pages(_host(url)))
        reader = own or next((each for each in others if each and each.recognizes(payload)), None)
        if reader:
            return PageReading(facts=reader.read_answer(payload, url=url))
        why = "a JSON answer of a kind not known here"
        return PageReading(facts=PageFacts(verdict=PageVerdict.NO_PRICE, reason=why))
    return PageReading(facts=_read_html(text, url, shops))


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
    page = PageName(url=url, headings=[each[:_LONGEST_HEADING].casefold() for each in _headings(tree)])
    reader = _reader_of(shop)
    found = list(reader.script_findings(text)) if reader else []
    found += structured_findings(tree, page)
    found += meta_findings(tree, url)
    if shop:
        found += _shop_findings(tree, shop, url, _currency(found))
    if not is_sure(best(found, "sku")):
        found += scripted_number(text)
    # What people see. Without the scripts: their text is none of the page's.
    tree.strip_tags(list(UNSEEN))
    said = " ".join(tree.body.text(deep=True, separator=" ")[:_MOST_SEEN].split()) if tree.body is not None else ""
    # A listing may say that it is over, though its old price still stands there.
    statuses = map(_text_of, tree.css(_gate_rules(shops).ended_markup)[:4])
    if over := next(filter(_ENDED.search, statuses), None):
        return _PAGE.verdict(PageVerdict.GONE, "the listing has ended", "visible:status", over)
    if not is_sure(best(found, "price")) and (kept_out := _wall(tree, url, said, shops) or _gone_page(tree, said)):
        return kept_out
    found += _visible_findings(tree, found, url, said)
    facts = settle(_complete(found, url))
    if facts.verdict is PageVerdict.NO_PRICE and shop and shop.pages.empty_is_wall:
        # Some shops send the same empty page to all, and answer the calls that fill it for their own apps alone.
        why = "an empty page: the shop keeps the price for its own app"
        return _PAGE.verdict(PageVerdict.BLOCKED, why, "html:body", said)
    return facts


def _visible_findings(
    tree: LexborHTMLParser, known: Sequence[PageFinding], url: str, said: str
) -> Iterator[PageFinding]:
    """What people see, where the data for machines is missing or outdated."""
    sku, price = best(known, "sku"), best(known, "price")
    yield from without_variant(sku, said) if sku and is_sure(sku) else identity_findings(tree, url, said)
    former = former_price(tree, price, url)
    if former or not (price and best(known, "availability")):
        seen, hint = outline(tree), _currency(known)
        prices = [
            *(lower_price(seen, former, url=url, hint=hint) if former else visible_price(seen, url=url, hint=hint)),
            *described_price(tree, url=url, hint=hint),
        ]
        yield from prices
        yield from visible_stock(seen, priced=bool(price or prices))
    if not best(known, "title") and tree.css_first("h1, title"):
        name = next(iter(_headings(tree)), "")
        yield from finding("title", name[:500], path="html:heading", snippet=name, confidence=0.6)


def _complete(found: Sequence[PageFinding], url: str) -> list[PageFinding]:
    """Whole addresses, and a currency: where a price has none, that of the site's country."""
    completed = []
    for each in found:
        if each.field in ("image_url", "canonical_url") and isinstance(each.value, str):
            with suppress(ValueError):
                each = msgspec.structs.replace(each, value=urljoin(url, each.value))  # noqa: PLW2901
        completed.append(each)
    price = best(found, "price")
    if price and isinstance(price.value, Price) and price.value.currency is None and (local := site_currency(url)):
        completed += finding("currency", local, path="url:country", snippet=_host(url), confidence=0.5)
    return completed


def _currency(found: Sequence[PageFinding]) -> str | None:
    known = best(found, "currency")
    return known.value if known and isinstance(known.value, str) else None


def _headings(tree: LexborHTMLParser) -> list[str]:
    found = [node.text(deep=True, separator=" ") for node in tree.css("h1")[:3]]
    found += [node.text(deep=True) for node in tree.css("title")[:1]]
    return [" ".join(each.split()) for each in found if each.strip()]


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


_IN_ITS_PLACE: Final = 0.93


def _shop_findings(tree: LexborHTMLParser, shop: Shop, url: str, hint: str | None) -> Iterator[PageFinding]:
    """The values in the places that the shop keeps them in, and the item's number in the address."""
    if shop.pages.item and (named := shop.pages.item.search(url)):
        yield from finding("sku", named[1], path="url:item", snippet=named[0], confidence=0.99)
    for field, selectors in shop.pages.places.items():
        for selector in selectors:
            node = tree.css_first(selector)
            said = _text_of(node)[:300] if node else ""
            found = list(_read_place(field, said, f"shop:{selector}", url, hint)) if said else []
            yield from found
            if found:
                break


def _read_place(field: str, said: str, path: str, url: str, hint: str | None) -> Iterator[PageFinding]:
    match field:
        case "price" | "list_price" | "bid":
            read = parse_price(re.sub(r"(\d) ([.,]\d)", r"\1\2", said), currency_hint=hint, site=url)
            if isinstance(read, ParsedPrice):
                is_bid = field == "bid"
                name = "price" if is_bid else field
                yield from finding(name, read.price, path=path, snippet=said, confidence=_IN_ITS_PLACE)
                kind = PriceKind.BID if is_bid else None
                yield from finding("kind", kind, path=path, snippet=said, confidence=_IN_ITS_PLACE)
        case "availability":
            yield from finding(field, availability_words(said), path=path, snippet=said, confidence=_IN_ITS_PLACE)
        case "rating_count" | "bid_count" | "sold_count":
            number = re.search(r"\d[\d.,\s]*", said)
            counted = count(number[0]) if number else None
            yield from finding(field, counted, path=path, snippet=said, confidence=_IN_ITS_PLACE)
        case _:
            yield from finding(field, said, path=path, snippet=said, confidence=0.9)
