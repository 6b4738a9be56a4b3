"""A world collected by real processes over HTTP while they are killed with -9: all of it is there, paid for once."""

import asyncio

import pytest

from mistnet.sim.faults import Fault
from mistnet.sim.world import World
from mistnet.store.database import Database
from tests.e2e.conftest import CommandLine, until
from tests.e2e.kills import KILLS, kill_holder, list_children, wait_for_all
from tests.simulated import ask_world, tell_world, world_served
from tests.worlds import KEY, Oracle

SEED = 5
MOST_KILLS = min(KILLS, 25)
ENOUGH_KILLS = min(KILLS, 8)
"""However many are wanted, a small world is collected at some time."""

IMPATIENT = {
    "MISTNET_LEASE_SECONDS": "6",
    "MISTNET_HEARTBEAT_SECONDS": "0.5",
    "MISTNET_RECLAIM_SECONDS": "1",
    "MISTNET_IDLE_POLL_SECONDS": "1",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_SECOND_LOOK_SECONDS": "0.5",
    "MISTNET_BATCH_FILL_SECONDS": "0.5",
    "MISTNET_BREAKER_SECONDS": "0.5",
    "MISTNET_MAX_ATTEMPTS": "1000",
    "MISTNET_X_TIMEOUT_SECONDS": "60",
    "MISTNET_X_API_KEY": KEY,
    "MISTNET_X_RATE_PER_MINUTE": "60000",
    "MISTNET_LOG_LEVEL": "ERROR",
}
"""No call is given up because it is slow: that would be a page more than the killed may cost."""
UNHURRIED = {**IMPATIENT, "MISTNET_LEASE_SECONDS": "60"}
"""No job is taken over because its worker is slow: where none is killed, a busy machine costs time and no page."""
NO_WAITS = dict.fromkeys([Fault.TIMEOUT, Fault.RATE_LIMITED, Fault.RATE_LIMITED_WITH_WAIT], 0)
"""Faults whose only effect is that everybody waits are left to the simulation, where waiting takes no time."""


def differences(url: str) -> list[str]:
    async def compare() -> list[str]:
        database = Database(url)
        try:
            return await Oracle(World(SEED, "tiny")).compare(database)
        finally:
            await database.close()

    return asyncio.run(compare())


def repeated_searches(base_url: str) -> dict[str, int]:
    """Pages of posts that were answered, and paid for, more than once."""
    repeats = ask_world(base_url, "repeats")
    assert repeats["answered"] > 40
    return {asked: times for asked, times in repeats["repeated"].items() if "advanced_search" in asked}


def collect(mistnet: CommandLine, base_url: str, *, others: int) -> None:
    """Collect with one worker in this process and others in processes of their own until nothing is left."""
    settings = {**UNHURRIED, "MISTNET_X_BASE_URL": base_url}
    workers = [mistnet.start("work", "--concurrency", "1", **settings) for _ in range(others)]
    until(lambda: len(mistnet.sql("SELECT name FROM workers")) == others)
    mistnet.ok("suggest", *Oracle(World(SEED, "tiny")).suggested, **settings)
    assert mistnet("work", "--until-idle", "--concurrency", "1", **settings).code in (0, 3), "people who left are gaps"
    for worker in workers:
        worker.terminate()
    wait_for_all(workers)


def collect_through_kills(mistnet: CommandLine, base_url: str, *, kills: int) -> int:
    """Collect with three processes until nothing is left; return how many were killed while they held a job."""
    settings = {**IMPATIENT, "MISTNET_X_BASE_URL": base_url}
    mistnet.ok("suggest", *Oracle(World(SEED, "tiny")).suggested, **settings)
    crew = mistnet.start("work", "--until-idle", "--processes", "3", "--concurrency", "1", **settings)
    done = 0
    while done < kills and crew.poll() is None:
        answered = ask_world(base_url, "repeats")["answered"]
        done += bool(
            kill_holder(mistnet, lambda: list_children(crew.pid), is_over=lambda: crew.poll() is not None),
        )
        until(
            lambda before=answered: (  # type: ignore[misc]  # a lambda's default has no annotation
                crew.poll() is not None or ask_world(base_url, "repeats")["answered"] > before
            )
        )
    wait_for_all([crew], allowed=(0, 3))
    return done


@pytest.mark.timeout(900)
def test_a_world_survives_a_massacre_and_no_kill_costs_more_than_a_page(on_postgres: CommandLine) -> None:
    with world_served(seed=SEED) as base_url:
        tell_world(base_url, "faults", preset="all", rates=NO_WAITS, latency_seconds=(0.05, 0.1))
        kills = collect_through_kills(on_postgres, base_url, kills=MOST_KILLS)
        assert differences(on_postgres.url) == []
        searches = repeated_searches(base_url)
        assert kills >= ENOUGH_KILLS, "too few were killed to prove anything"
        assert sum(times - 1 for times in searches.values()) <= kills, searches


def test_without_kills_no_page_is_paid_for_twice(mistnet: CommandLine) -> None:
    with world_served(seed=SEED) as base_url:
        collect(mistnet, base_url, others=0 if mistnet.url.startswith("sqlite") else 2)
        assert differences(mistnet.url) == []
        assert repeated_searches(base_url) == {}
