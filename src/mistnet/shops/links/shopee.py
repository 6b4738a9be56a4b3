"""Shopee: (region, shop, item), the shop first."""

from __future__ import annotations

import re
from typing import Final

from mistnet.shops.links.address import WebAddress
from mistnet.shops.links.hosts import Site
from mistnet.shops.model import Canonical, LinkKind, Shop

_SHORT_DOMAINS: Final = frozenset(("shp.ee", "shope.ee"))
_SELLING: Final = frozenset(("", "www", "m", "mall"))
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


def named(address: WebAddress, site: Site) -> tuple[LinkKind, Canonical | None]:
    """What a Shopee address names; an item comes with its rebuilt form."""
    steps = [each.casefold() for each in address.segments]
    if steps[:1] == ["error_page"]:
        return LinkKind.DEAD, None
    if site.domain in _SHORT_DOMAINS or site.below == "s":
        return (LinkKind.SHORT if len(steps) == 1 and steps != ["an_redir"] else LinkKind.PAGE), None
    if steps[:1] == ["verify"] or steps[:2] in (["buyer", "login"], ["buyer", "signup"]):
        return LinkKind.BLOCKED, None
    if site.region and site.below in _SELLING and (ids := _ids(steps, address)):
        return LinkKind.ITEM, _item(site.region, *ids)
    return _other(steps), None


def _ids(steps: list[str], address: WebAddress) -> tuple[str, str] | None:
    if steps[:1] == ["universal-link"]:
        steps = steps[1:]
    if steps and (slug := _SLUG.search(steps[-1])):
        return slug[1], slug[2]
    match steps:
        case [name, shop, item] if name not in _RESERVED and _number(shop) and _number(item):
            return shop, item
        case ["product", shop, item, *_] if _number(shop) and _number(item):
            return shop, item
        case ["api", *_]:
            shop, item = address.fields.get("shopid", ""), address.fields.get("itemid", "")
            return (shop, item) if _number(shop) and _number(item) else None
        case _:
            return None


def _number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _other(steps: list[str]) -> LinkKind:
    match steps:
        case [*_, "search" | "search_user"]:
            return LinkKind.SEARCH
        case ["shop", number, *_] if _number(number):
            return LinkKind.SHOP
        case [name] if name not in _RESERVED and _SHOP_NAME.fullmatch(name):
            return LinkKind.SHOP
        case _:
            return LinkKind.PAGE


def _item(region: str, shop: str, item: str) -> Canonical:
    host = f"shopee.{region}"
    return Canonical(
        url_norm=f"https://{host}/product/{shop}/{item}",
        host=host,
        shop=Shop.SHOPEE,
        kind=LinkKind.ITEM,
        region=region,
        shop_id=shop,
        item_id=item,
    )
