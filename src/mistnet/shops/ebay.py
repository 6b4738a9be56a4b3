"""eBay: listings share one id space over all its sites; catalogue pages name a product, not a listing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mistnet.shops.model import LinkKind
from mistnet.shops.shop import LinkName, LookAlikes, PageRules, Shop, Site

if TYPE_CHECKING:
    from mistnet.shops.links.address import WebAddress

_REGIONS: Final = (
    *("com", "co.uk", "de", "fr", "it", "es", "at", "ch", "be", "nl", "ie", "pl", "ca", "in", "ph", "vn", "cn"),
    *("com.au", "com.hk", "com.sg", "com.my", "com.tw", "co.th", "co.jp", "co.kr", "co.id"),
)
_SHORT_DOMAINS: Final = ("ebay.us", "ebay.to")
_LISTING: Final = re.compile(r"[0-9]{9,19}")
_EPID: Final = re.compile(r"[0-9]+")
_BY_HOST: Final = {"signin": LinkKind.BLOCKED, "rover": LinkKind.SHORT, "stores": LinkKind.SHOP}


def _name_link(address: WebAddress, site: Site) -> LinkName:
    steps = address.segments
    if site.domain in _SHORT_DOMAINS:
        return LinkName(kind=LinkKind.SHORT, coded=True) if steps else LinkName(kind=LinkKind.PAGE)
    if listing := _listing_id(steps, address.fields):
        url = f"https://www.ebay.com/itm/{listing}"
        given = address.fields.get("var", "")
        # `var=0` stands for no variant.
        variant = given if given.strip("0") and given.isdigit() else None
        return LinkName(kind=LinkKind.ITEM, url=url, item_id=listing, variant=variant)
    if steps[:1] == ["p"] and _EPID.fullmatch(steps[-1]):
        return LinkName(kind=LinkKind.CATALOGUE, url=f"https://www.ebay.com/p/{steps[-1]}", item_id=steps[-1])
    kind = LinkKind.PAGE
    match [each.casefold() for each in steps]:
        case [_, *_] if site.below in _BY_HOST:
            kind = _BY_HOST[site.below]
        case ["splashui" | "signin", *_]:
            kind = LinkKind.BLOCKED
        case ["sch", *_]:
            kind = LinkKind.SEARCH
        case ["str" | "usr", _, *_]:
            kind = LinkKind.SHOP
        case ["n", "error", *_]:
            kind = LinkKind.DEAD
    return LinkName(kind=kind)


def _listing_id(steps: list[str], fields: Mapping[str, str]) -> str | None:
    match [each.casefold() for each in steps]:
        case ["itm" | "i", *_, last] if _LISTING.fullmatch(last):
            return last
        case ["itm", first, *_] if _LISTING.fullmatch(first):
            return first
        case [*_, "ebayisapi.dll"]:
            given = fields.get("item") or fields.get("Item") or ""
        case ["rover", *_]:
            given = fields.get("icep_item", "")
        case _:
            return None
    return given if _LISTING.fullmatch(given) else None


EBAY: Final = Shop(
    name="ebay",
    lane="ebay",
    hosts={f"ebay.{region}": region for region in _REGIONS},
    short_hosts=_SHORT_DOMAINS,
    other_hosts=("ebayinc.com", "ebayimg.com", "ebaystatic.com"),
    name_link=_name_link,
    unwrap=lambda address: address.fields.get("mpre") if address.host.startswith("rover.") else None,
    look_alikes=LookAlikes(plain=("ebay",)),
    pages=PageRules(
        item=re.compile(r"/itm/(?:[^/?]+/)?(\d{9,})"),
        places={
            "price": ("#prcIsum", "#mm-saleDscPrc", ".x-price-primary", '[data-testid="x-price-primary"]'),
            "bid": ("#prcIsum_bidPrice", ".x-bid-price", '[data-testid="x-bid-price"]'),
            "list_price": ("#orgPrc", "#mm-saleOrgPrc", ".x-additional-info__textual-display s"),
            "bid_count": ("#qty-test", ".x-bid-count"),
            "sold_count": (".vi-qtyS-hot-red", ".vi-qty-pur-lnk"),
            "title": ("#itemTitle", ".x-item-title__mainTitle"),
        },
        wall_urls=r"/signin",
        ended_markup=(
            "#vi_notification_new, .vi-status-msg, .statusLeftContent, .d-statusmessage, #msgPanel, "
            '.ux-layout-section--statusMessage, [data-testid="d-statusmessage"]'
        ),
    ),
)
