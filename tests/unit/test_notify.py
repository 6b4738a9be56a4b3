"""The messenger against real servers on loopback, good, bad, slow and gone; and Apprise behind it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from mistnet.kit.errors import SettingsError
from mistnet.operations.webhooks import AppriseUrl, Messenger, Webhook, message_of
from mistnet.queue.errors import Undelivered
from mistnet.queue.events import Channel, Event, EventId, EventKind, SubscriberName
from tests.receivers import SECRET, receiver
from tests.support import START, TurnedClock
from tests.unit.test_http import said, server

HOOK = SubscriberName("hook")


def event(kind: EventKind = EventKind.ALERT_OPENED, **about: Any) -> Event:
    payload = {"rule": "budget_80", "severity": "critical", "message": "nearly spent", **about}
    raw = msgspec.Raw(json.dumps(payload).encode())
    return Event(id=EventId(7), kind=kind, subject="x day", channel=Channel.ALERTS, created_at=START, payload=raw)


def messenger(address: Webhook | AppriseUrl, *, seconds: float = 5) -> AbstractAsyncContextManager[Messenger]:
    return Messenger({HOOK: address}, clock=TurnedClock(), user_agent="mistnet/test", total_seconds=seconds)


async def test_a_webhook_gets_the_event_and_the_time_of_the_try() -> None:
    async with receiver() as taking, messenger(Webhook(taking.url, SECRET)) as post:
        await post.bring(HOOK, event())
        (got,) = taking.got
        assert got.headers["Mistnet-Timestamp"] == str(int(START.timestamp()))
        assert got.signed_with(SECRET)
        assert got.json["created_at"] == "2026-03-01T12:00:00Z"


async def test_what_is_not_an_answer_is_named_without_its_address() -> None:
    async with server(b"") as (cut, _), messenger(Webhook(f"{cut}/hunter2", SECRET)) as post:
        with pytest.raises(Undelivered, match="ServerDisconnectedError") as broken:
            await post.bring(HOOK, event())
        assert "hunter2" not in str(broken.value)
        assert broken.value.__cause__ is None
    async with messenger(Webhook("http://nobody.invalid/hunter2", SECRET)) as post:
        with pytest.raises(Undelivered) as unknown:
            await post.bring(HOOK, event())
        assert "hunter2" not in str(unknown.value)
        assert "nobody.invalid" not in str(unknown.value)


async def test_a_receiver_that_never_answers_is_given_up_in_time() -> None:
    silent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with messenger(Webhook(f"http://127.0.0.1:{port}/", SECRET), seconds=0.2) as post:
        with pytest.raises(Undelivered, match=r"no answer within 0\.2 s"):
            await post.bring(HOOK, event())
    silent.set()
    listening.close()
    await listening.wait_closed()


async def test_an_endless_answer_is_not_read() -> None:
    async with server(said(b"x" * 10, "200 OK", length=10**9)) as (url, _), messenger(Webhook(url, SECRET)) as post:
        await post.bring(HOOK, event())


async def test_a_subscriber_this_worker_does_not_know_is_not_told() -> None:
    async with messenger(Webhook("http://127.0.0.1:9/", SECRET)) as post:
        with pytest.raises(Undelivered, match="do not name it"):
            await post.bring(SubscriberName("somebody"), event())


async def test_people_are_told_through_apprise(capfd: pytest.CaptureFixture[str]) -> None:
    async with receiver(lambda number: (200, 500)[number % 2]) as taking:
        async with messenger(AppriseUrl(taking.url.replace("http://", "json://"))) as post:
            await post.bring(HOOK, event())
            with pytest.raises(Undelivered, match="refused it") as refused:
                await post.bring(HOOK, event())
        assert "hunter2" not in str(refused.value)
        message = taking.got[0].json
        assert (message["title"], message["message"]) == ("mistnet: budget_80 (x day)", "nearly spent")
        assert message["type"] == "failure"
    captured = capfd.readouterr()
    assert "hunter2" not in captured.out + captured.err


async def test_a_url_apprise_does_not_know_is_refused_at_the_start_and_not_shown() -> None:
    with pytest.raises(SettingsError, match="alert_urls") as refused:
        async with messenger(AppriseUrl("nosuchservice://hunter2")):
            pass
    assert "hunter2" not in str(refused.value)


def test_an_alert_reads_as_what_it_is() -> None:
    assert message_of(event(severity="warning"))[2] == "warning"
    assert message_of(event(EventKind.ALERT_CLOSED))[0] == "mistnet: budget_80 is over (x day)"
    assert message_of(event(EventKind.ALERT_CLOSED))[2] == "success"


def test_addresses_do_not_show_themselves() -> None:
    assert "hunter2" not in f"{Webhook('http://hunter2', 'hunter2')!r} {AppriseUrl('json://hunter2')!r}"
