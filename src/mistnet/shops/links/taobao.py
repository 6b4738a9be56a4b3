"""Taobao and Tmall, which number their items together, and Xianyu (Goofish), which sells second-hand."""

from __future__ import annotations

import re
from typing import Final

from mistnet.shops.links.address import WebAddress
from mistnet.shops.links.hosts import Site
from mistnet.shops.model import Canonical, LinkKind, Shop

_NUMBER: Final = re.compile(r"[0-9]+")
# The affiliate programme hands out ids of its own, which only its own page understands.
_OPAQUE: Final = re.compile(r"(?=[^-]*[A-Za-z])[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)+")
_IN_PATH: Final = re.compile(r"(?:^|/)(?:item/([0-9]+)(?:\.html?)?|i([0-9]+)\.html?)$")
_NAMED_PATH: Final = re.compile(r"item|detail", re.IGNORECASE)
_OF_ITEMS: Final = ("itemId", "item_id", "itemid", "num_iid")
_CLICKS: Final = ("s.click", "click.simba", "click")
_NUMBERED_SHOP: Final = re.compile(r"shop[0-9]+(?:\.[a-z]+)*")
# What stands before tmall.com and is no brand's store.
_TMALL_SITES: Final = frozenset(
    (
        *("", "www", "detail", "detail.m", "chaoshi", "chaoshi.detail", "list", "list.m", "login", "m", "s", "world"),
        *("ju", "pages", "act", "brand", "cart", "buy", "trade", "food", "nvzhuang", "3c", "miao", "pass", "err"),
        *("hk", "www.hk", "help", "service", "vip", "import", "guoji", "equity", "market", "pages.m", "ai"),
    )
)


def named(address: WebAddress, site: Site) -> tuple[LinkKind, Canonical | None]:
    """What an address of Taobao, Tmall or Xianyu names; an item comes with its rebuilt form."""
    if site.domain == "tb.cn" or site.below in _CLICKS:
        return (LinkKind.SHORT if address.segments else LinkKind.PAGE), None
    refused = _refusal(address, site)
    if refused:
        return refused, None
    if item := _item_id(address, site):
        return LinkKind.ITEM, _item(address, site, item)
    return _other(address, site), None


def second_hand(address: WebAddress, site: Site) -> bool:
    """Xianyu lives on Taobao's hosts too."""
    return site.shop is Shop.GOOFISH or "idlefish" in address.path.casefold()


def _refusal(address: WebAddress, site: Site) -> LinkKind | None:
    labels, path = site.below.split("."), address.path.casefold()
    if (
        not {"login", "sec"}.isdisjoint(labels)
        or "/punish" in path
        or "_____tmd_____" in path
        or path.endswith("/login.htm")
    ):
        return LinkKind.BLOCKED
    if "err" in labels or path.endswith(("noitem.htm", "/error1.html", "/error.html")):
        return LinkKind.DEAD
    return None


def _item_id(address: WebAddress, site: Site) -> str | None:
    if inside := _IN_PATH.search(address.path.casefold()):
        return inside[1] or inside[2]
    fields = address.fields
    names = ("id", *_OF_ITEMS) if _NAMED_PATH.search(address.path) else _OF_ITEMS
    given = next((fields[name].strip() for name in names if fields.get(name, "").strip()), "")
    if _NUMBER.fullmatch(given) or (site.below == "uland" and _OPAQUE.fullmatch(given)):
        return given
    return None


def _item(address: WebAddress, site: Site, item: str) -> Canonical:
    shop = Shop.GOOFISH if second_hand(address, site) else Shop.TAOBAO
    if shop is Shop.GOOFISH:
        host, rest = "www.goofish.com", f"item?id={item}"
    elif item.isdigit():
        host, rest = "item.taobao.com", f"item.htm?id={item}"
    else:
        host, rest = "uland.taobao.com", f"item/edetail?id={item}"
    variant = address.fields.get("skuId") or address.fields.get("sku_id") or None
    return Canonical(
        url_norm=f"https://{host}/{rest}",
        host=host,
        shop=shop,
        kind=LinkKind.ITEM,
        item_id=item,
        variant=variant,
    )


def _other(address: WebAddress, site: Site) -> LinkKind:
    first = site.below.split(".")[0]
    last = address.segments[-1].casefold() if address.segments else ""
    if first in ("s", "list") or "search" in address.path.casefold():
        return LinkKind.SEARCH
    if _NUMBERED_SHOP.fullmatch(site.below) or first == "store" or last.startswith("view_shop"):
        return LinkKind.SHOP
    if site.domain.startswith("tmall.") and site.below.removeprefix("www.") not in _TMALL_SITES:
        return LinkKind.SHOP
    return LinkKind.PAGE
