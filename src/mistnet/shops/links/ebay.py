"""eBay: listings share one id space over all its sites; catalogue pages name a product, not a listing."""

from __future__ import annotations

import re
from typing import Final

from mistnet.shops.links.address import WebAddress
from mistnet.shops.links.hosts import Site
from mistnet.shops.model import Canonical, LinkKind, Shop

_HOST: Final = "www.ebay.com"
_LISTING: Final = re.compile(r"[0-9]{9,19}")
_EPID: Final = re.compile(r"[0-9]+")
_SHORT: Final = frozenset(("ebay.us", "ebay.to"))
_BY_HOST: Final = {"signin": LinkKind.BLOCKED, "rover": LinkKind.SHORT, "stores": LinkKind.SHOP}


def named(address: WebAddress, site: Site) -> tuple[LinkKind, Canonical | None]:
    """What an eBay address names; a listing or a catalogue entry comes with its rebuilt form."""
    steps = address.segments
    if site.domain in _SHORT:
        return (LinkKind.SHORT if steps else LinkKind.PAGE), None
    if listing := _listing(steps, address):
        return LinkKind.ITEM, _rebuilt(LinkKind.ITEM, "itm", listing, _variant(address))
    if steps[:1] == ["p"] and _EPID.fullmatch(steps[-1]):
        return LinkKind.CATALOGUE, _rebuilt(LinkKind.CATALOGUE, "p", steps[-1], None)
    return _other(steps, site), None


def _listing(steps: list[str], address: WebAddress) -> str | None:
    match [each.casefold() for each in steps]:
        case ["itm" | "i", *_, last] if _LISTING.fullmatch(last):
            return last
        case ["itm", first, *_] if _LISTING.fullmatch(first):
            return first
        case [*_, "ebayisapi.dll"]:
            given = address.fields.get("item") or address.fields.get("Item") or ""
        case ["rover", *_]:
            given = address.fields.get("icep_item", "")
        case _:
            return None
    return given if _LISTING.fullmatch(given) else None


def _variant(address: WebAddress) -> str | None:
    given = address.fields.get("var", "")
    return given if given.strip("0") and given.isdigit() else None


def _other(steps: list[str], site: Site) -> LinkKind:
    if site.below in _BY_HOST and steps:
        return _BY_HOST[site.below]
    match [each.casefold() for each in steps]:
        case ["splashui" | "signin", *_]:
            return LinkKind.BLOCKED
        case ["sch", *_]:
            return LinkKind.SEARCH
        case ["str" | "usr", _, *_]:
            return LinkKind.SHOP
        case ["n", "error", *_]:
            return LinkKind.DEAD
        case _:
            return LinkKind.PAGE


def _rebuilt(kind: LinkKind, step: str, item: str, variant: str | None) -> Canonical:
    return Canonical(
        url_norm=f"https://{_HOST}/{step}/{item}",
        host=_HOST,
        shop=Shop.EBAY,
        kind=kind,
        item_id=item,
        variant=variant,
    )
