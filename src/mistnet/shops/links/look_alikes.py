"""Hosts that imitate a shop's."""

# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from ada_url import idna_to_unicode

from mistnet.shops.catalog import ShopCatalog

_WORDS: Final = (
    "not|fake|my|the|real|true|best|top|new|get|buy|go|all|super|secure|safe|official|global|online|web|app|vip|pay|"
    "shop|shops|store|stores|mall|market|outlet|deal|deals|sale|sales|promo|gift|gifts|coupon|discount|win|prize|"
    "login|signin|account|verify|support|help|service|services|customer|order|orders|[0-9]"
)
_PLACES: Final = "tw|sg|vn|ph|th|us|uk|cn|hk|de|com|net|org|cc|io"
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
_SHORTEST_DOMAIN: Final = 5
"""A shorter one, such as `a.co`, is a part of many a host by chance."""


@lru_cache(maxsize=4096)
def imitated(host: str, shops: ShopCatalog) -> str | None:
    """The shop's name that a host borrows, or None. A shop's own hosts borrow nothing."""
    if shops.site_of(host) or shops.shop_of_pages(host):
        return None
    # As the host looks: without accents, letters of other scripts as those they resemble.
    written = idna_to_unicode(host) if "xn--" in host else host
    plain = "".join(each for each in unicodedata.normalize("NFKD", written) if not unicodedata.combining(each))
    looks = plain.casefold().translate(_TWINS)
    for domain in shops.domains:
        if len(domain) >= _SHORTEST_DOMAIN and f".{domain}." in f".{looks}.":
            return domain
    labels = [label.replace("-", "") for label in looks.split(".")[:-1]]
    spelt = (*labels, *(label.translate(_DIGITS) for label in labels))
    return next((name for label in spelt if (name := _borrowed_name(label, shops))), None)


def _borrowed_name(label: str, shops: ShopCatalog) -> str | None:
    for name in (name for shop in shops.shops for name in shop.look_alikes.rare):
        if name in label:
            return name
    borrowed = _plain_names(shops).fullmatch(label)
    return borrowed[1] if borrowed else None


@lru_cache
def _plain_names(shops: ShopCatalog) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for shop in shops.shops for name in shop.look_alikes.plain)
    return re.compile(rf"(?:{_WORDS})*({names})(?:{_WORDS}|{_PLACES})*")
