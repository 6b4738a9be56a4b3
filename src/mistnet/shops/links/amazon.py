"""Amazon: (site, ASIN)."""

from __future__ import annotations

import re
from typing import Final

from mistnet.shops.links.address import WebAddress
from mistnet.shops.links.hosts import Site
from mistnet.shops.model import Canonical, LinkKind, Shop

_ASIN: Final = re.compile(r"[A-Z0-9]{10}", re.IGNORECASE)
_DEEPEST: Final = 4
# The steps after which an ASIN stands.
_BEFORE: Final = (
    *(("dp",), ("dp", "product"), ("gp", "product"), ("gp", "product", "glance"), ("gp", "aw", "d"), ("gp", "d")),
    *(("gp", "offer-listing"), ("exec", "obidos", "asin"), ("exec", "obidos", "tg", "detail", "-"), ("o", "asin")),
)


def named(address: WebAddress, site: Site) -> tuple[LinkKind, Canonical | None]:
    """What an Amazon address names; an item comes with its rebuilt form."""
    steps = address.segments
    region = "com" if site.domain == "amzn.com" else site.region
    if region and (asin := _asin(steps, site)):
        return LinkKind.ITEM, _item(region, asin)
    if not site.region:
        return (LinkKind.SHORT if steps else LinkKind.PAGE), None
    return _other([each.casefold() for each in steps]), None


def _asin(steps: list[str], site: Site) -> str | None:
    """A language and a slug may stand in front."""
    if site.domain == "amzn.com" and len(steps) == 1 and _ASIN.fullmatch(steps[0]):
        return steps[0].upper()
    lower = [each.casefold() for each in steps]
    for start in range(_DEEPEST):
        for before in _BEFORE:
            place = start + len(before)
            if tuple(lower[start:place]) == before and len(steps) > place and _ASIN.fullmatch(steps[place]):
                return steps[place].upper()
    return None


def _other(steps: list[str]) -> LinkKind:
    match steps:
        case ["s", *_] | ["gp", "search", *_]:
            return LinkKind.SEARCH
        case ["stores" | "shops" | "sp", *_]:
            return LinkKind.SHOP
        case ["errors", *_] | ["ap", "signin", *_]:
            return LinkKind.BLOCKED
        case _:
            return LinkKind.PAGE


def _item(region: str, asin: str) -> Canonical:
    host = f"www.amazon.{region}"
    return Canonical(
        url_norm=f"https://{host}/dp/{asin}",
        host=host,
        shop=Shop.AMAZON,
        kind=LinkKind.ITEM,
        region=region,
        item_id=asin,
    )
