"""Reads prices from texts, and offers from pages. No I/O."""

from typing import TYPE_CHECKING

from mistnet.kit import lazy_names

if TYPE_CHECKING:
    from mistnet.shops.extraction.documents import decode
    from mistnet.shops.extraction.facts import (
        EarlierPrice,
        KeptReading,
        PageReading,
        PriceCandidate,
        PriceRole,
        find_doubt,
    )
    from mistnet.shops.extraction.price_text import NoPrice, parse_price
    from mistnet.shops.extraction.read import explain_page, read_page
    from mistnet.shops.extraction.words import title_words
else:  # readers of pages take long to load, and most commands do not use them
    __getattr__ = lazy_names(
        __name__,
        {
            **dict.fromkeys(("EarlierPrice", "find_doubt", "KeptReading", "PageReading"), "facts"),
            **dict.fromkeys(("PriceCandidate", "PriceRole"), "facts"),
            **dict.fromkeys(("NoPrice", "parse_price"), "price_text"),
            **dict.fromkeys(("explain_page", "read_page"), "read"),
            "decode": "documents",
            "title_words": "words",
        },
    )

__all__ = [
    "EarlierPrice",
    "KeptReading",
    "NoPrice",
    "PageReading",
    "PriceCandidate",
    "PriceRole",
    "decode",
    "explain_page",
    "find_doubt",
    "parse_price",
    "read_page",
    "title_words",
]
