"""Events as an operator sees them: the real command, killed on the way, and receivers that fail now and then."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import DEADLINE_SECONDS, command_line
from tests.e2e.conftest import CommandLine, until
from tests.e2e.test_kill_collecting import IMPATIENT
from tests.receivers import SECRET, receiver_apart
from tests.simulated import list_handles, world_served
from tests.warm import WarmProcess

DATA_KINDS = {"posts.collected", "account.backfilled", "account.state_changed", "run.finished", "summarize.requested"}


@contextmanager
def running(mistnet: CommandLine, log: Path, **settings: str) -> Iterator[WarmProcess[str]]:
    """`mistnet up`, with everything it says in a file."""
    with log.open("a", encoding="utf-8") as said:
        process = WarmProcess(
            command_line("up", "--port", "0"),
            cwd=mistnet.folder,
            env=mistnet.environment(**settings),
            stdout=said,
            stderr=said,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(DEADLINE_SECONDS)


def data_ids(mistnet: CommandLine) -> list[int]:
    return [row["id"] for row in mistnet.sql("SELECT id FROM events WHERE channel = 'data' ORDER BY id")]


@pytest.mark.in_turn(2)
def test_events_and_alerts_reach_their_receivers_through_kills_and_failures(on_postgres: CommandLine) -> None:
    log = on_postgres.folder / "log"
    with (
        world_served(seed=5) as base_url,
        receiver_apart(lambda number: (500, 204, 204, 503, 204)[number % 5]) as readers,
        receiver_apart(lambda number: (204, 410)[number % 2]) as operators,
        receiver_apart() as people,
    ):
        hooks = {
            "readers": {"url": readers.url, "secret": SECRET},
            "operators": {"url": operators.url, "secret": SECRET, "channel": "alerts"},
        }
        settings = {
            **IMPATIENT,
            "MISTNET_X_BASE_URL": base_url,
            "MISTNET_LOG_LEVEL": "DEBUG",
            "MISTNET_LEADER_LEASE_SECONDS": "1",
            "MISTNET_WEBHOOKS": json.dumps(hooks),
            "MISTNET_ALERT_URLS": json.dumps([people.url.replace("http://", "json://")]),
        }
        quiet = {**settings, "MISTNET_LOG_LEVEL": "ERROR"}
        on_postgres.ok("track", *list_handles(base_url)[:4], **quiet)
        with running(on_postgres, log, **settings) as first:
            until(lambda: len(readers.got) >= 2)
            os.kill(first.pid, signal.SIGKILL)
        with running(on_postgres, log, **settings, MISTNET_X_DAY_CREDITS="600"):
            until(lambda: {"budget_80", "budget_100"} <= {got.json["payload"]["rule"] for got in operators.taken})
            until(lambda: people.got and set(data_ids(on_postgres)) <= {got.id for got in readers.taken})
            status = on_postgres.ok("status", **quiet).out
            alerts = on_postgres.ok("status", "--json", **quiet).json["alerts"]
            doctor = on_postgres("doctor", **quiet).out
        assert "\nalerts; `mistnet alerts`" in status
        assert {each["rule"] for each in alerts} >= {"budget_80", "budget_100"}
        assert "alert budget_100" in doctor
        assert set(readers.kinds) <= DATA_KINDS
        assert "account.backfilled" in readers.kinds
        assert all(got.json["channel"] == "alerts" for got in operators.got)
        assert all(got.signed_with(SECRET) for got in (*readers.got, *operators.got))
        firsts = list(dict.fromkeys(got.id for got in readers.got))
        assert firsts == list(dict.fromkeys(got.id for got in readers.taken)), "none was skipped for a later one"
        assert len({got.body for got in readers.got}) == len(firsts), "what came again was the same"
        rules = [got.json["payload"]["rule"] for got in operators.taken if got.json["kind"] == "alert.opened"]
        opened = on_postgres.sql("SELECT rule, opened_at FROM alerts")
        assert len(set(rules)) == len({row["rule"] for row in opened})
        assert any("budget" in str(got.json) for got in people.taken)
    said = log.read_text(errors="replace") + status + doctor
    assert "budget_100" in said
    assert "hunter2" not in said
    assert SECRET not in str(on_postgres.sql("SELECT * FROM jobs")) + str(on_postgres.sql("SELECT * FROM job_errors"))
