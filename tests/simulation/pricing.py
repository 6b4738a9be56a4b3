"""A fleet that asks simulated markets what things cost, while its machines crash and freeze."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import text

from mistnet.app import App
from mistnet.kit.database import Database
from mistnet.prices.model import ItemId
from mistnet.prices.store.items import Items
from mistnet.queue.kinds import Policy
from mistnet.queue.model import WorkerCard, WorkerName
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.worker import Worker
from mistnet.settings import Settings
from mistnet.sim.market import ROUGH, TOKENS, MarketFault, MarketService
from mistnet.sim.market_goods import Good
from tests.markets import ASKED, EbayTransport, ShopsTransport, market_settings, odd_in_truth, request_for, untrue
from tests.shops import LANES
from tests.simulation.virtual import run_virtually
from tests.simulation.world import POLICY, Chaos, Fleet, Machine, VirtualClock, open_database

ALL_SOURCES = (*ASKED, *LANES)
GOODS = 5
SETTINGS: dict[str, Any] = {
    "max_attempts": 1000,
    "breaker_seconds": 60,
    "backoff_base_seconds": 5,
    "ebay_rate_per_minute": 600,
}


@dataclass
class PriceFleet(Fleet):
    """Machines that run the whole app against the same markets."""

    market: MarketService | None = None
    settings: Settings | None = None
    policy: Policy = POLICY

    async def _live(self, machine: Machine) -> None:
        async def point() -> None:
            await machine.point("on the wire")

        assert self.market is not None
        assert self.settings is not None
        app = App(
            self.settings,
            database=machine.database(),
            transports={"ebay_api": EbayTransport(self.market, point), "web": ShopsTransport(self.market, point)},
        )
        tools = app.tools(LocalWakeups(), policy=self.policy, chance=random.Random(f"{self.chaos.seed} {machine.name}"))
        card = WorkerCard(
            name=WorkerName(machine.name), host="box", pid=1, concurrency=4, lanes=list(ALL_SOURCES), version="sim"
        )
        async with app.sources.opened():
            await Worker(tools, card).run()


@dataclass(frozen=True)
class Looked:
    """What came of it: all that is wrong, which questions were answered twice, and how much went wrong on purpose.

    Only where a worker died, or several share a file and find it locked, may a page be asked for again.
    """

    wrong: list[str]
    repeated: list[str]
    crashes: int
    faults: int
    calls: int
    seconds: float
    trace: list[str] = field(default_factory=list)


def look_for_prices(
    url: str,
    folder: Path,
    seed: int,
    *,
    faults: bool = False,
    chaos: Chaos | None = None,
    lease: timedelta | None = None,
    twice: bool = False,
) -> Looked:
    """Follows some goods from nothing until every source was asked for each, and compares."""
    policy = msgspec.structs.replace(POLICY, lease=lease, heartbeat=lease / 15) if lease else POLICY
    return run_virtually(_look(url, folder, seed, ROUGH if faults else {}, chaos, policy, twice=twice))


async def _look(
    url: str,
    folder: Path,
    seed: int,
    faults: Mapping[MarketFault, float],
    chaos: Chaos | None,
    policy: Policy,
    *,
    twice: bool,
) -> Looked:
    clock = VirtualClock()
    database = open_database(url)
    market = MarketService(clock.now, seed=seed, faults=faults)
    settings = Settings.model_validate(market_settings(url, folder, **SETTINGS))
    calm = Chaos(seed, calm=True, crashes_left=0, freezes_left=0)
    fleet = PriceFleet(url, chaos or calm, size=3 if chaos else 1, market=market, settings=settings, policy=policy)
    app = App(
        settings, database=database, transports={"ebay_api": EbayTransport(market), "web": ShopsTransport(market)}
    )
    wrong: list[str] = []
    begun = clock.now()
    try:
        goods = [market.good(seed % 40 + place) for place in range(GOODS)]
        requests = [request_for(good) for good in goods]
        requests += [msgspec.structs.replace(request, ref=f"{request.ref} again") for request in requests if twice]
        ids = [kept.item_id for kept in await Items(database).add(requests, clock.now())]
        followed = dict(zip(ids, [*goods, *goods], strict=False))
        await app.valuing.make_due(app.job_writer)

        async def done() -> bool:
            return not await app.upkeep.work_left(list(app.kinds), list(ALL_SOURCES), now=clock.now())

        try:
            await fleet.run(until=done, deadline=12 * 3600)
        except AssertionError as error:
            wrong.append(str(error))
        wrong += await compare(database, followed, goods)
        lost = await lost_keys(database)
    finally:
        await database.close()
    dead = [line for line in fleet.trace if "CRASHES" in line]
    repeated = [] if chaos or lost else [each for each, times in market.stats.answered.items() if times > 1]
    return Looked(
        wrong,
        [each for each in repeated if not each.startswith(TOKENS)],
        len(dead),
        market.stats.faults.total(),
        sum(times for asked, times in market.stats.answered.items() if not asked.startswith(TOKENS)),
        (clock.now() - begun).total_seconds(),
        fleet.trace,
    )


async def compare(database: Database, followed: Mapping[ItemId, Good], goods: list[Good]) -> list[str]:
    """Everything in the database that is not as the markets have it, in words."""
    async with database.read() as connection:

        async def rows(sql: str, **binds: Any) -> Any:
            return (await connection.execute(text(sql), binds)).all()

        wrong = await untrue(rows, followed)
        looks = {(row.item_id, row.source) for row in await rows("SELECT item_id, source FROM item_looks")}
        never = {(item, source) for item in followed for source in ALL_SOURCES} - looks
        twice = await rows(DOUBLE)
        left = await rows("SELECT key, state, last_error FROM jobs")
        odd = {
            row.source: row.n for row in await rows("SELECT source, count(*) AS n FROM odd_listings GROUP BY source")
        }
        valued = (await rows("SELECT count(*) AS n FROM valuations"))[0].n
        history = await rows(ENDED)
    at = VirtualClock().now()
    return [
        *wrong,
        *(f"{pair} was never looked at" for pair in sorted(never)),
        *(f"{row} is there twice" for row in twice),
        *(f"{row.key} is left {row.state}: {row.last_error}" for row in left),
        *(f"{row.key} ended {row.n} times" for row in history if row.n != 1),
        *(
            f"{source}: {odd.get(source, 0)} odd listings, in truth {wanted}"
            for source in ASKED
            if odd.get(source, 0) != (wanted := odd_in_truth(goods, source, at))
        ),
        *([f"{valued} of {len(followed)} items are valued"] if valued != len(followed) else []),
    ]


async def lost_keys(database: Database) -> int:
    async with database.read() as connection:
        return len((await connection.execute(text(LOST))).all())


DOUBLE = "SELECT item_id, source, dedupe_key FROM price_points GROUP BY item_id, source, dedupe_key HAVING count(*) > 1"
ENDED = "SELECT key, count(*) AS n FROM job_history WHERE kind = 'price' GROUP BY key"
LOST = "SELECT job_id FROM job_errors WHERE error LIKE 'the lease ran out%'"
