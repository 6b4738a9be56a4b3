"""Amazon: items go by (site, ASIN)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mistnet.shops.model import LinkKind
from mistnet.shops.shop import LinkName, LookAlikes, PageRules, Shop, Site

if TYPE_CHECKING:
    from mistnet.shops.links.address import WebAddress

_REGIONS: Final = (
    *("com", "ca", "com.mx", "com.br", "co.uk", "de", "fr", "it", "es", "nl", "se", "pl", "ie", "com.be", "com.tr"),
    *("ae", "sa", "eg", "in", "sg", "com.au", "co.jp", "co.za", "cn", "cl", "com.co"),
)
_CODED: Final = ("amzn.to", "amzn.asia", "amzn.eu", "a.co")
_ASIN: Final = re.compile(r"[A-Z0-9]{10}", re.IGNORECASE)
_DEEPEST: Final = 4
# The steps after which an ASIN stands.
_BEFORE: Final = (
    *(("dp",), ("dp", "product"), ("gp", "product"), ("gp", "product", "glance"), ("gp", "aw", "d"), ("gp", "d")),
    *(("gp", "offer-listing"), ("exec", "obidos", "asin"), ("exec", "obidos", "tg", "detail", "-"), ("o", "asin")),
)


def _name_link(address: WebAddress, site: Site) -> LinkName:
    steps = address.segments
    is_short = site.domain == "amzn.com"
    region = "com" if is_short else site.region
    lower = tuple(each.casefold() for each in steps)
    # An ASIN stands behind the steps that announce it. A language and a slug may stand in front.
    places = (
        start + len(before)
        for start in range(_DEEPEST)
        for before in _BEFORE
        if lower[start : start + len(before)] == before
    )
    named = iter(steps) if is_short and len(steps) == 1 else (steps[each] for each in places if each < len(steps))
    if region and (asin := next(filter(_ASIN.fullmatch, named), "").upper()):
        url = f"https://www.amazon.{region}/dp/{asin}"
        return LinkName(kind=LinkKind.ITEM, url=url, region=region, item_id=asin)
    if not site.region:
        return LinkName(kind=LinkKind.SHORT, coded=site.domain in _CODED) if steps else LinkName(kind=LinkKind.PAGE)
    kind = LinkKind.PAGE
    match lower:
        case ["s", *_] | ["gp", "search", *_]:
            kind = LinkKind.SEARCH
        case ["stores" | "shops" | "sp", *_]:
            kind = LinkKind.SHOP
        case ["errors", *_] | ["ap", "signin", *_]:
            kind = LinkKind.BLOCKED
    return LinkName(kind=kind)


AMAZON: Final = Shop(
    name="amazon",
    hosts={f"amazon.{region}": region for region in _REGIONS},
    short_hosts=(*_CODED, "amzn.com", "amzn.in"),
    other_hosts=("amazon.jobs", "amazon.science", "amazon.dev"),
    name_link=_name_link,
    look_alikes=LookAlikes(plain=("amazon",)),
    pages=PageRules(
        item=re.compile(r"/(?:dp|gp/product|gp/aw/d|exec/obidos/ASIN)/([A-Z0-9]{10})(?:[/?]|$)"),
        places={
            "price": (
                *("#priceblock_dealprice", "#priceblock_saleprice", "#priceblock_ourprice", "#price_inside_buybox"),
                *("#newBuyBoxPrice", ".apexPriceToPay .a-offscreen", ".priceToPay .a-offscreen"),
                *("#corePrice_feature_div .a-price .a-offscreen", "#corePrice_desktop .a-price .a-offscreen"),
                *("#kindle-price", "#usedPrice", "#buyNewSection .offer-price", "#usedBuySection .offer-price"),
                *("#mediaNoAccordion .header-price", ".swatchElement.selected .a-color-price"),
            ),
            "list_price": (".priceBlockStrikePriceString", "#listPrice", ".basisPrice .a-offscreen"),
            "availability": ("#availability", "#outOfStock", "#availabilityInsideBuyBox_feature_div"),
            "title": ("#productTitle", "#ebooksProductTitle"),
            "brand": ("#bylineInfo",),
            "rating_count": ("#acrCustomerReviewText",),
        },
        wall_urls="validateCaptcha",
        wall_markup='[action*="validateCaptcha"]',
    ),
)
