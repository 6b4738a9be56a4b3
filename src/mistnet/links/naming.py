"""The one name of a link, however it was posted: rebuilt from the shop's own ids, or the key of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mistnet.domain.links import Canonical, LinkKind, Shop
from mistnet.links import amazon, ebay, pages, shopee, taobao
from mistnet.links.address import Address, read
from mistnet.links.hosts import SHORTENERS, Site, site_of
from mistnet.links.imitations import imitated
from mistnet.links.refused import Refused
from mistnet.links.wrappers import innermost

Rule = Callable[[Address, Site], tuple[LinkKind, Canonical | None]]

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


def canonical(url: str) -> Canonical | Refused:
    """Any text may come in. The name is the same for every way to post the same thing, and its own name again."""
    address = _destination(url)
    if isinstance(address, Refused):
        return address
    site = site_of(address.host)
    return _of_shop(address, site) if site else _of_web(address)


def fetchable(url: str) -> str | Refused:
    """What to ask for: the posted URL with its scheme, out of its wrappers, as a browser writes it."""
    address = _destination(url)
    return address if isinstance(address, Refused) else address.href.partition("#")[0]


def _destination(url: str) -> Address | Refused:
    address = read(url)
    inner = address if isinstance(address, Refused) else innermost(address)
    if isinstance(inner, Address) and (shop := imitated(inner.host)):
        return Refused(f"the host looks like {shop} and is not")
    return inner


def _of_shop(address: Address, site: Site) -> Canonical:
    if address.port:
        return _page(address, site.shop, LinkKind.PAGE, site.region)
    kind, named = _RULES[site.shop](address, site)
    if named:
        return named
    if kind is LinkKind.SHORT:
        return _short(address, site)
    return _page(address, site.shop, kind, site.region)


def _short(address: Address, site: Site) -> Canonical:
    coded = site.domain in _CODED or (site.shop is Shop.SHOPEE and site.below == "s")
    bare = Address(
        href=address.href,
        scheme="https",
        host=address.host,
        port="",
        path=address.path.rstrip("/"),
        query="" if coded else address.query,
        fragment="",
    )
    return _page(bare, site.shop, LinkKind.SHORT, site.region)


def _of_web(address: Address) -> Canonical:
    short = address.host in SHORTENERS and len(address.path) > 1
    kind = LinkKind.SHORT if short or _THROWN_AWAY.fullmatch(address.path) else LinkKind.PAGE
    return _page(address, Shop.WEB, kind, None)


def _page(address: Address, shop: Shop, kind: LinkKind, region: str | None) -> Canonical:
    return Canonical(url_norm=pages.key(address), host=address.host, shop=shop, kind=kind, region=region)
