"""Points written by looks, and items valued: mistnet and the bare drivers take turns in one process and database.

python -m bench.points.mistnet_side points --dsn DSN --jobs POINTS --batch POINTS_PER_LOOK
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop
from loguru import logger
from sqlalchemy import func, insert, select

from bench.collect.common import SECONDS, TIMES, Figure, Options, emit
from bench.collect.side import database_url, install, kind_of
from bench.points.bare import Bare, bare
from bench.points.stock import AT, look
from mistnet.kit.database import Database
from mistnet.prices.model import ItemId, PriceFetch
from mistnet.prices.store.points import PointWriter
from mistnet.prices.store.valuations import revalue
from mistnet.prices.tables import items, price_points, valuations

POINTS_PER_SECOND = "points/s"
TURN = 20
"""So many looks of one side, then as many of the other: a busy moment of the machine falls on both."""


@dataclass
class Stopwatch:
    """The seconds each side took for each thing."""

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    async def time(self, what: str, side: str, doing: Callable[[], Awaitable[object]]) -> None:
        begun = time.perf_counter()
        await doing()
        self.seconds[what, side] = self.seconds.get((what, side), 0.0) + time.perf_counter() - begun


def points(options: Options) -> list[Figure]:
    logger.disable("mistnet")
    asyncio.run(install(options))
    return uvloop.run(_measured(options))


async def _measured(options: Options) -> list[Figure]:
    looks, watch = options.jobs // options.batch, Stopwatch()
    database, driver = Database(database_url(options)), await bare(options.dsn)
    try:
        await _add_items(database, 2 * looks)
        for again in (False, True):
            for turn in range(0, looks, TURN):
                ours = range(turn + 1, min(turn + TURN, looks) + 1)
                await _turn(watch, database, driver, ours, looks, options.batch, again=again)
        await watch.time("value", "bare loop", lambda: driver.medians(1, looks))
        await watch.time("value", "mistnet", lambda: revalue(database, [ItemId(each) for each in range(1, looks + 1)]))
        stored, valued = await _counted(database, looks)
    finally:
        await driver.close()
        await database.close()
    return list(_figures(options, watch, looks, stored, valued))


async def _turn(
    watch: Stopwatch, database: Database, driver: Bare, ours: range, looks: int, size: int, *, again: bool
) -> None:
    what = "again" if again else "new"
    given = [look(item, size, again=again) for item in ours]
    rows = [driver.rows(look(item + looks, size, again=again)) for item in ours]
    await watch.time(what, "mistnet", lambda: _write(database, given))
    await watch.time(what, "bare loop", lambda: _upsert(driver, rows))


async def _write(database: Database, given: Sequence[PriceFetch]) -> None:
    writer = PointWriter()
    for each in given:
        async with database.transaction() as connection:
            await writer.write(connection, [each], database.clock.now())


async def _upsert(driver: Bare, looks: Sequence[list[tuple[object, ...]]]) -> None:
    for rows in looks:
        await driver.upsert(rows)


async def _add_items(database: Database, count: int) -> None:
    about: dict[str, Any] = {"attributes": b"{}", "exclude": b"[]", "sources": b"[]", "urls": b"[]", "currency": "USD"}
    about |= {"state": "active", "added_at": AT, "changed_at": AT, "next_look_at": AT, "title": "A cent"}
    async with database.transaction() as connection:
        for start in range(1, count + 1, 1_000):
            numbers = range(start, min(start + 1_000, count + 1))
            await connection.execute(insert(items), [{**about, "id": nr, "digest": str(nr)} for nr in numbers])


async def _counted(database: Database, looks: int) -> tuple[int, int]:
    async with database.read() as connection:
        stored = select(func.count()).select_from(price_points).where(price_points.c.item_id <= looks)
        valued = select(func.count()).select_from(valuations)
        return (await connection.execute(stored)).scalar_one(), (await connection.execute(valued)).scalar_one()


def _figures(options: Options, watch: Stopwatch, looks: int, stored: int, valued: int) -> Iterator[Figure]:
    kind = kind_of(options)

    def figure(name: str, side: str, setting: str, value: float, unit: str) -> Figure:
        full = looks * options.batch
        got = stored if valued == looks else 0
        return Figure(name=name, side=side, setting=setting, figure=value, unit=unit, expected=full, got=got)

    told = {"new": "price points written", "again": "price points seen again"}
    settings = {
        "mistnet": f"{options.batch} a look, with valuation and history",
        "bare loop": f"{options.batch} upserts a transaction",
    }
    for what, name in told.items():
        for side, setting in settings.items():
            speed = looks * options.batch / watch.seconds[what, side]
            yield figure(f"{name}, {kind}", side, setting, speed, POINTS_PER_SECOND)
        ratio = watch.seconds[what, "bare loop"] / watch.seconds[what, "mistnet"]
        yield figure(f"{name} / bare upserts", "mistnet", kind, ratio, TIMES)
    name = f"{looks:,} items of {options.batch} points valued, {kind}"
    yield figure(name, "bare loop", "the plain median, one query for all", watch.seconds["value", "bare loop"], SECONDS)
    yield figure(
        name, "mistnet", "all worked out again, with what carries them", watch.seconds["value", "mistnet"], SECONDS
    )
    times = watch.seconds["value", "mistnet"] / watch.seconds["value", "bare loop"]
    yield figure("valuing / the plain median", "mistnet", kind, times, TIMES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["points"])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, required=True, help="points of each side")
    parser.add_argument("--batch", type=int, default=100, help="points per look")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="single")
    for figure in points(Options(**vars(parser.parse_args()))):
        emit(figure)


if __name__ == "__main__":
    main()
