"""Places that tell what things cost: eBay's own interface, shops described by a file, and answers remembered."""

from typing import TYPE_CHECKING

from mistnet.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.upstream.market.bookmarks import KEPT
    from mistnet.upstream.market.configured import ConfiguredShop
    from mistnet.upstream.market.ebay import EbayRules, EbaySource
    from mistnet.upstream.market.ebay_asking import Credentials, EbayAsker
    from mistnet.upstream.market.remembered import Remembered
    from mistnet.upstream.market.shop_file import ShopRules, read_shops
else:  # readers of pages take long to load, and few have an account at eBay or shops of their own
    __getattr__ = lazy_names(
        __name__,
        {
            "ConfiguredShop": "configured",
            "Credentials": "ebay_asking",
            "EbayAsker": "ebay_asking",
            "EbayRules": "ebay",
            "EbaySource": "ebay",
            "KEPT": "bookmarks",
            "Remembered": "remembered",
            "ShopRules": "shop_file",
            "read_shops": "shop_file",
        },
    )

__all__ = [
    "KEPT",
    "ConfiguredShop",
    "Credentials",
    "EbayAsker",
    "EbayRules",
    "EbaySource",
    "Remembered",
    "ShopRules",
    "read_shops",
]
