"""The shops: the one list of them, and which shop a host belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from mistnet.shops.amazon import AMAZON
from mistnet.shops.ebay import EBAY
from mistnet.shops.shop import WEB, WEB_LANE, Shop, Site
from mistnet.shops.shopee import SHOPEE
from mistnet.shops.taobao import GOOFISH, TAOBAO

SHOPS: Final = (SHOPEE, TAOBAO, EBAY, AMAZON, GOOFISH)


class ShopCatalog:
    """The shops of one installation. Two catalogs are equal only if they are the same one, so results may be cached."""

    def __init__(self, shops: Sequence[Shop]) -> None:
        self.shops: Final = (*shops, WEB)
        self.names: Final = tuple(shop.name for shop in self.shops)
        self.lanes: Final = (*dict.fromkeys(each.lane for each in shops if each.lane != WEB_LANE), WEB_LANE)
        self._by_name = {shop.name: shop for shop in self.shops}
        linked = {shop: {**shop.hosts, **dict.fromkeys(shop.short_hosts)} for shop in shops}
        self._sites = {domain: (shop, region) for shop in shops for domain, region in linked[shop].items()}
        self._readable = {host: shop for shop in shops for host in (*shop.hosts, *shop.other_hosts)}
        # Each catalog has a cache of its own, which goes when the catalog goes.
        self.site_of = lru_cache(maxsize=4096)(self._site_of)

    def __getitem__(self, name: str) -> Shop:
        """A shop of a plugin that is no longer loaded counts as any site of the web."""
        return self._by_name.get(name, WEB)

    def _site_of(self, host: str) -> Site | None:
        """None: no shop we know. `shopee.tw.example` and `fakeshopee.tw` are none."""
        labels = host.split(".")
        for start in range(len(labels) - 1):
            domain = ".".join(labels[start:])
            if domain in self._sites:
                shop, region = self._sites[domain]
                return Site(shop, domain, ".".join(labels[:start]), region)
        return None

    def shop_of_pages(self, host: str) -> Shop | None:
        """The shop whose pages a host has. A short link's host has none, and one where nothing is sold may."""
        labels = host.split(".")
        domains = (".".join(labels[start:]) for start in range(len(labels) - 1))
        return next((self._readable[domain] for domain in domains if domain in self._readable), None)

    @property
    def domains(self) -> Sequence[str]:
        """Where links to shops may lead."""
        return tuple(self._sites)


CATALOG: Final = ShopCatalog(SHOPS)
CRAWL_LANES: Final = CATALOG.lanes


def lane_of(platform: str) -> str:
    """The lane of a shop by its name. Shops of plugins have none of their own."""
    return CATALOG[platform].lane
