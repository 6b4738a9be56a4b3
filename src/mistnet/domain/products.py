"""Things for sale: what a page says of one, and how far that is believed."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from typing import NewType

import msgspec

ProductId = NewType("ProductId", int)
OfferId = NewType("OfferId", int)


class Availability(StrEnum):
    IN_STOCK = "in_stock"
    OUT_OF_STOCK = "out_of_stock"
    PREORDER = "preorder"
    BACKORDER = "backorder"
    LIMITED = "limited"
    DISCONTINUED = "discontinued"


class PriceKind(StrEnum):
    """What an amount means: a price asked, a bid made, a sale closed."""

    ASK = "ask"
    BID = "bid"
    SOLD = "sold"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where one value was read: a path such as `json-ld:offers.price`, the snippet, how sure we are (0 to 1)."""

    field: str
    path: str
    snippet: str
    confidence: float


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One amount or a span of amounts. A currency is an ISO code, or None where nothing tells it."""

    amount: Decimal
    amount_max: Decimal | None = None
    currency: str | None = None


class PageVerdict(StrEnum):
    """What a page turned out to be. A block is never "no price"."""

    OFFER = "offer"
    NO_PRICE = "no_price"
    BLOCKED = "blocked"
    GONE = "gone"


class PageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that one page told, each value with its evidence."""

    verdict: PageVerdict
    reason: str | None = None
    title: str | None = None
    brand: str | None = None
    sku: str | None = None
    image_url: str | None = None
    canonical_url: str | None = None
    amount: Decimal | None = None
    amount_max: Decimal | None = None
    list_amount: Decimal | None = None
    currency: str | None = None
    kind: PriceKind = PriceKind.ASK
    availability: Availability | None = None
    sold_count: int | None = None
    rating_count: int | None = None
    bid_count: int | None = None
    evidence: Sequence[Evidence] = ()
