"""Things whose worth is followed: what they are, what was asked, bid or paid for them, what that makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, NewType, Protocol

import msgspec

from mistnet.governor.model import CallPurpose, SourceName
from mistnet.queue.model import Args, KindName, Lane, NewJob, Write
from mistnet.shops.model import OfferId, PriceKind, ProductId

ItemId = NewType("ItemId", int)
PointId = NewType("PointId", int)

PRICE = KindName("price")
"""The job that asks one source what one item costs. Its key is `item:source`."""

EBAY_API = SourceName("ebay_api")
"""eBay's Browse API. Listings that were crawled as pages are the source `ebay`."""

KNOWN_ATTRIBUTES = ("year", "mint_mark", "denomination", "series", "grade")
"""Attributes every source knows how to use. Any other is free-form, and counts in the match alone."""


class ItemState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    REMOVED = "removed"


class ItemRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A thing somebody wants to follow, checked and ready to be kept.

    `ref` is the user's own name for it: handing the same one in again changes the item instead of adding another.
    No sources means every source that serves items. `exclude` are words a listing must not have.
    """

    title: str
    ref: str | None = None
    attributes: Mapping[str, str] = {}
    exclude: Sequence[str] = ()
    sources: Sequence[SourceName] = ()
    urls: Sequence[str] = ()
    currency: str | None = None
    every_hours: float | None = None


class Item(ItemRequest, frozen=True, kw_only=True):
    """A followed thing as it is stored."""

    id: ItemId
    state: ItemState
    added_at: datetime
    changed_at: datetime


class PriceListing(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a source has for sale, or had: as the source tells it, before anybody asks how well it fits.

    An auction nobody has bid on asks its opening price; it is no bid. `strength` is set where the item itself names
    the listing, so that no comparing is needed.
    """

    kind: PriceKind
    amount: Decimal
    currency: str
    title: str
    url: str
    observed_at: datetime
    external_id: str | None = None
    condition: str | None = None
    bid_count: int | None = None
    attributes: Mapping[str, str] = {}
    product_id: ProductId | None = None
    offer_id: OfferId | None = None
    strength: float | None = None


class UnreadableListing(msgspec.Struct, frozen=True, kw_only=True):
    """A listing that could not be read: kept with its problem, never dropped."""

    problem: str
    payload: bytes


class PriceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a source says of an item."""

    listings: Sequence[PriceListing]
    unreadable: Sequence[UnreadableListing] = ()
    cached: bool = False


class PriceSource(Protocol):
    """The port every source of prices stands behind."""

    @property
    def name(self) -> SourceName: ...

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:
        """Listings that may be this item. `fresh` asks the source itself, whatever is remembered."""
        ...


class PricePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One observation of an item's price, with how well the listing fits (0 to 1) and why it might not."""

    kind: PriceKind
    amount: Decimal
    currency: str
    title: str
    url: str
    observed_at: datetime
    match_strength: float
    dedupe_key: str
    external_id: str | None = None
    condition: str | None = None
    bid_count: int | None = None
    product_id: ProductId | None = None
    offer_id: OfferId | None = None
    doubt: str | None = None


class PriceAsked(Write, frozen=True, kw_only=True):
    """One look at one source for one item. Its points, the valuation and the look itself land together."""

    item_id: ItemId
    source: SourceName
    points: Sequence[PricePoint] = ()
    unreadable: Sequence[UnreadableListing] = ()
    listings: int = 0
    cached: bool = False
    problem: str | None = None


class StoredPoint(PricePoint, frozen=True, kw_only=True):
    """A point as a valuation sees it."""

    id: PointId
    source: SourceName


class WeighedPoint(Protocol):
    """What a valuation wants to know of a point."""

    @property
    def id(self) -> PointId: ...
    @property
    def source(self) -> SourceName: ...
    @property
    def dedupe_key(self) -> str: ...
    @property
    def kind(self) -> PriceKind: ...
    @property
    def amount(self) -> Decimal: ...
    @property
    def currency(self) -> str: ...
    @property
    def match_strength(self) -> float: ...
    @property
    def observed_at(self) -> datetime: ...
    @property
    def doubt(self) -> str | None: ...


class Carrier(msgspec.Struct, frozen=True, kw_only=True):
    """A point a valuation rests on: its amount in the valuation's currency, and its share of the weight."""

    point_id: PointId
    amount: Decimal
    weight: float
    rate: str | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A point a valuation does not rest on, and why."""

    point_id: PointId
    why: str
    amount: Decimal | None = None


class Valuation(msgspec.Struct, frozen=True, kw_only=True):
    """What an item is worth, as far as its points tell. It depends on them and on the rates alone, not on the day.

    `points` and `points_left_out` count all of them; `carriers` and `left_out` name the hundred that tell most.
    """

    estimate: Decimal
    low: Decimal
    high: Decimal
    currency: str
    points: int
    confidence: float
    newest_at: datetime
    points_left_out: int = 0
    carriers: Sequence[Carrier] = ()
    left_out: Sequence[LeftOut] = ()


class PriceArgs(Args, frozen=True):
    """`looks` counts second looks, which never take a remembered answer."""

    item_id: ItemId
    source: SourceName
    looks: int = 0


def price_key(item_id: ItemId, source: SourceName) -> str:
    return f"{item_id}:{source}"


def price_job(item_id: ItemId, source: SourceName, *, looks: int = 0) -> NewJob:
    """One live job per item and source."""
    args = PriceArgs(item_id=item_id, source=source, looks=looks)
    return NewJob(kind=PRICE, key=price_key(item_id, source), lane=Lane(source), args=args)


def attributes_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Attributes by one spelling of their names, values trimmed, empty ones left out."""
    named = ((str(name).strip().lower().replace(" ", "_").replace("-", "_"), value) for name, value in given.items())
    texts = ((_SPELLINGS.get(name, name), str(value).strip()) for name, value in named if value is not None)
    return {name: text for name, text in sorted(texts) if name and text}


_SPELLINGS = {"mintmark": "mint_mark", "mint": "mint_mark"}
