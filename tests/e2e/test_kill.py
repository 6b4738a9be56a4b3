"""Workers killed with -9 again and again: every effect is there exactly once, and nothing is stuck."""

import asyncio
import random
import subprocess
import time
from collections import Counter

from mistnet.app import open_app
from mistnet.domain.jobs import KindName, NewJob
from mistnet.settings import load_settings
from tests.e2e.conftest import CommandLine
from tests.plugins import toy

JOBS = 2_000
WORKERS = 4
KILL_EVERY = 0.5
MOST_KILLS = 60
PATIENCE = 240.0

IMPATIENT = {
    "MISTNET_LEASE_SECONDS": "2",
    "MISTNET_HEARTBEAT_SECONDS": "0.5",
    "MISTNET_RECLAIM_SECONDS": "1",
    "MISTNET_IDLE_POLL_SECONDS": "1",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.2",
    "MISTNET_LOG_LEVEL": "ERROR",
}


async def enqueue(url: str) -> None:
    chance = random.Random(1)
    settings = load_settings(database_url=url, max_attempts=1000)
    async with open_app(settings, plugins=[toy.plugin()]) as app:
        naps = [toy.Nap(seconds=chance.uniform(0.0, 0.12)) for _ in range(JOBS)]
        await app.enqueue([NewJob(kind=KindName("sleepy"), key=str(n), args=nap) for n, nap in enumerate(naps)])


def test_two_thousand_jobs_survive_a_massacre(mistnet: CommandLine) -> None:
    asyncio.run(enqueue(mistnet.url))

    def start() -> "subprocess.Popen[str]":
        return mistnet.start("work", "--until-idle", "--concurrency", "6", **IMPATIENT)

    chance = random.Random(2)
    crew = [start() for _ in range(WORKERS)]
    kills = 0
    victims_mid_work = 0
    deadline = time.monotonic() + PATIENCE
    while any(worker.poll() is None for worker in crew):
        assert time.monotonic() < deadline, mistnet.sql("SELECT state, count(*) AS n FROM jobs GROUP BY state")
        time.sleep(KILL_EVERY)
        if kills < MOST_KILLS and mistnet.sql("SELECT 1 FROM jobs LIMIT 1"):
            slot = chance.randrange(WORKERS)
            victims_mid_work += crew[slot].poll() is None
            crew[slot].kill()
            crew[slot].wait()
            crew[slot] = start()
            kills += 1
    assert [worker.returncode for worker in crew] == [0] * WORKERS
    effects = Counter(row["job_id"] for row in mistnet.sql("SELECT job_id FROM effects"))
    assert len(effects) == JOBS
    assert set(effects.values()) == {1}
    assert mistnet.sql("SELECT id FROM jobs") == []
    assert mistnet.sql("SELECT count(*) AS n FROM job_history WHERE state = 'succeeded'") == [{"n": JOBS}]
    lost = mistnet.sql("SELECT count(*) AS n FROM job_errors WHERE error LIKE 'the lease ran out%'")[0]["n"]
    assert victims_mid_work >= 8, "too few were killed to prove anything"
    assert lost >= 8, "no kill ever hit a worker that held a job"
