"""Collect a world while everything goes wrong, then compare the database with the truth."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg

from mistnet.sim.world import World
from mistnet.store.database import Database
from mistnet.store.schema import migrate
from tests.chaos.faults import Fault, Target
from tests.services.postgres import PostgresCluster, quick_folder
from tests.simulated import world_served
from tests.warm import SOURCES, WarmProcess
from tests.worlds import KEY, Oracle

SETTINGS: Final = {
    "MISTNET_LEASE_SECONDS": "2",
    "MISTNET_HEARTBEAT_SECONDS": "0.5",
    "MISTNET_RECLAIM_SECONDS": "0.5",
    "MISTNET_IDLE_POLL_SECONDS": "0.5",
    "MISTNET_LEADER_LEASE_SECONDS": "2",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_SECOND_LOOK_SECONDS": "0.5",
    "MISTNET_BATCH_FILL_SECONDS": "0.2",
    "MISTNET_BREAKER_SECONDS": "0.5",
    "MISTNET_MAX_ATTEMPTS": "1000",
    "MISTNET_X_API_KEY": KEY,
    "MISTNET_LOG_LEVEL": "WARNING",
    "MISTNET_SCHEDULER_ENABLED": "false",
}
SMALL_SERVER: Final = ("max_connections=40", "superuser_reserved_connections=5")
CALM_SECONDS: Final = 240.0
"""How long the processes have, once nothing goes wrong any more, to finish."""


@dataclass
class Verdict:
    """What a play came to. `problems` is empty if everything was survived."""

    played: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    jobs: int = 0
    seconds: float = 0.0

    def table(self) -> str:
        width = max(map(len, self.played), default=10)
        lines = [f"{'fault':{width}}  times survived", *(f"{name:{width}}  {n}" for name, n in self.played.items())]
        lines.append(f"{self.jobs} jobs done in {self.seconds:.0f} s; problems: {'; '.join(self.problems) or 'none'}")
        return "\n".join(lines)


@dataclass
class Stage:
    """A world, a database, and processes that are started again when they were killed."""

    url: str
    base_url: str
    folder: Path
    seed: int
    pace: int
    started: dict[str, WarmProcess[str]] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)

    def start(self, name: str, *arguments: str) -> None:
        """What it says goes through a pipe: it can be said while the process cannot write to files."""
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        command = [sys.executable, "-m", "mistnet", *arguments]
        process = WarmProcess(command, cwd=self.folder, env=self.environment, stdout=pipe, stderr=out, text=True)
        self.started[name] = process
        threading.Thread(target=self._keep, args=(process, self.folder / f"{name}.log"), daemon=True).start()

    @staticmethod
    def _keep(process: WarmProcess[str], log: Path) -> None:
        assert process.stdout is not None
        with log.open("a", encoding="utf-8") as kept, process.stdout as said:
            for line in said:
                kept.write(line)
                kept.flush()

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MISTNET_")}
        own = {"MISTNET_DATABASE_URL": self.url, "MISTNET_X_BASE_URL": self.base_url, "PYTHONPATH": SOURCES}
        return {**inherited, **SETTINGS, **own, "MISTNET_X_RATE_PER_MINUTE": str(self.pace)}

    def pids(self) -> list[int]:
        return [process.pid for process in self.started.values() if process.poll() is None]

    def revive(self) -> list[str]:
        """Start what was killed by a fault again; name what ended by itself."""
        ended = []
        for name, process in list(self.started.items()):
            code = process.poll()
            if code is None:
                continue
            if code != -9:
                ended.append(f"{name} ended with {code}: {self.said(name)[-500:]}")
            self.start(name, *process.args[3:])  # type: ignore[index]  # a list, as it was given
        return ended

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def noticed_failures(self) -> bool:
        return any("the database fails" in self.said(name) for name in self.started)

    def command(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "mistnet", *arguments]
        with WarmProcess(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            out, _ = process.communicate(timeout=CALM_SECONDS)
        assert process.returncode == 0, out

    def stop(self) -> list[str]:
        for process in self.started.values():
            if process.poll() is None:
                process.terminate()
        problems = []
        for name, process in self.started.items():
            code = process.wait(CALM_SECONDS)
            if code != 0:
                problems.append(f"{name} ended with {code}: {self.said(name)[-500:]}")
        return problems


def play(faults: Sequence[Fault], target: Target, stage: Stage, *, seconds: float) -> Verdict:
    """All of the faults in an order by chance, again and again until the time is up, each at least once."""
    verdict, begun = Verdict(), time.monotonic()
    oracle = Oracle(World(stage.seed, "tiny"))
    stage.command("suggest", *oracle.suggested)
    stage.start("up", "up", "--port", "0", "--concurrency", "3")
    stage.start("worker", "work", "--concurrency", "3")
    _until(lambda: _numbers(stage)["done"] > 0 or bool(stage.revive()))
    while not verdict.played or time.monotonic() < begun + seconds:
        for fault in target.chance.sample(faults, len(faults)):
            fault.play(target)
            verdict.played[fault.name] += 1
            verdict.problems += [f"after {fault.name!r}: {problem}" for problem in stage.revive()]
    before_calm = _numbers(stage)

    def is_done() -> bool:
        verdict.problems.extend(stage.revive())
        return _numbers(stage)["left"] == 0

    if not _until(is_done):
        verdict.problems.append(f"not done {CALM_SECONDS:g} s after the last fault: {_numbers(stage)}")
    verdict.problems += stage.stop()
    verdict.problems += asyncio.run(_differences(stage, oracle))
    after = _numbers(stage)
    verdict.problems += _lost(stage, faults)
    if not any(fault.costs_leases for fault in faults) and not stage.noticed_failures():
        verdict.problems.append("no process noticed that the database failed: it proves nothing")
    verdict.jobs, verdict.seconds = after["done"], time.monotonic() - begun
    if before_calm["left"] == 0:
        verdict.problems.append("everything was done before the last fault: it proves too little")
    return verdict


def _until(condition: Any) -> bool:
    deadline = time.monotonic() + CALM_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def _numbers(stage: Stage) -> dict[str, int]:
    return asyncio.run(_count(stage.url))


async def _count(url: str) -> dict[str, int]:
    rows = await _rows(
        url,
        "SELECT (SELECT count(*) FROM job_history) AS done, "
        "(SELECT count(*) FROM jobs WHERE state NOT IN ('dead', 'failed')) AS left_over",
    )
    return {"done": rows[0]["done"], "left": rows[0]["left_over"]}


async def _rows(url: str, query: str) -> list[Any]:
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


def _lost(stage: Stage, faults: Sequence[Fault]) -> list[str]:
    """Attempts that were counted although only the database was at fault."""
    if any(fault.costs_leases for fault in faults):
        return []
    rows = asyncio.run(_rows(stage.url, "SELECT error FROM job_errors"))
    wrong = ("lease ran out", "database", "timeout", "cancel", "read-only", "disk", "refused the write")
    return [f"an attempt was counted: {row['error'][-200:]}" for row in rows if any(w in row["error"] for w in wrong)]


@contextmanager
def on_server(folder: Path, *, seed: int, pace: int) -> Iterator[tuple[Target, Stage]]:
    """A private PostgreSQL with few connections, and a role that is no superuser."""
    with ExitStack() as stack:
        base_url = stack.enter_context(world_served(seed=seed))
        cluster = stack.enter_context(PostgresCluster(fast=True, parent=quick_folder(), settings=SMALL_SERVER))
        url = cluster.dsn("chaos").replace("mistnet@", "worker@")
        target = Target(processes=list, chance=random.Random(seed), cluster=cluster)
        target.execute("CREATE ROLE worker LOGIN", "CREATE DATABASE chaos OWNER worker")
        target.database = "chaos"
        stage = Stage(url=url, base_url=base_url, folder=folder, seed=seed, pace=pace)
        target.processes = stage.pids
        asyncio.run(_migrated(url))
        yield target, stage


@contextmanager
def on_file(folder: Path, *, seed: int, pace: int) -> Iterator[tuple[Target, Stage]]:
    with world_served(seed=seed) as base_url:
        url = f"sqlite:///{folder / 'chaos.db'}"
        stage = Stage(url=url, base_url=base_url, folder=folder, seed=seed, pace=pace)
        asyncio.run(_migrated(url))
        yield Target(processes=stage.pids, chance=random.Random(seed)), stage


async def _migrated(url: str) -> None:
    database = Database(url)
    try:
        await migrate(database)
    finally:
        await database.close()
