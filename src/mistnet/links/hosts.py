"""Whose host it is, by exact suffixes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from mistnet.domain.links import Shop

SHOPEE_REGIONS: Final = (
    *("tw", "sg", "vn", "ph", "cl", "com.my", "com.br", "com.mx", "com.co", "com.ar", "co.th", "co.id"),
    *("es", "fr", "pl", "in"),
)
EBAY_REGIONS: Final = (
    *("com", "co.uk", "de", "fr", "it", "es", "at", "ch", "be", "nl", "ie", "pl", "ca", "in", "ph", "vn", "cn"),
    *("com.au", "com.hk", "com.sg", "com.my", "com.tw", "co.th", "co.jp", "co.kr", "co.id"),
)
AMAZON_REGIONS: Final = (
    *("com", "ca", "com.mx", "com.br", "co.uk", "de", "fr", "it", "es", "nl", "se", "pl", "ie", "com.be", "com.tr"),
    *("ae", "sa", "eg", "in", "sg", "com.au", "co.jp", "co.za", "cn", "cl", "com.co"),
)
# Shopee's mirror for sellers abroad names the region in front.
_MIRRORED: Final = {
    "xiapi": "tw", "tw": "tw", "my": "com.my", "sg": "sg", "ph": "ph", "th": "co.th", "id": "co.id", "vn": "vn",
    "br": "com.br", "mx": "com.mx", "co": "com.co", "cl": "cl",
}  # fmt: skip

# A host belongs to the longest of these that it equals or ends with after a dot.
SITES: Final[dict[str, tuple[Shop, str | None]]] = {
    **{f"shopee.{region}": (Shop.SHOPEE, region) for region in SHOPEE_REGIONS},
    **{f"{name}.xiapibuy.com": (Shop.SHOPEE, region) for name, region in _MIRRORED.items()},
    **dict.fromkeys(("shp.ee", "shope.ee"), (Shop.SHOPEE, None)),
    **dict.fromkeys(("taobao.com", "tmall.com", "tmall.hk", "tb.cn"), (Shop.TAOBAO, None)),
    **dict.fromkeys(("goofish.com", "2.taobao.com"), (Shop.GOOFISH, None)),
    **{f"ebay.{region}": (Shop.EBAY, region) for region in EBAY_REGIONS},
    **dict.fromkeys(("ebay.us", "ebay.to"), (Shop.EBAY, None)),
    **{f"amazon.{region}": (Shop.AMAZON, region) for region in AMAZON_REGIONS},
    **dict.fromkeys(("amzn.to", "amzn.com", "amzn.asia", "amzn.eu", "amzn.in", "a.co"), (Shop.AMAZON, None)),
}
# Shorteners of no shop: they lead anywhere.
SHORTENERS: Final = frozenset(
    (
        *("t.co", "bit.ly", "j.mp", "tinyurl.com", "goo.gl", "ow.ly", "buff.ly", "is.gd", "v.gd", "rb.gy", "cutt.ly"),
        *("t.ly", "s.id", "shorturl.at", "rebrand.ly", "dlvr.it", "trib.al", "lnkd.in", "fb.me"),
        *("reurl.cc", "ppt.cc", "lihi.cc", "lihi1.com", "lihi2.com", "lihi3.com", "pse.is", "psee.io", "myppt.cc"),
        *("t.cn", "url.cn", "dwz.cn", "suo.im", "u.jd.com", "invl.io", "invle.co", "iherb.co"),
    )
)


class Site(msgspec.Struct, frozen=True):
    """A shop's domain, what stands before it in the host, and its region if the domain tells one."""

    shop: Shop
    domain: str
    below: str
    region: str | None


@lru_cache(maxsize=4096)
def site_of(host: str) -> Site | None:
    """None: no shop we know. `shopee.tw.example` and `fakeshopee.tw` are none."""
    labels = host.split(".")
    for start in range(len(labels) - 1):
        domain = ".".join(labels[start:])
        if domain in SITES:
            shop, region = SITES[domain]
            return Site(shop, domain, ".".join(labels[:start]), region)
    return None


def family(shop: Shop) -> Shop:
    """Taobao's links lead to Xianyu and back."""
    return Shop.TAOBAO if shop is Shop.GOOFISH else shop
