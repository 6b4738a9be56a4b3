"""Runs by the real commands: asked for, worked on by another process that is killed, reported, refused."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

from tests.e2e.conftest import CommandLine, until

SETTINGS = {
    "MISTNET_X_API_KEY": "sim-key",
    "MISTNET_X_RATE_PER_MINUTE": "100000",
    "MISTNET_SECOND_LOOK_SECONDS": "0.2",
    "MISTNET_BATCH_FILL_SECONDS": "0.2",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_LEASE_SECONDS": "2",
    "MISTNET_HEARTBEAT_SECONDS": "0.5",
    "MISTNET_RECLAIM_SECONDS": "0.5",
    "MISTNET_PLUGINS": "[]",
}


@pytest.fixture(scope="module")
def world() -> Iterator[str]:
    command = [sys.executable, "-m", "mistnet.sim", "--port", "0", "--size", "tiny", "--tier", "unlimited"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def collector(mistnet: CommandLine, world: str) -> CommandLine:
    mistnet.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": world}
    return mistnet


def ask(world: str, path: str) -> Any:
    with urlopen(f"{world}/_sim/{path}", timeout=30) as answer:
        return json.load(answer)


def handles(world: str) -> list[str]:
    return [str(each) for each in ask(world, "accounts")["handles"]]


def test_a_run_is_collected_while_one_waits_and_skipped_the_second_time(collector: CommandLine, world: str) -> None:
    first, second, *_ = handles(world)
    collector.start("work")
    done = collector("runs", "start", f"{first},{second}", "nobody_at_all", "--limit", "5", "--wait", "--json")
    assert done.code == 3, done
    run = done.json["run"]
    assert (run["status"], run["limit"]) == ("completed", 5)
    told = {each["username"]: each for each in run["result"]["accounts"]}
    assert [(told[each]["total"], told[each]["new"]) for each in (first, second)] == [(5, 5), (5, 5)]
    assert told["nobody_at_all"]["reason"] == "upstream knows nobody of that name"
    again = collector.ok("runs", "start", first, "--limit", "5", "--wait")
    assert f"@{first}  completed  5      0    5        0" in again.out
    listed = collector.ok("runs", "list", "--json").json["runs"]
    assert [each["status"] for each in listed] == ["completed", "completed"]
    assert listed[1]["id"] == run["id"]


def test_a_run_outlives_the_worker_that_was_killed(collector: CommandLine, world: str) -> None:
    wanted = handles(world)[:4]
    run = collector.ok("runs", "start", ",".join(wanted), "--limit", "60", "--json").json["run"]
    worker = collector.start("work", MISTNET_X_RATE_PER_MINUTE="300", MISTNET_X_BURST="1")
    until(lambda: collector.sql("SELECT 1 FROM run_accounts WHERE total > 0"))
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    refused = collector("runs", "start", wanted[0])
    assert refused.code == 2
    assert run["id"] in refused.err
    collector.start("work")
    until(lambda: collector.sql("SELECT 1 FROM runs WHERE finished_at IS NOT NULL"))
    shown = collector.ok("runs", "show", run["id"], "--json").json["run"]
    truth = {each: len(ask(world, f"account?handle={each}")["account"]["search"]) for each in wanted}
    found = {each["username"]: (each["total"], each["new"]) for each in shown["result"]["accounts"]}
    assert found == {each: (min(truth[each], 60),) * 2 for each in wanted}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("start", "b b, c/d"), "'b b'"),
        (("start", ","), "name at least one account"),
        (("start", "ann", "--limit", "1001"), "1000"),
        (("show", "nope"), "there is no run 'nope'"),
        (("list", "--before", "nope"), "there is no run 'nope'"),
    ],
)
def test_wrong_usage_is_one_line_with_the_next_step(
    on_sqlite: CommandLine, arguments: tuple[str, ...], told: str
) -> None:
    refused = on_sqlite("runs", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err
    assert len(refused.err.splitlines()) == 1
