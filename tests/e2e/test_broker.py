"""Crawling by many workers over a real RabbitMQ, with real processes: what a distributed crawl must hold."""

import asyncio
import json
import signal
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mistnet.sim.threads import DEFAULT_TOKEN
from tests import brokered
from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import RESTLESS, CommandLine, until
from tests.e2e.slips import is_one_line
from tests.e2e.test_crawling_cli import crawling
from tests.simulated import ask_world, list_handles

LANE = "toy"
QUICK = {**RESTLESS, "MISTNET_BACKOFF_BASE_SECONDS": "0.1"}


@pytest.fixture
def dispatched(on_postgres: CommandLine, broker_url: str) -> CommandLine:
    """The command where the toy lane goes over RabbitMQ."""
    on_postgres.settings |= over_broker(broker_url)
    return on_postgres


def over_broker(broker_url: str) -> dict[str, str]:
    return {**QUICK, "MISTNET_BROKER_URL": broker_url, "MISTNET_AMQP_LANES": json.dumps([LANE])}


def dead(broker_url: str) -> list[int]:
    return asyncio.run(brokered.dead(broker_url))


def states(mistnet: CommandLine) -> dict[str, int]:
    return {row["state"]: row["n"] for row in mistnet.sql("SELECT state, count(*) AS n FROM jobs GROUP BY state")}


def listening(pid: int) -> list[str]:
    """The sockets on which a process would take a connection from outside."""
    inodes = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(each.readlink()))
        except FileNotFoundError:
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.append(fields[1])
    return found


@pytest.mark.in_turn(0)
def test_a_link_seen_in_many_posts_and_feeds_is_one_crawl_over_the_broker(
    on_postgres: CommandLine, broker_url: str, sim_url: str
) -> None:
    lanes = {"MISTNET_BROKER_URL": broker_url, "MISTNET_AMQP_LANES": json.dumps(["shopee", "taobao"])}
    threads = {"MISTNET_THREADS_TOKEN": DEFAULT_TOKEN, "MISTNET_THREADS_BASE_URL": sim_url}
    quick = {"MISTNET_THREADS_RATE_PER_MINUTE": "100000", "MISTNET_CRAWL_SECOND_LOOK_SECONDS": "0.5"}
    on_postgres.settings |= {**QUICK, **crawling(sim_url, "shopee,taobao"), **lanes, **threads, **quick}
    on_postgres.ok("track", *list_handles(sim_url))
    on_postgres.ok("feeds", "add", *ask_world(sim_url, "threads")["handles"])
    other = on_postgres.start("work", "--until-idle")
    codes = {on_postgres("work", "--until-idle").code, other.wait(timeout=DEADLINE_SECONDS)}
    assert codes <= {0, 3}, "people who are gone are gaps"
    links = on_postgres.sql("SELECT id, url_norm FROM links WHERE lane IN ('shopee', 'taobao')")
    assert len(links) >= 3
    assert len({link["url_norm"] for link in links}) == len(links)
    seen = on_postgres.sql("SELECT max(n) AS n FROM (SELECT count(*) AS n FROM post_links GROUP BY link_id) AS links")
    assert seen[0]["n"] > 1, "a link that only one post has proves nothing"
    assert {row["platform"] for row in on_postgres.sql("SELECT DISTINCT platform FROM post_links")} == {"x", "threads"}
    waiting = on_postgres.sql("SELECT key, count(*) AS n FROM jobs WHERE kind = 'crawl' GROUP BY key")
    assert waiting, "those who collect leave these lanes alone"
    assert {row["n"] for row in waiting} == {1}
    done = on_postgres("work", "--via", "amqp", "--lanes", "shopee,taobao", "--until-idle")
    assert done.code in (0, 3), done
    crawled = on_postgres.sql(
        "SELECT key, count(*) AS n FROM (SELECT key FROM job_history WHERE kind = 'crawl' "
        "UNION ALL SELECT key FROM jobs WHERE kind = 'crawl') AS crawls GROUP BY key"
    )
    assert {row["n"] for row in crawled} == {1}, "exactly one job for each link"
    assert on_postgres.sql("SELECT id FROM jobs WHERE state IN ('pending', 'queued', 'running', 'retryable')") == []
    products = on_postgres.sql("SELECT platform, count(*) AS n FROM products GROUP BY platform")
    assert {row["platform"] for row in products} >= {"shopee", "taobao"}


def test_a_job_is_done_by_any_worker_and_none_of_them_listens(dispatched: CommandLine, broker_url: str) -> None:
    workers = [dispatched.start("work", "--via", "amqp", "--lanes", LANE, "--concurrency", "3") for _ in range(3)]
    until(lambda: dispatched.sql("SELECT count(*) AS n FROM workers") == [{"n": 3}])
    gate = dispatched.folder / "gate"
    for n in range(6):
        dispatched.add("gated", key=str(n), path=str(gate))
    until(lambda: states(dispatched) == {"running": 6})
    assert len({row["worker"] for row in dispatched.sql("SELECT worker FROM jobs")}) >= 2
    assert [listening(worker.pid) for worker in workers] == [[], [], []]
    gate.touch()
    until(lambda: states(dispatched) == {})
    assert Counter(row["job_id"] for row in dispatched.sql("SELECT job_id FROM effects")).most_common(1)[0][1] == 1
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    assert [worker.wait(timeout=DEADLINE_SECONDS) for worker in workers] == [0, 0, 0]
    assert asyncio.run(brokered.ready(broker_url)) == []


@pytest.mark.parametrize("database", ["on_postgres", "on_libsql"], ids=["postgresql", "libsql"])
def test_a_job_whose_worker_was_killed_is_done_by_another_after_the_lease(
    request: pytest.FixtureRequest, broker_url: str, database: str
) -> None:
    dispatched: CommandLine = request.getfixturevalue(database)
    dispatched.settings |= over_broker(broker_url)
    gate = dispatched.folder / "gate"
    dispatched.add("gated", key="one", path=str(gate))
    victim = dispatched.start("work", "--via", "amqp")
    until(lambda: states(dispatched) == {"running": 1})
    (held,) = dispatched.sql("SELECT worker, fence FROM jobs")
    victim.kill()
    victim.wait()
    gate.touch()
    done = dispatched("work", "--via", "amqp", "--until-idle")
    assert done.code == 0, done.err
    (finished,) = dispatched.sql("SELECT worker, fence, attempts FROM job_history")
    assert finished["worker"] != held["worker"]
    assert finished["fence"] > held["fence"]
    assert finished["attempts"] == 1, "the attempt of the one who was killed counts"
    assert dispatched.sql("SELECT error FROM job_errors")[0]["error"].startswith("the lease ran out")
    assert len(dispatched.sql("SELECT job_id FROM effects")) == 1


def test_a_job_that_keeps_failing_ends_dead_in_the_dead_letters_with_its_errors(
    dispatched: CommandLine, broker_url: str
) -> None:
    dispatched.add("shaky", key="one", n=7)
    dispatched.add("failing", key="two", n=8)
    done = dispatched("work", "--via", "amqp", "--until-idle")
    assert done.code == 3, done
    assert states(dispatched) == {"dead": 1, "failed": 1}
    ids = {row["kind"]: row["id"] for row in dispatched.sql("SELECT id, kind FROM jobs")}
    assert dead(broker_url) == sorted(ids.values())
    letters = asyncio.run(brokered.letters(broker_url, f"crawl.dlq.{LANE}"))
    (shaky,) = (letter for letter in letters if letter["kind"] == "shaky")
    assert (shaky["state"], shaky["attempts"]) == ("dead", 5)
    assert "number 7 did not work this time" in shaky["error"]
    shown = dispatched.ok("jobs", "show", str(ids["shaky"]), "--json").json
    assert len(shown["errors"]) == 5
    lanes = dispatched.ok("broker", "status", "--json").json["lanes"]
    assert [(lane["lane"], lane["dead"], lane["ready"]) for lane in lanes] == [(LANE, 2, 0)]


def test_an_operator_requeues_dead_letters_and_it_works(dispatched: CommandLine, broker_url: str) -> None:
    path = dispatched.folder / "mended"
    dispatched.add("mendable", key="one", path=str(path))
    assert dispatched("work", "--via", "amqp", "--until-idle").code == 3
    (job,) = dispatched.sql("SELECT id FROM jobs")
    assert dead(broker_url) == [job["id"]]
    path.touch()
    none = dispatched.ok("jobs", "requeue", "--dlq", LANE).out
    assert none == "0 requeued, 1 that failed for good left: --failed takes it too\n"
    assert dead(broker_url) == [job["id"]], "its letter stays"
    requeued = dispatched.ok("jobs", "requeue", "--dlq", LANE, "--failed", "--json").json
    assert requeued["requeued"] == [str(job["id"])]
    assert dead(broker_url) == []
    assert dispatched("work", "--via", "amqp", "--until-idle").code == 0
    assert dispatched.sql("SELECT job_id FROM effects") == [{"job_id": job["id"]}]
    again = dispatched.ok("jobs", "requeue", "--dlq", LANE)
    assert again.out.strip() == "0 requeued"


def test_the_process_that_dispatches_may_be_killed(dispatched: CommandLine) -> None:
    workers = [dispatched.start("work", "--via", "amqp") for _ in range(2)]
    until(lambda: leader(dispatched))
    first = leader(dispatched)
    (victim,) = (worker for worker in workers if f".{worker.pid}." in str(first))
    victim.kill()
    victim.wait()
    dispatched.add("quick", key="one", n=1)
    until(lambda: dispatched.sql("SELECT job_id FROM effects"))
    assert leader(dispatched) != first


def leader(mistnet: CommandLine) -> str | None:
    found = mistnet.sql("SELECT holder FROM leaders WHERE name LIKE 'dispatch%'")
    return found[0]["holder"] if found else None


def test_the_process_that_serves_dispatches_as_well(dispatched: CommandLine, broker_url: str) -> None:
    server = dispatched.start("serve", "--port", "0")
    until(lambda: leader(dispatched))
    dispatched.add("quick", key="one", n=1)
    until(lambda: states(dispatched) == {"queued": 1})
    assert len(asyncio.run(brokered.ready(broker_url))) == 1
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=DEADLINE_SECONDS) == 0


def test_a_worker_waits_for_a_broker_that_is_not_there_yet(dispatched: CommandLine, broker_url: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    dispatched.add("quick", key="one", n=1)
    worker = dispatched.start("work", "--via", "amqp", MISTNET_BROKER_URL=f"amqp://me:hush-hush@127.0.0.1:{port}/")
    until(lambda: dispatched.sql("SELECT name FROM workers"))
    worker.send_signal(signal.SIGTERM)
    _, said = worker.communicate(timeout=DEADLINE_SECONDS)
    assert worker.returncode == 0
    assert "does not answer" in said
    assert "hush-hush" not in said
    assert states(dispatched) == {"pending": 1}
    fallback = dispatched("work", "--via", "db", "--until-idle", MISTNET_BROKER_URL=f"amqp://127.0.0.1:{port}/")
    assert fallback.code == 0, fallback
    assert len(dispatched.sql("SELECT job_id FROM effects")) == 1


def test_wrong_use_is_told_in_one_line(dispatched: CommandLine) -> None:
    named = dispatched("work", "--lanes", LANE)
    assert named.code == 2
    assert "--via amqp" in named.err
    side = dispatched("work", "--via", "amqp", "--lanes", "side")
    assert side.code == 2
    assert "amqp_lanes" in side.err
    nowhere = dispatched("broker", "declare", MISTNET_BROKER_URL="amqp://127.0.0.1:1/")
    assert nowhere.code == 1
    assert "Traceback" not in nowhere.err
    refused = dispatched("broker", "status", MISTNET_BROKER_URL=_with_password(dispatched, "wr0ng-passw0rd"))
    assert refused.code == 2
    assert "refuses us" in refused.err
    assert "wr0ng-passw0rd" not in refused.err
    unset = dispatched("broker", "declare", MISTNET_AMQP_LANES="[]")
    assert unset.code == 2


def test_a_mistake_about_the_broker_ends_a_service_with_one_line_and_exit_code_2(on_sqlite: CommandLine) -> None:
    url = {"MISTNET_BROKER_URL": "amqps://127.0.0.1:1/", "MISTNET_AMQP_LANES": json.dumps([LANE])}
    for command in (
        ("work", "--until-idle"),
        ("work", "--via", "amqp"),
        ("serve", "--port", "0"),
        ("up", "--port", "0"),
    ):
        done = on_sqlite(*command, **url, MISTNET_BROKER_CA_FILE="/nowhere/ca.pem")
        assert is_one_line(done, "broker_ca_file: /nowhere/ca.pem"), done


def _with_password(mistnet: CommandLine, password: str) -> str:
    return mistnet.settings["MISTNET_BROKER_URL"].replace("guest:guest", f"guest:{password}")


def test_declare_makes_the_topology_and_says_so(dispatched: CommandLine, rabbit: Any, broker_url: str) -> None:
    made = dispatched.ok("broker", "declare", "--json").json
    assert made["queues"] == [f"crawl.{LANE}", f"crawl.dlq.{LANE}"]
    vhost = broker_url.rpartition("/")[2]
    (queue,) = (each for each in rabbit.ask("GET", f"/api/queues/{vhost}") if each["name"] == f"crawl.{LANE}")
    assert queue["durable"]
    assert queue["type"] == "quorum"
    assert queue["arguments"]["x-dead-letter-exchange"] == "crawl.dlx"
    exchanges = {each["name"]: each["type"] for each in rabbit.ask("GET", f"/api/exchanges/{vhost}")}
    assert (exchanges["crawl.jobs"], exchanges["crawl.dlx"]) == ("direct", "direct")
    bound = rabbit.ask("GET", f"/api/bindings/{vhost}/e/crawl.jobs/q/crawl.{LANE}")
    assert [each["routing_key"] for each in bound] == [LANE]
