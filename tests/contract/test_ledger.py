"""What calls cost, how sources stand, and the switches an operator has over them."""

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from mistnet.app import App
from mistnet.cli.spend import plot, spend, today_of
from mistnet.governor.errors import BudgetSpent, SourcePaused
from mistnet.governor.model import X_SOURCE, CallPurpose, CallRecord, KeyLabel, SourceState
from mistnet.operations.overview import By, CallLedger
from mistnet.queue.model import JobId
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.world import World
from mistnet.social.jobs import args
from mistnet.social.model import UserId
from mistnet.sources.controls import SourceStatus, source_statuses
from mistnet.sources.x.source import keys_of
from tests.command_groups import commands_of
from tests.harvests import balances, open_harvest, rows, run, tell, told, user
from tests.loops import LOOP
from tests.support import START
from tests.worlds import SMALLEST, WorldTransport

pytestmark = pytest.mark.common_sql

commands = commands_of("sources")


def call(
    endpoint: str = "tweets",
    credits_spent: int = 30,
    *,
    at: datetime = START,
    account: int | None = None,
    error: str | None = None,
) -> CallRecord:
    return CallRecord(
        source=X_SOURCE,
        key_label=KeyLabel("key-1"),
        endpoint=endpoint,
        at=at,
        seconds=0.1,
        status=500 if error else 200,
        items=credits_spent // 15,
        credits=credits_spent,
        job_id=JobId(1),
        account_id=UserId(account) if account else None,
        error=error,
    )


async def some_calls(app: App) -> None:
    await tell(app, user(11, "ann"))
    await app.sources.store.record(
        [
            call("tweets", 30),
            call("tweets", 15, at=START - timedelta(hours=13), account=11),
            call("user/info", 18, at=START - timedelta(days=2), account=12),
            call("tweet/advanced_search", 300, account=11),
            call("tweet/advanced_search", 15, account=11, error="SourceDown: 500"),
        ]
    )


def sums(found: Any) -> list[tuple[Any, ...]]:
    return [(each.name, each.calls, each.items, each.credits, each.failures) for each in found]


async def test_spending_adds_up_by_day(url: str) -> None:
    async with open_harvest(url) as app:
        await some_calls(app)
        assert sums(await CallLedger(app.database).spent()) == [
            ("2026-02-27", 1, 1, 18, 0),
            ("2026-02-28", 1, 1, 15, 0),
            ("2026-03-01", 3, 23, 345, 1),
        ]


async def test_spending_adds_up_by_endpoint_and_source_with_the_dearest_first(url: str) -> None:
    async with open_harvest(url) as app:
        await some_calls(app)
        ledger = CallLedger(app.database)
        assert sums(await ledger.spent(By.ENDPOINT)) == [
            ("tweet/advanced_search", 2, 21, 315, 1),
            ("tweets", 2, 3, 45, 0),
            ("user/info", 1, 1, 18, 0),
        ]
        assert sums(await ledger.spent(By.SOURCE)) == [("x", 5, 25, 378, 1)]


async def test_spending_by_account_knows_handles_and_what_served_several(url: str) -> None:
    async with open_harvest(url) as app:
        await some_calls(app)
        found = await CallLedger(app.database).spent(By.ACCOUNT)
        assert [(each.name, each.account_id, each.credits) for each in found] == [
            ("ann", 11, 330),
            (None, None, 30),
            (None, 12, 18),
        ]


async def test_spending_can_be_bounded_on_both_sides(url: str) -> None:
    async with open_harvest(url) as app:
        await some_calls(app)
        found = await CallLedger(app.database).spent(since=START - timedelta(days=1), until=START)
        assert sums(found) == [("2026-02-28", 1, 1, 15, 0)]


async def test_what_workers_that_died_had_set_aside_shows_beside_the_ledger(url: str) -> None:
    async with open_harvest(url, x_api_key="one") as app:
        async with app.sources[X_SOURCE].governor.call("tweets", most=30, purpose=CallPurpose()) as ticket:
            ticket.settle(items=1, credits_due=15)
        await app.sources[X_SOURCE].governor.flush()
        (today,) = await today_of(app)
        assert (today.committed, today.in_ledger, today.difference) == (3_000, 15, 2_985)


def test_the_command_shows_sums_and_a_plot(url: str) -> None:
    prepared(url, some_calls)
    shown = told(run(spend, url, "--by", "account", "--json"))
    assert [(row["account_id"], row["handle"], row["credits"]) for row in shown["rows"]] == [
        ("11", "ann", 330),
        (None, None, 30),
        ("12", None, 18),
    ]
    assert (shown["total"]["credits"], shown["total"]["dollars"]) == (378, 0.00378)
    by_account = run(spend, url, "--by", "account").stdout
    assert "@ann" in by_account
    assert "shared by several" in by_account
    assert "user 12" in by_account
    assert "#" * 40 in run(spend, url).stdout
    assert "no calls since 2030" in run(spend, url, "--since", "2030-01-01").stdout


def test_a_plot_is_fine_on_a_terminal_and_plain_elsewhere() -> None:
    heights = [("one", 100), ("three", 3), ("none", 0)]
    fine, plain = plot(heights, fine=True), plot(heights, fine=False)
    assert [line.split()[1:] for line in fine.splitlines()] == [["█" * 40, "100"], ["█▎", "3"], ["0"]]
    assert [line.split()[1:] for line in plain.splitlines()] == [["#" * 40, "100"], ["#", "3"], ["0"]]


def prepared(url: str, prepare: Callable[[App], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def opened() -> None:
        async with open_harvest(url, **settings) as app:
            await prepare(app)

    LOOP.run(opened())


async def x(app: App) -> SourceStatus:
    (found,) = await source_statuses(app)
    return found


async def set_state(app: App, **values: Any) -> None:
    """The shared row as workers would have left it."""
    (label, *_) = keys_of(app.settings)
    await app.sources.store.change(X_SOURCE, label, lambda _, key: (SourceState(name=X_SOURCE, **values), key, None))


async def test_a_source_without_calls_is_open(url: str) -> None:
    async with open_harvest(url, x_api_key="one,two", x_day_credits=900) as app:
        found = await x(app)
        assert (found.state, found.day_credits, found.day_cap, found.month_cap) == ("serving", 0, 900, None)
        assert [(key.configured_here, key.rate_per_minute, key.balance) for key in found.keys] == [
            (True, 900, None)
        ] * 2


async def test_a_cap_that_was_set_goes_before_the_settings(url: str) -> None:
    async with open_harvest(url, x_api_key="one", x_day_credits=900, x_month_credits=9000) as app:
        await app.sources.store.set_caps(X_SOURCE, day=500, month=None)
        found = await x(app)
        assert (found.day_cap, found.month_cap) == (500, 9000)
        await app.sources.store.lift_caps(X_SOURCE, day=True, month=False)
        assert (await x(app)).day_cap == 900


async def test_credits_of_yesterday_are_not_todays_and_those_of_last_month_not_this_months(url: str) -> None:
    async with open_harvest(url, x_api_key="one") as app:
        for day, expected in (("2026-03-01", (70, 200)), ("2026-03-02", (0, 200)), ("2026-02-28", (0, 0))):
            await set_state(app, day=day, day_credits=70, month_credits=200)
            found = await x(app)
            assert (found.day_credits, found.month_credits) == expected


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({"failure_streak": 4}, "serving"),
        ({"failure_streak": 5, "opened_until": START + timedelta(minutes=1)}, "breaker open"),
        ({"failure_streak": 5, "opened_until": START - timedelta(minutes=1)}, "half-open"),
        ({"failure_streak": 9, "paused_at": START, "paused_by": "source", "pause_reason": "402"}, "paused"),
    ],
)
async def test_a_source_is_open_paused_or_held_by_its_breaker(url: str, values: dict[str, Any], state: str) -> None:
    async with open_harvest(url, x_api_key="one") as app:
        await set_state(app, **values)
        found = await x(app)
        assert found.state == state
        assert found.until == (values.get("opened_until") if state == "breaker open" else None)


def test_a_source_is_paused_and_resumed_on_a_fresh_database(url: str) -> None:
    paused = told(run(commands, url, "pause", "x", "--reason", "too dear", "--json"))
    assert paused == {"source": "x", "paused": True, "changed": True, "reason": "too dear"}
    listed = run(commands, url)
    assert "paused (by hand, since" in listed.stdout
    assert "too dear" in listed.stdout
    assert "already" in run(commands, url, "pause", "x").stdout
    assert told(run(commands, url, "resume", "x", "--json"))["changed"] is True
    assert "was not paused" in run(commands, url, "resume", "x").stdout
    assert told(run(commands, url, "--json"))["sources"][0]["state"] == "serving"


async def test_resuming_and_raising_a_cap_make_waiting_work_due(url: str) -> None:
    async with open_harvest(url, x_api_key="one") as app:
        later = START + timedelta(hours=5)
        budget = BudgetSpent(X_SOURCE, later, "day", 99, 100).reason
        for user_id, reason in enumerate((SourcePaused(X_SOURCE, later, "no").reason, budget, "sleepy"), start=1):
            await app.enqueue([msgspec.structs.replace(args.relook(UserId(user_id)), run_at=later, reason=reason)])
        waiting = "SELECT key FROM jobs WHERE wait_reason IS NOT NULL ORDER BY key"
        assert await app.sources.store.wake_for_budget(X_SOURCE, now=START) == 1
        assert await rows(app, waiting) == [("1",), ("3",)]
        assert await app.sources.store.resume(X_SOURCE, now=START) == 1
        assert await rows(app, waiting) == [("3",)]


def test_limits_are_set_for_all_machines_and_taken_off_again(url: str) -> None:
    keys = {"MISTNET_X_API_KEY": "one,two", "MISTNET_X_DAY_CREDITS": "70"}
    found = told(run(commands, url, "set", "x", "--rate", "30", "--day-credits", "50", "--json", **keys))["source"]
    assert (found["day_cap"], found["month_cap"]) == (50, None)
    assert [(key["rate_per_minute"], key["rate_is"]) for key in found["keys"]] == [(30, "set"), (30, "set")]
    assert "of 50" in run(commands, url, **keys).stdout
    found = told(run(commands, url, "set", "x", "--no-day-cap", "--json", **keys))["source"]
    assert found["day_cap"] == 70


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "X"), "Did you mean 'x'?"),
        (("resume", "y"), "Known sources: x"),
        (("set", "x"), "give --rate"),
        (("set", "x", "--day-credits", "5", "--no-day-cap"), "at once"),
        (("set", "x", "--rate", "0"), "--rate"),
        (("set", "x", "--rate", "nan"), "--rate"),
        (("set", "x", "--day-credits", "-1"), "--day-credits"),
        (("check", "x"), "MISTNET_X_API_KEY"),
    ],
)
def test_wrong_usage_is_refused_with_the_next_step(sqlite_url: str, arguments: tuple[str, ...], said: str) -> None:
    done = run(commands, sqlite_url, *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "said"), [((), "MISTNET_X_API_KEY"), (("--since", "2026-01-01"), "leave out --since and --until")]
)
def test_reconciling_needs_a_key_and_no_span(sqlite_url: str, arguments: tuple[str, ...], said: str) -> None:
    done = run(spend, sqlite_url, "--reconcile", *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


async def test_the_balance_of_each_key_is_fetched_and_a_bad_key_pauses_nothing(url: str) -> None:
    secrets = "rich-key,poor-key,wrong-key"
    async with open_harvest(url, x_api_key=secrets) as app:
        await app.sources.store.pause(X_SOURCE, "by hand", now=START)
        keys = [
            Key(name="rich-key", tier=Tier.UNLIMITED, recharge_credits=5000),
            Key(name="poor-key", tier=Tier.UNLIMITED, recharge_credits=7),
        ]
        service = XService(World(7, SMALLEST), lambda: START, keys=keys)
        problems = await balances(app, WorldTransport(service))
        rich, poor, wrong = keys_of(app.settings)
        assert list(problems) == [wrong]
        assert "the key is refused" in problems[wrong]
        assert not any(secret in str(problems) for secret in secrets.split(","))
        found = {key.label: key for key in (await x(app)).keys}
        assert (found[rich].balance, found[poor].balance, found[wrong].balance) == (5000, 7, None)
        assert not any(key.paused_at for key in found.values())
        recorded = await rows(app, "SELECT endpoint, credits, status FROM calls ORDER BY id")
        assert [(row[0], row[1]) for row in recorded] == [("my/info", 0)] * 3
