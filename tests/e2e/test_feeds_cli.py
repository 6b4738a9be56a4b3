"""Feeds as people use them: the real command against a simulated Threads behind HTTP, killed in the middle."""

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

from mistnet.sim.threads import DEFAULT_TOKEN
from tests.e2e.conftest import RESTLESS, CommandLine, until, world_says

QUICK = {
    "MISTNET_THREADS_TOKEN": DEFAULT_TOKEN,
    "MISTNET_THREADS_RATE_PER_MINUTE": "100000",
    "MISTNET_SECOND_LOOK_SECONDS": "0.2",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_PLUGINS": "[]",
}


@pytest.fixture
def sim() -> Iterator[str]:
    """A tiny world whose time stands still, in a process of its own."""
    command = [sys.executable, "-m", "mistnet.sim", "--port", "0", "--size", "tiny", "--speed", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def tell(sim: str, path: str, **given: object) -> Any:
    asked = Request(f"{sim}/_sim/{path}", data=json.dumps(given).encode(), method="POST")
    with urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def wanted(sim: str, handle: str) -> set[int]:
    feed = world_says(sim, f"feed?handle={handle}")["feed"]
    return {int(each) for name in ("posts", "replies", "originals") for each in feed[name]}


def stored(command: CommandLine) -> set[int]:
    return {row["id"] for row in command.sql("SELECT id FROM posts WHERE platform = 'threads'")}


def test_feeds_are_added_read_and_read_on(mistnet: CommandLine, sim: str) -> None:
    mistnet.settings = {**QUICK, "MISTNET_THREADS_BASE_URL": sim}
    told = world_says(sim, "threads")
    own, other, closed = told["handles"][0], told["handles"][1], told["closed"][0]
    mistnet.ok("feeds", "add", own, f"https://www.threads.com/@{other}", closed)
    mistnet.ok("work", "--lanes", "threads", "--until-idle")
    assert stored(mistnet) == wanted(sim, own) | wanted(sim, other)
    feeds = {each["handle"]: each for each in mistnet.ok("feeds", "list", "--json").json["feeds"]}
    assert {handle: each["state"] for handle, each in feeds.items()} == {
        own: "active",
        other: "active",
        closed: "refused",
    }
    tell(sim, "advance", seconds=2 * 86_400)
    mistnet.ok("feeds", "poll", own, other)
    mistnet.ok("work", "--lanes", "threads", "--until-idle")
    assert stored(mistnet) >= wanted(sim, own) | wanted(sim, other)
    said = mistnet.ok("feeds", "token", "--check", "--json")
    assert said.json["token"]["expires_at"] is not None
    assert DEFAULT_TOKEN not in said.out + said.err + repr(mistnet.sql("SELECT * FROM calls"))


def test_a_killed_poll_goes_on_where_it_was(mistnet: CommandLine, sim: str) -> None:
    mistnet.settings = {**QUICK, **RESTLESS, "MISTNET_THREADS_BASE_URL": sim}
    tell(sim, "faults", latency_seconds=[0.02, 0.05])
    handles = world_says(sim, "threads")["handles"]
    mistnet.ok("feeds", "add", *handles)
    for _ in range(2):
        before = len(stored(mistnet))
        worker = mistnet.start("work", "--lanes", "threads")
        until(lambda before=before: len(stored(mistnet)) >= before + 40)  # type: ignore[misc]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    tell(sim, "faults", preset="none")
    mistnet.ok("work", "--lanes", "threads", "--until-idle")
    assert stored(mistnet) == set().union(*(wanted(sim, handle) for handle in handles))


def test_a_void_token_ends_the_work_with_its_own_exit_code_and_a_new_one_mends_it(
    mistnet: CommandLine, sim: str
) -> None:
    file = mistnet.folder / "token"
    mistnet.settings = {**QUICK, "MISTNET_THREADS_BASE_URL": sim, "MISTNET_THREADS_TOKEN_FILE": str(file)}
    handle = world_says(sim, "threads")["handles"][1]
    mistnet.ok("feeds", "token", "--refresh")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    mistnet.ok("feeds", "add", handle)
    tell(sim, "threads_token", seconds=-1)
    done = mistnet("work", "--lanes", "threads", "--until-idle")
    assert done.code == 5, done
    assert "MISTNET_THREADS_TOKEN" in mistnet.ok("sources").out
    assert DEFAULT_TOKEN not in done.out + done.err
    tell(sim, "threads_token", seconds=86_400)
    mistnet.ok("sources", "resume", "threads")
    mistnet.ok("work", "--lanes", "threads", "--until-idle")
    assert stored(mistnet) == wanted(sim, handle)
