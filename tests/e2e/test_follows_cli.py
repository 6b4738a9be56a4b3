"""Follow syncs by the real commands, worked on by a process that is killed, in a world that moves on."""

import signal
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import CommandLine, until
from tests.e2e.test_runs_cli import SETTINGS, SLOW
from tests.simulated import ask_world, list_handles, tell_world, world_served


@pytest.fixture
def world() -> Iterator[str]:
    """A small world in which people leave; its time stands still until the test moves it."""
    with world_served(size="small", restless=True) as url:
        yield url


@pytest.fixture
def collector(on_postgres: CommandLine, world: str) -> CommandLine:
    on_postgres.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": world}
    return on_postgres


def listed(collector: CommandLine, handle: str, *options: str) -> set[str]:
    found = collector("follows", "list", handle, "--limit", "1000", "--json", *options)
    assert found.code == 0, found
    return {each["user_id"] for each in found.json["users"]}


def test_many_are_named_at_once_and_all_of_them_are_known_first(collector: CommandLine, world: str) -> None:
    one, other, *_ = list_handles(world)
    (collector.folder / "more").write_text(f"@{other} 12\n")
    asked = collector("follows", "sync", f"@{one},{other}", "--file", "more", "--side", "followers", "--json").json
    assert [each["handle"] for each in asked["users"]] == [one, other, None]
    assert [sync["created"] for each in asked["users"] for sync in each["syncs"]] == [True] * 3
    refused = collector("follows", "sync", "13,@x_knows_no_such", "--json")
    assert refused.code == 2
    assert collector.sql("SELECT count(*) AS n FROM jobs WHERE kind = 'follow_sync'") == [{"n": 3}]


def test_followers_are_synced_through_a_kill_and_unfollows_are_events(collector: CommandLine, world: str) -> None:
    handle = list_handles(world)[0]
    asked = collector("follows", "sync", f"@{handle}", "--json")
    assert asked.code == 0, asked
    assert [each["created"] for each in asked.json["syncs"]] == [True, True]
    worker = collector.start("work", **SLOW)
    until(lambda: collector.sql("SELECT 1 FROM follows LIMIT 1"))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert collector.sql("SELECT id FROM jobs WHERE kind = 'follow_sync'"), "the kill came after the end of the work"
    assert collector("work", "--until-idle").code == 0
    truth = ask_world(world, f"follows?handle={handle}")
    assert listed(collector, handle) == {str(each) for each in truth["followers"]}
    assert listed(collector, handle, "--side", "followings") == {str(each) for each in truth["followings"]}

    tell_world(world, "advance", seconds=40 * 86_400)
    assert collector("follows", "sync", f"@{handle}", "--full", "--side", "followers").code == 0
    assert collector("work", "--until-idle").code == 0
    later = {str(each) for each in ask_world(world, f"follows?handle={handle}")["followers"]}
    assert listed(collector, handle) == later
    told = collector("follows", "events", handle, "--limit", "1000", "--json").json["events"]
    ended = {each["follower_id"]: each["cause"] for each in told if each["kind"] == "unfollowed"}
    assert ended.keys() == {str(each) for each in truth["followers"]} - later
    assert set(ended.values()) == {"unfollowed", "suspended", "vanished"}
    (status,) = [each for each in collector("follows", "status", "--json").json["syncs"] if each["side"] == "followers"]
    assert (status["status"], status["mode"], status["plausible"]) == ("success", "full", True)
