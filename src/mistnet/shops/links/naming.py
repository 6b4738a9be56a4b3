"""The canonical name of a link: rebuilt from the shop's own ids, or the key of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from html import unescape
from typing import Final
from urllib.parse import unquote_plus, urljoin

from w3lib.url import canonicalize_url

from mistnet.shops.links import amazon, ebay, shopee, taobao
from mistnet.shops.links.address import RefusedUrl, WebAddress, parse, read
from mistnet.shops.links.hosts import SHORTENERS, Site, family, imitated, site_of
from mistnet.shops.model import Canonical, LinkKind, Shop

LONGEST_KEY: Final = 2_000
_DIGEST: Final = "?sha256="
# A fragment is a place in a page, unless the page is a program that shows another thing for each.
_ROUTES: Final = ("/", "!")
# w3lib takes these for nothing and drops them.
_EMPTY_PARAMETERS: Final = re.compile(r";+$")
_HALF_ESCAPE: Final = re.compile(r"%[0-9A-F]?$")
# Parameters that say who sent the reader, never what he reads.
_TRACKERS: Final = frozenset(
    (
        *(
            "fbclid",
            "gclid",
            "gclsrc",
            "dclid",
            "gbraid",
            "wbraid",
            "msclkid",
            "twclid",
            "ttclid",
            "yclid",
            "li_fat_id",
        ),
        *("igsh", "igshid", "xmt", "slof", "mibextid", "__tn__", "_openstat", "vero_id", "vero_conv", "wickedid"),
        *("_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp", "hsctatracking", "mkt_tok", "oly_anon_id", "oly_enc_id"),
        *("spm", "scm", "pvid", "_ga", "_gl", "srsltid", "epik", "rb_clickid", "s_cid", "ml_subscriber"),
        *("smtt", "sp_atk", "xptdk", "uls_trackid", "gads_t_sig", "mmp_pid", "_trksid", "_trkparms", "ref_src"),
    )
)
_FAMILIES: Final = ("utm_", "mc_", "pk_", "mtm_", "hsa_", "stm_")


def key(address: WebAddress) -> str:
    """Equal for the same page, short enough for an index, and its own key again."""
    query = _without_trackers(address.query)
    port = f":{address.port}" if address.port else ""
    path = _EMPTY_PARAMETERS.sub(lambda found: "%3B" * len(found[0]), address.path)
    bare = f"{address.scheme}://{address.host}{port}{path}" + (f"?{query}" if query else "")
    if address.fragment.startswith(_ROUTES):
        bare = f"{bare}#{address.fragment}"
    return _fitting(str(canonicalize_url(bare, keep_blank_values=True, keep_fragments=True)))


def _without_trackers(query: str) -> str:
    if not query:
        return ""
    return "&".join(part for part in query.split("&") if part and not _tracks(part.partition("=")[0]))


def _tracks(name: str) -> bool:
    plain = (unquote_plus(name) if "%" in name or "+" in name else name).casefold()
    return plain in _TRACKERS or plain.startswith(_FAMILIES)


def _fitting(url: str) -> str:
    """PostgreSQL indexes no more than about 2,700 bytes: of a longer URL the head and a digest of the whole."""
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
_SHOPEE_FIELDS: Final = {"universal-link": "redir", "an_redir": "origin_link"}
_YOUTUBE: Final = frozenset(("youtube.com", "www.youtube.com", "m.youtube.com"))
Wrapper = Callable[[WebAddress], str | None]


def unwrap(url: str) -> str:
    """The innermost URL; the given one, untouched, where nothing is wrapped or the wrapping has no end."""
    address = read(url)
    if isinstance(address, RefusedUrl):
        return url
    inner = innermost(address)
    return inner.href if isinstance(inner, WebAddress) and inner is not address else url


def innermost(address: WebAddress) -> WebAddress | RefusedUrl:
    """Opens wrapper after wrapper. What it ends at is judged like any posted URL."""
    for _ in range(DEEPEST):
        target = wrapped(address)
        if target is None:
            return address
        inner = read(urljoin(address.href, target))
        if isinstance(inner, RefusedUrl):
            return inner
        if _leaves(address, inner):
            return RefusedUrl("a shop's wrapper leads out of the shop")
        address = inner
    return address if wrapped(address) is None else RefusedUrl(f"it is wrapped more than {DEEPEST} times")


def wrapped(address: WebAddress) -> str | None:
    """Where a wrapper leads, or None: it is none, or hides its target."""
    if not address.query:
        return None
    if address.host in META_HOSTS:
        return address.fields.get("u") or None
    if address.host in _GOOGLE and address.path == "/url":
        return address.fields.get("q") or address.fields.get("url") or None
    if address.host in _YOUTUBE and address.path == "/redirect":
        return address.fields.get("q") or None
    site = site_of(address.host)
    return _OF_SHOPS[site.shop](address) or None if site and site.shop in _OF_SHOPS else None


def _leaves(outer: WebAddress, inner: WebAddress) -> bool:
    """An open redirect is no proof that the shop sells what it leads to."""
    site, target = site_of(outer.host), site_of(inner.host)
    return site is not None and (target is None or family(site.shop) is not family(target.shop))


def _shopee(address: WebAddress) -> str | None:
    field = _SHOPEE_FIELDS.get(address.path.strip("/").casefold())
    return address.fields.get(field) if field else None


def _taobao(address: WebAddress) -> str | None:
    """A jump passes by the log-in host without asking for anything."""
    last = address.segments[-1:]
    return address.fields.get("target") if last in (["jump"], ["jump.htm"]) else None


def _ebay(address: WebAddress) -> str | None:
    return address.fields.get("mpre") if address.host.startswith("rover.") else None


_OF_SHOPS: Final[dict[Shop, Wrapper]] = {Shop.SHOPEE: _shopee, Shop.TAOBAO: _taobao, Shop.EBAY: _ebay}

Rule = Callable[[WebAddress, Site], tuple[LinkKind, Canonical | None]]

_RULES: Final[dict[Shop, Rule]] = {
    Shop.SHOPEE: shopee.named,
    Shop.TAOBAO: taobao.named,
    Shop.GOOFISH: taobao.named,
    Shop.EBAY: ebay.named,
    Shop.AMAZON: amazon.named,
}
# Shops' own short links: the code in the path says it all.
_CODED: Final = frozenset(
    ("shp.ee", "shope.ee", "tb.cn", "ebay.us", "ebay.to", "amzn.to", "amzn.asia", "amzn.eu", "a.co")
)
# Taobao hid its short links behind a new domain every few weeks; the form of the path stayed.
_THROWN_AWAY: Final = re.compile(r"/h\.[A-Za-z0-9]{5,}")


def canonical_link(url: str) -> Canonical | RefusedUrl:
    """Any text may come in. The name is the same for every way to post the same thing, and its own name again."""
    address = _destination(url)
    if isinstance(address, RefusedUrl):
        return address
    site = site_of(address.host)
    return _of_shop(address, site) if site else _of_web(address)


def fetchable_url(url: str) -> str | RefusedUrl:
    """What to ask for: the posted URL with its scheme, out of its wrappers, as a browser writes it."""
    address = _destination(url)
    return address if isinstance(address, RefusedUrl) else address.href.partition("#")[0]


def _destination(url: str) -> WebAddress | RefusedUrl:
    address = read(url)
    inner = address if isinstance(address, RefusedUrl) else innermost(address)
    if isinstance(inner, WebAddress) and (shop := imitated(inner.host)):
        return RefusedUrl(f"the host looks like {shop} and is not")
    return inner


def _of_shop(address: WebAddress, site: Site) -> Canonical:
    if address.port:
        return _page(address, site.shop, LinkKind.PAGE, site.region)
    kind, named = _RULES[site.shop](address, site)
    if named:
        return named
    if kind is LinkKind.SHORT:
        return _short(address, site)
    return _page(address, site.shop, kind, site.region)


def _short(address: WebAddress, site: Site) -> Canonical:
    coded = site.domain in _CODED or (site.shop is Shop.SHOPEE and site.below == "s")
    bare = WebAddress(
        href=address.href,
        scheme="https",
        host=address.host,
        port="",
        path=address.path.rstrip("/"),
        query="" if coded else address.query,
        fragment="",
    )
    return _page(bare, site.shop, LinkKind.SHORT, site.region)


def _of_web(address: WebAddress) -> Canonical:
    short = address.host in SHORTENERS and len(address.path) > 1
    kind = LinkKind.SHORT if short or _THROWN_AWAY.fullmatch(address.path) else LinkKind.PAGE
    return _page(address, Shop.WEB, kind, None)


def _page(address: WebAddress, shop: Shop, kind: LinkKind, region: str | None) -> Canonical:
    return Canonical(url_norm=key(address), host=address.host, shop=shop, kind=kind, region=region)


_QUOTED: Final = r"(?P<quote>[\"'])(?P<url>[^\"'\n]{1,8000})(?P=quote)"
# The forms a page uses to send its reader on, most telling first.
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


def may_follow(from_url: str, to_url: str) -> bool:
    """A shop's link may only lead on within the shop; any other may lead anywhere that is not refused."""
    start = read(from_url)
    if isinstance(start, RefusedUrl):
        return False
    target = _seen_from(start, to_url)
    if isinstance(target, RefusedUrl) or imitated(target.host):
        return False
    site = site_of(start.host)
    if site is None:
        return True
    reached = site_of(target.host)
    return reached is not None and not target.port and family(reached.shop) is family(site.shop)


def inline_target(html: str) -> str | None:
    """Where a page that answered 200 sends its reader: Taobao's short links do it in a script. None: nowhere."""
    head = html[:_HEAD]
    for pattern in _SCRIPTS:
        for hit in pattern.finditer(head):
            if target := _target(hit["url"]):
                return target
    refresh = next((tag[0] for tag in _META.finditer(head) if _REFRESH.search(tag[0])), "")
    told = _CONTENT.search(refresh)
    return _target(told["url"]) if told else None


def _seen_from(start: WebAddress, url: str) -> WebAddress | RefusedUrl:
    """A hop may be told relative to where one stands."""
    joined = parse(url, start.href)
    return read(joined.href) if joined else RefusedUrl("this is not a URL")


def _target(written: str) -> str | None:
    """A whole http(s) URL, or nothing: apps have schemes of their own beside it."""
    try:
        plain = unescape(_ESCAPE.sub(_unescaped, written)).strip()
    except ValueError:  # a character reference with thousands of digits
        return None
    if plain.startswith("//"):
        plain = f"https:{plain}"
    if not plain.lower().startswith(("http://", "https://")):
        return None
    return None if isinstance(read(plain), RefusedUrl) else plain


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return chr(int(code, 16)) if code else escape[3]
