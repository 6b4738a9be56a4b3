"""From price text and pages to offers and valuations. Pure."""

from typing import TYPE_CHECKING

from mistnet.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.pricing.charset import decode
    from mistnet.pricing.matching import Match, match, points_of, title_words
    from mistnet.pricing.pages import read_page
    from mistnet.pricing.plausibility import Earlier, doubt
    from mistnet.pricing.price_text import NoPrice, ParsedPrice, parse_price
    from mistnet.pricing.shopee import read_shopee
    from mistnet.pricing.taobao import read_taobao
    from mistnet.pricing.valuation import valued
else:  # what reads pages and names links takes long to load, and most commands do neither
    __getattr__ = lazy_names(
        __name__,
        {
            "Earlier": "plausibility",
            "Match": "matching",
            "NoPrice": "price_text",
            "ParsedPrice": "price_text",
            "decode": "charset",
            "doubt": "plausibility",
            "match": "matching",
            "parse_price": "price_text",
            "points_of": "matching",
            "read_page": "pages",
            "read_shopee": "shopee",
            "read_taobao": "taobao",
            "title_words": "matching",
            "valued": "valuation",
        },
    )

__all__ = [
    "Earlier",
    "Match",
    "NoPrice",
    "ParsedPrice",
    "decode",
    "doubt",
    "match",
    "parse_price",
    "points_of",
    "read_page",
    "read_shopee",
    "read_taobao",
    "title_words",
    "valued",
]
