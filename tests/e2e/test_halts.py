"""Work that cannot go on says why, and ends with its own exit code."""

from tests.e2e.conftest import CommandLine
from tests.e2e.test_kill_collecting import IMPATIENT
from tests.simulated import list_handles, world_served

KEY = IMPATIENT["MISTNET_X_API_KEY"]


def test_a_spent_budget_ends_the_work_with_four(on_sqlite: CommandLine) -> None:
    with world_served(seed=5) as base_url:
        settings = {**IMPATIENT, "MISTNET_X_BASE_URL": base_url, "MISTNET_X_DAY_CREDITS": "1500"}
        on_sqlite.ok("suggest", *list_handles(base_url)[:2], **settings)
        done = on_sqlite("work", "--until-idle", **settings)
        assert done.code == 4, done
        assert "budget" in done.out
        spent = on_sqlite.sql("SELECT SUM(credits) AS n FROM calls")[0]["n"]
        assert 900 <= spent <= 1500
        waits = on_sqlite.sql("SELECT wait_reason FROM jobs WHERE state = 'pending' AND wait_reason IS NOT NULL")
        assert any("budget of 1,500 credits" in row["wait_reason"] for row in waits)
        assert on_sqlite("work", "--until-idle", **settings).code == 4
        on_sqlite.ok("sources", "set", "x", "--day-credits", "3000", **settings)
        assert on_sqlite("work", "--until-idle", **settings).code == 4
        assert spent < on_sqlite.sql("SELECT SUM(credits) AS n FROM calls")[0]["n"] <= 3000
        on_sqlite.ok("sources", "set", "x", "--no-day-cap", **settings)
        raised = on_sqlite("work", "--until-idle", **{**settings, "MISTNET_X_DAY_CREDITS": "10000000"})
        assert raised.code in (0, 3), raised
        assert on_sqlite.sql("SELECT id FROM jobs WHERE state = 'pending'") == []


def test_a_refused_key_ends_the_work_with_five_and_is_never_shown(on_sqlite: CommandLine, sim_url: str) -> None:
    settings = {**IMPATIENT, "MISTNET_X_BASE_URL": sim_url, "MISTNET_X_API_KEY": "hunter2-wrong-key"}
    on_sqlite.ok("suggest", list_handles(sim_url)[0], **settings)
    done = on_sqlite("work", "--until-idle", **settings)
    assert done.code == 5, done
    assert "mistnet sources resume x" in done.err
    assert "hunter2" not in done.out + done.err
    assert "hunter2" not in on_sqlite.ok("sources", "--json", **settings).out
    (alert,) = on_sqlite.ok("status", "--json", **settings).json["alerts"]
    assert (alert["rule"], alert["subject"], alert["severity"]) == ("source_paused", "x", "critical")
    again = on_sqlite("work", "--until-idle", **settings)
    assert (again.code, "`mistnet sources resume x`" in again.out) == (5, True), again
    good = {**settings, "MISTNET_X_API_KEY": KEY}
    on_sqlite.ok("work", "--until-idle", **good)
    assert on_sqlite.ok("status", "--json", **good).json["alerts"] == []
    assert on_sqlite.sql("SELECT count(*) AS n FROM posts")[0]["n"] > 50
    for row in on_sqlite.sql("SELECT CAST(error AS text) AS said FROM calls WHERE error IS NOT NULL"):
        assert "hunter2" not in row["said"]


def test_the_right_key_works_at_once_after_a_wrong_one(on_sqlite: CommandLine, sim_url: str) -> None:
    settings = {**IMPATIENT, "MISTNET_X_BASE_URL": sim_url}
    wanted = ("track", "--quote", list_handles(sim_url)[0])
    wrong = {**settings, "MISTNET_X_API_KEY": "hunter2-wrong-key"}
    for _ in range(2):
        refused = on_sqlite(*wanted, **wrong)
        assert (refused.code, "`mistnet sources resume x`" in refused.err) == (1, True), refused
    on_sqlite.ok(*wanted, **settings)


def test_resuming_a_source_closes_its_alert(on_sqlite: CommandLine, sim_url: str) -> None:
    settings = {**IMPATIENT, "MISTNET_X_BASE_URL": sim_url, "MISTNET_X_API_KEY": "hunter2-wrong-key"}
    on_sqlite.ok("suggest", list_handles(sim_url)[0], **settings)
    on_sqlite("work", "--until-idle", **settings)
    (alert,) = on_sqlite.ok("status", "--json", **settings).json["alerts"]
    assert (alert["rule"], alert["subject"]) == ("source_paused", "x")
    on_sqlite.ok("sources", "resume", "x", **settings)
    assert on_sqlite.ok("status", "--json", **settings).json["alerts"] == []


def test_without_a_key_work_says_what_to_do(on_sqlite: CommandLine) -> None:
    done = on_sqlite("work", MISTNET_PLUGINS="[]")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "MISTNET_X_API_KEY" in done.err
    assert "mistnet demo" in done.err


def test_refused_suggestions_are_listed_with_the_reason(on_sqlite: CommandLine, sim_url: str) -> None:
    settings = {**IMPATIENT, "MISTNET_X_BASE_URL": sim_url}
    assert "mistnet suggest HANDLE" in on_sqlite.ok("suggest", "--list", **settings).out
    on_sqlite.ok("suggest", "nobody_at_all", **settings)
    assert "open" in on_sqlite.ok("suggest", "--list", **settings).out
    on_sqlite.ok("work", "--until-idle", **settings)
    (kept,) = on_sqlite.ok("suggest", "--list", "--json", **settings).json["suggestions"]
    assert (kept["handle"], kept["outcome"]) == ("nobody_at_all", "refused")
    assert "no account of that name" in kept["reason"]
