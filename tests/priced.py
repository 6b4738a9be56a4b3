"""Simulated shops whose prices, stocks and moods a test decides, and what was told of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from mistnet.queue.model import Outcome
from mistnet.sim.service import SimAnswer
from mistnet.sim.shelf import SimProduct, page, plain_page, shopee_item
from mistnet.sim.shops import MICRO, ShopService, _html, _json
from tests.shops import Town, open_shops
from tests.support import TurnedClock

COIN = "https://shopee.tw/product/178926468/21448123549"
CUP = "https://shop.example.com/coins/morgan-1921"
EBAY = "https://www.ebay.com/itm/155932418766"


class Mood(StrEnum):
    """What a visitor meets."""

    SALE = "sale"
    WALL = "wall"
    GONE = "gone"
    NO_PRICE = "no_price"
    DOWN = "down"


@dataclass(frozen=True)
class Tag:
    """What a thing costs, and whether it is there."""

    price: Decimal
    stock: int = 37
    currency: str | None = None
    mood: Mood = Mood.SALE


class TaggedShops(ShopService):
    """The shops, with tags on some of their things: each is asked for at every visit."""

    def __init__(self, *about: Any, **more: Any) -> None:
        super().__init__(*about, **more)
        self.tags: dict[str, Callable[[], Tag]] = {}

    def _shown(self, thing: SimProduct, host: str, path: str, asked: Mapping[str, str]) -> SimAnswer:
        tag = self.tags[thing.canonical]() if thing.canonical in self.tags else None
        if tag is None:
            return super()._shown(thing, host, path, asked)
        match tag.mood:
            case Mood.WALL:
                return self._wall(host)
            case Mood.GONE:
                return _html(plain_page("This item is no longer available"), status=404)
            case Mood.NO_PRICE:
                return _html(plain_page(thing.title))
            case Mood.DOWN:
                return _html(plain_page("502 Bad Gateway"), status=502)
            case Mood.SALE:
                return self._tagged(replace(thing, currency=tag.currency or thing.currency), tag)

    def _tagged(self, thing: SimProduct, tag: Tag) -> SimAnswer:
        if thing.shop != "shopee":
            body = page(thing, tag.price)
            return _html(
                body if tag.stock else body.replace(b"InStock", b"OutOfStock").replace(b"In stock", b"Sold out")
            )
        micro = int(tag.price * MICRO)
        return _json(shopee_item(thing, (micro, micro), sold=thing.sold(self.now()), stock=tag.stock))


@dataclass
class PricedTown(Town):
    """A town whose prices are set by hand."""

    tags: dict[str, Tag] = field(default_factory=dict)

    def tag(self, thing: str, price: object, **about: Any) -> None:
        self.tags[thing] = Tag(Decimal(str(price)), **about)
        assert isinstance(self.shops, TaggedShops)
        self.shops.tags[thing] = lambda: self.tags[thing]

    async def look(self, *, minutes: float = 60) -> list[Outcome]:
        """The usual look at everything, after a while."""
        self.clock.turn(minutes=minutes)
        await self.app.crawling.make_due(self.app.job_writer)
        return await self.crawl()

    async def second_look(self) -> list[Outcome]:
        """What was asked for, once the pause is over."""
        self.clock.turn(minutes=10)
        return await self.crawl()

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        rows = await self.rows("SELECT kind, payload FROM events WHERE kind LIKE 'price.%' ORDER BY id")
        return [(row.kind, row.payload if isinstance(row.payload, dict) else json.loads(row.payload)) for row in rows]

    async def told(self) -> list[tuple[str, str | None, str | None]]:
        """In short."""
        return [(kind, plain(said["before"]), plain(said["after"])) for kind, said in await self.events()]


def plain(amount: str | None) -> str | None:
    """Pages write cents where there are none."""
    return None if amount is None else f"{Decimal(amount).normalize():f}"


@asynccontextmanager
async def open_priced(url: str, *, clock: TurnedClock | None = None, **settings: Any) -> AsyncIterator[PricedTown]:
    clock = clock or TurnedClock()
    given = {"crawl_every_hours": 0.9, **settings}
    async with open_shops(url, clock, TaggedShops(clock.now), PricedTown, **given) as town:
        yield town
