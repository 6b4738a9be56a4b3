"""The canonical name of a link: rebuilt from the shop's own ids, or the key of the page; none for look-alike hosts."""

# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256
from html import unescape
from typing import Final
from urllib.parse import unquote_plus, urljoin

from ada_url import idna_to_unicode
from msgspec.structs import replace
from w3lib.url import canonicalize_url

from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.links.address import RefusedUrl, WebAddress, parse, read
from mistnet.shops.model import Canonical, LinkKind
from mistnet.shops.shop import WEB, Shop

LONGEST_KEY: Final = 2_000
_DIGEST: Final = "?sha256="
# A fragment is a place in a page, unless the page is a program that shows another thing for each.
_ROUTES: Final = ("/", "!")
# w3lib drops these.
_EMPTY_PARAMETERS: Final = re.compile(r";+$")
_HALF_ESCAPE: Final = re.compile(r"%[0-9A-F]?$")
# Parameters that say where the visitor came from, never what the page shows.
_TRACKERS: Final = frozenset(
    (
        *("fbclid", "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "msclkid", "twclid", "ttclid", "yclid"),
        *("li_fat_id", "ref_src"),
        *("igsh", "igshid", "xmt", "slof", "mibextid", "__tn__", "_openstat", "vero_id", "vero_conv", "wickedid"),
        *("_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp", "hsctatracking", "mkt_tok", "oly_anon_id", "oly_enc_id"),
        *("spm", "scm", "pvid", "_ga", "_gl", "srsltid", "epik", "rb_clickid", "s_cid", "ml_subscriber"),
        *("smtt", "sp_atk", "xptdk", "uls_trackid", "gads_t_sig", "mmp_pid", "_trksid", "_trkparms"),
    )
)
_FAMILIES: Final = ("utm_", "mc_", "pk_", "mtm_", "hsa_", "stm_")


def key(address: WebAddress) -> str:
    """The key of an address: equal for the same page, short enough for an index, and stable when applied again."""
    kept = []
    for part in filter(None, address.query.split("&")):
        name = part.partition("=")[0]
        plain = (unquote_plus(name) if "%" in name or "+" in name else name).casefold()
        if plain not in _TRACKERS and not plain.startswith(_FAMILIES):
            kept.append(part)
    query = "&".join(kept)
    port = f":{address.port}" if address.port else ""
    path = _EMPTY_PARAMETERS.sub(lambda found: "%3B" * len(found[0]), address.path)
    bare = f"{address.scheme}://{address.host}{port}{path}" + (f"?{query}" if query else "")
    if address.fragment.startswith(_ROUTES):
        bare = f"{bare}#{address.fragment}"
    # PostgreSQL indexes no more than about 2,700 bytes: of a longer URL the head and a digest of the whole.
    url = str(canonicalize_url(bare, keep_blank_values=True, keep_fragments=True))
    if len(url) <= LONGEST_KEY:
        return url
    digest = sha256(url.encode()).hexdigest()
    head = url.partition("#")[0].partition("?")[0][: LONGEST_KEY - len(_DIGEST) - len(digest)]
    return f"{_HALF_ESCAPE.sub('', head)}{_DIGEST}{digest}"


DEEPEST: Final = 5
META_HOSTS: Final = frozenset(
    f"{name}.{domain}"
    for name in ("l", "lm")
    for domain in ("threads.com", "threads.net", "instagram.com", "facebook.com", "messenger.com")
)
_GOOGLE: Final = frozenset(("google.com", "www.google.com"))
_YOUTUBE: Final = frozenset(("youtube.com", "www.youtube.com", "m.youtube.com"))


def _unwrap(address: WebAddress, shops: ShopCatalog) -> str | None:
    """Where a wrapper leads, or None: it is none, or hides its target."""
    if not address.query:
        return None
    if address.host in META_HOSTS:
        return address.fields.get("u") or None
    if address.host in _GOOGLE and address.path == "/url":
        return address.fields.get("q") or address.fields.get("url") or None
    if address.host in _YOUTUBE and address.path == "/redirect":
        return address.fields.get("q") or None
    site = shops.site_of(address.host)
    return site.shop.unwrap(address) or None if site and site.shop.unwrap else None


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
def find_imitated(host: str, shops: ShopCatalog) -> str | None:
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
    rare = [name for shop in shops.shops for name in shop.look_alikes.rare]
    for label in spelt:
        if named := next((name for name in rare if name in label), None):
            return named
        if borrowed := _plain_names(shops).fullmatch(label):
            return borrowed[1]
    return None


@lru_cache
def _plain_names(shops: ShopCatalog) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for shop in shops.shops for name in shop.look_alikes.plain)
    return re.compile(rf"(?:{_WORDS})*({names})(?:{_WORDS}|{_PLACES})*")


# Shorteners of no shop: they lead anywhere.
_SHORTENERS: Final = frozenset(
    (
        *("t.co", "bit.ly", "j.mp", "tinyurl.com", "goo.gl", "ow.ly", "buff.ly", "is.gd", "v.gd", "rb.gy", "cutt.ly"),
        *("t.ly", "s.id", "shorturl.at", "rebrand.ly", "dlvr.it", "trib.al", "lnkd.in", "fb.me"),
        *("reurl.cc", "ppt.cc", "lihi.cc", "lihi1.com", "lihi2.com", "lihi3.com", "pse.is", "psee.io", "myppt.cc"),
        *("t.cn", "url.cn", "dwz.cn", "suo.im", "u.jd.com", "invl.io", "invle.co", "iherb.co"),
    )
)


def canonical_link(url: str, shops: ShopCatalog = CATALOG) -> Canonical | RefusedUrl:
    """The canonical name of any text. Every form of a link to one thing has the same, and the name is its own name."""
    address = _destination(url, shops)
    if isinstance(address, RefusedUrl):
        return address
    site = shops.site_of(address.host)
    if site is None:
        patterns = (shop.hidden_short_links for shop in shops.shops if shop.hidden_short_links)
        hidden = any(pattern.fullmatch(address.path) for pattern in patterns)
        short = hidden or (address.host in _SHORTENERS and len(address.path) > 1)
        return _page(address, WEB, LinkKind.SHORT if short else LinkKind.PAGE, None)
    if address.port:
        return _page(address, site.shop, LinkKind.PAGE, site.region)
    name = site.shop.name_link(address, site)
    if name.url:
        return Canonical(
            url_norm=name.url,
            host=name.url.split("/")[2],
            shop=name.shop or site.shop,
            kind=name.kind,
            region=name.region,
            shop_id=name.shop_id,
            item_id=name.item_id,
            variant=name.variant,
        )
    if name.kind is LinkKind.SHORT:
        path, query = address.path.rstrip("/"), "" if name.coded else address.query
        address = replace(address, scheme="https", port="", path=path, query=query, fragment="")
    return _page(address, site.shop, name.kind, site.region)


def fetchable_url(url: str, shops: ShopCatalog = CATALOG) -> str | RefusedUrl:
    """The URL to request: the posted one with its scheme, out of its wrappers, as a browser writes it."""
    address = _destination(url, shops)
    return address if isinstance(address, RefusedUrl) else address.href.partition("#")[0]


def _destination(url: str, shops: ShopCatalog) -> WebAddress | RefusedUrl:
    """Open wrapper after wrapper. The address inside is judged like any posted URL."""
    address, opened = read(url), 0
    while isinstance(address, WebAddress) and (target := _unwrap(address, shops)) is not None:
        if opened == DEEPEST:
            return RefusedUrl(f"it is wrapped more than {DEEPEST} times")
        outer_site, address, opened = shops.site_of(address.host), read(urljoin(address.href, target)), opened + 1
        inner_site = shops.site_of(address.host) if isinstance(address, WebAddress) else outer_site
        # An open redirect is no proof that the shop sells what it leads to.
        if outer_site and (inner_site is None or outer_site.shop.kin != inner_site.shop.kin):
            return RefusedUrl("a shop's wrapper leads out of the shop")
    if isinstance(address, WebAddress) and (shop := find_imitated(address.host, shops)):
        return RefusedUrl(f"the host looks like {shop} and is not")
    return address


def _page(address: WebAddress, shop: Shop, kind: LinkKind, region: str | None) -> Canonical:
    return Canonical(url_norm=key(address), host=address.host, shop=shop, kind=kind, region=region)


_QUOTED: Final = r"(?P<quote>[\"'])(?P<url>[^\"'\n]{1,8000})(?P=quote)"
# The forms in which a page redirects by script, the most specific first.
_SCRIPTS: Final = (
    re.compile(rf"\bvar\s{{1,9}}url\s{{0,9}}=\s{{0,9}}{_QUOTED}"),
    re.compile(rf"\blocation\.(?:replace|assign)\(\s{{0,9}}{_QUOTED}"),
    re.compile(rf"\blocation(?:\.href)?\s{{0,9}}=\s{{0,9}}{_QUOTED}"),
)
_META: Final = re.compile(r"<meta\b[^<>]{1,8000}>", re.IGNORECASE)
_REFRESH: Final = re.compile(r"\bhttp-equiv\s{0,9}=\s{0,9}[\"']?refresh\b", re.IGNORECASE)
_CONTENT: Final = re.compile(r"\burl\s{0,9}=\s{0,9}['\"]?(?P<url>[^'\">\s]+)", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_HEAD: Final = 200_000


def may_follow(from_url: str, to_url: str, shops: ShopCatalog = CATALOG) -> bool:
    """A shop's link may only lead on within the shop; any other may lead anywhere that is not refused."""
    start = read(from_url)
    if isinstance(start, RefusedUrl):
        return False
    joined = parse(to_url, start.href)  # a redirect may be relative
    target = read(joined.href) if joined else None
    if not isinstance(target, WebAddress) or find_imitated(target.host, shops):
        return False
    site = shops.site_of(start.host)
    if site is None:
        return True
    reached = shops.site_of(target.host)
    return reached is not None and not target.port and reached.shop.kin == site.shop.kin


def inline_target(html: str) -> str | None:
    """Where a page that answered 200 redirects by script or meta tag, as Taobao's short links do. None: nowhere."""
    head = html[:_HEAD]
    for pattern in _SCRIPTS:
        for hit in pattern.finditer(head):
            if target := _target(hit["url"]):
                return target
    refresh = next((tag[0] for tag in _META.finditer(head) if _REFRESH.search(tag[0])), "")
    written = _CONTENT.search(refresh)
    return _target(written["url"]) if written else None


def _target(written: str) -> str | None:
    """A whole http(s) URL, or None: pages also write URLs with the schemes of apps."""
    try:
        plain = unescape(_ESCAPE.sub(lambda found: found[3] or chr(int(found[1] or found[2], 16)), written)).strip()
    except ValueError:  # a character reference with thousands of digits
        return None
    if plain.startswith("//"):
        plain = f"https:{plain}"
    if not plain.lower().startswith(("http://", "https://")):
        return None
    return None if isinstance(read(plain), RefusedUrl) else plain
