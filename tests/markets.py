"""What tests of prices share: the simulated markets in this process, an app on them, and what is true of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered
from mistnet.prices.model import PRICE, Item, ItemId, ItemRequest, ItemState
from mistnet.prices.store.items import Items
from mistnet.queue.model import Outcome
from mistnet.settings import load_settings
from mistnet.sim.market import (
    CLIENT_ID,
    CLIENT_SECRET,
    HUB_KEY,
    HUB_VARIABLE,
    SHOPS_FILE,
    MarketFault,
    MarketService,
)
from mistnet.sim.market_goods import Good, Market, broken, truth
from mistnet.sim.service import NeverAnswers, SimAnswer
from mistnet.sources.web.port import Readable, SafeUrl, WebAnswer
from tests.databases import make_app
from tests.stepping import Stepping
from tests.support import START, TurnedClock

ASKED = ("ebay_api", "hub", "cabinet")
"""Sources that are asked over HTTP; each has a market behind it."""

MARKETS: Mapping[str, Market] = {"ebay_api": Market.EBAY, "hub": Market.HUB, "cabinet": Market.CABINET}
Wait = Callable[[], Awaitable[None]]


async def _at_once() -> None:
    await asyncio.sleep(0)


def _whole(answer: SimAnswer) -> SimAnswer:
    if answer.cut:
        raise Unanswered("the answer was cut short")
    return answer


class EbayTransport:
    """eBay's API, called in-process."""

    def __init__(self, market: MarketService, wait: Wait = _at_once) -> None:
        self.market, self._wait = market, wait

    async def send(self, request: HttpRequest) -> HttpAnswer:
        await self._wait()
        form = urlencode(request.form).encode() if request.form is not None else b""
        query = urlencode(request.query)
        try:
            found = self.market.handle(request.method, "api.ebay.com", request.path, query, request.headers, form)
        except NeverAnswers:
            raise Unanswered("no answer in time") from None
        await self._wait()
        answer = _whole(found)
        return HttpAnswer(status=answer.status, headers=answer.headers, body=answer.body)


class ShopsTransport:
    """The two shops of the file, called in-process."""

    def __init__(self, market: MarketService, wait: Wait = _at_once) -> None:
        self.market, self._wait = market, wait

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        await self._wait()
        path, _, query = target.url.split("://", 1)[1].partition("/")[2].partition("?")
        try:
            found = self.market.handle("GET", target.host, f"/{path}", query, headers)
        except NeverAnswers:
            raise Unanswered("no answer in time") from None
        await self._wait()
        answer = _whole(found)
        unread = readable(answer.status, answer.headers)
        return WebAnswer(status=answer.status, headers=answer.headers, body=answer.body, unread=unread)


def request_for(good: Good, **about: Any) -> ItemRequest:
    return ItemRequest(title=good.title, ref=good.code, attributes=good.attributes, **about)


def an_item(title: str = "Morgan Dollar KM00001", **about: Any) -> Item:
    given: dict[str, Any] = {"id": ItemId(1), "state": ItemState.ACTIVE, "added_at": START, "changed_at": START}
    return Item(title=title, **{**given, **about})


def shops_file(folder: Path) -> Path:
    """The file that describes the simulated shops, and the secret one of them wants."""
    os.environ[HUB_VARIABLE] = HUB_KEY
    file = folder / "shops.toml"
    file.write_text(SHOPS_FILE)
    return file


def market_settings(url: str, folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "database_url": url,
        "ebay_client_id": CLIENT_ID,
        "ebay_client_secret": CLIENT_SECRET,
        "ebay_listings": 400,
        "ebay_sold": True,
        "ebay_rate_per_minute": 100_000,
        "price_sources": shops_file(folder),
        "crawl_second_look_seconds": 1,
        "x_api_key": [],
        **more,
    }


@dataclass
class Fair(Stepping):
    """With the simulated markets behind the app."""

    KIND = PRICE

    market: MarketService

    @property
    def items(self) -> Items:
        return Items(self.app.database)

    async def follow(self, *item_requests: ItemRequest) -> Sequence[ItemId]:
        return [kept.item_id for kept in await self.items.add(item_requests, self.clock.now())]

    async def ask(self, *item_ids: ItemId, sources: Sequence[str] | None = None) -> int:
        made = await self.app.valuing.ask(item_ids, sources, self.app.job_writer)  # type: ignore[arg-type]
        return made.created

    async def look(self) -> list[Outcome]:
        return await self.all_steps()


@asynccontextmanager
async def open_fair(
    url: str,
    folder: Path,
    *,
    seed: int = 7,
    faults: Mapping[MarketFault, float] | None = None,
    **settings: Any,
) -> AsyncIterator[Fair]:
    clock = TurnedClock()
    market = MarketService(clock.now, seed=seed, faults=faults)
    given = load_settings(**market_settings(url, folder, **settings))
    app = make_app(given, clock=clock, transports={"ebay_api": EbayTransport(market), "web": ShopsTransport(market)})
    try:
        async with app.sources.opened():
            yield Fair(app=app, clock=clock, market=market)
    finally:
        await app.database.close()


POINTS = "SELECT source, external_id, url, kind, amount, currency FROM price_points WHERE item_id = :item"
LOOKS = "SELECT item_id, source, looked_at, listings, points, problem FROM item_looks"
ODD = "SELECT source, count(*) AS n FROM odd_listings GROUP BY source"


async def untrue(
    rows: Callable[..., Awaitable[Sequence[Any]]], goods: Mapping[ItemId, Good], *, sources: Sequence[str] = ASKED
) -> list[str]:
    """Everything that is not as the markets have it, in words."""
    wrong: list[str] = []
    looked = {(row.item_id, row.source): row for row in await rows(LOOKS)}
    for item_id, good in goods.items():
        found = await rows(POINTS, item=item_id)
        for source in sources:
            look = looked.get((item_id, source))
            if look is None:
                wrong.append(f"item {item_id} was never looked for at {source}")
                continue
            at = moment_of(look.looked_at)
            wanted = {
                name: (point.kind, point.amount, point.currency)
                for name, point in truth(good, MARKETS[source], at, sold=True).items()
            }
            have = {
                row.external_id or row.url.partition("?")[0]: (row.kind, Decimal(row.amount), row.currency)
                for row in found
                if row.source == source
            }
            if have != wanted:
                odd = set(have.items()) ^ set(wanted.items())
                wrong.append(f"{good.code} at {source}: {sorted(odd)[:4]}")
    return wrong


def odd_in_truth(goods: Sequence[Good], source: str, at: datetime) -> int:
    return sum(broken(good, MARKETS[source], at, sold=True) for good in goods)


def moment_of(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
