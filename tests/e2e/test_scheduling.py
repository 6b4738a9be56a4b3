"""Two services and two workers on one database: one leads, and however it ends no tick is lost or doubled."""

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import QUICK, CommandLine, until
from tests.e2e.test_collecting_cli import Sim
from tests.simulated import list_handles, world_served

LEASE = 3.0
CLOCK_SECONDS = 2.0
"""How far a process on a busy machine may be off in its view of the database's clock."""
GROUPS = {"default": {"every_seconds": 1}}
EVERY = {"default": timedelta(seconds=1), "news": timedelta(seconds=2)}


@pytest.fixture(scope="module")
def sim() -> Iterator[Sim]:
    with world_served(seed=5) as url:
        yield Sim(url)


@pytest.fixture
def service(on_postgres: CommandLine, sim: Sim) -> CommandLine:
    """The command with a key, two groups, and little patience."""
    news = list_handles(sim.url)[0]
    groups = {**GROUPS, "news": {"accounts": [news], "every_seconds": 2}}
    on_postgres.settings |= {
        **QUICK,
        "MISTNET_X_BASE_URL": sim.url,
        "MISTNET_GROUPS": json.dumps(groups),
        "MISTNET_LEADER_LEASE_SECONDS": str(LEASE),
        "MISTNET_LEASE_SECONDS": "5",
        "MISTNET_HEARTBEAT_SECONDS": "1",
        "MISTNET_RECLAIM_SECONDS": "1",
        "MISTNET_IDLE_POLL_SECONDS": "1",
    }
    return on_postgres


def two_serving(service: CommandLine, **settings: str) -> list["subprocess.Popen[str]"]:
    """Two services that have said where they are."""
    crew = [service.start("serve", "--port", "0", **settings) for _ in range(2)]
    for process in crew:
        assert process.stdout is not None
        assert "http://127.0.0.1:" in process.stdout.readline()
    return crew


def leader(service: CommandLine) -> dict[str, Any]:
    """Who leads now, by the database's word and clock."""
    rows = service.sql(
        "SELECT holder, fence, since FROM leaders WHERE name = 'schedule' AND lease_until > clock_timestamp()"
    )
    return rows[0] if rows else {}


def leading(service: CommandLine, crew: list["subprocess.Popen[str]"]) -> "subprocess.Popen[str]":
    """The process that leads: a holder's name holds its process id."""
    until(lambda: leader(service))
    (last,) = service.sql("SELECT holder FROM leaders WHERE name = 'schedule'")
    pid = int(last["holder"].rsplit(".", 2)[1])
    return next(process for process in crew if process.pid == pid)


def suspended_leader(service: CommandLine, crew: list["subprocess.Popen[str]"]) -> "subprocess.Popen[str]":
    """Suspends the process that leads. On a busy machine the lead may move on just before: then take the next one."""
    while True:
        process = leading(service, crew)
        process.send_signal(signal.SIGSTOP)
        (last,) = service.sql("SELECT holder FROM leaders WHERE name = 'schedule'")
        if f".{process.pid}." in last["holder"]:
            return process
        process.send_signal(signal.SIGCONT)


def led_by_another(service: CommandLine, fence: int) -> None:
    """Waits until the lead has moved on from the holder of this fence."""
    until(lambda: leader(service).get("fence", fence) > fence)


def ticks(service: CommandLine, group: str) -> list[dict[str, Any]]:
    return service.sql(
        "SELECT tick_at, missed, fence, holder FROM ticks WHERE group_name = :name ORDER BY tick_at", name=group
    )


def uncovered(made: list[dict[str, Any]], every: timedelta) -> int:
    """Slots between the first and the last tick that no tick stands for; below zero: some have several."""
    slots = (made[-1]["tick_at"] - made[0]["tick_at"]) // every
    return int(slots - sum(1 + tick["missed"] for tick in made[1:]))


def more_ticks(service: CommandLine, count: int) -> None:
    """Waits for so many ticks of the busier group."""
    before = len(ticks(service, "default"))
    until(lambda: len(ticks(service, "default")) >= before + count)


def test_killing_the_leader_moves_the_lead_within_its_lease_and_no_tick_is_lost_or_doubled(
    service: CommandLine, sim: Sim
) -> None:
    service.ok("track", *list_handles(sim.url)[:2])
    service("work", "--until-idle")
    workers = [service.start("work") for _ in range(2)]
    crew = two_serving(service)
    more_ticks(service, 2)
    victim = leading(service, crew)
    victim.kill()
    victim.wait()
    (last,) = service.sql("SELECT fence, lease_until, clock_timestamp() AS now FROM leaders WHERE name = 'schedule'")
    assert last["lease_until"] - last["now"] < timedelta(seconds=LEASE + CLOCK_SECONDS)
    (dead,) = service.sql(  # as if renewed just before its death, and for longer: some slots pass without a leader
        "UPDATE leaders SET lease_until = clock_timestamp() + interval '4 seconds' "
        "WHERE name = 'schedule' AND fence = :fence RETURNING lease_until",
        fence=last["fence"],
    )
    led_by_another(service, last["fence"])
    assert leader(service)["since"] >= dead["lease_until"], "never two at a time"
    assert leader(service)["fence"] == last["fence"] + 1
    crew.remove(victim)
    more_ticks(service, 3)
    for process in (*crew, *workers):
        process.terminate()
    assert [process.wait(DEADLINE_SECONDS) for process in (*crew, *workers)] == [0] * 3
    for group, every in EVERY.items():
        made = ticks(service, group)
        assert uncovered(made, every) == 0
        assert [tick["fence"] for tick in made] == sorted(tick["fence"] for tick in made)
    assert sum(tick["missed"] for tick in ticks(service, "default")) >= 1, "the kill cost no slot"
    caught_up = service.sql("SELECT count(*) AS n FROM job_history WHERE kind = 'catch_up' AND state = 'succeeded'")
    assert caught_up[0]["n"] >= 4
    overlaps = service.sql(
        "SELECT a.id FROM job_history a JOIN job_history b ON a.kind = b.kind AND a.key = b.key AND a.id < b.id "
        "WHERE a.kind = 'catch_up' AND b.started_at < a.finished_at"
    )  # a row may say it was created earlier: it then waited for the end of the one before, which held its key
    assert overlaps == []


def test_a_leader_that_is_told_to_stop_hands_over_at_once(service: CommandLine) -> None:
    crew = two_serving(service, MISTNET_LEADER_LEASE_SECONDS="24")
    first = leading(service, crew)
    (held,) = service.sql("SELECT fence, lease_until FROM leaders WHERE name = 'schedule'")
    others = [process for process in crew if process is not first]
    first.terminate()
    assert first.wait(DEADLINE_SECONDS) == 0
    until(lambda: leader(service).get("fence") == held["fence"] + 1)
    assert leader(service)["since"] < held["lease_until"], "the other waited for the lease to run out"
    assert leading(service, crew) is others[0]


def test_a_suspended_leader_wakes_up_to_find_that_another_leads(service: CommandLine) -> None:
    crew = two_serving(service)
    asleep = suspended_leader(service, crew)
    (held,) = service.sql("SELECT holder, fence FROM leaders WHERE name = 'schedule'")
    try:
        led_by_another(service, held["fence"])
        more_ticks(service, 1)
    finally:
        asleep.send_signal(signal.SIGCONT)
    more_ticks(service, 3)
    assert asleep.poll() is None
    made = ticks(service, "default")
    assert uncovered(made, EVERY["default"]) == 0
    # A tick that the leader made after it woke would have its old fence behind the newer one.
    assert [tick["fence"] for tick in made] == sorted(tick["fence"] for tick in made)
    assert {tick["holder"] for tick in made if tick["fence"] == held["fence"]} <= {held["holder"]}


def test_a_bad_crontab_line_is_refused_at_the_start(service: CommandLine) -> None:
    groups = json.dumps({"news": {"accounts": ["ann"], "cron": "every day"}})
    refused = service("serve", "--port", "0", MISTNET_GROUPS=groups)
    assert refused.code == 2
    assert "groups.news.cron" in refused.err
    assert "Traceback" not in refused.err
    assert len(refused.err.strip().splitlines()) == 1
