"""Price jobs from an item to its points: each source asked once, each fault its own outcome, nothing twice."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from mistnet.governor.model import SourceName
from mistnet.kit.errors import SettingsError
from mistnet.prices.model import EBAY_API, ItemRequest, ItemState, PriceFetch, price_job
from mistnet.queue.model import Done, Fail, Retry, Snooze
from mistnet.settings import load_settings
from mistnet.sim.market import MarketFault
from mistnet.sources.ebay.client import credentials_of
from tests.markets import ASKED, ODD, moment_of, odd_in_truth, open_fair, request_for, untrue

pytestmark = [pytest.mark.common_sql, pytest.mark.usefixtures("no_rate_waits")]

JOBS = "SELECT count(*) FROM jobs WHERE kind = 'price'"
TWICE = "SELECT item_id, source, dedupe_key FROM price_points GROUP BY item_id, source, dedupe_key HAVING count(*) > 1"
DOWN = {MarketFault.SERVER_ERROR: 1.0}


async def test_every_source_of_an_item_is_queried_and_its_points_match_the_markets(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        goods = [fair.market.good(index) for index in (0, 1, 2, 22)]
        ids = await fair.follow(*map(request_for, goods))
        assert await fair.app.valuing.make_due(fair.app.job_writer) == 4 * 7
        outcomes = await fair.look()
        assert all(isinstance(outcome, Done) for outcome in outcomes)
        assert await untrue(fair.rows, dict(zip(ids, goods, strict=True))) == []
        assert await fair.rows(TWICE) == []
        assert await fair.one("SELECT count(*) FROM valuations") == 4
        assert await fair.one("SELECT count(*) FROM job_history WHERE kind = 'price' AND state = 'succeeded'") == 28
        odd = {row.source: row.n for row in await fair.rows(ODD)}
        assert odd == {source: many for source in ASKED if (many := odd_in_truth(goods, source, fair.clock.now()))}


async def test_what_does_not_fit_is_counted(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(22)))
        await fair.ask(item, sources=(SourceName("ebay_api"),))
        (outcome,) = await fair.look()
        assert isinstance(outcome, Done)
        (asked,) = outcome.writes
        assert isinstance(asked, PriceFetch)
        assert asked.listings > len(asked.points) > 0
        assert await fair.one("SELECT listings > points FROM item_looks") in (True, 1)


async def test_an_item_is_looked_for_again_when_its_own_time_has_come(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path, items_every_hours=24) as fair:
        requests = [request_for(fair.market.good(0), sources=(SourceName("hub"),), every_hours=2.0)]
        requests.append(request_for(fair.market.good(1), sources=["hub", "cabinet"]))
        await fair.follow(*requests)
        assert await fair.app.valuing.make_due(fair.app.job_writer) == 3
        await fair.look()
        assert await fair.app.valuing.make_due(fair.app.job_writer) == 0
        fair.clock.turn(hours=2, seconds=1)
        assert await fair.app.valuing.make_due(fair.app.job_writer) == 1
        await fair.look()
        fair.clock.turn(hours=22)
        assert await fair.app.valuing.make_due(fair.app.job_writer) == 3


async def test_a_look_that_is_still_to_be_made_is_not_made_twice(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(0), sources=(SourceName("hub"),)))
        assert await fair.ask(item) == 1
        assert await fair.ask(item) == 0
        assert await fair.app.valuing.make_due(fair.app.job_writer) == 0
        assert await fair.one(JOBS) == 1


async def test_a_remembered_answer_costs_no_call(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        good = fair.market.good(3)
        first, second = await fair.follow(
            request_for(good), ItemRequest(title=good.title, attributes=good.attributes, ref="b")
        )
        await fair.ask(first, sources=ASKED)
        await fair.look()
        calls = fair.market.stats.asked.total()
        assert calls
        await fair.ask(second, sources=ASKED)
        await fair.look()
        assert fair.market.stats.asked.total() == calls
        assert await untrue(fair.rows, {first: good, second: good}) == []
        fair.clock.turn(seconds=3_601)
        await fair.ask(second, sources=ASKED)
        await fair.look()
        assert fair.market.stats.asked.total() > calls


async def test_expired_cached_answers_are_deleted(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(3)))
        await fair.ask(item, sources=ASKED)
        await fair.look()
        kept = "SELECT count(*) FROM cached_answers WHERE key LIKE '%|%'"
        assert await fair.one(kept) == 3
        assert await fair.app.valuing.forget() == 0
        fair.clock.turn(seconds=3_601)
        assert await fair.app.valuing.forget() >= 3
        assert await fair.one(kept) == 0


async def test_without_a_memory_every_look_is_a_call(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path, price_cache=False) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(3)))
        for _ in range(2):
            await fair.ask(item, sources=(SourceName("cabinet"),))
            await fair.look()
        assert min(fair.market.stats.answered.values()) == 2


async def test_a_second_look_asks_the_source_itself(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(3)))
        await fair.ask(item, sources=(SourceName("cabinet"),))
        await fair.look()
        calls = fair.market.stats.asked.total()
        await fair.app.enqueue([price_job(item, SourceName("cabinet"), looks=1)])
        await fair.look()
        assert fair.market.stats.asked.total() > calls


async def test_a_market_that_fails_is_tried_again_and_its_fault_is_never_a_price(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path, faults=DOWN, max_attempts=20, backoff_base_seconds=1) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(0), sources=(SourceName("cabinet"),)))
        await fair.ask(item)
        failed = 0
        while isinstance((await fair.step())[0], Retry):
            failed += 1
            assert await fair.one("SELECT state FROM jobs WHERE kind = 'price'") == "retryable"
            assert "cabinet is down" in await fair.one("SELECT problem FROM item_looks")
            assert await fair.one("SELECT count(*) FROM price_points") == 0
            fair.clock.turn(minutes=10)
        assert failed >= 2
        assert set(fair.market.stats.answered.values()) == {1}, "what was read before is not asked for again"
        assert await fair.one("SELECT count(*) FROM cached_answers WHERE key LIKE 'page %'") == 0
        assert await fair.one(JOBS) == 0, "it was Done in the end"
        assert await fair.one("SELECT problem FROM item_looks") is None


async def test_a_look_of_more_calls_than_the_rate_allows_at_once_goes_on_where_it_was(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path, ebay_rate_per_minute=1, price_cache=False) as fair:
        good = fair.market.good(22)
        (item,) = await fair.follow(request_for(good, sources=(SourceName("ebay_api"),)))
        await fair.ask(item)
        turned_away = 0
        while isinstance((await fair.step())[0], Snooze):
            turned_away += 1
            fair.clock.turn(minutes=1)
        assert turned_away >= 2
        assert set(fair.market.stats.answered.values()) == {1}
        assert await untrue(fair.rows, {item: good}, sources=(SourceName("ebay_api"),)) == []


async def test_each_wait_is_twice_the_last_and_none_is_longer_than_a_day(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path, backoff_base_seconds=3_600, max_attempts=20) as fair:
        fair.market.closed_with = 503
        (item,) = await fair.follow(request_for(fair.market.good(0), sources=(SourceName("cabinet"),)))
        await fair.ask(item)
        waits = []
        for _ in range(7):
            (outcome,) = await fair.step()
            assert isinstance(outcome, Retry)
            run_at = moment_of(await fair.one("SELECT run_at FROM jobs WHERE kind = 'price'"))
            waits.append((run_at - fair.clock.now()) / timedelta(hours=1))
            fair.clock.turn(hours=waits[-1])
        jitter = waits[0]
        assert [wait / jitter for wait in waits[:4]] == pytest.approx([1, 2, 4, 8])
        assert max(waits) == waits[-1] == waits[-2] <= 24


async def test_five_failures_in_a_row_open_the_breaker_and_wake_no_job_early(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path, max_attempts=20) as fair:
        fair.market.closed_with = 503
        ids = await fair.follow(
            *(request_for(fair.market.good(index), sources=(SourceName("cabinet"),)) for index in range(9))
        )
        await fair.ask(*ids)
        outcomes = await fair.step()
        assert [type(outcome) for outcome in outcomes] == [Retry] * 5 + [Snooze] * 4
        untried = await fair.rows("SELECT attempts, wait_reason FROM jobs WHERE attempts = 0")
        assert len(untried) == 4
        assert "5 failures in a row" in untried[0].wait_reason
        assert await fair.look() == []


async def test_a_rate_limit_is_a_snooze_that_spends_no_attempt(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path, faults={MarketFault.RATE_LIMITED: 1.0}) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(0), sources=["hub", "ebay_api"]))
        await fair.ask(item)
        outcomes = [*await fair.step(), *await fair.step()]
        assert [type(outcome) for outcome in outcomes] == [Snooze, Snooze]
        assert await fair.rows("SELECT DISTINCT attempts, state FROM jobs") == [(0, "pending")]
        assert await fair.one("SELECT count(*) FROM item_looks") == 0


async def test_a_source_that_refuses_our_key_is_paused_and_spends_no_attempts(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_fair(url, tmp_path, ebay_client_secret="not-the-secret") as fair:
        ids = await fair.follow(
            *(request_for(fair.market.good(index), sources=(SourceName("ebay_api"),)) for index in range(3))
        )
        await fair.ask(*ids)
        outcomes = await fair.step()
        assert all(isinstance(outcome, Snooze) for outcome in outcomes)
        assert fair.market.stats.asked.total() == 1
        assert (await fair.app.sources.halts())[EBAY_API] == "refused"
        assert await fair.rows("SELECT DISTINCT attempts FROM jobs") == [(0,)]
        assert "not-the-secret" not in str(await fair.rows("SELECT pause_reason FROM sources"))
    monkeypatch.setattr("tests.markets.HUB_KEY", "another")
    async with open_fair(url, tmp_path) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(5), sources=(SourceName("hub"),)))
        await fair.ask(item)
        assert {type(outcome) for outcome in await fair.step()} == {Snooze}
        assert (await fair.app.sources.halts())[SourceName("hub")] == "refused"


async def test_an_item_that_is_not_followed_any_more_ends_its_job(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        first, second = await fair.follow(
            *(request_for(fair.market.good(index), sources=(SourceName("hub"),)) for index in (0, 1))
        )
        await fair.ask(first, second)
        await fair.items.set_state(first, ItemState.PAUSED, fair.clock.now())
        await fair.items.set_state(second, ItemState.REMOVED, fair.clock.now())
        assert [type(outcome) for outcome in await fair.look()] == [Done, Done]
        assert fair.market.stats.asked.total() == 0
        assert await fair.one(JOBS) == 0
        assert await fair.ask(first, second) == 0


async def test_a_refused_query_fails_and_is_repeated_by_the_next_lookup(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path, ebay_filter="x") as fair:
        (item,) = await fair.follow(request_for(fair.market.good(0), sources=(SourceName("cabinet"),)))
        await fair.ask(item)
        fair.market.closed_with = 404
        assert isinstance((await fair.step())[0], Fail)
        assert await fair.one("SELECT state FROM jobs WHERE kind = 'price'") == "failed"
        assert "refuses the request" in await fair.one("SELECT problem FROM item_looks")
        fair.market.closed_with = None
        assert await fair.ask(item) == 1
        assert isinstance((await fair.look())[0], Done)
        assert await fair.one(JOBS) == 0


async def test_a_source_that_is_not_configured_here_is_left_to_others(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(0), sources=(SourceName("hub"),)))
        await fair.ask(item)
    async with open_fair(url, tmp_path, price_sources=None) as fair:
        assert "hub" not in fair.app.valuing.by_name
        assert await fair.look() == []
        assert await fair.one(JOBS) == 1


def test_half_of_the_credentials_is_none() -> None:
    with pytest.raises(SettingsError, match="ebay_client_secret"):
        credentials_of(load_settings(ebay_client_id="only-a-name"))
    with pytest.raises(SettingsError, match="ebay_client_id"):
        credentials_of(load_settings(ebay_client_secret="only-a-secret"))


async def test_amounts_reach_the_database_to_the_cent(url: str, tmp_path: Path) -> None:
    async with open_fair(url, tmp_path) as fair:
        (item,) = await fair.follow(request_for(fair.market.good(1)))
        await fair.ask(item, sources=(SourceName("hub"),))
        await fair.look()
        amounts = [Decimal(row.amount) for row in await fair.rows("SELECT amount FROM price_points")]
        assert amounts
        assert all(amount == amount.quantize(Decimal("0.01")) for amount in amounts)
