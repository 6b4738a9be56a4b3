"""The commands on a libSQL server: set up, checked, collecting, and through a restart of the server."""

from collections import Counter
from pathlib import Path

import pytest

from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import RESTLESS, CommandLine, until
from tests.e2e.test_kill_collecting import SEED, collect, differences, repeated_searches
from tests.services.sqld import SqldServer
from tests.simulated import world_served

NAPS = 80
RESTARTS = 3
IMPATIENT = {**RESTLESS, "MISTNET_BACKOFF_BASE_SECONDS": "0.2"}


def test_an_empty_database_is_set_up_when_asked_and_looked_over(
    fresh_libsql: str, tmp_path: Path, sqld: SqldServer
) -> None:
    mistnet = CommandLine(folder=tmp_path, url=fresh_libsql, settings={"MISTNET_X_API_KEY": "sim-key"})
    unready = mistnet("status")
    assert unready.code == 1
    assert "run `mistnet db migrate`" in unready.err
    told = [unready, mistnet.ok("db", "migrate"), mistnet.ok("db", "check"), mistnet.ok("status"), mistnet("doctor")]
    assert "from empty to" in told[1].out
    looked = mistnet("doctor", "--json").json["findings"]
    words = {each["name"]: each for each in looked}
    assert words["database"]["found"].startswith("libsql+http://")
    assert words["version"]["found"].startswith("libSQL on SQLite 3.")
    assert words["references"]["level"] == "ok"
    assert "s apart" in words["clock"]["found"]
    for each in told:
        assert sqld.token not in each.out + each.err


def test_a_server_that_is_not_there_is_one_clear_line_without_the_token(tmp_path: Path) -> None:
    url = "libsql+http://127.0.0.1:9?authToken=a.secret-token.b"
    mistnet = CommandLine(folder=tmp_path, url=url, settings={"MISTNET_X_API_KEY": "sim-key"})
    for arguments in (("status",), ("db", "check"), ("db", "migrate")):
        ran = mistnet(*arguments)
        assert ran.code == 1
        assert "does not answer" in ran.err
        assert ran.err.count("\n") == 1
        assert "secret-token" not in ran.out + ran.err
    wrong = mistnet("status", "--database-url", "libsql://host/some/path")
    assert (wrong.code, "a libSQL URL is libsql://HOST" in wrong.err) == (2, True)


@pytest.mark.in_turn(0)
def test_a_world_is_collected_whole_and_no_page_is_paid_for_twice(on_libsql: CommandLine) -> None:
    with world_served(seed=SEED) as base_url:
        collect(on_libsql, base_url, others=1)
        assert differences(on_libsql.url) == []
        assert repeated_searches(base_url) == {}


@pytest.mark.in_turn(1)
def test_jobs_are_done_exactly_once_though_the_server_restarts_while_they_are_worked_on(tmp_path: Path) -> None:
    with SqldServer() as sqld:
        mistnet = CommandLine(folder=tmp_path, url=sqld.create())
        mistnet.prepare()
        mistnet.add_all([("sleepy", f"nap {n}", {"seconds": n % 5 / 20}) for n in range(NAPS)], max_attempts=100)
        worker = mistnet.start("work", "--until-idle", "--concurrency", "4", **IMPATIENT)
        try:
            for restarts in range(1, RESTARTS + 1):
                until(lambda: _effects(mistnet) >= restarts * NAPS // (RESTARTS + 2))  # noqa: B023 (awaited at once)
                assert worker.poll() is None
                sqld.restart()
            _, said = worker.communicate(timeout=DEADLINE_SECONDS)
            assert worker.returncode == 0, said
            effects = Counter(row["job_id"] for row in mistnet.sql("SELECT job_id FROM effects"))
            assert (len(effects), set(effects.values())) == (NAPS, {1})
            assert mistnet.sql("SELECT id FROM jobs") == []
        finally:
            mistnet.stop_all()


def _effects(mistnet: CommandLine) -> int:
    return int(mistnet.sql("SELECT count(*) AS n FROM effects")[0]["n"])


def test_a_worker_outlives_a_restart_of_the_server_and_needs_none_itself(tmp_path: Path) -> None:
    with SqldServer() as sqld:
        mistnet = CommandLine(folder=tmp_path, url=sqld.create())
        mistnet.prepare()
        worker = mistnet.start("work", **IMPATIENT)
        try:
            mistnet.add("sleepy", key="before", seconds=0.0)
            until(lambda: len(mistnet.sql("SELECT job_id FROM effects")) == 1)
            sqld.restart()
            mistnet.add("sleepy", key="after", seconds=0.0)
            until(lambda: len(mistnet.sql("SELECT job_id FROM effects")) == 2)
            assert worker.poll() is None
        finally:
            mistnet.stop_all()
