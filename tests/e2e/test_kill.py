"""Workers killed with -9 again and again: every effect is there exactly once, and nothing is stuck."""

import subprocess
from collections import Counter

import pytest

from tests.e2e.conftest import RESTLESS, CommandLine
from tests.e2e.kills import KILLS, kill_holder, wait_for_all

WORKERS = 2
NAPS = 120 + 20 * KILLS
GATED = 2 * WORKERS
SETTINGS = {**RESTLESS, "MISTNET_BACKOFF_BASE_SECONDS": "0.2", "MISTNET_LOG_LEVEL": "ERROR"}


@pytest.fixture(
    params=[
        pytest.param("on_sqlite", id="sqlite"),
        pytest.param("on_postgres", id="postgresql"),
        pytest.param("on_libsql", id="libsql"),
    ]
)
def mistnet(request: pytest.FixtureRequest) -> CommandLine:
    """Each database locks in its own way.

    On libSQL a worker killed within a transaction holds the server's one lock until the server gives it to another.
    """
    command: CommandLine = request.getfixturevalue(request.param)
    return command


def test_the_jobs_of_killed_workers_are_done_by_others_exactly_once(mistnet: CommandLine) -> None:
    gate = mistnet.folder / "gate"
    naps: list[tuple[str, str | None, dict[str, object]]] = [
        ("sleepy", f"nap {n}", {"seconds": n % 7 / 100}) for n in range(NAPS)
    ]
    gated: list[tuple[str, str | None, dict[str, object]]] = [
        ("gated", f"gate {n}", {"path": str(gate)}) for n in range(GATED)
    ]
    mistnet.add_all([*gated, *naps], max_attempts=1000)  # the gated jobs are held until the last kill

    def start() -> "subprocess.Popen[str]":
        return mistnet.start("work", "--until-idle", "--concurrency", "6", **SETTINGS)

    crew = [start() for _ in range(WORKERS)]

    def alive() -> list[int]:
        return [worker.pid for worker in crew if worker.poll() is None]

    kills = 0
    while kills < KILLS:
        kills += bool(kill_holder(mistnet, alive, is_over=lambda: not alive()))
        crew[:] = [worker if worker.poll() is None else start() for worker in crew]
    gate.touch()
    wait_for_all(crew)
    effects = Counter(row["job_id"] for row in mistnet.sql("SELECT job_id FROM effects"))
    assert (len(effects), set(effects.values())) == (NAPS + GATED, {1})
    assert mistnet.sql("SELECT id FROM jobs") == []
    assert mistnet.sql("SELECT count(*) AS n FROM job_history WHERE state = 'succeeded'") == [{"n": NAPS + GATED}]
    lost = mistnet.sql("SELECT count(*) AS n FROM job_errors WHERE error LIKE 'the lease ran out%'")[0]["n"]
    assert lost >= KILLS
