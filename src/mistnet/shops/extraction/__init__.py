"""Reads prices from texts, and offers from pages. No I/O."""

from typing import TYPE_CHECKING

from mistnet.kit.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.shops.extraction.html import decode
    from mistnet.shops.extraction.plausibility import EarlierPrice, find_doubt
    from mistnet.shops.extraction.price_text import NoPrice, parse_price
    from mistnet.shops.extraction.read import read_page
    from mistnet.shops.extraction.titles import title_words
else:  # readers of pages take long to load, and most commands do not use them
    __getattr__ = lazy_names(
        __name__,
        {
            "EarlierPrice": "plausibility",
            "NoPrice": "price_text",
            "decode": "html",
            "find_doubt": "plausibility",
            "parse_price": "price_text",
            "read_page": "read",
            "title_words": "titles",
        },
    )

__all__ = [
    "EarlierPrice",
    "NoPrice",
    "decode",
    "find_doubt",
    "parse_price",
    "read_page",
    "title_words",
]
