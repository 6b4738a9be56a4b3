"""Taobao and Tmall, which number their items together, and Xianyu (Goofish), which sells second-hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mistnet.shops.model import LinkKind
from mistnet.shops.shop import AnswerReader, LinkName, LookAlikes, PageRules, Shop, Site

if TYPE_CHECKING:
    from mistnet.shops.links.address import WebAddress

_NUMBER: Final = re.compile(r"[0-9]+")
# The affiliate programme hands out ids of its own, which only its own page understands.
_OPAQUE: Final = re.compile(r"(?=[^-]*[A-Za-z])[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)+")
_IN_PATH: Final = re.compile(r"(?:^|/)(?:item/([0-9]+)(?:\.html?)?|i([0-9]+)\.html?)$")
_ITEM_PATH: Final = re.compile(r"item|detail", re.IGNORECASE)
_ITEM_FIELDS: Final = ("itemId", "item_id", "itemid", "num_iid")
_CLICKS: Final = ("s.click", "click.simba", "click")
_JUMPS: Final = (["jump"], ["jump.htm"])
_NUMBERED_SHOP: Final = re.compile(r"shop[0-9]+(?:\.[a-z]+)*")
# What stands before tmall.com and is no brand's store.
_TMALL_SITES: Final = frozenset(
    (
        *("", "www", "detail", "detail.m", "chaoshi", "chaoshi.detail", "list", "list.m", "login", "m", "s", "world"),
        *("ju", "pages", "act", "brand", "cart", "buy", "trade", "food", "nvzhuang", "3c", "miao", "pass", "err"),
        *("hk", "www.hk", "help", "service", "vip", "import", "guoji", "equity", "market", "pages.m", "ai"),
    )
)


def _name_link(address: WebAddress, site: Site) -> LinkName:
    if site.domain == "tb.cn" or site.below in _CLICKS:
        return LinkName(kind=LinkKind.SHORT if address.segments else LinkKind.PAGE, coded=site.domain == "tb.cn")
    labels, path = site.below.split("."), address.path.casefold()
    is_login = not {"login", "sec"}.isdisjoint(labels) or path.endswith("/login.htm")
    if is_login or "/punish" in path or "_____tmd_____" in path:
        return LinkName(kind=LinkKind.BLOCKED)
    if "err" in labels or path.endswith(("noitem.htm", "/error1.html", "/error.html")):
        return LinkName(kind=LinkKind.DEAD)
    if item := _item_id(address, site):
        # Xianyu has pages on Taobao's hosts too.
        shop = GOOFISH if site.shop is GOOFISH or "idlefish" in address.path.casefold() else TAOBAO
        if shop is GOOFISH:
            url = f"https://www.goofish.com/item?id={item}"
        else:
            url = "https://item.taobao.com/item.htm" if item.isdigit() else "https://uland.taobao.com/item/edetail"
            url = f"{url}?id={item}"
        variant = address.fields.get("skuId") or address.fields.get("sku_id") or None
        return LinkName(kind=LinkKind.ITEM, url=url, item_id=item, variant=variant, shop=shop)
    last = address.segments[-1].casefold() if address.segments else ""
    is_brand = site.domain.startswith("tmall.") and site.below.removeprefix("www.") not in _TMALL_SITES
    kind = LinkKind.PAGE
    if labels[0] in ("s", "list") or "search" in path:
        kind = LinkKind.SEARCH
    elif is_brand or _NUMBERED_SHOP.fullmatch(site.below) or labels[0] == "store" or last.startswith("view_shop"):
        kind = LinkKind.SHOP
    return LinkName(kind=kind)


def _item_id(address: WebAddress, site: Site) -> str | None:
    if inside := _IN_PATH.search(address.path.casefold()):
        return inside[1] or inside[2]
    fields = address.fields
    # `id` means other things on other pages.
    names = ("id", *_ITEM_FIELDS) if _ITEM_PATH.search(address.path) else _ITEM_FIELDS
    given = next((fields[name].strip() for name in names if fields.get(name, "").strip()), "")
    is_item = _NUMBER.fullmatch(given) or (site.below == "uland" and _OPAQUE.fullmatch(given))
    return given if is_item else None


def _reader() -> AnswerReader:
    from mistnet.shops.extraction import taobao  # noqa: PLC0415 (parsers load slowly, and most commands read no page)

    return taobao


TAOBAO: Final = Shop(
    name="taobao",
    lane="taobao",
    hosts=dict.fromkeys(("taobao.com", "tmall.com", "tmall.hk")),
    short_hosts=("tb.cn",),
    other_hosts=("taobao.org",),
    name_link=_name_link,
    # A jump passes by the login host without asking for anything.
    unwrap=lambda address: address.fields.get("target") if address.segments[-1:] in _JUMPS else None,
    # Taobao hid its short links behind a new domain every few weeks; the form of the path stayed.
    hidden_short_links=re.compile(r"/h\.[A-Za-z0-9]{5,}"),
    look_alikes=LookAlikes(rare=("taobao",), plain=("tmall",)),
    pages=PageRules(
        wall_urls=r"/punish|/_sec/|^https?://(?:login|passport|sec|bixi)\.(?:m\.)?(?:taobao|tmall|alicdn|alibaba)\.",
        wall_markup="#nocaptcha, .nc-container, #baxia-dialog-content",
        empty_is_wall=True,
        reader=_reader,
    ),
)
GOOFISH: Final = Shop(
    name="goofish",
    family=TAOBAO.name,
    hosts=dict.fromkeys(("goofish.com", "2.taobao.com")),
    name_link=_name_link,
    look_alikes=LookAlikes(rare=("goofish",)),
    pages=TAOBAO.pages,
)
