"""Collect a world while everything goes wrong, then compare the database with the truth."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg

from mistnet.kit.database import Database
from mistnet.kit.migrate import migrate
from mistnet.sim.world import World
from tests.chaos.broker import Broker
from tests.chaos.faults import Fault, Target
from tests.chaos.stage import Stage
from tests.chaos.upstream import GOOD, HOSTILE, Upstream, shop_served
from tests.chaos.verdict import Verdict
from tests.services.postgres import SUPERUSER, PostgresCluster, quick_folder
from tests.services.small_disk import SmallDisk
from tests.simulated import ask_world, world_served
from tests.worlds import Oracle

SMALL_SERVER: Final = (
    "max_connections=60",
    "superuser_reserved_connections=5",
    "synchronous_commit=on",  # a power cut must not take back what was confirmed
)
CALM_SECONDS: Final = 240.0
"""How long the processes have, once nothing goes wrong any more, to finish."""
FEW_JOBS: Final = 3
"""Another account is collected when so few jobs are left while faults are played."""
CALM_PACE: Final = 600
"""Calls a minute, once nothing is to be played any more."""
OVER_BROKER: Final = {
    "up": ("up", "--port", "0"),
    "consumer-1": ("work", "--via", "amqp", "--lanes", "web,x", "--concurrency", "3"),
    "consumer-2": ("work", "--via", "amqp", "--lanes", "web,x", "--concurrency", "3"),
}
WORKER: Final = "worker"
"""The role of the processes. Superusers, as which the play looks on, always find a connection."""
WITH_UPSTREAM: Final = {"MISTNET_X_TIMEOUT_SECONDS": "2"}


def play(faults: Sequence[Fault], target: Target, stage: Stage, *, seconds: float) -> Verdict:
    """All of the faults in an order by chance, again and again until the time is up, each at least once."""
    verdict, begun = Verdict(units={fault.name: fault.unit for fault in faults}), time.monotonic()
    oracle = Oracle(World(stage.seed, "tiny"))
    waiting = list(oracle.suggested)
    try:
        stage.command("suggest", waiting.pop())
        stage.start()
        _until(lambda: _numbers(stage)["done"] > 0 or bool(stage.revive()))
        while not verdict.played or time.monotonic() < begun + seconds:
            for fault in target.chance.sample(faults, len(faults)):
                # However fast the machine is, a fault must find work to disturb.
                while waiting and _numbers(stage)["left"] < FEW_JOBS:
                    stage.command("suggest", waiting.pop())
                _play_one(fault, target, stage, verdict)
        if waiting:
            stage.command("suggest", *waiting)
        _finish(stage, verdict)
    finally:
        stage.kill()
    verdict.lives = list(stage.lives.values())
    verdict.problems += asyncio.run(_differences(stage, oracle))
    verdict.problems += _spent_attempts(stage, faults) + _wrong_crawls(stage, target)
    if target.upstream:
        verdict.problems += _unpaid(stage, verdict, target.upstream.world)
    if any(fault.of_database for fault in faults) and not stage.outages():
        verdict.problems.append("no process noticed that the database failed: it proves nothing")
    verdict.problems += [
        f"no job was left whenever {fault.name!r} was played: it proves nothing"
        for fault in faults
        if not verdict.disturbed[fault.name]
    ]
    verdict.jobs, verdict.seconds = _numbers(stage)["done"], time.monotonic() - begun
    return verdict


def _play_one(fault: Fault, target: Target, stage: Stage, verdict: Verdict) -> None:
    before = _numbers(stage)
    verdict.struck[fault.name] += fault.play(target) or 0
    verdict.played[fault.name] += 1
    verdict.disturbed[fault.name] += before["left"] > 0
    if ended := stage.revive():
        verdict.failed.add(fault.name)
        verdict.problems += [f"after {fault.name!r}: {problem}" for problem in ended]


def _finish(stage: Stage, verdict: Verdict) -> None:
    """Nothing goes wrong any more: all work is done, and every process ends as it is asked to."""

    def is_done() -> bool:
        verdict.problems.extend(stage.revive())
        return _numbers(stage)["left"] == 0

    stage.command("sources", "set", "x", "--rate", str(CALM_PACE))
    if not _until(is_done):
        verdict.problems.append(f"not done {CALM_SECONDS:g} s after the last fault: {_numbers(stage)}")
    verdict.problems += stage.stop()


def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + CALM_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def _numbers(stage: Stage) -> dict[str, int]:
    (row,) = _rows(
        stage,
        "SELECT (SELECT count(*) FROM job_history) AS done, "
        "(SELECT count(*) FROM jobs WHERE state NOT IN ('dead', 'failed')) AS left_over",
    )
    return {"done": row["done"], "left": row["left_over"]}


def _rows(stage: Stage, query: str) -> list[Any]:
    return asyncio.run(_ask(stage.url.replace(f"{WORKER}@", f"{SUPERUSER}@"), query))


async def _ask(url: str, query: str) -> list[Any]:
    if url.startswith("sqlite"):
        import sqlite3  # noqa: PLC0415

        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(query).fetchall()
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(query))
    finally:
        await connection.close()


async def _differences(stage: Stage, oracle: Oracle) -> list[str]:
    database = Database(stage.url)
    try:
        return await oracle.compare(database)
    finally:
        await database.close()


def _spent_attempts(stage: Stage, faults: Sequence[Fault]) -> list[str]:
    """Attempts that were counted although only the database or the broker was at fault."""
    if any(fault.costs_attempts for fault in faults):
        return []
    rows = _rows(stage, "SELECT error FROM job_errors")
    return [f"an attempt was counted: {row['error'][-200:]}" for row in rows]


def _wrong_crawls(stage: Stage, target: Target) -> list[str]:
    """Hostile pages must end unreadable, and the good ones among them read."""
    if not target.links:
        return []
    wanted = dict.fromkeys(HOSTILE, "unreadable") | {GOOD: "offer"}
    rows = _rows(
        stage,
        "SELECT l.url, (SELECT c.outcome FROM crawls c WHERE c.link_id = l.id ORDER BY c.id DESC LIMIT 1) AS outcome "
        "FROM links l WHERE l.host = 'shop.example.com'",
    )
    outcomes = {row["url"].rpartition("/")[2]: row["outcome"] for row in rows}
    wrong = {page: found for page, found in outcomes.items() if found != wanted[page.partition("-")[0]]}
    lost = len(wanted) * target.links - len(outcomes)
    return [f"pages were judged wrongly: {wrong}"] * bool(wrong) + [f"{lost} links are lost"] * bool(lost)


def _unpaid(stage: Stage, verdict: Verdict, world: str) -> list[str]:
    """Upstream may never bill more than the caps are compared with.

    A process that is killed loses the last rows of its ledger, but not the credits that it had set aside.
    """
    (row,) = _rows(
        stage,
        "SELECT (SELECT COALESCE(SUM(month_credits), 0) FROM sources) AS counted, "
        "(SELECT COALESCE(SUM(credits), 0) FROM calls) AS ledger",
    )
    verdict.billed = sum(ask_world(world, "stats")["credits"].values())
    verdict.counted, verdict.ledger = int(row["counted"]), int(row["ledger"])
    known = {"caps count": verdict.counted}
    if not any(life.killed for life in verdict.lives):
        known["the ledger has"] = verdict.ledger
    return [
        f"upstream billed {verdict.billed:,} credits, {what} {number:,}"
        for what, number in known.items()
        if number < verdict.billed
    ]


@contextmanager
def on_server(
    folder: Path, *, seed: int, pace: int, broker: Broker | None = None, disk: SmallDisk | None = None
) -> Iterator[tuple[Target, Stage]]:
    """A private PostgreSQL with few connections, and a role that is no superuser.

    With a broker, the jobs go over it. On a small disk, the server has nothing else.
    """
    with ExitStack() as stack:
        world = stack.enter_context(world_served(seed=seed))
        upstream = stack.enter_context(Upstream(world).opened())
        parent = disk.folder if disk else quick_folder()
        cluster = stack.enter_context(PostgresCluster(fast=True, parent=parent, settings=SMALL_SERVER))
        url = cluster.dsn("chaos").replace(f"{SUPERUSER}@", f"{WORKER}@")
        target = Target(processes=list, chance=random.Random(seed), url=url, cluster=cluster, upstream=upstream)
        target.execute(f"CREATE ROLE {WORKER} LOGIN", f"CREATE DATABASE chaos OWNER {WORKER}")
        target.database, target.disk, target.broker = "chaos", disk, broker
        stage = Stage(url=url, base_url=upstream.url, folder=folder, seed=seed, pace=pace)
        shop = stack.enter_context(shop_served())
        stage.settings = {**WITH_UPSTREAM, **_crawling(shop)}
        if broker:
            stage.commands = OVER_BROKER
            stage.settings |= _dispatching(broker)
        target.processes, target.outages = stage.pids, stage.outages
        asyncio.run(_migrated(url))
        yield target, stage


def _crawling(shop: str) -> dict[str, str]:
    return {
        "MISTNET_CRAWL_LANES": "web",
        "MISTNET_CRAWL_VIA": f'{{"*": "{shop}"}}',
        "MISTNET_CRAWL_RATE_PER_MINUTE": "100000",
        "MISTNET_CRAWL_HOST_SECONDS": "0",
        "MISTNET_CRAWL_READ_SECONDS": "1",
    }


def _dispatching(broker: Broker) -> dict[str, str]:
    return {
        "MISTNET_BROKER_URL": broker.url,
        "MISTNET_AMQP_LANES": '["web", "x"]',
        "MISTNET_AMQP_QUEUE_TYPE": "classic",
        "MISTNET_REPUBLISH_SECONDS": "2",
    }


@contextmanager
def on_file(folder: Path, *, seed: int, pace: int) -> Iterator[tuple[Target, Stage]]:
    with world_served(seed=seed) as world, Upstream(world).opened() as upstream:
        url = f"sqlite:///{folder / 'chaos.db'}"
        stage = Stage(url=url, base_url=upstream.url, folder=folder, seed=seed, pace=pace)
        asyncio.run(_migrated(url))
        chance = random.Random(seed)
        yield Target(processes=stage.pids, chance=chance, url=url, upstream=upstream, outages=stage.outages), stage


async def _migrated(url: str) -> None:
    database = Database(url)
    try:
        await migrate(database)
    finally:
        await database.close()
