"""Detects pages that are not product pages: login and CAPTCHA pages, and pages of products that are gone."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from functools import cache
from typing import Final

import msgspec
from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.catalog import ShopCatalog
from mistnet.shops.model import Evidence, PageFacts, PageVerdict
from mistnet.shops.shop import Shop

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


class GateRules(msgspec.Struct, frozen=True, eq=False):
    """The wall patterns of all shops together: a page may be served from a host that is not the shop's."""

    wall_urls: re.Pattern[str]
    wall_markup: str
    ended_markup: str


@cache
def gate_rules(shops: ShopCatalog) -> GateRules:
    pages = [shop.pages for shop in shops.shops]
    return GateRules(
        re.compile("|".join([_WALL_URLS, *(each.wall_urls for each in pages if each.wall_urls)]), re.IGNORECASE),
        ", ".join([_WALL_MARKUP, *(each.wall_markup for each in pages if each.wall_markup)]),
        ", ".join(each.ended_markup for each in pages if each.ended_markup),
    )


def ended_listing(tree: LexborHTMLParser, shops: ShopCatalog) -> PageFacts | None:
    """A listing that says that it is over, though its old price may still stand there."""
    for node in tree.css(gate_rules(shops).ended_markup)[:4]:
        said = _squeezed(node.text(deep=True, separator=" "))
        if _ENDED.search(said):
            return _facts(PageVerdict.GONE, "the listing has ended", "visible:status", said)
    return None


def wall(tree: LexborHTMLParser, url: str, said: str, shops: ShopCatalog) -> PageFacts | None:
    """A page that keeps readers out, recognised by its address, its title, its markup, or its short text."""
    title, rules = _title(tree), gate_rules(shops)
    if rules.wall_urls.search(url):
        return _facts(PageVerdict.BLOCKED, "the shop asks to log in or to prove being human", "url", url)
    if _WALL_TITLES.search(title):
        return _facts(PageVerdict.BLOCKED, "the page asks for proof of being human", "html:title", title)
    if len(said) < 2 * _SMALL and tree.css_first(rules.wall_markup) is not None:
        return _facts(PageVerdict.BLOCKED, "the page asks for proof of being human", "html:captcha", said)
    words = _WALL_WORDS.search(said[:_SMALL])
    if words and len(said) < _SMALL:
        return _facts(PageVerdict.BLOCKED, "the page keeps readers out", "visible:text", said[words.start() :])
    return None


def gone(tree: LexborHTMLParser, said: str) -> PageFacts | None:
    title = _title(tree)
    if _GONE_TITLES.search(title):
        return _facts(PageVerdict.GONE, "the page says that the thing is gone", "html:title", title)
    headings = _squeezed(" ".join(node.text(deep=True, separator=" ") for node in tree.css("h1, h2")[:4]))[:300]
    place = said if len(said) < _SMALL else headings
    words = _GONE_WORDS.search(place) or _GONE_TITLES.search(headings)
    if words:
        return _facts(
            PageVerdict.GONE, "the page says that the thing is gone", "visible:text", words.string[words.start() :]
        )
    return None


def shell(shop: Shop | None, said: str) -> PageFacts | None:
    """Some shops send the same empty page to all and fill it by calls that they answer only for their own apps."""
    if shop and shop.pages.empty_is_wall:
        return _facts(PageVerdict.BLOCKED, "an empty page: the shop keeps the price for its own app", "html:body", said)
    return None


def visible_text(tree: LexborHTMLParser) -> str:
    """The visible text. Scripts must have been removed from the tree."""
    return _squeezed(tree.body.text(deep=True, separator=" ")[:200_000]) if tree.body is not None else ""


def _title(tree: LexborHTMLParser) -> str:
    node = tree.css_first("title")
    return _squeezed(node.text(deep=True))[:300] if node else ""


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _facts(verdict: PageVerdict, reason: str, path: str, seen: str) -> PageFacts:
    evidence = Evidence(field="verdict", path=path, snippet=seen[:160], confidence=0.8)
    return PageFacts(verdict=verdict, reason=reason, evidence=(evidence,))
