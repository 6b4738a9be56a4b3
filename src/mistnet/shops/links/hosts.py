"""Which host belongs to which shop, and hosts that imitate one."""

# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

import msgspec
from ada_url import idna_to_unicode

from mistnet.shops.model import Shop

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


# Names long and odd enough that a label merely containing one borrows it.
_RARE: Final = ("shopee", "taobao", "goofish")
# Short or plain names (`thebay`, `hotmall`, `amazonaws`): only alone or between words like these.
_PLAIN: Final = ("ebay", "tmall", "amazon")
_WORDS: Final = (
    "not|fake|my|the|real|true|best|top|new|get|buy|go|all|super|secure|safe|official|global|online|web|app|vip|pay|"
    "shop|shops|store|stores|mall|market|outlet|deal|deals|sale|sales|promo|gift|gifts|coupon|discount|win|prize|"
    "login|signin|account|verify|support|help|service|services|customer|order|orders|[0-9]"
)
_PLACES: Final = "tw|sg|vn|ph|th|us|uk|cn|hk|de|com|net|org|cc|io"
_BORROWED: Final = re.compile(rf"(?:{_WORDS})*({'|'.join(_PLAIN)})(?:{_WORDS}|{_PLACES})*")
# The shops' own domains on which nothing is sold.
_OWN: Final = frozenset(
    (
        *("shopee.com", "shopee.io", "shopeemobile.com", "shopeepay.com", "taobao.org"),
        *("ebayinc.com", "ebayimg.com", "ebaystatic.com", "amazon.jobs", "amazon.science", "amazon.dev"),
    )
)
# What a letter of ours is commonly replaced by.
_TWINS: Final = {
    ord(twin): letter
    for letter, twins in {
        "a": "аαɑ", "b": "вьβ", "d": "ԁđ", "e": "еεҽє", "f": "ƒ", "g": "ɡց", "h": "һћħн", "i": "іıιɩ", "j": "јϳ",
        "k": "кκ", "l": "ӏłɭ", "m": "мʍ", "n": "пηո", "o": "оοσøօ", "p": "рρ", "q": "ԛգ", "r": "гɾ", "s": "ѕꜱ",
        "t": "тτ", "u": "υսц", "w": "ԝѡω", "x": "хχ", "y": "уγү", "z": "ᴢ",
    }.items()
    for twin in twins
}  # fmt: skip
_DIGITS: Final = str.maketrans("01345", "oleas")
_DOMAINS: Final = tuple(domain for domain in SITES if domain != "a.co")


@lru_cache(maxsize=4096)
def imitated(host: str) -> str | None:
    """The shop's name a host borrows, or None. Hosts of the shops themselves borrow nothing."""
    if site_of(host) or any(host == own or host.endswith(f".{own}") for own in _OWN):
        return None
    shown = _skeleton(host)
    if inside := next((domain for domain in _DOMAINS if f".{domain}." in f".{shown}."), None):
        return inside
    labels = [label.replace("-", "") for label in shown.split(".")[:-1]]
    spelt = (*labels, *(label.translate(_DIGITS) for label in labels))
    return next((name for label in spelt if (name := _borrowed(label))), None)


def _borrowed(label: str) -> str | None:
    for name in _RARE:
        if name in label:
            return name
    borrowed = _BORROWED.fullmatch(label)
    return borrowed[1] if borrowed else None


def _skeleton(host: str) -> str:
    """The host as it looks: marks taken off, letters of other scripts put back to what they resemble."""
    shown = idna_to_unicode(host) if "xn--" in host else host
    plain = "".join(each for each in unicodedata.normalize("NFKD", shown) if not unicodedata.combining(each))
    return plain.casefold().translate(_TWINS)
