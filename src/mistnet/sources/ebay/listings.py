"""Decode eBay's listings one by one: asking prices, bids and sales. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from mistnet.kit.text import web_url
from mistnet.prices.model import PriceListing, UnreadableListing
from mistnet.shops.model import PriceKind
from mistnet.sources.price_answers import IllegibleAmount, count, currency, exact, moment

FIXED_PRICE: Final = "FIXED_PRICE"
BEST_OFFER: Final = "BEST_OFFER"
AUCTION: Final = "AUCTION"
_KEPT: Final = 20_000


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a listing that are used, from the Browse API and Marketplace Insights."""

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


def read_for_sale(raw: bytes, *, now: datetime) -> Sequence[PriceListing] | UnreadableListing:
    """An auction with a fixed price yields two listings: the asking price, and the bid or opening price."""
    try:
        summary = _summary(raw)
        if summary.item_end_date is not None and moment(summary.item_end_date) < now:
            raise IllegibleAmount(f"it ended at {summary.item_end_date} and is for sale no more")  # noqa: TRY301
        is_auction = AUCTION in summary.buying_options
        at_once = {FIXED_PRICE, BEST_OFFER} & set(summary.buying_options)
        found: list[PriceListing] = []
        if summary.price is not None and at_once and not (is_auction and FIXED_PRICE not in at_once):
            suffix = ":buy_it_now" if is_auction else ""
            found.append(_listing(summary, PriceKind.ASK, summary.price, now, suffix=suffix))
        found += _read_bids(summary, now) if is_auction else []
    except (IllegibleAmount, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return UnreadableListing(problem=str(error), payload=raw[:_KEPT])
    return found or UnreadableListing(problem="neither a price nor a bid is told", payload=raw[:_KEPT])


def read_sold(raw: bytes, *, now: datetime) -> Sequence[PriceListing] | UnreadableListing:
    """One listing may be sold many times: each sale is a separate observation."""
    try:
        summary = _summary(raw)
        at = moment(summary.last_sold_date)
        if at > now:
            raise IllegibleAmount(f"it was sold at {summary.last_sold_date!r}, which is still to come")  # noqa: TRY301
        return [_listing(summary, PriceKind.SOLD, summary.last_sold_price, at, suffix=f":sold:{at:%Y%m%dT%H%M%S}")]
    except (IllegibleAmount, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return UnreadableListing(problem=str(error), payload=raw[:_KEPT])


def _read_bids(summary: Summary, now: datetime) -> list[PriceListing]:
    """Without bids, eBay's current bid is the seller's opening price."""
    bids = count(summary.bid_count) if summary.bid_count is not None else 0
    if bids:
        return [_listing(summary, PriceKind.BID, summary.current_bid_price, now, bids=bids)]
    opening = summary.current_bid_price
    if opening is None and FIXED_PRICE not in summary.buying_options:
        opening = summary.price
    return [] if opening is None else [_listing(summary, PriceKind.ASK, opening, now, bids=0)]


def _listing(
    summary: Summary,
    kind: PriceKind,
    price: Mapping[str, Any] | None,
    at: datetime,
    *,
    suffix: str = "",
    bids: int | None = None,
) -> PriceListing:
    if price is None:
        raise IllegibleAmount(f"no {kind} price is told")
    url = web_url(summary.item_web_url)
    if not summary.item_id.strip() or not summary.title.strip() or not url:
        raise IllegibleAmount("its itemId or title is empty, or its itemWebUrl is no address of a page")
    return PriceListing(
        kind=kind,
        amount=exact(price.get("value")),
        currency=currency(price.get("currency")),
        title=summary.title.strip(),
        url=url,
        observed_at=at,
        external_id=f"{summary.item_id.strip()}{suffix}",
        condition=summary.condition or None,
        bid_count=bids,
    )
