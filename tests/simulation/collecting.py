"""A fleet that collects a simulated world while its machines crash and freeze, all decided by one seed number."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from mistnet.app import App
from mistnet.domain.jobs import WorkerName
from mistnet.domain.ports import WorkerCard
from mistnet.engine.worker import Worker
from mistnet.jobs import args
from mistnet.settings import Settings
from mistnet.sim.people import Size
from mistnet.sim.service import XService
from mistnet.sim.world import World
from mistnet.store.bells import LocalBell
from mistnet.store.database import Database
from tests.simulation.virtual import counted_asyncpg, inline_sqlite, run_virtually
from tests.simulation.world import POLICY, Chaos, Fleet, Machine, VirtualClock
from tests.worlds import KEY, Oracle, WorldTransport, service_of

SETTINGS: dict[str, Any] = {
    "x_api_key": KEY,
    "x_rate_per_minute": 60_000,
    "second_look_seconds": 30,
    "batch_fill_seconds": 20,
    "max_attempts": 1000,
    "breaker_seconds": 60,
}


def settings_for(url: str) -> Settings:
    return Settings.model_validate({"database_url": url, **SETTINGS})


@dataclass
class HarvestFleet(Fleet):
    """Machines that run the whole collecting app against one world."""

    service: XService | None = None
    concurrency: int = 4

    async def _live(self, machine: Machine) -> None:
        async def point() -> None:
            await machine.point("on the wire")

        assert self.service is not None
        app = App(
            settings_for(self.url),
            database=machine.database(),
            transport=WorldTransport(self.service, point),
        )
        tools = app.tools(LocalBell(), policy=POLICY, chance=random.Random(f"{self.chaos.seed} {machine.name}"))
        card = WorkerCard(
            name=WorkerName(machine.name), host="box", pid=1, concurrency=self.concurrency, lanes=["x"], version="sim"
        )
        async with app.harvest.opened():
            await Worker(tools, card).run()


@dataclass(frozen=True)
class Harvested:
    faults: list[str]
    crashes: int
    spent: int
    ledger: int
    trace: list[str] = field(default_factory=list)


def harvest(url: str, seed: int, *, size: Size | str, faults: str, chaos: Chaos | None = None) -> Harvested:
    """Collects one world from nothing, and compares."""
    return run_virtually(_harvest(url, seed, size, faults, chaos))


async def _harvest(url: str, seed: int, size: Size | str, faults: str, chaos: Chaos | None) -> Harvested:
    creator = inline_sqlite([]) if url.startswith("sqlite") else counted_asyncpg("oracle", [])
    database = Database(url, clock=VirtualClock(), connect_args={"async_creator_fn": creator})
    world = World(seed, size)
    service, oracle = service_of(world, faults=faults), Oracle(world)
    calm = Chaos(seed, calm=True, crashes_left=0, freezes_left=0)
    fleet = HarvestFleet(url, chaos or calm, size=3 if chaos else 1, service=service, concurrency=4 if chaos else 8)
    app = App(settings_for(url), database=database, transport=WorldTransport(service))
    problems: list[str] = []
    try:
        await app.enqueue([args.suggestion(handle) for handle in oracle.suggested])

        async def done() -> bool:
            return not await app.upkeep.work_left(list(app.kinds), ["x"], now=database.clock.now())

        try:
            await fleet.run(until=done, deadline=12 * 3600)
        except AssertionError as error:
            problems.append(str(error))
        problems += await oracle.compare(database)
        async with database.read() as connection:
            ledger = (await connection.execute(text("SELECT COALESCE(SUM(credits), 0) FROM calls"))).scalar_one()
    finally:
        await database.close()
    crashes = sum("CRASHES" in line for line in fleet.trace)
    return Harvested(problems, crashes, sum(service.stats.credits.values()), int(ledger), fleet.trace)
