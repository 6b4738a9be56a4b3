"""Items, the prices that were asked, bid or paid for them, and the valuations that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, NewType, Protocol

import msgspec

from mistnet.governor.model import CallPurpose, SourceName
from mistnet.kit.errors import MOST_LISTED, Nonexistent, UsageError, list_problems
from mistnet.queue.model import Args, KindName, Lane, NewJob, Write
from mistnet.shops.model import OfferId, PriceKind, ProductId

ItemId = NewType("ItemId", int)
PointId = NewType("PointId", int)

PRICE = KindName("price")
"""The job that fetches the prices of one item from one source. Its key is `item:source`."""

EBAY_API = SourceName("ebay_api")
"""eBay's Browse API. Listings that were crawled as pages are the source `ebay`."""

KNOWN_ATTRIBUTES = ("year", "mint_mark", "denomination", "series", "grade")
"""Attributes that every source can search for. Any other is free-form, and only counts when listings are matched."""


class ItemState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    REMOVED = "removed"


class ItemRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A validated request to follow an item.

    `ref` is the user's own name for it: a request with a known `ref` changes its item instead of adding another.
    No sources means all that serve items. `exclude` are words that a listing must not have.
    """

    title: str
    ref: str | None = None
    attributes: Mapping[str, str] = {}
    exclude: tuple[str, ...] = ()
    sources: tuple[SourceName, ...] = ()
    urls: tuple[str, ...] = ()
    currency: str | None = None
    every_hours: float | None = None


class Item(ItemRequest, frozen=True, kw_only=True):
    """A stored item."""

    id: ItemId
    state: ItemState
    added_at: datetime
    changed_at: datetime


class PriceListing(msgspec.Struct, frozen=True, kw_only=True):
    """One offer as a source returns it, before it is matched with an item.

    An auction without bids is an ask of its opening price. `strength` is set where the item itself names the page of
    the listing, so that titles need not be compared.
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
    """A listing that could not be read. It is stored with its problem."""

    problem: str
    payload: bytes


class PriceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a source returned for an item."""

    listings: Sequence[PriceListing]
    unreadable: Sequence[UnreadableListing] = ()
    cached: bool = False


class PriceSource(Protocol):
    """The port that every source of prices implements."""

    @property
    def name(self) -> SourceName: ...

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:
        """Listings that may be this item. `fresh` bypasses the cache."""
        ...


class PricePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One observation of an item's price, with how well the listing matches (0 to 1) and a reason to doubt it."""

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


class PriceFetch(Write, frozen=True, kw_only=True):
    """The result of one fetch from one source for one item: its points, or the problem that it ended with."""

    item_id: ItemId
    source: SourceName
    points: Sequence[PricePoint] = ()
    unreadable: Sequence[UnreadableListing] = ()
    listings: int = 0
    cached: bool = False
    problem: str | None = None


class KnownPoint(msgspec.Struct, frozen=True):
    """As much of a stored point as a valuation needs."""

    id: PointId
    item_id: ItemId
    source: SourceName
    dedupe_key: str
    kind: PriceKind
    amount: Decimal
    currency: str
    match_strength: float
    observed_at: datetime
    doubt: str | None


class Carrier(msgspec.Struct, frozen=True, kw_only=True):
    """A point that a valuation rests on: its amount in the valuation's currency, and its share of the weight."""

    point_id: PointId
    amount: Decimal
    weight: float
    rate: str | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A point that a valuation leaves out, and why."""

    point_id: PointId
    why: str
    amount: Decimal | None = None


class Valuation(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of an item's value. It depends on its points and on exchange rates alone, not on the day.

    `points` and `points_left_out` count all points; `carriers` and `left_out` name the hundred that matter most.
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


class CurrentValuation(Valuation, frozen=True, kw_only=True):
    """The present valuation of an item. It is unchanged since `valued_at`."""

    valued_at: datetime


class PastValuation(CurrentValuation, frozen=True, kw_only=True):
    """A valuation from `valued_at` on. `ended_at` is set if it was withdrawn without a new one."""

    id: int
    ended_at: datetime | None


class ValuationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A valuation without the points it rests on."""

    estimate: Decimal
    low: Decimal
    high: Decimal
    currency: str
    points: int
    points_left_out: int
    confidence: float
    newest_at: datetime
    valued_at: datetime


class PastSummary(ValuationSummary, frozen=True, kw_only=True):
    """A valuation from `valued_at` on. `ended_at` is set if it was withdrawn without a new one."""

    ended_at: datetime | None


class EarlierValuation(msgspec.Struct, frozen=True, kw_only=True):
    """The valuation of a month ago, or the one that the first fetch of an item led to."""

    estimate: Decimal
    currency: str
    valued_at: datetime


class ItemLine(Item, frozen=True, kw_only=True):
    """An item with its valuation now and earlier. `next_look_at` is None unless the item is active."""

    next_look_at: datetime | None
    worth: ValuationSummary | None
    earlier: EarlierValuation | None
    change: float | None
    """The share by which the estimate differs from the earlier one. Two currencies are not compared."""


class WholeItem(ItemLine, frozen=True, kw_only=True):
    """One item with all that its valuation rests on."""

    valuation: CurrentValuation | None
    looks: Sequence[SourceFetch]


class PointLine(PricePoint, frozen=True, kw_only=True):
    """A stored point, and how often it was seen."""

    id: PointId
    item_id: ItemId
    source: SourceName
    first_seen_at: datetime
    last_seen_at: datetime
    times_seen: int


class ItemPoint(PointLine, frozen=True, kw_only=True):
    """A point with its part in the valuation: its share of the weight, or why it is left out.

    `converted` is its amount in the valuation's currency, by `rate`.
    """

    weight: float | None
    left_out: str | None
    rate: str | None
    converted: Decimal | None


class PointVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a point until `replaced_at`, when a stronger observation replaced them."""

    point_id: PointId
    nr: int
    kind: PriceKind
    amount: Decimal
    currency: str
    match_strength: float
    observed_at: datetime
    replaced_at: datetime


class SourceFetch(msgspec.Struct, frozen=True, kw_only=True):
    """The latest fetch of an item's prices from one source. The counts are those of the latest that succeeded."""

    item_id: ItemId
    source: SourceName
    looked_at: datetime
    listings: int
    points: int
    found_at: datetime | None
    problem: str | None


class PointFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which points of an item to list. None: all."""

    source: SourceName | None = None
    kind: PriceKind | None = None
    doubted: bool | None = None


class PriceArgs(Args, frozen=True):
    """`looks` is above 0 in a second look, which bypasses the cache."""

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
    """Attributes with normalized names and trimmed values; empty ones are left out."""
    named = ((str(name).strip().lower().replace(" ", "_").replace("-", "_"), value) for name, value in given.items())
    texts = ((_SPELLINGS.get(name, name), str(value).strip()) for name, value in named if value is not None)
    return {name: text for name, text in sorted(texts) if name and text}


_SPELLINGS = {"mintmark": "mint_mark", "mint": "mint_mark"}


class BadWatch(UsageError):
    """A request for a price watch that is not valid."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"this cannot be watched: {problem}")
        self.problem = problem


class WatchNotFound(Nonexistent, UsageError):
    """No price watch has this id, or it was removed."""

    def __init__(self, watch_id: int) -> None:
        super().__init__(f"there is no price watch {watch_id}; `mistnet prices watches` shows them")
        self.watch_id = watch_id


class BadItem(UsageError):
    """Fields of an item are not valid: each problem names its field and its value."""

    def __init__(self, problems: Sequence[tuple[str, str, str]]) -> None:
        super().__init__(
            "; ".join(f"{field} {value[:200]!r}: {problem}" for field, value, problem in problems[:MOST_LISTED])
        )
        self.problems = tuple(problems)


class ItemNotFound(Nonexistent, UsageError):
    """No item has this id, or it was removed."""

    def __init__(self, item_id: int, *, removed: bool = False) -> None:
        why = f"item {item_id} was removed; add it again to follow it" if removed else f"there is no item {item_id}"
        super().__init__(f"{why}; `mistnet items list` shows those that are followed")
        self.item_id, self.removed = item_id, removed


class PointNotFound(UsageError):
    """No price point has this id."""

    def __init__(self, point_id: int) -> None:
        super().__init__(f"there is no point {point_id}; `mistnet items points ID` shows those of an item")
        self.point_id = point_id


class BadRates(UsageError):
    """Rows of a file are not valid rates; nothing was written."""

    def __init__(self, file: str, rows: int, problems: Sequence[str]) -> None:
        super().__init__(
            f"{len(problems)} of {rows} rows of {file} cannot be taken, and nothing was written: "
            f"{list_problems(problems)}. "
            f"Correct them, or leave them out with --skip-bad"
        )
        self.file, self.rows, self.problems = file, rows, tuple(problems)
