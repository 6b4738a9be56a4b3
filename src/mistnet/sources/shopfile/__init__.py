"""Shops described by a file."""

from typing import TYPE_CHECKING

from mistnet.kit import lazy_names

if TYPE_CHECKING:
    from mistnet.sources.shopfile.client import ConfiguredShop
    from mistnet.sources.shopfile.config import ShopRules, read_shops
else:  # readers of pages take long to load, and few have shops of their own
    __getattr__ = lazy_names(__name__, {"ConfiguredShop": "client", "ShopRules": "config", "read_shops": "config"})

__all__ = ["ConfiguredShop", "ShopRules", "read_shops"]
