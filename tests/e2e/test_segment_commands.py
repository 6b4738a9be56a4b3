"""Segments by the real commands: defined from a handle, synced and worked out by workers, looked at, written out."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

from tests.e2e.conftest import CommandLine, until
from tests.e2e.test_runs_cli import SETTINGS


@pytest.fixture(scope="module")
def world() -> Iterator[str]:
    command = [sys.executable, "-m", "mistnet.sim", "--port", "0", "--size", "tiny", "--tier", "unlimited"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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


def ask(world: str, path: str) -> Any:
    with urlopen(f"{world}/_sim/{path}", timeout=30) as answer:
        return json.load(answer)


def test_a_segment_from_a_handle_to_a_file(collector: CommandLine, world: str) -> None:
    handle = str(ask(world, "accounts")["handles"][0])
    collector.ok("segments", "define", "fans", "--followers-of", f"@{handle}")
    collector.ok("segments", "define", "friends", "--mutuals-of", handle)
    collector.ok("segments", "define", "others", "--difference", "fans,friends")
    without_key = collector.start("work", "--lanes", "segments", MISTNET_X_API_KEY="")
    collector.ok("segments", "materialize", "others")
    until(lambda: collector.sql("SELECT 1 FROM jobs WHERE kind = 'follow_sync'"))
    waiting = collector.ok("segments", "show", "others", "--json").json["job"]["wait_reason"]
    assert waiting.startswith("waits for a complete sync of the followers of user")
    collector.ok("work", "--until-idle", "--lanes", "x")
    until(lambda: collector.sql("SELECT 1 FROM segments WHERE name = 'others' AND materialized_at IS NOT NULL"))
    fans, friends, others = (
        {
            each["user_id"]
            for each in collector.ok("segments", "members", name, "--limit", "10000", "--json").json["members"]
        }
        for name in ("fans", "friends", "others")
    )
    assert fans
    assert others == fans - friends
    truth = ask(world, f"follows?handle={handle}")
    assert fans == {str(each) for each in truth["followers"]}
    assert friends == fans & {str(each) for each in truth["followings"]}
    lines = collector.ok("segments", "export", "fans").out.splitlines()
    assert {json.loads(line)["user_id"] for line in lines} == fans
    again = collector.ok("segments", "materialize", "others", "--wait")
    assert "0 came, 0 went" in again.out
    assert without_key.poll() is None
