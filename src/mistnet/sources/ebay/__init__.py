"""eBay, through its own API."""

from typing import TYPE_CHECKING

from mistnet.kit.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.sources.ebay.client import Credentials, EbayAsker, EbayRules, EbaySource
else:  # readers of pages take long to load, and few have an account at eBay
    __getattr__ = lazy_names(__name__, dict.fromkeys(("Credentials", "EbayAsker", "EbayRules", "EbaySource"), "client"))

__all__ = ["Credentials", "EbayAsker", "EbayRules", "EbaySource"]
