"""Shops that plugins bring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mistnet.queue.errors import BadPlugin
from mistnet.queue.plugins import Plugin, load_plugin
from mistnet.shops.catalog import CATALOG, SHOPS, ShopCatalog
from mistnet.shops.shop import WEB, WEB_LANE, Shop


class ShopPlugin(Plugin, frozen=True, kw_only=True):
    """A plugin that brings shops, with or without kinds of jobs."""

    shops: Sequence[Shop] = ()


def shops_of(plugins: Iterable[Plugin]) -> ShopCatalog:
    """The catalog with the shops of these plugins. Raises BadPlugin for one that cannot be told from another."""
    shops = [*SHOPS]
    for shop in (shop for plugin in plugins if isinstance(plugin, ShopPlugin) for shop in plugin.shops):
        if not isinstance(shop, Shop):
            raise BadPlugin(type(shop).__name__, f"it brings {shop!r} as a shop")
        taken = {host for each in shops for host in each.every_host}.intersection(shop.every_host)
        if taken:
            raise BadPlugin(shop.name, f"{min(taken)} belongs to another shop already")
        if shop.name in {WEB.name, *(each.name for each in shops)}:
            raise BadPlugin(shop.name, "there is a shop of this name already; give yours another one")
        if shop.lane != WEB_LANE:
            # Settings name lanes, and they are checked before plugins are loaded.
            raise BadPlugin(shop.name, f"a shop of a plugin is crawled on the lane {WEB_LANE!r}, not {shop.lane!r}")
        shops.append(shop)
    return CATALOG if len(shops) == len(SHOPS) else ShopCatalog(shops)


def load_catalog(names: Iterable[str]) -> ShopCatalog:
    """The catalog for plugins as the settings name them, where there is no app."""
    return shops_of(map(load_plugin, names))
