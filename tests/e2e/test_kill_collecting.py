"""A world collected by real processes over HTTP while they are killed with -9: all of it is there, paid for once."""

import asyncio
import time

import pytest

from mistnet.kit.database import Database
from mistnet.sim.faults import SimFault
from mistnet.sim.world import World
from tests.e2e.conftest import CommandLine, until
from tests.e2e.kills import KILLS, kill_holder, list_children, wait_for_all
from tests.simulated import ask_world, tell_world, world_served
from tests.worlds import KEY, Oracle

SEED = 5
MOST_KILLS = min(KILLS, 25)
ENOUGH_KILLS = min(KILLS, 8)
"""However many are wanted, a small world is collected at some time."""
SPENDING_KILLS = 4
LATENCY = (0.1, 0.2)
"""How long the world takes to answer where workers are killed while they spend, in seconds."""

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
NO_WAITS = dict.fromkeys([SimFault.TIMEOUT, SimFault.RATE_LIMITED, SimFault.RATE_LIMITED_WITH_WAIT], 0)
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
    assert repeats["answered"] >= 30, "too few pages to prove anything"
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


def billed_by(base_url: str) -> int:
    return int(ask_world(base_url, "stats")["credits"].get(KEY, 0))


def committed_and_booked(mistnet: CommandLine) -> tuple[int, int]:
    """What the caps are compared with, and the sum of the ledger."""
    (found,) = mistnet.sql("SELECT day_credits, (SELECT coalesce(sum(credits), 0) FROM calls) AS booked FROM sources")
    return found["day_credits"], found["booked"]


def kill_a_worker_that_spends(mistnet: CommandLine, base_url: str, **settings: str) -> None:
    """Start a worker; kill it while it calls, after it has been billed for some pages."""
    listed = len(mistnet.sql("SELECT name FROM workers"))
    worker = mistnet.start("work", "--concurrency", "4", **settings)
    # Calls of the worker that was killed before this one may still be billed until then.
    until(lambda: len(mistnet.sql("SELECT name FROM workers")) > listed)
    before = billed_by(base_url)
    until(lambda: billed_by(base_url) >= before + 300)
    worker.kill()
    worker.communicate()


@pytest.mark.in_turn(0)
def test_after_kills_the_caps_have_counted_every_credit_and_the_ledger_can_be_made_equal_to_the_bill(
    on_sqlite: CommandLine,
) -> None:
    mistnet = on_sqlite
    with world_served(seed=SEED) as base_url:
        settings = {**IMPATIENT, "MISTNET_X_BASE_URL": base_url, "MISTNET_X_BALANCE_LAG_SECONDS": "0"}
        mistnet.ok("sources", "check", "x", **settings)
        tell_world(base_url, "faults", preset="all", rates=NO_WAITS, latency_seconds=LATENCY)
        mistnet.ok("suggest", *Oracle(World(SEED, "tiny")).suggested, **settings)
        for _ in range(SPENDING_KILLS):
            kill_a_worker_that_spends(mistnet, base_url, **settings)
            billed = billed_by(base_url)  # asked first: what is billed later may be set aside later
            assert committed_and_booked(mistnet)[0] >= billed
        time.sleep(2 * LATENCY[1])  # calls in flight outlive the worker that made them, and are billed
        made = sum(ask_world(base_url, "stats")["calls"].values())
        assert mistnet.sql("SELECT count(*) AS calls FROM calls")[0]["calls"] < made, "no call was lost"

        compared = mistnet.ok("spend", "--reconcile", "--json", **settings).json
        assert (compared["is_booked"], len(compared["workers"])) == (False, SPENDING_KILLS)
        mistnet.sql("UPDATE workers SET seen_at = '2020-01-01 00:00:00.000000'")
        tell_world(base_url, "advance", seconds=120)  # the world's balance lags behind, too
        until(lambda: mistnet.ok("spend", "--reconcile", "--json", **settings).json["is_booked"])
        billed = billed_by(base_url)
        assert committed_and_booked(mistnet) == (billed, billed)
        (key,) = mistnet.ok("spend", "--reconcile", "--json", **settings).json["keys"]
        assert (key["billed"], key["booked"], key["difference"]) == (0, 0, 0)
        assert committed_and_booked(mistnet) == (billed, billed)


def test_without_kills_no_page_is_paid_for_twice(mistnet: CommandLine) -> None:
    with world_served(seed=SEED) as base_url:
        collect(mistnet, base_url, others=0 if mistnet.url.startswith("sqlite") else 2)
        assert differences(mistnet.url) == []
        assert repeated_searches(base_url) == {}
