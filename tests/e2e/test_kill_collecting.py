"""A world collected by real processes over HTTP while they are killed with -9: all of it is there, paid for once."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mistnet.sim.world import World
from mistnet.store.database import Database
from tests.e2e.conftest import CommandLine
from tests.worlds import KEY, Oracle

SEED = 5
KILL_EVERY = 1.0
MOST_KILLS = 25
PATIENCE = 300.0

IMPATIENT = {
    "MISTNET_LEASE_SECONDS": "2",
    "MISTNET_HEARTBEAT_SECONDS": "0.5",
    "MISTNET_RECLAIM_SECONDS": "1",
    "MISTNET_IDLE_POLL_SECONDS": "1",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_SECOND_LOOK_SECONDS": "0.5",
    "MISTNET_BATCH_FILL_SECONDS": "0.5",
    "MISTNET_BREAKER_SECONDS": "0.5",
    "MISTNET_MAX_ATTEMPTS": "1000",
    "MISTNET_X_TIMEOUT_SECONDS": "2",
    "MISTNET_X_API_KEY": KEY,
    "MISTNET_X_RATE_PER_MINUTE": "60000",
    "MISTNET_LOG_LEVEL": "ERROR",
}
UNHURRIED = {"MISTNET_LEASE_SECONDS": "60", "MISTNET_X_TIMEOUT_SECONDS": "60"}
"""Nobody is given up on for being slow: where none is killed, a busy machine costs time and no page."""


@contextmanager
def world_served(*options: str) -> Iterator[str]:
    """A simulated source in a process of its own; time in it stands still."""
    command = [sys.executable, "-m", "mistnet.sim", "--port", "0", "--speed", "0", "--tier", "unlimited"]
    serving = subprocess.Popen([*command, "--seed", str(SEED), *options], stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        yield next(line.strip() for line in serving.stdout if line.startswith("http"))
    finally:
        serving.terminate()
        serving.communicate()


def told(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}/_sim/{path}", timeout=30) as answer:
        return json.load(answer)


def children(parent: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return []


def differences(url: str) -> list[str]:
    async def compare() -> list[str]:
        database = Database(url)
        try:
            return await Oracle(World(SEED, "tiny")).compare(database)
        finally:
            await database.close()

    return asyncio.run(compare())


def collect(mistnet: CommandLine, base_url: str, *, kills: int) -> int:
    """Three processes until nothing is left; returns how many were killed on the way."""
    settings = {**IMPATIENT, **({} if kills else UNHURRIED), "MISTNET_X_BASE_URL": base_url}
    mistnet.ok("suggest", *Oracle(World(SEED, "tiny")).suggested, **settings)
    crew = mistnet.start("work", "--until-idle", "--processes", "3", "--concurrency", "1", **settings)
    chance, done = random.Random(3), 0
    deadline = time.monotonic() + PATIENCE
    while crew.poll() is None:
        assert time.monotonic() < deadline, mistnet.sql("SELECT kind, state, wait_reason, last_error FROM jobs LIMIT 9")
        time.sleep(KILL_EVERY)
        victims = children(crew.pid)
        if done < kills and victims:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
                done += 1
    assert crew.returncode in (0, 3), crew.communicate()
    return done


def repeated_searches(base_url: str) -> dict[str, int]:
    """Pages of posts that were answered, and paid for, more than once."""
    repeats = told(base_url, "repeats")
    assert repeats["answered"] > 40
    return {asked: times for asked, times in repeats["repeated"].items() if "advanced_search" in asked}


@pytest.mark.timeout(600)
def test_a_world_survives_a_massacre_and_no_kill_costs_more_than_a_page(postgres_command_line: CommandLine) -> None:
    with world_served("--size", "tiny", "--faults", "all") as base_url:
        kills = collect(postgres_command_line, base_url, kills=MOST_KILLS)
        assert differences(postgres_command_line.url) == []
        searches = repeated_searches(base_url)
        assert kills >= 8, "too few were killed to prove anything"
        assert sum(times - 1 for times in searches.values()) <= kills, searches


def test_without_kills_no_page_is_paid_for_twice(mistnet: CommandLine) -> None:
    with world_served("--size", "tiny") as base_url:
        assert collect(mistnet, base_url, kills=0) == 0
        assert differences(mistnet.url) == []
        assert repeated_searches(base_url) == {}
