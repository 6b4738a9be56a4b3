"""Reads eBay's listings one by one: what is asked, what was bid, what was paid. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from mistnet.kit.text import web_url
from mistnet.prices.model import PriceListing, UnreadableListing
from mistnet.shops.model import PriceKind
from mistnet.sources.market.amounts import IllegibleAmount, count, currency, exact, moment

FIXED_PRICE: Final = "FIXED_PRICE"
BEST_OFFER: Final = "BEST_OFFER"
AUCTION: Final = "AUCTION"
_KEPT: Final = 20_000


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the Browse API and Marketplace Insights tell of a listing, as far as it is used here."""

    item_id: str
    title: str
    item_web_url: str
    price: Mapping[str, Any] | None = None
    current_bid_price: Mapping[str, Any] | None = None
    bid_count: Any = None
    buying_options: Sequence[str] = ()
    condition: str | None = None
    item_end_date: str | None = None
    last_sold_price: Mapping[str, Any] | None = None
    last_sold_date: str | None = None


_summary = msgspec.json.Decoder(Summary, float_hook=exact).decode


def for_sale(raw: bytes, *, now: datetime) -> Sequence[PriceListing] | UnreadableListing:
    """An auction that can be bought at once asks a price and has a bid, or an opening price, beside it."""
    try:
        told = _summary(raw)
        _require_open(told, now)
        found = [*_asks(told, now), *_auctioned(told, now)]
    except (IllegibleAmount, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return UnreadableListing(problem=str(error), payload=raw[:_KEPT])
    return found or UnreadableListing(problem="neither a price nor a bid is told", payload=raw[:_KEPT])


def sold(raw: bytes, *, now: datetime) -> Sequence[PriceListing] | UnreadableListing:
    """One listing may be sold many times: each sale is an observation of its own."""
    try:
        told = _summary(raw)
        at = _sold_at(told, now)
        return [_listing(told, PriceKind.SOLD, told.last_sold_price, at, suffix=f":sold:{at:%Y%m%dT%H%M%S}")]
    except (IllegibleAmount, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return UnreadableListing(problem=str(error), payload=raw[:_KEPT])


def _require_open(told: Summary, now: datetime) -> None:
    if told.item_end_date is not None and moment(told.item_end_date) < now:
        raise IllegibleAmount(f"it ended at {told.item_end_date} and is for sale no more")


def _sold_at(told: Summary, now: datetime) -> datetime:
    at = moment(told.last_sold_date)
    if at > now:
        raise IllegibleAmount(f"it was sold at {told.last_sold_date!r}, which is still to come")
    return at


def _asks(told: Summary, now: datetime) -> Sequence[PriceListing]:
    is_auction = AUCTION in told.buying_options
    at_once = {FIXED_PRICE, BEST_OFFER} & set(told.buying_options)
    if told.price is None or not at_once or (is_auction and FIXED_PRICE not in at_once):
        return []
    return [_listing(told, PriceKind.ASK, told.price, now, suffix=":buy_it_now" if is_auction else "")]


def _auctioned(told: Summary, now: datetime) -> Sequence[PriceListing]:
    """Without a bid, eBay's current bid is the price the seller opens with."""
    if AUCTION not in told.buying_options:
        return []
    bids = count(told.bid_count) if told.bid_count is not None else 0
    if bids:
        return [_listing(told, PriceKind.BID, told.current_bid_price, now, bids=bids)]
    opening = told.current_bid_price
    if opening is None and FIXED_PRICE not in told.buying_options:
        opening = told.price
    return [] if opening is None else [_listing(told, PriceKind.ASK, opening, now, bids=0)]


def _listing(
    told: Summary,
    kind: PriceKind,
    price: Mapping[str, Any] | None,
    at: datetime,
    *,
    suffix: str = "",
    bids: int | None = None,
) -> PriceListing:
    if price is None:
        raise IllegibleAmount(f"no {kind} price is told")
    url = web_url(told.item_web_url)
    if not told.item_id.strip() or not told.title.strip() or not url:
        raise IllegibleAmount("its itemId or title is empty, or its itemWebUrl is no address of a page")
    return PriceListing(
        kind=kind,
        amount=exact(price.get("value")),
        currency=currency(price.get("currency")),
        title=told.title.strip(),
        url=url,
        observed_at=at,
        external_id=f"{told.item_id.strip()}{suffix}",
        condition=told.condition or None,
        bid_count=bids,
    )
