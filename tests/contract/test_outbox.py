"""Events on real databases: landing with what they tell of, reaching each subscriber in order, at least once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from mistnet.app import App
from mistnet.governor.errors import SourceRefused
from mistnet.governor.model import X_SOURCE, CallPurpose
from mistnet.kit.errors import SettingsError
from mistnet.queue.errors import BadArgs
from mistnet.queue.events import Channel, EventKind, NewEvent
from mistnet.queue.kinds import single
from mistnet.queue.model import Args, Continue, Done, Job, JobClass, KindName, NewJob, Outcome
from mistnet.queue.plugins import Plugin
from mistnet.settings import Settings, WebhookSettings, load_settings
from tests.databases import make_app
from tests.harvests import change, open_harvest, rows, tell
from tests.receivers import SECRET, receiver
from tests.support import Number, TurnedClock, new

pytestmark = pytest.mark.common_sql


def data(number: int, kind: EventKind = EventKind.POSTS_COLLECTED) -> NewEvent:
    return NewEvent(kind=kind, subject=str(number), payload={"number": number})


def trouble(number: int) -> NewEvent:
    payload = {"rule": "dead_jobs", "severity": "critical", "message": f"trouble {number}"}
    return NewEvent(kind=EventKind.ALERT_OPENED, subject=str(number), payload=payload, channel=Channel.ALERTS)


def hook(url: str, **about: Any) -> dict[str, Any]:
    return {"url": url, "secret": SECRET, **about}


@asynccontextmanager
async def told_app(url: str, **webhooks: dict[str, Any]) -> AsyncIterator[App]:
    """The whole app in real time, with short waits."""
    settings = Settings.model_validate(
        {"database_url": url, "x_api_key": "sim-key", "webhooks": webhooks, "backoff_base_seconds": 0.05}
    )
    app = make_app(settings)
    try:
        yield app
    finally:
        await app.database.close()


async def hand_on_and_deliver(app: App) -> None:
    """What the leader does, then what a worker does, until nothing is left."""
    await app.watch.fan_out_events()
    async with app.worker(until_idle=True, lanes=[each.lane for each in app.outgoing.subscribers]) as worker:
        await worker.run()


async def left(app: App) -> int:
    return int((await rows(app, "SELECT count(*) FROM deliveries"))[0][0])


async def until_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(50):
        while not condition():
            await asyncio.sleep(0.005)


async def test_an_event_lands_with_what_it_tells_of_or_not_at_all(url: str) -> None:
    class Told(Args, frozen=True):
        broken: bool = False

    async def handler(job: Job[Told]) -> Outcome:
        bad: list[Any] = [data(2), trouble(3)] if not job.args.broken else [data(9), Unwritable()]
        return Done(bad)

    class Unwritable(NewEvent, frozen=True, kw_only=True):
        kind: EventKind = EventKind.RUN_FINISHED
        subject: str = ""
        payload: Any = None

    kind = single("telling", handler, Told, job_class=JobClass.WALK, lanes=["x"])
    settings = Settings.model_validate({"database_url": url, "max_attempts": 1})
    app = make_app(settings, plugins=[Plugin(kinds=[kind])])
    try:
        await app.enqueue([NewJob(kind=KindName("telling"), args=Told(broken=broken)) for broken in (True, False)])
        async with app.worker(until_idle=True) as worker:
            await worker.run()
        told = await rows(app, "SELECT kind, channel, subject FROM events ORDER BY id")
        assert told == [("posts.collected", "data", "2"), ("alert.opened", "alerts", "3")]
        assert await rows(app, "SELECT state FROM jobs") == [("dead",)]
    finally:
        await app.database.close()


async def test_every_subscriber_gets_its_channel_and_kinds_signed_and_in_order(url: str) -> None:
    async with receiver() as everything, receiver() as ends, receiver() as operators:
        async with told_app(
            url,
            everything=hook(everything.url),
            ends=hook(ends.url, events=["run.finished"]),
            operators=hook(operators.url, channel="alerts"),
        ) as app:
            await tell(app, data(1), trouble(2), data(3, EventKind.RUN_FINISHED), data(4))
            await hand_on_and_deliver(app)
            assert await left(app) == 0
            assert await rows(app, "SELECT count(*) FROM events WHERE fanned_out_at IS NULL") == [(0,)]
        assert [got.json["subject"] for got in everything.taken] == ["1", "3", "4"]
        assert [got.json["subject"] for got in ends.taken] == ["3"]
        assert [got.json["subject"] for got in operators.taken] == ["2"]
        first = everything.got[0]
        assert first.signed_with(SECRET)
        assert not first.signed_with(SECRET + "x")
        assert set(first.json) == {"id", "kind", "subject", "channel", "created_at", "payload"}
        assert first.json["id"] == first.headers["Mistnet-Event-Id"]
        assert first.json["payload"] == {"number": 1}
        assert first.headers["User-Agent"].startswith("mistnet/")
        assert first.headers["Content-Type"] == "application/json"


async def test_a_receiver_that_fails_now_and_then_gets_all_in_order_with_the_same_ids(url: str) -> None:
    statuses = [204, 500, 503, 200, 410, 302, 201, 404, 204, 429]
    async with receiver(lambda number: statuses[number % len(statuses)]) as taking:
        async with told_app(url, shaky=hook(taking.url)) as app:
            await tell(app, *(data(number) for number in range(12)))
            await app.watch.fan_out_events()
            async with app.worker(lanes=["webhook:shaky"]) as worker:
                running = asyncio.create_task(worker.run())
                async with asyncio.timeout(50):
                    while await left(app):
                        await asyncio.sleep(0.02)
                worker.drain()
                await running
        assert [got.json["subject"] for got in taking.taken] == [str(number) for number in range(12)]
        assert len({got.id for got in taking.taken}) == 12
        assert len(taking.got) > 12
        for got in taking.got:
            assert got.signed_with(SECRET)
        again = {got.id: {other.body for other in taking.got if other.id == got.id} for got in taking.got}
        assert all(len(bodies) == 1 for bodies in again.values())


async def test_a_redirect_is_not_followed(url: str) -> None:
    async with receiver(lambda _number: 307) as taking, told_app(url, moved=hook(taking.url)) as app:
        await tell(app, data(1))
        await hand_on_and_deliver(app)
        assert {(got.status, got.path.split("/")[1]) for got in taking.got} == {(307, "hook")}
        assert await left(app) == 1


async def test_secrets_and_addresses_are_in_no_error_and_nowhere_in_the_database(url: str) -> None:
    async with receiver(lambda _number: 500) as taking:
        gone = taking.url
        async with told_app(url, a=hook(taking.url), b=hook("http://127.0.0.1:9/hunter2-path")) as app:
            await tell(app, data(1))
            await hand_on_and_deliver(app)
            errors = await rows(app, "SELECT error FROM job_errors")
            assert len(errors) >= 2
            assert any("answered 500" in error for (error,) in errors)
            assert any("Connection refused" in error for (error,) in errors)
            everything = str(errors)
            for table in ("jobs", "events", "deliveries", "workers", "alerts"):
                everything += str(await rows(app, f"SELECT * FROM {table}"))
            assert "hunter2" not in everything
    assert "hunter2" in gone


async def test_a_process_without_webhooks_knows_the_kind_and_claims_nothing_of_it(url: str) -> None:
    async with receiver() as taking:
        async with told_app(url, far=hook(taking.url)) as leader:
            await tell(leader, data(1))
            await leader.watch.fan_out_events()
        async with told_app(url) as elsewhere:
            assert KindName("deliver") in elsewhere.kinds
            async with elsewhere.worker(until_idle=True) as worker:
                await worker.run()
            assert worker.settled_count == 0
            with pytest.raises(BadArgs, match="no lane"):
                await elsewhere.enqueue([elsewhere.kinds.new_job("deliver", '{"subscriber": "far"}')])
        assert taking.got == []
        async with told_app(url, far=hook(taking.url)) as here:
            await hand_on_and_deliver(here)
        assert [got.json["subject"] for got in taking.taken] == ["1"]


async def test_events_whose_ids_commit_out_of_order_are_all_delivered(postgresql_url: str) -> None:
    async with receiver() as taking, told_app(postgresql_url, a=hook(taking.url)) as app:
        insert = text(
            "INSERT INTO events (channel, kind, subject, payload, created_at) "
            "VALUES ('data', 'run.finished', :subject, '{}', now())"
        )
        async with app.database.transaction() as slow:
            await slow.execute(insert, {"subject": "low id, late commit"})
            async with app.database.transaction() as quick:
                await quick.execute(insert, {"subject": "high id, early commit"})
            assert await app.watch.fan_out_events() == 1
        assert await app.watch.fan_out_events() == 1
        await hand_on_and_deliver(app)
        assert [got.json["subject"] for got in taking.taken] == ["high id, early commit", "low id, late commit"]


async def test_two_leaders_at_once_hand_each_event_on_once(url: str) -> None:
    async with told_app(url, a=hook("http://127.0.0.1:9/")) as one, told_app(url, a=hook("http://127.0.0.1:9/")) as two:
        await tell(one, *(data(number) for number in range(1_200)))
        counts: Sequence[int] = await asyncio.gather(one.watch.fan_out_events(), two.watch.fan_out_events())
        assert sum(counts) == 1_200
        assert await left(one) == 1_200
        ordered = await rows(one, "SELECT event_id FROM deliveries ORDER BY id")
        assert ordered == sorted(ordered)
        assert await rows(one, "SELECT kind, key, lane FROM jobs") == [("deliver", "a", "webhook:a")]


async def test_a_subscriber_whose_job_was_cancelled_gets_another(url: str) -> None:
    async with receiver() as taking, told_app(url, a=hook(taking.url)) as app:
        await tell(app, data(1))
        await app.watch.fan_out_events()
        await change(app, "DELETE FROM jobs")
        assert await app.watch.fan_out_events() == 0
        await hand_on_and_deliver(app)
        assert len(taking.taken) == 1


@pytest.mark.parametrize("busy_class", [JobClass.SWEEP, JobClass.WALK])
async def test_a_worker_with_endless_other_work_still_delivers(url: str, busy_class: JobClass) -> None:
    steps: list[int] = []

    async def endless(job: Job[Number]) -> Outcome:
        steps.append(job.id)
        return Continue()

    kind = single("endless", endless, Number, job_class=busy_class, lanes=["x"])
    async with receiver() as taking:
        settings = Settings.model_validate({"database_url": url, "webhooks": {"a": hook(taking.url)}})
        app = make_app(settings, plugins=[Plugin(kinds=[kind])])
        try:
            await app.enqueue([new("endless", key=str(number)) for number in range(5)])
            await tell(app, *(data(number) for number in range(10)))
            async with app.worker(concurrency=1) as worker:
                running = asyncio.create_task(worker.run())
                await until_true(lambda: len(steps) > 10)
                await app.watch.fan_out_events()
                before = len(steps)
                await until_true(lambda: len(taking.taken) == 10)
                worker.drain()
                await running
            assert len(steps) - before <= 50, "it does not wait for a turn of all the others between two events"
        finally:
            await app.database.close()


async def test_old_events_are_deleted_once_all_receivers_have_them(url: str) -> None:
    clock = TurnedClock()
    hooks = {"a": WebhookSettings.model_validate(hook("http://127.0.0.1:9/"))}
    async with open_harvest(url, clock=clock, webhooks=hooks) as app:
        await tell(app, data(1), trouble(2))
        await app.watch.fan_out_events()
        clock.turn(days=29)
        await tell(app, data(3))
        clock.turn(days=2)
        await app.watch.prune()
        assert await rows(app, "SELECT subject FROM events ORDER BY id") == [("1",), ("3",)], "1 is not delivered yet"
        await app.watch.fan_out_events()
        await change(app, "DELETE FROM deliveries")
        await app.watch.prune()
        assert await rows(app, "SELECT subject FROM events") == [("3",)]
    async with open_harvest(url, clock=clock) as app:
        clock.turn(days=31)
        await tell(app, data(4))
        await change(
            app, "INSERT INTO deliveries (subscriber, event_id, created_at) SELECT 'gone', id, created_at FROM events"
        )
        await app.watch.fan_out_events()
        await app.watch.prune()
        kept = await rows(app, "SELECT d.subscriber, e.subject FROM deliveries d JOIN events e ON e.id = d.event_id")
        assert kept == [("gone", "4")]


async def test_events_without_a_receiver_do_not_wait_for_one(url: str) -> None:
    async with open_harvest(url) as app:
        await tell(app, data(1))
        assert await app.watch.fan_out_events() == 1
        assert await rows(app, "SELECT count(*) FROM events WHERE fanned_out_at IS NULL") == [(0,)]
        assert await rows(app, "SELECT count(*) FROM jobs") == [(0,)]


async def test_events_can_hold_any_text(url: str) -> None:
    odd = "nul \x00, half a pair \ud800, \N{GRINNING FACE} \u2028"
    async with receiver() as taking, told_app(url, a=hook(taking.url)) as app:
        await tell(app, NewEvent(kind=EventKind.RUN_FINISHED, subject=odd, payload={"said": odd}))
        await hand_on_and_deliver(app)
        (got,) = taking.taken
        assert got.json["payload"]["said"].endswith("\N{GRINNING FACE} \u2028")
        assert got.signed_with(SECRET)


async def test_a_source_that_pauses_itself_sends_an_event(url: str) -> None:
    async with open_harvest(url, x_api_key=[SecretStr("hunter2-key")]) as app:
        now = app.database.clock.now()
        with pytest.raises(SourceRefused):
            async with app.sources[X_SOURCE].governor.call("tweets", most=0, purpose=CallPurpose()):
                raise SourceRefused(X_SOURCE, now + timedelta(hours=1), "the key is wrong", status=401)
        told = (await app.outgoing.outbox.recent()).items
        assert [(each.kind, each.channel) for each in told] == [("source.paused", Channel.ALERTS)]
        assert b"the key is wrong" in bytes(told[0].payload)
        assert b"hunter2" not in bytes(told[0].payload)
        await app.sources.store.pause(X_SOURCE, "by hand", now=now)
        assert len((await app.outgoing.outbox.recent()).items) == 1


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"url": "ftp://example.org/hunter2"}, "must begin with https://"),
        ({"url": "https:///hunter2"}, "name a host"),
        ({"secret": "hunter2"}, "16 characters"),
        ({"events": ["run.finnished"]}, "Did you mean 'run.finished'"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused_and_its_secret_not_shown(
    broken: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**hook("https://example.org/hunter2-path"), **broken}
    monkeypatch.setenv("MISTNET_WEBHOOKS", json.dumps({"ops": given}))
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert said in str(refused.value)
    assert "webhooks.ops" in str(refused.value)
    assert "hunter2" not in str(refused.value)
