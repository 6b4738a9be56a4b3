"""Reads one page or shop answer into facts, each value with its evidence.

Login and CAPTCHA pages, and pages of products that are gone, are told from product pages first.
"""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.extraction.currencies import site_currency
from mistnet.shops.extraction.documents import decode, loads, parse_html
from mistnet.shops.extraction.facts import (
    Origin,
    PageFinding,
    PageReading,
    PriceCandidate,
    best,
    finding,
    is_sure,
    settle,
)
from mistnet.shops.extraction.outline import JOINT, outline
from mistnet.shops.extraction.page_kind import PageNames, kind_evidence, name_kind, page_features
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.extraction.scorer import PriceGroup, choose, ranked, source_of
from mistnet.shops.extraction.structured import PageName, count, meta_findings, meta_tags, structured_data
from mistnet.shops.extraction.surroundings import Surroundings
from mistnet.shops.extraction.visible import (
    described_price,
    embedded_candidates,
    identity_findings,
    scripted_number,
    shown_details,
    visible_stock,
    without_variant,
)
from mistnet.shops.extraction.words import availability_words
from mistnet.shops.model import Availability, Evidence, PageFacts, PageKind, PageVerdict, Price, PriceKind
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


def _rule_out(tree: LexborHTMLParser, url: str, said: str, shops: ShopCatalog) -> PageFacts | None:
    """A page that keeps readers out, or whose product is gone: by its address, its title, its markup, or its text."""
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
    why = "the page says that the thing is gone"
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
    payload: Any = None
    # JSON, with or without a callback around it.
    if _CALLBACK.sub("", text[:200].lstrip())[:1] in ("{", "["):
        bare = _CALLBACK.sub("", text.strip(), count=1)
        with suppress(ValueError, RecursionError):
            payload = loads(bare if bare is text.strip() else bare.rstrip(" ;)\n"))
    if payload is None:
        return _read_html(text, url, shops)
    others = (_reader_of(shop) for shop in shops.shops)
    own = _reader_of(shops.shop_of_pages(_host(url)))
    reader = own or next((each for each in others if each and each.recognizes(payload)), None)
    if reader:
        return PageReading(facts=reader.read_answer(payload, url=url))
    why = "a JSON answer of a kind not known here"
    return PageReading(facts=PageFacts(verdict=PageVerdict.NO_PRICE, reason=why))


def _reader_of(shop: Shop | None) -> AnswerReader | None:
    return shop.pages.reader() if shop and shop.pages.reader else None


class PageMaterial(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected from a page before anything is decided. `verdict`: it is a wall, or the thing is gone."""

    url: str
    findings: Sequence[PageFinding] = ()
    candidates: Sequence[PriceCandidate] = ()
    features: Mapping[str, float] = {}
    details: Sequence[Evidence] = ()
    verdict: PageFacts | None = None
    former: Callable[[Decimal], PriceCandidate | None] = lambda _: None


def collect_page(text: str, url: str, shops: ShopCatalog = CATALOG) -> PageMaterial:
    """The values, the candidates and the features of an HTML page."""
    tree, shop = parse_html(text), shops.shop_of_pages(_host(url))
    # The data meant for machines, the shop's own first.
    page = PageName(url=url, headings=[each[:_LONGEST_HEADING].casefold() for each in _headings(tree)])
    reader = _reader_of(shop)
    found = list(reader.script_findings(text)) if reader else []
    data = structured_data(tree, page)
    found += data.findings
    tags = meta_tags(tree)
    found += meta_findings(tree, tags, url)
    priced = (each.value.currency for each in found if isinstance(each.value, Price) and each.value.currency)
    known = best(found, "currency")  # for a page whose prices have none
    hint = next(priced, None) or (known.value if known and isinstance(known.value, str) else None)
    if shop:
        found += _shop_findings(tree, shop, url, hint)
    if not is_sure(best(found, "sku")):
        found += scripted_number(text)
    # A listing may say that it is over, though its old price still stands there.
    statuses = map(_text_of, tree.css(_gate_rules(shops).ended_markup)[:4])
    if over := next(filter(_ENDED.search, statuses), None):
        return PageMaterial(
            url=url, verdict=_PAGE.verdict(PageVerdict.GONE, "the listing has ended", "visible:status", over)
        )
    # What people see. This takes the scripts out of the tree: their text is none of the page's.
    seen = outline(tree, urlsplit(url).path if "//" in url else "")
    said = " ".join(seen.text[:_MOST_SEEN].replace(JOINT, " ").split())
    if not is_sure(best(found, "price")) and (ruled_out := _rule_out(tree, url, said, shops)):
        return PageMaterial(url=url, verdict=ruled_out)
    name = next((str(each.value) for each in found if each.field == "title"), "") or _title(tree)
    shown = Surroundings(seen, url=url, hint=hint, title=name)
    candidates = [
        *(_as_candidate(each) for each in found if each.field == "price"),
        *embedded_candidates(text, page.headings),
        *shown.candidates,
        *(_as_candidate(each) for each in described_price(tags, url=url, hint=hint)),
    ]
    names = PageNames(
        url=url,
        canonical=next((str(each.value) for each in found if each.field == "canonical_url"), None),
        og_type=tags.get("og:type", "").casefold(),
        types=data.types,
        products=data.products,
        fits=data.fits,
        priced=any(each.field == "price" for each in data.findings),
        title=_title(tree),
    )
    sku = best(found, "sku")
    found += without_variant(sku, said) if sku and is_sure(sku) else identity_findings(tree, url, said)
    if not best(found, "availability"):
        found += visible_stock(seen)
    if not best(found, "title") and (headings := _headings(tree)):
        found += finding("title", headings[0][:500], path="html:heading", snippet=headings[0], confidence=0.6)
    return PageMaterial(
        url=url,
        findings=found,
        candidates=candidates,
        features=page_features(seen, names, shown.candidates),
        details=[*data.details, *shown_details(shown.candidates)],
        former=shown.former,
    )


def _as_candidate(found: PageFinding) -> PriceCandidate:
    price = found.value
    assert isinstance(price, Price)  # noqa: S101 (only prices are asked for)
    source = source_of(found.path)
    # What a shop's own reader found comes without features: its confidence counts.
    own = found.features or {"shop_script" if source == "script" else source: found.confidence}
    return PriceCandidate(
        amount=price.amount,
        amount_max=price.amount_max,
        currency=price.currency,
        path=found.path,
        snippet=found.snippet,
        features=own,
    )


_UNSURE: Final = 0.5
_MOST_LOSERS: Final = 3
_BIDS: Final = frozenset({"left_bid", "right_bid", "name_bid"})


def _read_html(text: str, url: str, shops: ShopCatalog) -> PageReading:
    material = collect_page(text, url, shops)
    if material.verdict:
        return PageReading(facts=material.verdict, kind_evidence=material.verdict.evidence)
    choice = choose(material.candidates, material.features)
    found = [each for each in material.findings if each.field not in ("price", "list_price")]
    if choice.winner:
        found += _price_findings(choice.winner, choice.confidence, material)
    elif name_kind(material.features, PageFacts(verdict=PageVerdict.NO_PRICE), choice) is PageKind.UNKNOWN:
        found += _inferred_stock(material, "amounts of money are shown") if choice.rivals else ()
    facts = settle(_complete(found, url))
    shop = shops.shop_of_pages(_host(url))
    if facts.verdict is PageVerdict.NO_PRICE and shop and shop.pages.empty_is_wall:
        # Some shops send the same empty page to all, and answer the calls that fill it for their own apps alone.
        why = "an empty page: the shop keeps the price for its own app"
        return PageReading(facts=_PAGE.verdict(PageVerdict.BLOCKED, why, "html:body", text[:_SMALL]))
    kind = name_kind(material.features, facts, choice)
    evidence = kind_evidence(kind, material.features)
    doubt = None
    if choice.winner and choice.confidence < _UNSURE:
        other = f"{choice.rivals[0].amount}" if choice.rivals else "no price at all"
        doubt = f"the page does not say clearly which amount is the price: {choice.winner.amount}, or {other}"
    # The data's word before what is seen, and the first of several.
    details = {each.field: each for each in reversed(material.details)} if kind.sells_one_thing else {}
    losers = [
        Evidence(field="other_price", path=each.path, snippet=each.snippet, confidence=0.0)
        for group in choice.rivals[:_MOST_LOSERS]
        for each in list(group.best.values())[:1]
    ]
    facts = msgspec.structs.replace(
        facts,
        page_kind=kind,
        reason=facts.reason
        and (
            facts.reason if kind in (PageKind.UNKNOWN, PageKind.PRODUCT) else f"{facts.reason}: it is {_A_KIND[kind]}"
        ),
        confidence=choice.confidence if choice.winner else None,
        doubt=doubt,
        details={field: each.snippet for field, each in sorted(details.items())},
        evidence=(*facts.evidence, *details.values(), *evidence[:1], *losers),
    )
    return PageReading(facts=facts, kind_evidence=evidence, candidates=ranked(choice))


def _price_findings(winner: PriceGroup, confidence: float, material: PageMaterial) -> Iterator[PageFinding]:
    """The price with the best of its proofs; a list price above it; and what follows from either."""
    proofs = sorted(winner.best.values(), key=lambda each: _PROOFS.get(source_of(each.path), 9))
    currency = next((each.currency for each in proofs if each.currency), None)
    most = next((each.amount_max for each in proofs if each.amount_max), None)
    price = Price(amount=winner.amount, amount_max=most, currency=currency)
    yield from finding("price", price, path=proofs[0].path, snippet=proofs[0].snippet, confidence=confidence)
    yield from (each for each in material.findings if each.field == "list_price")
    if former := material.former(winner.amount):
        listed = Price(amount=former.amount, currency=former.currency or currency)
        yield from finding("list_price", listed, path=former.path, snippet=former.snippet, confidence=0.6)
    if any(_BIDS & each.features.keys() for each in proofs):
        shown = next(each for each in proofs if _BIDS & each.features.keys())
        yield from finding("kind", PriceKind.BID, path=shown.path, snippet=shown.snippet, confidence=0.7)
    yield from _inferred_stock(material, "a price is asked")


def _inferred_stock(material: PageMaterial, why: str) -> Iterable[PageFinding]:
    if best(material.findings, "availability"):
        return ()
    return finding("availability", Availability.IN_STOCK, path="inferred:price", snippet=why, confidence=0.3)


_A_KIND: Final = {
    PageKind.LIST: "a list",
    PageKind.SEARCH: "a search",
    PageKind.HOME: "a home page",
    PageKind.ARTICLE: "an article",
    PageKind.CART: "a cart",
    PageKind.LOGIN: "a log-in",
}
# Of agreeing candidates, the one that is shown as evidence.
_PROOFS: Final = {
    each: place
    for place, each in enumerate(
        ("shopee", "taobao", "shop", "json-ld", "microdata", "rdfa", "meta", "visible", "script")
    )
}


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


def _headings(tree: LexborHTMLParser) -> list[str]:
    found = [node.text(deep=True, separator=" ") for node in tree.css("h1")[:3]]
    found += [node.text(deep=True) for node in [tree.css_first("title")] if node]
    return [" ".join(each.split()) for each in found if each.strip()]


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


_IN_ITS_PLACE: Final = 0.93
_CENTS_APART: Final = re.compile(r"^(\D{0,5}\d{1,3}(?:,?\d{3})*) (\d\d)(\D{0,5})$")


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
            joined = _CENTS_APART.sub(r"\1.\2\3", re.sub(r"(\d) ([.,]\d)", r"\1\2", said))
            read = parse_price(joined, currency_hint=hint, site=url)
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
