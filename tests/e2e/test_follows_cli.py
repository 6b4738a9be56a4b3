"""Follow syncs by the real commands, worked on by a process that is killed, in a world that moves on."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.e2e.conftest import CommandLine, until
from tests.e2e.test_runs_cli import SETTINGS


@pytest.fixture
def world() -> Iterator[str]:
    words = ["--port", "0", "--size", "small", "--tier", "unlimited", "--restless", "--speed", "0"]
    process = subprocess.Popen([sys.executable, "-m", "mistnet.sim", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def collector(mistnet: CommandLine, world: str) -> CommandLine:
    mistnet.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": world}
    return mistnet


def ask(world: str, path: str, sent: dict[str, Any] | None = None) -> Any:
    body = json.dumps(sent).encode() if sent is not None else None
    with urlopen(Request(f"{world}/_sim/{path}", data=body), timeout=30) as answer:
        return json.load(answer)


def listed(collector: CommandLine, handle: str, *options: str) -> set[str]:
    found = collector("follows", "list", handle, "--limit", "1000", "--json", *options)
    assert found.code == 0, found
    return {each["user_id"] for each in found.json["users"]}


def test_followers_are_synced_through_a_kill_and_those_who_left_are_told_of(collector: CommandLine, world: str) -> None:
    handle = ask(world, "accounts")["handles"][0]
    asked = collector("follows", "sync", f"@{handle}", "--json")
    assert asked.code == 0, asked
    assert [each["created"] for each in asked.json["syncs"]] == [True, True]
    worker = collector.start("work")
    until(lambda: len(listed(collector, handle)) > 0)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert collector("work", "--until-idle").code == 0
    truth = ask(world, f"follows?handle={handle}")
    assert listed(collector, handle) == {str(each) for each in truth["followers"]}
    assert listed(collector, handle, "--side", "followings") == {str(each) for each in truth["followings"]}

    ask(world, "advance", {"seconds": 40 * 86_400})
    assert collector("follows", "sync", f"@{handle}", "--full", "--side", "followers").code == 0
    assert collector("work", "--until-idle").code == 0
    later = {str(each) for each in ask(world, f"follows?handle={handle}")["followers"]}
    assert listed(collector, handle) == later
    told = collector("follows", "events", handle, "--limit", "1000", "--json").json["events"]
    ended = {each["follower_id"]: each["cause"] for each in told if each["kind"] == "unfollowed"}
    assert ended.keys() == {str(each) for each in truth["followers"]} - later
    assert set(ended.values()) == {"unfollowed", "suspended", "vanished"}
    (status,) = [each for each in collector("follows", "status", "--json").json["syncs"] if each["side"] == "followers"]
    assert (status["status"], status["mode"], status["plausible"]) == ("success", "full", True)
