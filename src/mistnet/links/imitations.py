"""Hosts that want to be taken for a shop: its name in a foreign domain, or spelt with look-alike letters."""
# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from ada_url import idna_to_unicode

from mistnet.links.hosts import SITES, site_of

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
