"""The real command on a libSQL server: set up, looked over, collecting, and killed with -9 on the way."""

import asyncio
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

from mistnet.app import open_app
from mistnet.domain.jobs import KindName, NewJob
from mistnet.settings import load_settings
from tests.e2e.conftest import RESTLESS, CommandLine, until
from tests.e2e.test_kill_collecting import collect, differences, repeated_searches, world_served
from tests.plugins import toy
from tests.services.sqld import SqldServer

JOBS = 600
WORKERS = 3
MOST_KILLS = 12
PATIENCE = 200.0
IMPATIENT = {**RESTLESS, "MISTNET_IDLE_POLL_SECONDS": "1", "MISTNET_BACKOFF_BASE_SECONDS": "0.2"}


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


def test_a_world_is_collected_whole_and_no_page_is_paid_for_twice(on_libsql: CommandLine) -> None:
    with world_served("--size", "tiny") as base_url:
        assert collect(on_libsql, base_url, kills=0) == 0
        assert differences(on_libsql.url) == []
        assert repeated_searches(base_url) == {}


def test_jobs_of_killed_workers_are_done_by_others_exactly_once(on_libsql: CommandLine) -> None:
    """A worker killed within a transaction holds the server's one lock until the server gives it to another."""
    asyncio.run(_enqueue(on_libsql.url))
    chance = random.Random(2)

    def start() -> "subprocess.Popen[str]":
        return on_libsql.start("work", "--until-idle", "--concurrency", "6", **IMPATIENT)

    def running() -> int:
        return int(on_libsql.sql("SELECT count(*) AS n FROM jobs WHERE state = 'running'")[0]["n"])

    crew = [start() for _ in range(WORKERS)]
    deadline = time.monotonic() + PATIENCE
    for _ in range(MOST_KILLS):
        until(lambda: running() > 0 or not _left(on_libsql))
        if not _left(on_libsql):
            break
        slot = chance.randrange(WORKERS)
        crew[slot].kill()
        crew[slot].wait()
        crew[slot] = start()
        time.sleep(chance.uniform(0.2, 1.0))
    while any(worker.poll() is None for worker in crew):
        assert time.monotonic() < deadline, on_libsql.sql("SELECT state, count(*) AS n FROM jobs GROUP BY state")
        time.sleep(0.2)
    assert [worker.returncode for worker in crew] == [0] * WORKERS
    effects = Counter(row["job_id"] for row in on_libsql.sql("SELECT job_id FROM effects"))
    assert (len(effects), set(effects.values())) == (JOBS, {1})
    assert not _left(on_libsql)
    lost = on_libsql.sql("SELECT count(*) AS n FROM job_errors WHERE error LIKE 'the lease ran out%'")[0]["n"]
    assert lost >= 3, "no kill ever hit a worker that held a job"


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


def _left(mistnet: CommandLine) -> bool:
    return bool(mistnet.sql("SELECT 1 FROM jobs LIMIT 1"))


async def _enqueue(url: str) -> None:
    chance = random.Random(1)
    async with open_app(load_settings(database_url=url, max_attempts=1000), plugins=[toy.plugin()]) as app:
        naps = [toy.Nap(seconds=chance.uniform(0.0, 0.3)) for _ in range(JOBS)]
        await app.enqueue([NewJob(kind=KindName("sleepy"), key=str(n), args=nap) for n, nap in enumerate(naps)])
