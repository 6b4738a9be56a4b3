"""`alerts test`, and a worker that waits for a key."""

import json
import signal

from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import QUICK, CommandLine, until
from tests.receivers import SECRET, receiver_apart


def test_a_test_alert_reaches_every_receiver_and_names_those_that_do_not_take_it(on_sqlite: CommandLine) -> None:
    none = on_sqlite("alerts", "test")
    assert none.code == 1
    assert "alerts have no receiver: set `alert_urls`" in none.out
    with receiver_apart() as good, receiver_apart(lambda _: 503) as broken, receiver_apart() as readers:
        hooks = {
            "pager": {"url": good.url, "secret": SECRET, "channel": "alerts", "events": ["source.paused"]},
            "chat": {"url": broken.url, "secret": SECRET, "channel": "alerts"},
            "archive": {"url": readers.url, "secret": SECRET},
        }
        told = on_sqlite("alerts", "test", "--json", MISTNET_WEBHOOKS=json.dumps(hooks))
        assert told.code == 1
        assert told.json["receivers"] == [
            {"receiver": "chat", "problem": "it answered 503"},
            {"receiver": "pager", "problem": None},
        ]
        assert readers.got == []
        (got,) = good.got
        assert got.signed_with(SECRET)
        assert got.json["payload"]["message"] == "This is a test of mistnet's alerts. Nothing is wrong."
        del hooks["chat"]
        assert on_sqlite("alerts", "test", MISTNET_WEBHOOKS=json.dumps(hooks)).code == 0
    assert on_sqlite.ok("alerts", "--json").json == {"alerts": []}


def test_a_service_without_a_key_says_so_once_and_begins_when_there_is_one(
    on_sqlite: CommandLine, sim_url: str
) -> None:
    on_sqlite.settings |= {**QUICK, "MISTNET_X_BASE_URL": sim_url, "MISTNET_RECLAIM_SECONDS": "0.2"}
    del on_sqlite.settings["MISTNET_X_API_KEY"]
    on_sqlite.ok("track", "nobody_here")
    waiting = on_sqlite.start("work", "--wait-for-key")
    assert waiting.stderr is not None
    assert "no key for X is configured" in waiting.stderr.readline()
    on_sqlite.ok("init", "--key", "sim-key")
    until(lambda: on_sqlite.sql("SELECT 1 AS refused FROM suggestions WHERE outcome = 'refused'"))
    waiting.send_signal(signal.SIGTERM)
    out, err = waiting.communicate(timeout=DEADLINE_SECONDS)
    assert (waiting.returncode, "no key for X" in err) == (0, False), err
    assert "1 job settled" in out


def test_a_service_that_waits_for_a_key_ends_when_it_is_stopped(on_sqlite: CommandLine) -> None:
    waiting = on_sqlite.start("work", "--wait-for-key", MISTNET_PLUGINS="[]")
    assert waiting.stderr is not None
    waiting.stderr.readline()
    waiting.send_signal(signal.SIGTERM)
    _, err = waiting.communicate(timeout=DEADLINE_SECONDS)
    assert (waiting.returncode, "Traceback" in err) == (0, False)
    assert on_sqlite("work", MISTNET_PLUGINS="[]").code == 2
