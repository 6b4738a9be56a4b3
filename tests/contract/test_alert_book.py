"""Alerts on real databases: opened once, refreshed, closed when over, told of on their own channel only."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from loguru import logger
from pydantic import SecretStr

from mistnet.app import App
from mistnet.governor.errors import RateLimited, SourceDown, SourceRefused
from mistnet.governor.model import X_SOURCE, CallPurpose
from mistnet.kit.errors import AlertNotFound
from mistnet.operations.alerts.model import SERVICE_RULES, Alert, AlertRule, Severity
from mistnet.operations.alerts.store import AlertStore
from mistnet.queue.model import WorkerCard, WorkerName
from mistnet.settings import Settings
from mistnet.sim.world import World
from mistnet.social.accounts import AccountTracked
from mistnet.social.jobs import args
from mistnet.social.model import UserId, X
from tests.databases import make_app
from tests.harvests import change, end_badly, id_at, open_harvest, post, rows, tell, user
from tests.receivers import SECRET, receiver
from tests.support import START, TurnedClock
from tests.worlds import SMALLEST, Oracle, WorldTransport, service_of

pytestmark = pytest.mark.common_sql


def alert(subject: str = "walk", message: str = "it broke", rule: AlertRule = AlertRule.DEAD_JOBS) -> Alert:
    return Alert(rule=rule, subject=subject, severity=Severity.WARNING, message=message)


async def opened(app: App) -> list[tuple[str, str]]:
    return [(row.rule.value, row.subject) for row in await app.watch.alerts.list_open()]


async def told(app: App) -> list[tuple[Any, ...]]:
    return await rows(app, "SELECT kind, channel, subject FROM events ORDER BY id")


async def sign_in(app: App, name: str = "ann", lanes: tuple[str, ...] = ("x",)) -> None:
    card = WorkerCard(name=WorkerName(name), host="here", pid=1, concurrency=4, lanes=lanes, version="test")
    await app.upkeep.sign_in(card, now=app.database.clock.now())


async def test_an_accepted_alert_stays_so_until_it_is_over_or_gets_worse(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        book = app.watch.alerts
        (row,) = (await book.settle([alert()], SERVICE_RULES, now=clock.now())).opened
        accepted = await book.accept(row.id, by="ann", now=clock.turn(minutes=1))
        assert (accepted.accepted_at, accepted.accepted_by) == (clock.now(), "ann")
        await book.accept(row.id, by="bea", now=clock.turn(minutes=1))
        await book.settle([alert(message="2 jobs")], SERVICE_RULES, now=clock.turn(minutes=1))
        (row,) = await book.list_open()
        assert (row.message, row.accepted_by) == ("2 jobs", "ann")
        worse = msgspec.structs.replace(alert(), severity=Severity.CRITICAL)
        await book.settle([worse], SERVICE_RULES, now=clock.turn(minutes=1))
        (row,) = await book.list_open()
        assert (row.accepted_at, row.accepted_by) == (None, None)
        await book.settle([], SERVICE_RULES, now=clock.turn(minutes=1))
        with pytest.raises(AlertNotFound):
            await book.accept(row.id, by="ann", now=clock.now())


async def test_an_alert_opens_once_is_refreshed_and_closes_when_over(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        book = app.watch.alerts
        first = await book.settle([alert(message="1 job")], SERVICE_RULES, now=clock.now())
        assert [(row.subject, row.opened_at) for row in first.opened] == [("walk", START)]
        again = await book.settle([alert(message="2 jobs")], SERVICE_RULES, now=clock.turn(minutes=1))
        assert (again.opened, again.closed) == ([], [])
        (row,) = await book.list_open()
        assert (row.message, row.opened_at, row.last_seen_at) == ("2 jobs", START, clock.now())
        over = await book.settle([], SERVICE_RULES, now=clock.turn(minutes=1))
        assert [each.closed_at for each in over.closed] == [clock.now()]
        assert await book.list_open() == []
        anew = await book.settle([alert()], SERVICE_RULES, now=clock.turn(minutes=1))
        assert len(anew.opened) == 1
        assert len((await book.page()).items) == 2
        assert await told(app) == [
            ("alert.opened", "alerts", "walk"),
            ("alert.closed", "alerts", "walk"),
            ("alert.opened", "alerts", "walk"),
        ]


async def test_a_look_at_some_rules_leaves_the_others_alone(url: str) -> None:
    async with open_harvest(url) as app:
        book, now = app.watch.alerts, app.database.clock.now()
        await book.settle([alert("11", rule=AlertRule.SILENT_ACCOUNT)], [AlertRule.SILENT_ACCOUNT], now=now)
        await book.settle([], SERVICE_RULES, now=now)
        assert await opened(app) == [("silent_account", "11")]


async def test_two_who_look_at_once_open_one_alert(url: str) -> None:
    async with open_harvest(url) as one, open_harvest(url) as two:
        now = one.database.clock.now()
        found = [alert(str(number)) for number in range(20)]
        both = await asyncio.gather(
            *(AlertStore(app.database).settle(found, SERVICE_RULES, now=now) for app in (one, two))
        )
        assert sum(len(changes.opened) for changes in both) == 20
        assert len(await told(one)) == 20
        ended = await asyncio.gather(
            *(AlertStore(app.database).settle([], SERVICE_RULES, now=now) for app in (one, two))
        )
        assert sum(len(changes.closed) for changes in ended) == 20
        assert len(await told(one)) == 40


async def test_dead_jobs_and_waiting_work_are_seen(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        await end_badly(app, args.hydrate_post(7, 11), args.hydrate_post(8, 11))  # type: ignore[arg-type]
        await app.enqueue([args.backfill(UserId(11))])
        await app.watch.check()
        assert await opened(app) == [("dead_jobs", "hydrate_post")]
        clock.turn(minutes=3)
        await app.watch.check()
        assert await opened(app) == [("no_workers", "workers"), ("dead_jobs", "hydrate_post")], "the worst first"
        await sign_in(app, lanes=("shopee",))
        await app.watch.check()
        assert await opened(app) == [("dead_jobs", "hydrate_post")]
        clock.turn(minutes=30)
        await sign_in(app, lanes=("shopee",))
        await app.watch.check()
        assert [row.severity for row in await app.watch.alerts.list_open()] == ["critical", "warning"]
        await sign_in(app, "ben", lanes=("x", "shopee"))
        await app.watch.check()
        busy = (await app.watch.alerts.list_open())[-1]
        assert (busy.rule, busy.subject, busy.severity) == (AlertRule.DUE_WORK, "x", Severity.WARNING)
        await app.operations.requeue(now=clock.now())
        await change(app, "DELETE FROM jobs")
        await app.watch.check()
        assert await opened(app) == []


async def test_a_worker_ends_the_alert_that_none_is_there_without_a_scheduler(url: str) -> None:
    async with open_harvest(url) as app:
        nobody = Alert(
            rule=AlertRule.NO_WORKERS, subject="workers", severity=Severity.CRITICAL, message="none is there"
        )
        late = Alert(rule=AlertRule.DUE_WORK, subject="x", severity=Severity.WARNING, message="it is late")
        await app.watch.alerts.settle([nobody, late], SERVICE_RULES, now=START)
        async with app.worker(until_idle=True) as worker:
            assert await opened(app) == [("due_work", "x")]
            await worker.run()


async def test_a_paused_kind_and_parked_work_are_not_late(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        await app.enqueue([args.backfill(UserId(11))])
        await app.operations.pause(args.BACKFILL, "by hand", now=clock.now())
        clock.turn(hours=2)
        await app.watch.check()
        assert await opened(app) == []


async def test_a_rate_limit_that_lasts_opens_an_alert_that_closes_by_itself(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock, x_api_key=[SecretStr("hunter2-key")]) as app:
        governor = app.sources[X_SOURCE].governor

        async def call(*, limited: bool) -> None:
            async with governor.call("tweets", most=0, purpose=CallPurpose()):
                if limited:
                    raise RateLimited(X_SOURCE, clock.now() + timedelta(minutes=1))

        for _ in range(6):
            assert await opened(app) == []
            with pytest.raises(RateLimited):
                await call(limited=True)
            await governor.flush()
            await app.watch.check()
            clock.turn(minutes=3)
        await app.watch.check()
        assert await opened(app) == [("rate_limited", "x")]
        await call(limited=False)
        await governor.flush()
        await app.watch.check()
        assert await opened(app) == []


async def test_a_refused_key_and_a_source_that_stays_down_are_seen_and_over_when_mended(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock, x_api_key=[SecretStr("hunter2-key")]) as app:
        governor = app.sources[X_SOURCE].governor

        async def call(error: Exception | None = None) -> None:
            async with governor.call("tweets", most=0, purpose=CallPurpose()):
                if error:
                    raise error

        for _ in range(6):
            with pytest.raises(SourceDown):
                await call(SourceDown(X_SOURCE, "503", status=503))
            clock.turn(minutes=6)
            await governor.flush()
            await app.watch.check()
        assert await opened(app) == [("breaker_open", "x")]
        await call()
        await governor.flush()
        await app.watch.check()
        assert await opened(app) == []
        with pytest.raises(SourceRefused):
            await call(SourceRefused(X_SOURCE, clock.now() + timedelta(hours=1), "credits are spent", status=402))
        await app.watch.check()
        assert await opened(app) == [("source_paused", "x")]
        await app.sources.store.resume(X_SOURCE, now=clock.now())
        await app.watch.check()
        assert await opened(app) == []
        kinds = [kind for kind, channel, _ in await told(app) if channel == "alerts"]
        assert kinds == ["alert.opened", "alert.closed", "source.paused", "alert.opened", "alert.closed"]


async def silent_account(app: App, *, newest: datetime, tracked: datetime) -> None:
    await tell(
        app,
        user(11),
        AccountTracked(platform=X, user_id=UserId(11)),
        *(post(id_at(newest - timedelta(hours=3 * number))) for number in range(40)),
    )
    await change(
        app,
        f"UPDATE accounts SET newest_post_id = {id_at(newest)}, oldest_post_id = {id_at(newest - timedelta(days=9))}, "
        f"backfilled_at = last_fetched_at, tracked_at = '{tracked:%Y-%m-%d %H:%M:%S.%f}'",
    )


async def look_at_posts(app: App) -> None:
    now = app.database.clock.now()
    await change(app, f"UPDATE accounts SET last_fetched_at = '{now:%Y-%m-%d %H:%M:%S.%f}', backfilled_at = tracked_at")


async def test_an_account_that_falls_silent_is_seen_and_is_over_when_it_writes_again(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        await silent_account(app, newest=START - timedelta(hours=1), tracked=START - timedelta(days=30))
        await look_at_posts(app)
        clock.turn(days=2)
        await app.watch.check_accounts()
        assert await opened(app) == [], "no look since"
        await look_at_posts(app)
        await app.watch.check_accounts()
        await app.watch.check()
        assert await opened(app) == [("silent_account", "11")]
        await tell(app, post(id_at(clock.now())))
        await app.watch.check_accounts()
        assert await opened(app) == []


async def test_closed_alerts_are_forgotten_in_time(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        book = app.watch.alerts
        await book.settle([alert("a"), alert("b")], SERVICE_RULES, now=clock.now())
        await book.settle([alert("b")], SERVICE_RULES, now=clock.now())
        clock.turn(days=31)
        await app.watch.prune()
        assert [row.subject for row in (await book.page()).items] == ["b"]


async def test_each_alert_is_logged_once_when_it_opens_and_once_when_it_is_over(url: str) -> None:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(f"{message.record['level'].name} {message.record['message']}"))
    try:
        async with open_harvest(url) as app:
            await end_badly(app, args.hydrate_post(7, 11))  # type: ignore[arg-type]
            for _ in range(3):
                await app.watch.check()
            await change(app, "DELETE FROM jobs")
            for _ in range(3):
                await app.watch.check()
    finally:
        logger.remove(sink)
    about = [line for line in lines if "dead_jobs" in line]
    assert [line.split()[0] for line in about] == ["WARNING", "INFO"]
    assert "mistnet jobs dead" in about[0]


async def test_alerts_of_a_budget_spent_by_real_calls_reach_only_the_alerts_channel(url: str) -> None:
    world = World(5, SMALLEST)
    async with receiver() as operators, receiver() as readers:
        settings = Settings.model_validate(
            {
                "database_url": url,
                "x_api_key": "sim-key",
                "x_rate_per_minute": 60_000,
                "x_day_credits": 3_000,
                "second_look_seconds": 0.1,
                "batch_fill_seconds": 0.1,
                "backoff_base_seconds": 0.05,
                "webhooks": {
                    "operators": {"url": operators.url, "secret": SECRET, "channel": "alerts"},
                    "readers": {"url": readers.url, "secret": SECRET},
                },
            }
        )
        app = make_app(settings, transports={"x": WorldTransport(service_of(world))})
        try:
            await app.enqueue([args.suggestion(handle) for handle in Oracle(world).suggested])
            async with app.worker(until_idle=True) as worker:
                await worker.run()
            await app.watch.check()
            assert {("budget_80", "x day"), ("budget_100", "x day")} <= set(await opened(app))
            await app.watch.check()
            await app.watch.fan_out_events()
            async with app.worker(until_idle=True, lanes=["webhook:operators", "webhook:readers"]) as worker:
                await worker.run()
            assert sorted(got.json["payload"]["rule"] for got in operators.taken) == ["budget_100", "budget_80"]
            assert all(got.signed_with(SECRET) for got in operators.taken)
            assert all(got.json["channel"] == "data" for got in readers.taken)
            assert "alert.opened" not in readers.kinds
        finally:
            await app.database.close()
