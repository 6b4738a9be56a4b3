"""Where the links of a platform lead: the hosts behind a platform's name, or one host by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PLATFORM_HOSTS: Final = {
    "x": ("x.com", "twitter.com"),
    "threads": ("threads.com", "threads.net"),
    "ebay": (
        *("ebay.com", "ebay.co.uk", "ebay.de", "ebay.fr", "ebay.it", "ebay.es", "ebay.nl", "ebay.pl", "ebay.ie"),
        *("ebay.at", "ebay.be", "ebay.ch", "ebay.ca", "ebay.com.au", "ebay.com.hk", "ebay.com.my", "ebay.com.sg"),
        *("ebay.ph", "ebay.us", "ebay.to"),
    ),
    "shopee": (
        *("shopee.com", "shopee.tw", "shopee.sg", "shopee.com.my", "shopee.co.id", "shopee.co.th", "shopee.ph"),
        *("shopee.vn", "shopee.com.br", "shopee.com.mx", "shopee.com.co", "shopee.cl", "shp.ee"),
    ),
    "taobao": ("taobao.com", "tmall.com", "tmall.hk", "tb.cn"),
}
"""A link leads to a platform if its host is one of these or lies below one of them."""


def hosts_of(link: str) -> Sequence[str]:
    """The hosts a rule's `link` stands for; none if it is neither a platform nor a host."""
    if link in PLATFORM_HOSTS:
        return PLATFORM_HOSTS[link]
    return (link,) if "." in link else ()
