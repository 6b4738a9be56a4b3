"""Segments by the real commands: defined from a handle, synced and worked out by workers, looked at, written out."""

import json

import pytest

from tests.e2e.conftest import CommandLine, until
from tests.e2e.test_runs_cli import SETTINGS
from tests.simulated import ask_world, list_handles


@pytest.fixture
def collector(on_postgres: CommandLine, sim_url: str) -> CommandLine:
    on_postgres.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": sim_url}
    return on_postgres


def test_a_segment_from_a_handle_to_a_file(collector: CommandLine, sim_url: str) -> None:
    handle = list_handles(sim_url)[0]
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
    truth = ask_world(sim_url, f"follows?handle={handle}")
    assert fans == {str(each) for each in truth["followers"]}
    assert friends == fans & {str(each) for each in truth["followings"]}
    lines = collector.ok("segments", "export", "fans").out.splitlines()
    assert {json.loads(line)["user_id"] for line in lines} == fans
    again = collector.ok("segments", "materialize", "others", "--wait")
    assert "0 entered, 0 left" in again.out
    assert without_key.poll() is None
