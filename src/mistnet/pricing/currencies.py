"""Finds currency marks in text and decides what they mean: by hint, by the site's country, by custom."""

# ruff: noqa: RUF001, SIM905 (foreign words and marks are spelt as they are; short codes read best as a line)

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from mistnet.pricing.currency_marks import CODES, DOLLARS, MARKS

_LETTER: Final = r"[^\W\d_]"


def _any_of(marks: Iterable[str]) -> str:
    """A pattern for these marks, the longest first; no letters may run into those that are letters themselves."""
    return "|".join(
        (rf"(?<!{_LETTER})" if mark[0].isalpha() and mark[0].isascii() else "")
        + re.escape(mark).replace(r"\ ", r"\s?")
        + (rf"(?!{_LETTER})" if mark[-1].isalpha() and ord(mark[-1]) < 0x2E80 else "")
        for mark in sorted(marks, key=len, reverse=True)
    )


# A single Latin letter behind a number is a size or a unit more often than money.
_BEHIND: Final = [mark for mark in MARKS if len(mark) > 1 or not (mark.isascii() and mark.isalpha())]
_BEFORE: Final = re.compile(rf"(?P<mark>{_any_of(MARKS)})[.]?[\s:]{{0,3}}$")
_AFTER: Final = re.compile(rf"^[\s,.\-–—=*]{{0,4}}?(?P<mark>{_any_of(_BEHIND)})")
_ANYWHERE: Final = re.compile(_any_of(MARKS))
_REACH: Final = 14
# Most numbers have no mark beside them, which these show at once.
_FIRST_LETTERS: Final = frozenset(mark[0] for mark in _BEHIND)
_LAST_LETTERS: Final = frozenset(mark[-1] for mark in MARKS)
_FURTHEST: Final = 5


def mark_before(text: str, place: int) -> tuple[int, tuple[str, ...]] | None:
    """The mark that ends at a place in a text: where it starts, and what it may mean."""
    start = max(place - _REACH, 0)
    near = text[start:place]
    if _LAST_LETTERS.isdisjoint(near[-_FURTHEST:]):
        return None
    found = _BEFORE.search(near)
    return (start + found.start("mark"), _meanings(found["mark"])) if found else None


def mark_after(text: str, place: int) -> tuple[int, tuple[str, ...]] | None:
    """The mark that follows a place in a text: where it ends, and what it may mean."""
    near = text[place : place + _REACH]
    if _FIRST_LETTERS.isdisjoint(near[:_FURTHEST]):
        return None
    found = _AFTER.search(near)
    return (place + found.end("mark"), _meanings(found["mark"])) if found else None


def _meanings(written: str) -> tuple[str, ...]:
    bare = re.sub(r"\s", "", written)
    return MARKS.get(written) or MARKS.get(bare) or MARKS[re.sub(r"\s", " ", written)]


@lru_cache(maxsize=512)
def meanings(text: str | None) -> tuple[str, ...]:
    """What a currency field means: a code, a mark, or a text that holds one."""
    written = (text or "").strip()[:80]
    if written.upper() in CODES:
        return (written.upper(),)
    if written in MARKS:
        return MARKS[written]
    found = [each for each in _ANYWHERE.finditer(written) if len(each[0]) > 1 or not each[0].isalpha()]
    return _meanings(found[0][0]) if found else ()


def code_of(text: str | None) -> str | None:
    """The ISO code of a currency field, where it can mean only one (or has one customary meaning)."""
    possible = meanings(text)
    return possible[0] if len(possible) == 1 else None


_COUNTRIES: Final[Mapping[str, str]] = dict(
    pair.split(":")
    for pair in """
    tw:TWD cn:CNY hk:HKD mo:MOP sg:SGD my:MYR id:IDR th:THB vn:VND ph:PHP jp:JPY kr:KRW in:INR pk:PKR lk:LKR np:NPR
    bd:BDT br:BRL mx:MXN cl:CLP ar:ARS pe:PEN uy:UYU py:PYG bo:BOB cr:CRC gt:GTQ ca:CAD au:AUD nz:NZD uk:GBP gb:GBP
    us:USD ch:CHF li:CHF se:SEK no:NOK dk:DKK is:ISK cz:CZK pl:PLN hu:HUF ro:RON bg:BGN rs:RSD mk:MKD ba:BAM al:ALL
    ru:RUB by:BYN ua:UAH kz:KZT ge:GEL am:AMD az:AZN tr:TRY il:ILS ae:AED sa:SAR qa:QAR kw:KWD bh:BHD om:OMR jo:JOD
    eg:EGP ma:MAD tn:TND dz:DZD za:ZAR ng:NGN ke:KES gh:GHS tz:TZS ug:UGX do:DOP md:MDL uz:UZS mn:MNT kh:KHR
    de:EUR at:EUR fr:EUR it:EUR es:EUR pt:EUR nl:EUR be:EUR ie:EUR fi:EUR gr:EUR sk:EUR si:EUR ee:EUR lv:EUR lt:EUR
    lu:EUR mt:EUR cy:EUR hr:EUR eu:EUR
    """.split()
)
_SHOPS: Final[Mapping[str, str]] = {"taobao": "CNY", "tmall": "CNY", "1688": "CNY", "jd": "CNY", "pinduoduo": "CNY"}
# Endings that name no country: owners elsewhere use them, too, so they only tell what a bare dollar means.
_WORLDWIDE: Final = frozenset({"com", "net", "org", "shop", "store", "biz", "info", "io", "co"})


@lru_cache(maxsize=1024)
def site_currency(site: str | None) -> str | None:
    """What a site charges in, as far as its name tells: by shop, by country ending, or by a country in its path."""
    host, path = _host_and_path(site)
    labels = host.split(".")
    for name, currency in _SHOPS.items():
        if name in labels and labels[-1] in ("com", name):
            return currency
    if labels[-1] in _COUNTRIES and host not in _COUNTRIES:
        return _COUNTRIES[labels[-1]]
    country = re.match(r"/(?:[a-z]{2}[-_])?([a-z]{2})(?:[-_/]|$)", path.lower())
    if country and re.match(rf"/(?:{country[1]}[-_/][a-z]{{2}}|[a-z]{{2}}[-_]{country[1]})(?:/|$)", path.lower()):
        return _COUNTRIES.get(country[1])
    return None


def is_worldwide(site: str | None) -> bool:
    return _host_and_path(site)[0].rpartition(".")[2] in _WORLDWIDE


def _host_and_path(site: str | None) -> tuple[str, str]:
    named = (site or "").strip()
    try:
        parts = urlsplit(named if "//" in named else f"//{named}")
        return (parts.hostname or "").rstrip("."), parts.path
    except ValueError:
        return "", ""


def choose(possible: tuple[str, ...], *, hint: str | None, site: str | None) -> str | None:
    """One currency of those a mark may mean. Without a mark, the hint speaks, then the site."""
    hinted, local = meanings(hint), site_currency(site)
    if not possible:
        return hinted[0] if len(hinted) == 1 else local if not hinted or local in hinted else _customary(hinted, site)
    if len(possible) == 1:
        return possible[0]
    agreed = [each for each in possible if each in hinted]
    if len(agreed) == 1:
        return agreed[0]
    if local in possible:
        return local
    return _customary(possible, site)


def _customary(possible: tuple[str, ...], site: str | None) -> str | None:
    """What a mark means to most people. Dollars and yuan need at least a worldwide site to mean the usual one."""
    if possible is DOLLARS or possible == DOLLARS:
        return "USD" if is_worldwide(site) else None
    return None if possible[0] in ("CNY", "TWD", "SEK", "INR", "IRR") else possible[0]
