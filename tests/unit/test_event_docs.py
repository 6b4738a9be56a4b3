"""The page on events and alerts keeps up with the program, and what it shows works."""

import json
import re
import time
from datetime import timedelta
from pathlib import Path

import msgspec

from mistnet.operations.alerts.model import AlertRule
from mistnet.operations.events import CHECK_ACCOUNTS_EVERY, CHECK_EVERY
from mistnet.operations.webhooks import body_of, headers_of
from mistnet.queue.events import Channel, Event, EventId, EventKind
from mistnet.settings import WebhookSettings
from tests.support import START
from tests.unit.test_docs import page, rows, section

PAGE = page("events-and-alerts.md")


def test_every_kind_of_event_is_on_the_page_with_an_example_that_is_json() -> None:
    events = section(PAGE, "## Events")
    assert set(re.findall(r"^### `([^`]+)`$", events, re.MULTILINE)) == {str(kind) for kind in EventKind}
    for kind in EventKind:
        told = section(events, f"### `{kind}`")
        assert "Channel\n`" in told or "Channel `" in told
        (example,) = re.findall(r"```json\n(.*?)```", told, re.DOTALL)
        assert json.loads(example)


def test_every_alert_rule_is_on_the_page_with_its_fix() -> None:
    listed = rows(section(PAGE, "## Alerts"))
    assert {str(rule) for rule in AlertRule} <= set(listed)
    assert all(len(listed[str(rule)]) == 4 and all(listed[str(rule)]) for rule in AlertRule)


def test_every_setting_of_a_webhook_is_on_the_page() -> None:
    listed = rows(section(page("settings.md"), "## One webhook: `[webhooks.NAME]`"))
    assert set(listed) == set(WebhookSettings.model_fields)


def test_the_check_of_signatures_works_as_shown() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(shown, str(Path("events-and-alerts.md")), "exec"), names)
    is_genuine = names["is_genuine"]
    assert callable(is_genuine)
    event = Event(
        id=EventId(7),
        kind=EventKind.RUN_FINISHED,
        subject="a",
        channel=Channel.DATA,
        created_at=START,
        payload=msgspec.Raw(b'{"said": "\xc3\xa9"}'),
    )
    body, now = body_of(event), int(time.time())
    headers = headers_of(event, body, "the secret we share", now)
    assert is_genuine("the secret we share", headers, body)
    assert not is_genuine("another", headers, body)
    assert not is_genuine("the secret we share", headers, body + b" ")
    late = headers_of(event, body, "the secret we share", now - 3600)
    assert not is_genuine("the secret we share", late, body)
    moved = {**late, "Mistnet-Timestamp": str(now)}
    assert not is_genuine("the secret we share", moved, body)


def test_the_page_tells_the_rhythm_of_the_watch() -> None:
    assert timedelta(seconds=30) == CHECK_EVERY
    assert timedelta(minutes=10) == CHECK_ACCOUNTS_EVERY
    assert "every 30 seconds, silent and suspect accounts every 10 minutes" in PAGE
