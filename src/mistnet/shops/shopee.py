"""Shopee: items go by (region, shop, item). Its pages say nothing without their scripts, so its API is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mistnet.shops.model import CrawlRules, LinkAtHand, LinkKind
from mistnet.shops.shop import AnswerReader, LinkName, LookAlikes, PageRules, Shop, Site

if TYPE_CHECKING:
    from mistnet.shops.links.address import WebAddress

_REGIONS: Final = (
    *("tw", "sg", "vn", "ph", "cl", "com.my", "com.br", "com.mx", "com.co", "com.ar", "co.th", "co.id"),
    *("es", "fr", "pl", "in"),
)
# The mirror for sellers abroad names the region in front.
_MIRRORED: Final = {
    "xiapi": "tw", "tw": "tw", "my": "com.my", "sg": "sg", "ph": "ph", "th": "co.th", "id": "co.id", "vn": "vn",
    "br": "com.br", "mx": "com.mx", "co": "com.co", "cl": "cl",
}  # fmt: skip
_SHORT_DOMAINS: Final = ("shp.ee", "shope.ee")
_SELLING: Final = frozenset(("", "www", "m", "mall"))
_WRAPPED_IN: Final = {"universal-link": "redir", "an_redir": "origin_link"}
_SLUG: Final = re.compile(r"-i\.([0-9]+)\.([0-9]+)$", re.IGNORECASE)
_SHOP_NAME: Final = re.compile(r"[a-z0-9_.]{3,40}")
_NUMBER: Final = re.compile(r"[0-9]+")
# First steps of a path that belong to Shopee itself, so that two numbers after one are no shop and item.
_RESERVED: Final = frozenset(
    (
        *("api", "shop", "search", "search_user", "mall", "cart", "buyer", "user", "verify", "collections", "m", "web"),
        *("events", "event", "flash_sale", "daily_discover", "universal-link", "error_page", "docs", "legaldoc"),
        *("help", "blog", "download", "seller", "affiliate", "digital-product", "share-video", "an_redir", "game"),
        *("campaign", "campaigns", "brands", "voucher", "vouchers", "checkout", "notifications", "inspired", "live"),
    )
)


def _name_link(address: WebAddress, site: Site) -> LinkName:
    steps = [each.casefold() for each in address.segments]
    if steps[:1] == ["error_page"]:
        return LinkName(kind=LinkKind.DEAD)
    if site.domain in _SHORT_DOMAINS or site.below == "s":
        is_short = len(steps) == 1 and steps != ["an_redir"]
        return LinkName(kind=LinkKind.SHORT, coded=True) if is_short else LinkName(kind=LinkKind.PAGE)
    if steps[:1] == ["verify"] or steps[:2] in (["buyer", "login"], ["buyer", "signup"]):
        return LinkName(kind=LinkKind.BLOCKED)
    if site.region and site.below in _SELLING and (ids := _item_ids(steps, address)):
        shop, item = ids
        url = f"https://shopee.{site.region}/product/{shop}/{item}"
        return LinkName(kind=LinkKind.ITEM, url=url, region=site.region, shop_id=shop, item_id=item)
    kind = LinkKind.PAGE
    match steps:
        case [*_, "search" | "search_user"]:
            kind = LinkKind.SEARCH
        case ["shop", number, *_] if _is_number(number):
            kind = LinkKind.SHOP
        case [name] if name not in _RESERVED and _SHOP_NAME.fullmatch(name):
            kind = LinkKind.SHOP
    return LinkName(kind=kind)


def _item_ids(steps: list[str], address: WebAddress) -> tuple[str, str] | None:
    if steps[:1] == ["universal-link"]:
        steps = steps[1:]
    if steps and (slug := _SLUG.search(steps[-1])):
        return slug[1], slug[2]
    match steps:
        case [name, shop, item] if name not in _RESERVED and _is_number(shop) and _is_number(item):
            return shop, item
        case ["product", shop, item, *_]:
            pass
        case ["api", *_]:
            shop, item = address.fields.get("shopid", ""), address.fields.get("itemid", "")
        case _:
            return None
    return (shop, item) if _is_number(shop) and _is_number(item) else None


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _page_url(link: LinkAtHand, rules: CrawlRules) -> str:
    host = urlsplit(link.url_norm).netloc
    if rules.shopee_api == "pdp":
        return f"https://{host}/api/v4/pdp/get_pc?item_id={link.item_id}&shop_id={link.shop_id}"
    return f"https://{host}/api/v4/item/get?itemid={link.item_id}&shopid={link.shop_id}"


def _reader() -> AnswerReader:
    from mistnet.shops.extraction import shopee  # noqa: PLC0415 (parsers load slowly, and most commands read no page)

    return shopee


_SELLING_HOSTS: Final = "|".join(sorted((re.escape(f"shopee.{region}") for region in _REGIONS), key=len, reverse=True))

SHOPEE: Final = Shop(
    name="shopee",
    lane="shopee",
    hosts={
        **{f"shopee.{region}": region for region in _REGIONS},
        **{f"{name}.xiapibuy.com": region for name, region in _MIRRORED.items()},
    },
    short_hosts=_SHORT_DOMAINS,
    other_hosts=("shopee.com", "shopee.io", "shopeemobile.com", "shopeepay.com"),
    name_link=_name_link,
    unwrap=lambda address: address.fields.get(_WRAPPED_IN.get(address.path.strip("/").casefold(), "")),
    # A slug may hold any letters, but no blank and no slash, and ends in the two ids.
    slugs=(
        rf"(?:(?:www|m|mall)\.)?(?:{_SELLING_HOSTS})(?::[0-9]{{1,5}})?/(?:universal-link/)?"
        r"[^\s/?#<>\"\u200b]{0,500}-i\.[0-9]+\.[0-9]+"
    ),
    look_alikes=LookAlikes(rare=("shopee",)),
    page_url=_page_url,
    pages=PageRules(
        wall_urls=r"/verify/(?:captcha|traffic)|/buyer/login|/error_page", empty_is_wall=True, reader=_reader
    ),
)
