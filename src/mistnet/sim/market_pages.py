"""How the simulated markets write down what they offer: eBay's records, a shop's JSON, a shop's HTML."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from mistnet.sim.market_goods import Fate, Offer, Way

OPTIONS: Mapping[Way, Sequence[str]] = {
    Way.FIXED: ("FIXED_PRICE",),
    Way.BEST_OFFER: ("FIXED_PRICE", "BEST_OFFER"),
    Way.AUCTION: ("AUCTION",),
    Way.AUCTION_OR_BUY: ("FIXED_PRICE", "AUCTION"),
}


def ebay_summary(offer: Offer) -> Mapping[str, Any]:
    """As the Browse API lists it."""
    told: dict[str, Any] = {
        "itemId": offer.id,
        "title": offer.title,
        "itemWebUrl": f"{offer.url}?hash=item{offer.number % 997:x}",
        "buyingOptions": list(OPTIONS[offer.way]),
    }
    if offer.price is not None:
        told["price"] = {"value": str(offer.price), "currency": offer.currency}
    if offer.bid is not None:
        told["currentBidPrice"] = {"value": str(offer.bid), "currency": offer.currency}
        told["bidCount"] = offer.bids
    if offer.condition:
        told["condition"] = offer.condition
    return _broken(told, offer) if offer.fate is Fate.BROKEN else told


def ebay_sale(offer: Offer) -> Mapping[str, Any]:
    """As Marketplace Insights lists it."""
    told: dict[str, Any] = {
        "itemId": offer.id,
        "title": offer.title,
        "itemWebUrl": offer.url,
        "lastSoldPrice": {"value": str(offer.price), "currency": offer.currency},
        "lastSoldDate": f"{offer.sold_at:%Y-%m-%dT%H:%M:%S}.000Z",
        "totalSoldQuantity": 1,
    }
    if offer.fate is Fate.BROKEN:
        told["lastSoldPrice"] = {"value": "call", "currency": offer.currency}
    return told


def _broken(told: dict[str, Any], offer: Offer) -> Mapping[str, Any]:
    """Each in one of the ways records break."""
    match offer.number % 4:
        case 0:
            return {name: value for name, value in told.items() if name not in ("price", "currentBidPrice")}
        case 1:
            wrong = {"value": "1,2.3x", "currency": offer.currency}
            return told | {name: wrong for name in ("price", "currentBidPrice") if name in told}
        case 2:
            return told | {"title": None}
        case _:
            return told | {"itemId": 17}


def hub_record(offer: Offer) -> Mapping[str, Any]:
    """Amounts in cents; what kind of price it is stands beside."""
    amount = offer.price if offer.price is not None else offer.bid
    kind = {Way.AUCTION: "auction", Way.SOLD: "sold"}.get(offer.way, "fixed")
    told: dict[str, Any] = {
        "sku": offer.id,
        "name": offer.title,
        "offer": {"type": kind, "cents": int((amount or 0) * 100), "currency": offer.currency, "bids": offer.bids},
        "link": f"/coin/{offer.number}",
        "sold_at": offer.sold_at.isoformat() if offer.sold_at else None,
        "grading": {"state": offer.condition},
    }
    if offer.fate is Fate.BROKEN:
        told["offer"] = {"type": kind, "cents": "on request"}
    return told


def cabinet_card(offer: Offer) -> str:
    price = f"US${offer.price:,.2f}" if offer.fate is not Fate.BROKEN else "price on request"
    return (
        f'<li class="coin" data-state="{html.escape(offer.condition or "")}">'
        f'<a class="name" href="/coins/{offer.number}?from=search">{html.escape(offer.title)}</a>'
        f'<span class="was">US$9,999.00</span> <b class="price">{price}</b></li>'
    )


def cabinet_page(cards: Sequence[str], *, next_url: str | None) -> str:
    """A page that lists nothing says so."""
    shown = f'<ul id="coins">{"".join(cards)}</ul>' if cards else '<p class="none">Nothing was found.</p>'
    onward = f'<a rel="next" href="{html.escape(next_url)}">Next</a>' if next_url else ""
    return f"<!doctype html><html><head><title>Cabinet</title></head><body>{shown}{onward}</body></html>"
