"""Wrappers that say in the open where they lead: no request is needed to see through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urljoin

from mistnet.domain.links import Shop
from mistnet.links.address import Address, read
from mistnet.links.hosts import family, site_of
from mistnet.links.refused import Refused

DEEPEST: Final = 5
META_HOSTS: Final = frozenset(
    f"{name}.{domain}"
    for name in ("l", "lm")
    for domain in ("threads.com", "threads.net", "instagram.com", "facebook.com", "messenger.com")
)
_GOOGLE: Final = frozenset(("google.com", "www.google.com"))
_SHOPEE_FIELDS: Final = {"universal-link": "redir", "an_redir": "origin_link"}
_YOUTUBE: Final = frozenset(("youtube.com", "www.youtube.com", "m.youtube.com"))
Wrapper = Callable[[Address], str | None]


def unwrap(url: str) -> str:
    """The innermost URL; the given one, untouched, where nothing is wrapped or the wrapping has no end."""
    address = read(url)
    if isinstance(address, Refused):
        return url
    inner = innermost(address)
    return inner.href if isinstance(inner, Address) and inner is not address else url


def innermost(address: Address) -> Address | Refused:
    """Opens wrapper after wrapper. What it ends at is judged like any posted URL."""
    for _ in range(DEEPEST):
        target = wrapped(address)
        if target is None:
            return address
        inner = read(urljoin(address.href, target))
        if isinstance(inner, Refused):
            return inner
        if _leaves(address, inner):
            return Refused("a shop's wrapper leads out of the shop")
        address = inner
    return address if wrapped(address) is None else Refused(f"it is wrapped more than {DEEPEST} times")


def wrapped(address: Address) -> str | None:
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


def _leaves(outer: Address, inner: Address) -> bool:
    """An open redirect is no proof that the shop sells what it leads to."""
    site, target = site_of(outer.host), site_of(inner.host)
    return site is not None and (target is None or family(site.shop) is not family(target.shop))


def _shopee(address: Address) -> str | None:
    field = _SHOPEE_FIELDS.get(address.path.strip("/").casefold())
    return address.fields.get(field) if field else None


def _taobao(address: Address) -> str | None:
    """A jump passes by the log-in host without asking for anything."""
    last = address.segments[-1:]
    return address.fields.get("target") if last in (["jump"], ["jump.htm"]) else None


def _ebay(address: Address) -> str | None:
    return address.fields.get("mpre") if address.host.startswith("rover.") else None


_OF_SHOPS: Final[dict[Shop, Wrapper]] = {Shop.SHOPEE: _shopee, Shop.TAOBAO: _taobao, Shop.EBAY: _ebay}
