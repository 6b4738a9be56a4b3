"""Runs by the real commands: asked for, worked on by another process that is killed, reported, refused."""

import signal

import pytest

from tests.e2e.conftest import QUICK, RESTLESS, CommandLine, known_handles, until, world_says

SETTINGS = {**QUICK, **RESTLESS}


@pytest.fixture
def collector(mistnet: CommandLine, sim_url: str) -> CommandLine:
    mistnet.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": sim_url}
    return mistnet


def test_a_run_is_collected_while_one_waits_and_skipped_the_second_time(collector: CommandLine, sim_url: str) -> None:
    first, second, *_ = known_handles(sim_url)
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


def test_a_run_outlives_the_worker_that_was_killed(collector: CommandLine, sim_url: str) -> None:
    wanted = known_handles(sim_url)[:4]
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
    truth = {each: len(world_says(sim_url, f"account?handle={each}")["account"]["search"]) for each in wanted}
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
