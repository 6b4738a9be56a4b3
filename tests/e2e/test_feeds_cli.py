"""Feeds by the commands, against a simulated Threads over HTTP, with a worker that is killed."""

import signal
import stat
from collections.abc import Iterator

import pytest

from mistnet.sim.service import Tier
from mistnet.sim.threads import DEFAULT_TOKEN
from tests.e2e.conftest import RESTLESS, CommandLine, until
from tests.simulated import ask_world, tell_world, world_served

QUICK = {
    "MISTNET_THREADS_TOKEN": DEFAULT_TOKEN,
    "MISTNET_THREADS_RATE_PER_MINUTE": "100000",
    "MISTNET_SECOND_LOOK_SECONDS": "0.2",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_PLUGINS": "[]",
}


@pytest.fixture
def sim() -> Iterator[str]:
    """A tiny world that the test may change; its time stands still."""
    with world_served(tier=Tier.PAID) as url:
        yield url


def wanted(sim: str, handle: str) -> set[int]:
    feed = ask_world(sim, f"feed?handle={handle}")["feed"]
    return {int(each) for name in ("posts", "replies", "originals") for each in feed[name]}


def stored(command: CommandLine) -> set[int]:
    return {row["id"] for row in command.sql("SELECT id FROM posts WHERE platform = 'threads'")}


def test_feeds_are_added_read_and_read_on(on_sqlite: CommandLine, sim: str) -> None:
    on_sqlite.settings = {**QUICK, "MISTNET_THREADS_BASE_URL": sim}
    told = ask_world(sim, "threads")
    own, other, closed = told["handles"][0], told["handles"][1], told["closed"][0]
    on_sqlite.ok("feeds", "add", own, f"https://www.threads.com/@{other}", closed)
    on_sqlite.ok("work", "--lanes", "threads", "--until-idle")
    assert stored(on_sqlite) == wanted(sim, own) | wanted(sim, other)
    feeds = {each["handle"]: each for each in on_sqlite.ok("feeds", "list", "--json").json["feeds"]}
    assert {handle: each["state"] for handle, each in feeds.items()} == {
        own: "active",
        other: "active",
        closed: "refused",
    }
    tell_world(sim, "advance", seconds=2 * 86_400)
    on_sqlite.ok("feeds", "poll", own, other)
    on_sqlite.ok("work", "--lanes", "threads", "--until-idle")
    assert stored(on_sqlite) >= wanted(sim, own) | wanted(sim, other)
    said = on_sqlite.ok("feeds", "token", "--check", "--json")
    assert said.json["token"]["expires_at"] is not None
    assert DEFAULT_TOKEN not in said.out + said.err + repr(on_sqlite.sql("SELECT * FROM calls"))


@pytest.mark.in_turn(0)
def test_a_killed_poll_goes_on_where_it_was(on_postgres: CommandLine, sim: str) -> None:
    on_postgres.settings = {**QUICK, **RESTLESS, "MISTNET_THREADS_BASE_URL": sim}
    tell_world(sim, "faults", latency_seconds=[0.3, 0.3])
    handles = ask_world(sim, "threads")["handles"]
    on_postgres.ok("feeds", "add", *handles)
    for _ in range(2):
        before = len(stored(on_postgres))
        worker = on_postgres.start("work", "--lanes", "threads", "--concurrency", "1")
        until(lambda before=before: len(stored(on_postgres)) >= before + 10)  # type: ignore[misc]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert on_postgres.sql("SELECT id FROM jobs"), "the kill came after the end of the work"
    tell_world(sim, "faults", preset="none")
    on_postgres.ok("work", "--lanes", "threads", "--until-idle")
    assert stored(on_postgres) == set().union(*(wanted(sim, handle) for handle in handles))


def test_a_void_token_ends_the_work_with_its_own_exit_code_and_a_new_one_mends_it(
    on_sqlite: CommandLine, sim: str
) -> None:
    file = on_sqlite.folder / "token"
    on_sqlite.settings = {**QUICK, "MISTNET_THREADS_BASE_URL": sim, "MISTNET_THREADS_TOKEN_FILE": str(file)}
    handle = ask_world(sim, "threads")["handles"][1]
    on_sqlite.ok("feeds", "token", "--refresh")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    on_sqlite.ok("feeds", "add", handle)
    tell_world(sim, "threads_token", seconds=-1)
    done = on_sqlite("work", "--lanes", "threads", "--until-idle")
    assert done.code == 5, done
    assert "MISTNET_THREADS_TOKEN" in on_sqlite.ok("sources").out
    assert DEFAULT_TOKEN not in done.out + done.err
    tell_world(sim, "threads_token", seconds=86_400)
    on_sqlite.ok("sources", "resume", "threads")
    on_sqlite.ok("work", "--lanes", "threads", "--until-idle")
    assert stored(on_sqlite) == wanted(sim, handle)
