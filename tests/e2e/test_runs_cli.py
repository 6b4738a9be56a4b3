"""Runs by the real commands: asked for, worked on by another process that is killed, reported, refused."""

import signal

from tests.e2e.conftest import QUICK, RESTLESS, CommandLine, until
from tests.e2e.slips import list_misreported
from tests.simulated import ask_world, list_handles

SETTINGS = {**QUICK, **RESTLESS}
SLOW = {"MISTNET_X_RATE_PER_MINUTE": "120", "MISTNET_X_BURST": "1"}
"""A worker this slow is killed long before its work is done."""


def test_a_run_is_collected_while_one_waits_and_skipped_the_second_time(on_sqlite: CommandLine, sim_url: str) -> None:
    collector = on_sqlite
    collector.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": sim_url}
    first, second, *_ = list_handles(sim_url)
    collector.start("work")
    done = collector("runs", "start", f"{first},{second}", "nobody_at_all", "--limit", "5", "--wait", "--json")
    assert done.code == 3, done
    run = done.json["run"]
    assert (run["status"], run["limit"]) == ("completed", 5)
    told = {each["username"]: each for each in run["result"]["accounts"]}
    assert [(told[each]["total"], told[each]["new"]) for each in (first, second)] == [(5, 5), (5, 5)]
    assert told["nobody_at_all"]["reason"] == "there is no account of that name"
    again = collector.ok("runs", "start", first, "--limit", "5", "--wait")
    assert f"@{first} completed 5 0 5 0" in " ".join(again.out.split())
    listed = collector.ok("runs", "list", "--json").json["runs"]
    assert [each["status"] for each in listed] == ["completed", "completed"]
    assert listed[1]["id"] == run["id"]


def test_a_run_outlives_the_worker_that_was_killed(on_postgres: CommandLine, sim_url: str) -> None:
    collector = on_postgres
    collector.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": sim_url}
    wanted = list_handles(sim_url)[:4]
    run = collector.ok("runs", "start", ",".join(wanted), "--limit", "60", "--json").json["run"]
    worker = collector.start("work", **SLOW)
    until(lambda: collector.sql("SELECT 1 FROM run_accounts WHERE total > 0"))
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    refused = collector("runs", "start", wanted[0])
    assert refused.code == 2
    assert run["id"] in refused.err
    collector.ok("work", "--until-idle")
    shown = collector.ok("runs", "show", run["id"], "--json").json["run"]
    truth = {each: len(ask_world(sim_url, f"account?handle={each}")["account"]["search"]) for each in wanted}
    found = {each["username"]: (each["total"], each["new"]) for each in shown["result"]["accounts"]}
    assert found == {each: (min(truth[each], 60),) * 2 for each in wanted}


SLIPS = (
    (("runs", "start", "b-b, c/d"), "'b-b'"),
    (("runs", "start", ","), "name at least one handle"),
    (("runs", "start", "ann", "--limit", "1001"), "1000"),
    (("runs", "show", "nope"), "there is no run 'nope'"),
    (("runs", "list", "--before", "nope"), "there is no run 'nope'"),
)


def test_wrong_usage_is_one_line_with_the_next_step(on_sqlite: CommandLine) -> None:
    assert list_misreported(on_sqlite, SLIPS) == []
