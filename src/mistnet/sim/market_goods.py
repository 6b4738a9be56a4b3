"""The goods of the simulated markets: coins with offers and sales, and decoys."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any

from mistnet.sim.clock import DAY_MS, chance, mix, number_of, to_ms

PRICE_DAYS = 3
"""How long a price stays the same."""

COMMON = 23
"""Each nth good has more offers than fit on one page."""

SERIES = (
    ("Morgan", "Dollar", 1878),
    ("Peace", "Dollar", 1921),
    ("Walking Liberty", "Half Dollar", 1916),
    ("Mercury", "Dime", 1916),
    ("Buffalo", "Nickel", 1913),
    ("Lincoln", "Cent", 1909),
)
MINTS = ("D", "S", "O", "")
CONDITIONS = ("Ungraded", "Certified", None)


class Market(StrEnum):
    EBAY = "ebay"
    HUB = "hub"
    """Answers in JSON, with amounts in cents."""
    CABINET = "cabinet"
    """Answers in HTML, with prices as text and without ids."""


class Way(StrEnum):
    """How an item is offered, or was sold."""

    FIXED = "fixed"
    BEST_OFFER = "best_offer"
    AUCTION = "auction"
    AUCTION_OR_BUY = "auction_or_buy"
    SOLD = "sold"


class OfferFate(StrEnum):
    """What an offer really is: the item itself, a decoy, or a broken record."""

    TRUE = "true"
    COPY = "copy"
    LOT = "lot"
    OTHER_YEAR = "other_year"
    BROKEN = "broken"


@dataclass(frozen=True)
class Good:
    """One coin, with a unique word in its title."""

    seed: int
    index: int

    @cached_property
    def _about(self) -> tuple[str, str, int]:
        return SERIES[mix(self.seed, self.index, 1) % len(SERIES)]

    @property
    def code(self) -> str:
        return f"KM{self.index:05d}"

    @property
    def year(self) -> int:
        return self._about[2] + mix(self.seed, self.index, 2) % 20

    @property
    def mint_mark(self) -> str:
        return MINTS[mix(self.seed, self.index, 3) % len(MINTS)]

    @property
    def title(self) -> str:
        """Without year and mint mark, which are attributes."""
        series, denomination, _ = self._about
        return f"{series} {denomination} {self.code}"

    @property
    def attributes(self) -> Mapping[str, str]:
        given = {"year": str(self.year), "series": self._about[0], "denomination": self._about[1]}
        return given | ({"mint_mark": self.mint_mark} if self.mint_mark else {})

    @property
    def worth(self) -> Decimal:
        return Decimal(500 + mix(self.seed, self.index, 4) % 90_000) / 100

    def named(self, year: int | None = None) -> str:
        """The title as sellers write it."""
        minted = f"{year or self.year}-{self.mint_mark}" if self.mint_mark else str(year or self.year)
        return f"{minted} {self.title}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One record of a market. `price` is the fixed or paid price; `bid` is the current or opening bid."""

    number: int
    market: Market
    title: str
    way: Way
    fate: OfferFate
    currency: str
    price: Decimal | None = None
    bid: Decimal | None = None
    bids: int = 0
    condition: str | None = None
    sold_at: datetime | None = None

    @property
    def id(self) -> str:
        return f"v1|{self.number}|0" if self.market is Market.EBAY else f"H-{self.number}"

    @property
    def url(self) -> str:
        host = {Market.EBAY: "www.ebay.com/itm", Market.HUB: "hub.example.com/coin", Market.CABINET: CABINET_COINS}
        return f"https://{host[self.market]}/{self.number}"


CABINET_COINS = "cabinet.example.net/coins"


@dataclass(frozen=True, slots=True)
class Point:
    """What a collector must find out."""

    kind: str
    amount: Decimal
    currency: str


def good_named(seed: int, query: str, goods: int) -> Good | None:
    """The good whose unique word is in a query."""
    for word in query.upper().split():
        if word.startswith("KM") and word[2:].isdecimal() and int(word[2:]) < goods:
            return Good(seed, int(word[2:]))
    return None


def offers(good: Good, market: Market, at: datetime) -> Iterator[Offer]:
    """All records of a market for a good at a time, including decoys and broken ones."""
    luck = chance(good.seed, good.index, number_of(market))
    is_common = market is Market.EBAY and good.index % COMMON == COMMON - 1
    count = luck.randint(201, 240) if is_common else luck.randint(2, 9)
    ways = (Way.FIXED, Way.FIXED, Way.BEST_OFFER, Way.AUCTION, Way.AUCTION, Way.AUCTION_OR_BUY)
    for place in range(count):
        way = luck.choice(ways) if market is Market.EBAY else luck.choice((Way.FIXED, Way.AUCTION))
        if market is Market.CABINET:
            way = Way.FIXED
        yield _offer(good, market, at, way, place, luck.random(), luck.random())


def sales(good: Good, market: Market, at: datetime) -> Iterator[Offer]:
    """Past sales: the same at every request within a time span."""
    if market is Market.CABINET:
        return
    luck = chance(good.seed, good.index, number_of(f"{market} sales"))
    for place in range(luck.randint(0, 4)):
        span = to_ms(at) // (PRICE_DAYS * DAY_MS)
        span_start = datetime.fromtimestamp(span * PRICE_DAYS * DAY_MS / 1000, UTC)
        sold_at = span_start - timedelta(days=luck.randint(1, 60), seconds=luck.randint(0, 86_399))
        # 500: beyond the places of all offers, so that no sale has an offer's number.
        found = _offer(good, market, sold_at, Way.SOLD, 500 + place, luck.random(), luck.random())
        yield replace(found, sold_at=sold_at)


def truth(good: Good, market: Market, at: datetime, *, sold: bool) -> Mapping[str, Point]:
    """The price points that a collector must have after one check, by id, or by URL if there are no ids."""
    found: dict[str, Point] = {}
    for offer in [*offers(good, market, at), *(sales(good, market, at) if sold else ())]:
        name, currency = offer.url if market is Market.CABINET else offer.id, offer.currency
        if offer.fate is not OfferFate.TRUE:
            continue
        if offer.sold_at is not None and offer.price is not None:
            moment = f":sold:{offer.sold_at:%Y%m%dT%H%M%S}" if market is Market.EBAY else ""
            found[f"{name}{moment}"] = Point("sold", offer.price, currency)
        elif offer.price is not None:
            at_once = ":buy_it_now" if offer.way is Way.AUCTION_OR_BUY else ""
            found[f"{name}{at_once}"] = Point("ask", offer.price, currency)
        if offer.bid is not None:
            found[name] = Point("bid" if offer.bids else "ask", offer.bid, currency)
    return found


def broken(good: Good, market: Market, at: datetime, *, sold: bool) -> int:
    """How many records cannot be decoded."""
    shown = [*offers(good, market, at), *(sales(good, market, at) if sold else ())]
    return sum(offer.fate is OfferFate.BROKEN for offer in shown)


def _offer(good: Good, market: Market, at: datetime, way: Way, place: int, luck: float, price_luck: float) -> Offer:
    fate = OfferFate.TRUE
    for decoy, share in (
        (OfferFate.COPY, 0.08),
        (OfferFate.LOT, 0.07),
        (OfferFate.OTHER_YEAR, 0.07),
        (OfferFate.BROKEN, 0.06),
    ):
        luck -= share
        if luck < 0:
            fate = decoy
            break
    titles = {
        OfferFate.COPY: f"{good.named()} COPY",
        OfferFate.LOT: f"Lot of 5 {good.named()}",
        OfferFate.OTHER_YEAR: good.named(good.year + 31),
    }
    number = 10**9 + mix(good.seed, good.index, number_of(market), place) % 10**11
    # Prices of an item rise and fall together, by a tenth at most.
    span = to_ms(at) // (PRICE_DAYS * DAY_MS)
    tide = 1 + Decimal(mix(good.seed, good.index, 5, span) % 21 - 10) / 100
    worth = good.worth * Decimal(str(round(0.8 + 0.4 * price_luck, 3))) * tide
    price = max(worth.quantize(Decimal("0.01")), Decimal("0.50"))
    auctioned = way in (Way.AUCTION, Way.AUCTION_OR_BUY)
    bids = mix(good.seed, good.index, place, 9) % 4 if auctioned else 0
    return Offer(
        number=number,
        market=market,
        title=titles.get(fate, good.named()),
        way=way,
        fate=fate,
        currency="USD",
        price=None if way is Way.AUCTION else price,
        bid=(price * Decimal("0.7")).quantize(Decimal("0.01")) if auctioned else None,
        bids=bids,
        condition=CONDITIONS[number % len(CONDITIONS)],
    )


OPTIONS: Mapping[Way, Sequence[str]] = {
    Way.FIXED: ("FIXED_PRICE",),
    Way.BEST_OFFER: ("FIXED_PRICE", "BEST_OFFER"),
    Way.AUCTION: ("AUCTION",),
    Way.AUCTION_OR_BUY: ("FIXED_PRICE", "AUCTION"),
}


def ebay_summary(offer: Offer) -> Mapping[str, Any]:
    """The record in the format of the Browse API."""
    payload: dict[str, Any] = {
        "itemId": offer.id,
        "title": offer.title,
        "itemWebUrl": f"{offer.url}?hash=item{offer.number % 997:x}",
        "buyingOptions": list(OPTIONS[offer.way]),
    }
    if offer.price is not None:
        payload["price"] = {"value": str(offer.price), "currency": offer.currency}
    if offer.bid is not None:
        payload["currentBidPrice"] = {"value": str(offer.bid), "currency": offer.currency}
        payload["bidCount"] = offer.bids
    if offer.condition:
        payload["condition"] = offer.condition
    if offer.fate is OfferFate.BROKEN:
        prices = [name for name in ("price", "currentBidPrice") if name in payload]
        match offer.number % 4:
            case 0:
                return {name: value for name, value in payload.items() if name not in prices}
            case 1:
                return payload | {name: {"value": "1,2.3x", "currency": offer.currency} for name in prices}
            case 2:
                return payload | {"title": None}
            case _:
                return payload | {"itemId": 17}
    return payload


def ebay_sale(offer: Offer) -> Mapping[str, Any]:
    """The record in the format of Marketplace Insights."""
    payload: dict[str, Any] = {
        "itemId": offer.id,
        "title": offer.title,
        "itemWebUrl": offer.url,
        "lastSoldPrice": {"value": str(offer.price), "currency": offer.currency},
        "lastSoldDate": f"{offer.sold_at:%Y-%m-%dT%H:%M:%S}.000Z",
        "totalSoldQuantity": 1,
    }
    if offer.fate is OfferFate.BROKEN:
        payload["lastSoldPrice"] = {"value": "call", "currency": offer.currency}
    return payload


def hub_record(offer: Offer) -> Mapping[str, Any]:
    """Amounts in cents, with the kind of price beside."""
    amount = offer.price if offer.price is not None else offer.bid
    kind = {Way.AUCTION: "auction", Way.SOLD: "sold"}.get(offer.way, "fixed")
    payload: dict[str, Any] = {
        "sku": offer.id,
        "name": offer.title,
        "offer": {"type": kind, "cents": int((amount or 0) * 100), "currency": offer.currency, "bids": offer.bids},
        "link": f"/coin/{offer.number}",
        "sold_at": offer.sold_at.isoformat() if offer.sold_at else None,
        "grading": {"state": offer.condition},
    }
    if offer.fate is OfferFate.BROKEN:
        payload["offer"] = {"type": kind, "cents": "on request"}
    return payload


def cabinet_card(offer: Offer) -> str:
    price = f"US${offer.price:,.2f}" if offer.fate is not OfferFate.BROKEN else "price on request"
    return (
        f'<li class="coin" data-state="{html.escape(offer.condition or "")}">'
        f'<a class="name" href="/coins/{offer.number}?from=search">{html.escape(offer.title)}</a>'
        f'<span class="was">US$9,999.00</span> <b class="price">{price}</b></li>'
    )


def cabinet_page(cards: Sequence[str], *, next_url: str | None) -> str:
    """An HTML page of records, or one that says that there are none."""
    shown = f'<ul id="coins">{"".join(cards)}</ul>' if cards else '<p class="none">Nothing was found.</p>'
    onward = f'<a rel="next" href="{html.escape(next_url)}">Next</a>' if next_url else ""
    return f"<!doctype html><html><head><title>Cabinet</title></head><body>{shown}{onward}</body></html>"
