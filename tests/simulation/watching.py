"""Shops whose prices move, lie, stumble and shut their doors, watched by a fleet whose machines crash and freeze."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import msgspec
from sqlalchemy import text

from mistnet.app import App
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseBusy
from mistnet.prices.watches import WatchKind, WatchRequest
from mistnet.settings import Settings
from mistnet.shops.model import ProductId
from mistnet.sim.shops import ShopFault
from mistnet.sim.world import World
from tests.priced import COIN, CUP, EBAY, Mood, Tag, TaggedShops, plain
from tests.shops import LANES, WRITER, ShopTransport, post
from tests.simulation.crawling import SETTINGS, CrawlFleet
from tests.simulation.virtual import run_virtually
from tests.simulation.world import POLICY, Chaos, VirtualClock, open_database
from tests.support import START
from tests.worlds import SMALLEST, WorldTransport, service_of

HEADPHONES = "https://shopee.tw/product/33012345/18807712345"
THINGS = (COIN, CUP, EBAY, HEADPHONES)
PATIENT = msgspec.structs.replace(
    POLICY,
    lease=timedelta(seconds=60),
    heartbeat=timedelta(seconds=25),
    reclaim=timedelta(seconds=400),
    idle_poll=timedelta(seconds=90),
)
STAYS = timedelta(minutes=48)
"""How long a price lasts."""

PLATEAUS = 3
END = START + STAYS * PLATEAUS + STAYS / 2
EVERY_HOURS = 0.15
PAUSE = timedelta(minutes=2)
TARGET = 900
CALM_FROM = timedelta(minutes=22)
"""From then on a price is told as it is, so that a second look can confirm it."""

UNSETTLED: Mapping[ShopFault, float] = {
    ShopFault.SERVER_ERROR: 0.06,
    ShopFault.TIMEOUT: 0.03,
    ShopFault.CUT_BODY: 0.03,
    ShopFault.RATE_LIMITED: 0.02,
    ShopFault.CAPTCHA: 0.04,
}


@dataclass(frozen=True)
class Plateau:
    """A price that lasts, and what happens to visitors for a while in the middle of it."""

    price: int
    stock: int
    mood: Mood


@dataclass
class Truth:
    """What each thing costs at any time, decided by one seed; and all that visitors are told besides."""

    seed: int
    clock: VirtualClock
    calm: bool = False
    lies: int = 0
    visits: int = 0

    def __post_init__(self) -> None:
        chance = random.Random(f"prices {self.seed}")
        self.plateaus = {thing: self._plateaus(chance) for thing in THINGS}
        self._chance = random.Random(f"lies {self.seed}")
        self._away: set[tuple[str, int]] = set()

    def _plateaus(self, chance: random.Random) -> list[Plateau]:
        made = [Plateau(1000, 37, Mood.SALE)]
        while len(made) < PLATEAUS:
            price = chance.choice([made[-1].price, 1000, 950, 1040, 700, 820, 1300, 1600])
            mood = chance.choice([Mood.SALE, Mood.SALE, Mood.WALL, Mood.NO_PRICE, Mood.DOWN])
            made.append(Plateau(price, chance.choice([37, 37, 0]), mood))
        return made

    def at(self, thing: str, now: datetime) -> Plateau:
        place = int((now - START) / STAYS)
        return self.plateaus[thing][min(place, PLATEAUS - 1)]

    def tag(self, thing: str) -> Tag:
        """Now and then a visit is told what is not so: once, and never the same."""
        now = self.clock.now()
        true, self.visits = self.at(thing, now), self.visits + 1
        into = (now - START) % STAYS
        if timedelta(minutes=11) < into < timedelta(minutes=17):
            return Tag(Decimal(true.price), true.stock, mood=true.mood)
        lie = self._chance.random()
        if self.calm or lie > 0.2 or into > CALM_FROM:
            return Tag(Decimal(true.price), true.stock)
        self.lies += 1
        if lie < 0.05:
            return Tag(Decimal(true.price), self._other_stock(thing, true, now))
        if lie < 0.1:
            return Tag(Decimal(true.price) + self.lies + Decimal("0.37"), true.stock)
        return Tag(Decimal(true.price * self._chance.choice([6, 7, 13, 15])) / 10 + self.lies, true.stock)

    def _other_stock(self, thing: str, true: Plateau, now: datetime) -> int:
        """Stock has two sides only: told wrong twice in a row it could not be known from the truth."""
        place = (thing, (now - START) // STAYS)
        if place in self._away:
            return true.stock
        self._away.add(place)
        return 0 if true.stock else 37

    def changes(self, thing: str, percent: int) -> list[tuple[str, str]]:
        told, known = list[tuple[str, str]](), self.plateaus[thing][0].price
        for each in self.plateaus[thing]:
            if abs(each.price - known) * 100 > percent * known:
                told.append((str(known), str(each.price)))
                known = each.price
        return told

    def falls(self, thing: str) -> list[str]:
        prices = [each.price for each in self.plateaus[thing]]
        pairs = zip([TARGET, *prices], prices, strict=False)
        return [str(price) for before, price in pairs if price < TARGET <= before]

    def returns(self, thing: str) -> int:
        stocks = [each.stock for each in self.plateaus[thing]]
        return sum(not before and bool(now) for before, now in pairwise(stocks))


@dataclass(frozen=True)
class Watched:
    """What came of it, and how much went wrong on purpose."""

    wrong: list[str]
    told: int
    lies: int
    crashes: int
    faults: int
    trace: list[str] = field(default_factory=list)


def watch_prices(url: str, seed: int, *, chaos: Chaos) -> Watched:
    return run_virtually(_watch_prices(url, seed, chaos))


def settings_for(url: str) -> Settings:
    own = {
        "crawl_every_hours": EVERY_HOURS,
        "crawl_second_look_seconds": PAUSE.total_seconds(),
        "backoff_base_seconds": 5,
    }
    return Settings.model_validate({"database_url": url, **SETTINGS, **own})


@dataclass
class Restless(Chaos):
    """Trouble for hours, not at the beginning alone."""

    crash: float = 0.0004
    freeze: float = 0.0004

    def strikes(self) -> str | None:
        asked, self.calm = self.calm, False
        try:
            return super().strikes()
        finally:
            self.calm = asked


class WatchFleet(CrawlFleet):
    """As others, but for hours: less of what machines do without being asked."""

    def settings(self) -> Settings:
        return settings_for(self.url)


async def _watch_prices(url: str, seed: int, chaos: Chaos) -> Watched:
    clock = VirtualClock()
    database = open_database(url)
    truth, service = Truth(seed, clock, calm=True), service_of(World(seed, SMALLEST))
    shops = TaggedShops(clock.now, seed=seed, faults=UNSETTLED)
    for thing in THINGS:
        shops.tags[thing] = _tagging(truth, thing)
    fleet = WatchFleet(url, chaos, size=2, service=service, shops=shops, policy=PATIENT)
    app = App(
        settings_for(url), database=database, transports={"x": WorldTransport(service), "web": ShopTransport(shops)}
    )
    wrong: list[str] = []
    try:
        async with database.transaction() as connection:
            posted = [post(number + 1, thing) for number, thing in enumerate(THINGS)]
            await app.writers.write(connection, app.writers.prepare([WRITER, *posted]), clock.now())
        try:
            await fleet.run(until=lambda: _all_seen(app, truth), deadline=24 * 3600)
        except AssertionError as error:
            wrong.append(str(error))
        told = await _events(database)
        wrong += compare(told, truth, await _names(database))
        wrong += await _left(database)
    finally:
        await database.close()
    crashes = sum("CRASHES" in line for line in fleet.trace)
    return Watched(wrong, len(told), truth.lies, crashes, shops.stats.faults.total(), fleet.trace)


def _tagging(truth: Truth, thing: str) -> Any:
    return lambda: truth.tag(thing)


async def _all_seen(app: App, truth: Truth) -> bool:
    """Watches everything once it was seen, has it looked at again and again, and waits until the last price lasted."""
    now = app.database.clock.now()
    if truth.calm:
        await _begin(app, truth)
        return False
    if now > END:
        return not await app.upkeep.work_left([*app.kinds], list(LANES), now=now)
    with suppress(DatabaseBusy):
        if now.minute % 3 == 0:
            await app.crawling.make_due(app.job_writer)
    return False


async def _begin(app: App, truth: Truth) -> None:
    async with app.database.read() as connection:
        seen = (await connection.execute(text("SELECT id FROM products WHERE offer_id IS NOT NULL"))).scalars().all()
    if len(seen) < len(THINGS):
        return
    for product_id in map(ProductId, seen):
        for wanted in (
            WatchRequest(kind=WatchKind.CHANGED, product_id=product_id, percent=10.0),
            WatchRequest(kind=WatchKind.BACK_IN_STOCK, product_id=product_id),
            WatchRequest(kind=WatchKind.BELOW, product_id=product_id, target=Decimal(TARGET), currency="TWD"),
        ):
            await app.price_watches.add(wanted)
    truth.calm = False


async def _events(database: Database) -> Sequence[tuple[str, dict[str, Any]]]:
    async with database.read() as connection:
        asked = text("SELECT kind, payload FROM events WHERE kind LIKE 'price.%' ORDER BY id")
        rows = (await connection.execute(asked)).all()
    return [(row.kind, row.payload if isinstance(row.payload, dict) else json.loads(row.payload)) for row in rows]


async def _names(database: Database) -> dict[str, str]:
    async with database.read() as connection:
        rows = (await connection.execute(text("SELECT id, url FROM products"))).all()
    return {str(row.id): row.url for row in rows}


async def _left(database: Database) -> list[str]:
    """Second looks that failed."""
    async with database.read() as connection:
        rows = (await connection.execute(text("SELECT key, state FROM jobs WHERE key LIKE 'again:%'"))).all()
    return [f"{row.key} is {row.state}" for row in rows if row.state in ("dead", "failed")]


def compare(told: Sequence[tuple[str, dict[str, Any]]], truth: Truth, names: Mapping[str, str]) -> list[str]:
    """What was told and what was true, thing by thing, in order."""
    wrong = []
    for thing in THINGS:
        own = [(kind, said) for kind, said in told if names[said["product_id"]] == thing]
        changed = [(plain(said["before"]), plain(said["after"])) for kind, said in own if kind == "price.changed"]
        if changed != truth.changes(thing, 10):
            wrong.append(f"{thing}: told of changes {changed}, in truth {truth.changes(thing, 10)}")
        below = [plain(said["after"]) for kind, said in own if kind == "price.below_target"]
        fell = truth.falls(thing) if thing in (COIN, HEADPHONES) else []
        if below != fell:
            wrong.append(f"{thing}: told of falls to {below}, in truth {fell}")
        back = sum(kind == "price.back_in_stock" for kind, _ in own)
        if back != truth.returns(thing):
            wrong.append(f"{thing}: told {back} times that it is back, in truth {truth.returns(thing)}")
    return wrong
