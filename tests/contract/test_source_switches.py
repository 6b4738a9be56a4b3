"""Sources by hand: breaker, cache and limits through the commands, the API and the dashboard; what the doctor tells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mistnet.app import App
from mistnet.cli.doctor import doctor
from mistnet.cli.output import Grid
from mistnet.cli.sources import blocks
from mistnet.cli.track import track
from mistnet.governor.errors import BudgetSpent
from mistnet.governor.model import X_SOURCE, KeyLabel, SourceName, SourceState
from mistnet.prices.model import ItemRequest
from mistnet.prices.store.items import Items
from mistnet.queue.errors import NotNow
from mistnet.shops.model import CachedAnswer
from mistnet.shops.store.http_cache import StoreAnswers
from mistnet.shops.tables import cached_answers
from mistnet.social.jobs import args
from mistnet.social.model import UserId
from mistnet.sources.controls import known_source, source_statuses
from tests.apis import Answer, open_api
from tests.command_groups import commands_of
from tests.databases import numbers
from tests.harvests import open_harvest, rows, run, told
from tests.loops import LOOP
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql

commands = commands_of("sources")

EBAY = SourceName("ebay")
PAGE = {"Accept": "text/html"}
EBAY_KEYS: dict[str, Any] = {"ebay_client_id": "client-id-1", "ebay_client_secret": "client-secret-1"}


def prepared(url: str, prepare: Callable[[App], Awaitable[None]], *, now: datetime, **settings: Any) -> None:
    async def opened() -> None:
        async with open_harvest(url, clock=TurnedClock(now), **settings) as app:
            await prepare(app)

    LOOP.run(opened())


async def set_state(app: App, source: SourceName = EBAY, **values: Any) -> None:
    told_by = KeyLabel("direct")
    await app.sources.store.change(source, told_by, lambda _, key: (SourceState(name=source, **values), key, None))


async def keep(app: App, *keys: str, source: SourceName = EBAY, fresh_until: datetime | None = None) -> None:
    now = app.database.clock.now()
    for key in keys:
        answer = CachedAnswer(
            key=key,
            source=source,
            stored_at=now,
            fresh_until=fresh_until or now + timedelta(hours=1),
            status=200,
            headers={},
            body=b"{}",
        )
        await StoreAnswers(app.database).put(answer)


async def copy_answers(app: App, copies: int) -> None:
    """As many more, each like the one that is there."""
    columns = [column.name for column in cached_answers.columns if column.name != "key"]
    async with app.database.transaction() as connection:
        await connection.exec_driver_sql(
            f"INSERT INTO cached_answers (key, {', '.join(columns)}) "
            f"SELECT 'GET ' || n, {', '.join(columns)} FROM cached_answers CROSS JOIN {numbers(1, copies)}"
        )


async def test_every_governed_source_stands_in_the_list(url: str, tmp_path: Path) -> None:
    async with open_harvest(url, x_api_key="one", crawl_lanes=["ebay"], **EBAY_KEYS) as app:
        found = {each.name: each for each in await source_statuses(app)}
        assert list(found) == ["x", "ebay", "ebay_api"]
        assert (found[EBAY].breaker.state, found[EBAY].breaker.opens_after) == ("closed", 5)
        assert found[EBAY].breaker.stays_open == timedelta(minutes=5)
        (key,) = found[SourceName("ebay_api")].keys
        assert (key.configured_here, key.rate_per_minute, key.bucket, key.burst) == (True, 60, 2, 2)
        assert await known_source(app, "threads") == "threads"


async def test_credits_are_shown_only_for_sources_that_cost_credits(sqlite_url: str) -> None:
    async with open_api(sqlite_url, x_api_key="one", crawl_lanes=["ebay"]) as api:
        shown = {each.name: blocks(api.app, each)[0] for each in await source_statuses(api.app)}
        told = {name: [row[0] for row in grid.rows] for name, grid in shown.items() if isinstance(grid, Grid)}
        assert ["credits today" in told[name] for name in (X_SOURCE, EBAY)] == [True, False]
        pages = {name: (await api.get(f"/sources?source={name}", headers=PAGE)).text for name in (X_SOURCE, EBAY)}
        assert [f'id="day-{name}"' in page for name, page in pages.items()] == [True, False]
        assert [page.count("Credits a month") for page in pages.values()] == [1, 0]
        await set_state(api.app, EBAY, day_credits=5, day=START.date().isoformat())
        assert 'id="day-ebay"' in (await api.get("/sources?source=ebay", headers=PAGE)).text


async def test_a_source_that_only_another_machine_knows_stands_in_the_list_once_it_was_asked(url: str) -> None:
    async with open_harvest(url, x_api_key="one") as app:
        elsewhere = SourceName("coin_shop")
        await set_state(app, elsewhere, failure_streak=2)
        (_, found) = await source_statuses(app)
        assert (found.name, found.failure_streak) == (elsewhere, 2)
        assert [key.configured_here for key in found.keys] == [False]


async def test_the_bucket_and_the_cache_of_a_source_are_shown(url: str) -> None:
    async with open_harvest(url, x_api_key="one", crawl_lanes=["ebay"], crawl_cache=True) as app:
        await keep(app, "a", "b")
        await keep(app, "c", fresh_until=START - timedelta(seconds=1))
        await app.sources.store.set_rate(EBAY, 60, [KeyLabel("direct")])
        found = {each.name: each for each in await source_statuses(app)}[EBAY]
        assert found.cache is not None
        assert (found.cache.answers, found.cache.fresh) == (3, 2)
        assert [(key.bucket, key.burst, key.rate_is) for key in found.keys] == [(2, 2, "set")]
        assert {each.name: each.cache for each in await source_statuses(app)}[X_SOURCE] is None


def test_a_breaker_is_opened_and_closed_by_hand(url: str) -> None:
    opened = told(run(commands, url, "open", "ebay", "--minutes", "30", "--reason", "sale day", "--json"))
    assert (opened["source"], opened["breaker"], opened["changed"]) == ("ebay", "open", True)
    shown = run(commands, url).stdout
    assert "breaker open until" in shown
    assert "opened by command line: sale day" in shown
    assert told(run(commands, url, "close", "ebay", "--json"))["changed"] is True
    assert "closed already" in run(commands, url, "close", "ebay").stdout
    (found,) = [each for each in told(run(commands, url, "--json"))["sources"] if each["name"] == "ebay"]
    assert (found["state"], found["breaker"]["state"], found["failure_streak"]) == ("serving", "closed", 0)


def test_closing_a_breaker_counts_failures_from_nought_and_makes_waiting_work_due(url: str) -> None:
    async def failing(app: App) -> None:
        later = app.database.clock.now() + timedelta(hours=5)
        await set_state(app, X_SOURCE, failure_streak=3)
        budget = BudgetSpent(X_SOURCE, later, "day", 99, 100).reason
        waits = (NotNow(later, "x: 5 failures in a row, next try then").reason, budget)
        for user_id, reason in enumerate(waits, start=1):
            await app.enqueue([msgspec.structs.replace(args.relook(UserId(user_id)), run_at=later, reason=reason)])

    prepared(url, failing, now=datetime.now(UTC))
    closed = told(run(commands, url, "close", "x", "--json"))
    assert (closed["changed"], closed["woken"]) == (True, 2)


def test_what_is_kept_of_a_source_is_forgotten_on_demand(url: str) -> None:
    async def kept(app: App) -> None:
        await keep(app, "first")
        await copy_answers(app, 2_499)
        await keep(app, "other", source=SourceName("shopee"))

    prepared(url, kept, now=datetime.now(UTC))
    assert told(run(commands, url, "forget", "ebay", "--json")) == {"source": "ebay", "forgotten": 2_500}
    assert "no answer of ebay is cached" in run(commands, url, "forget", "ebay").stdout
    (left,) = [each["cache"] for each in told(run(commands, url, "--json"))["sources"] if each["name"] == "shopee"]
    assert left == {"answers": 1, "fresh": 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("open", "ebai"), "Did you mean 'ebay'?"),
        (("open", "ebay", "--minutes", "0"), "--minutes"),
        (("open", "ebay", "--minutes", "inf"), "--minutes"),
        (("open", "ebay", "--reason", "a\x00b"), "--reason"),
        (("forget", "nobody"), "Known sources: x, threads"),
        (("close", ""), "Known sources"),
    ],
)
def test_wrong_words_are_told_with_the_next_step(sqlite_url: str, arguments: tuple[str, ...], said: str) -> None:
    done = run(commands, sqlite_url, *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


async def test_the_api_opens_closes_and_forgets(url: str) -> None:
    async with open_api(url, crawl_lanes=["ebay"], crawl_cache=True) as api:
        opened = (await api.post("/api/sources/ebay/breaker/open", json={"minutes": 2, "reason": "sale"})).json
        assert (opened["changed"], opened["breaker"]["state"]) == (True, "open")
        (shown,) = [each for each in (await api.ok("/api/sources"))["items"] if each["name"] == "ebay"]
        assert (shown["state"], shown["why"]) == ("breaker open", "opened by local: sale")
        assert shown["breaker"]["stays_open"] == 300
        closed = (await api.post("/api/sources/ebay/breaker/close")).json
        assert (closed["changed"], closed["breaker"]["state"]) == (True, "closed")
        await keep(api.app, "a", "b")
        assert (await api.ask("DELETE", "/api/sources/ebay/cache")).json == {"source": "ebay", "forgotten": 2}
        assert (await api.post("/api/sources/ebay/breaker/open", json={"minutes": 0})).problems.keys() == {"minutes"}
        for path in ("breaker/open", "breaker/close"):
            missing = await api.post(f"/api/sources/nobody/{path}")
            assert (missing.status, "Known sources" in missing.text) == (404, True)


async def test_the_dashboard_opens_closes_and_forgets(url: str) -> None:
    async with open_api(url, crawl_lanes=["ebay"], crawl_cache=True) as api:
        form = {"minutes": "2", "reason": "sale <day>"}
        asked = await api.post("/sources/ebay/breaker/open", data=form, headers=PAGE)
        assert (asked.status, "Open the breaker of ebay?" in asked.text) == (200, True)
        form["confirmed"] = "yes"
        assert (await api.post("/sources/ebay/breaker/open", data=form, headers=PAGE)).status == 303
        shown = (await api.get("/sources?source=ebay", headers=PAGE)).text
        assert "opened by local: sale &lt;day&gt;" in shown
        assert "Close breaker" in shown
        bad = await api.post("/sources/ebay/breaker/open", data={"minutes": "soon"}, headers=PAGE)
        assert (bad.status, "is not a number of minutes" in bad.text) == (400, True)
        assert (await api.post("/sources/ebay/breaker/close", headers=PAGE)).status == 303
        await keep(api.app, "a", "b")
        assert "Forget answers" in (await api.get("/sources?source=ebay", headers=PAGE)).text
        assert (await api.post("/sources/ebay/forget", headers=PAGE)).status == 200
        assert await rows(api.app, "SELECT count(*) FROM cached_answers") == [(2,)]
        assert (await api.post("/sources/ebay/forget", data={"confirmed": "yes"}, headers=PAGE)).status == 303
        assert await rows(api.app, "SELECT count(*) FROM cached_answers") == [(0,)]
        assert (await api.post("/sources/ebay/limits", data={"rate": "30"}, headers=PAGE)).status == 303
        assert await rows(api.app, "SELECT label, rate_per_minute FROM source_keys") == [("direct", 30.0)]


async def test_more_money_is_allowed_only_after_a_question(url: str) -> None:
    async with open_api(url, x_api_key="one", x_day_credits=100_000) as api:

        async def limit(**fields: str) -> Answer:
            return await api.post("/sources/x/limits", data=fields, headers=PAGE)

        asked = await limit(day="200,000")
        assert (asked.status, "Allow $2.00 a day, instead of $1.00?" in asked.text) == (200, True)
        assert (await api.app.sources.state(X_SOURCE)).day_cap is None
        assert (await limit(day="50,000", month="900,000")).status == 303
        assert "Remove the limit of a month?" in (await limit(day="50,000")).text
        assert (await limit(day="50,000", confirmed="yes")).status == 303
        state = await api.app.sources.state(X_SOURCE)
        assert (state.day_cap, state.month_cap) == (50_000, None)


async def test_the_views_are_served_by_the_api_and_shown_on_a_page(url: str) -> None:
    async with open_api(url) as api:
        for number in range(25):
            await api.app.enqueue([args.relook(UserId(number + 1))])
            api.clock.turn(seconds=1)
        await set_state(api.app, failure_streak=5, last_failure="503 <b>")
        seen = [job["key"] async for page in api.pages("/api/monitoring/recent-jobs", limit=10) for job in page]
        assert seen == [str(number) for number in range(25, 0, -1)]
        (job, *_) = (await api.ok("/api/monitoring/recent-jobs"))["items"]
        assert (job["status"], isinstance(job["id"], str)) == ("pending", True)
        (health,) = (await api.ok("/api/monitoring/source-health"))["items"]
        assert (health["name"], health["enabled"], health["failure_streak"]) == ("ebay", True, 5)
        assert (await api.ok("/api/monitoring/stuck-jobs"))["items"] == []
        assert "503 &lt;b&gt;" in (await api.get("/sources?source=ebay", headers=PAGE)).text
        assert "None: every running job" in (await api.get("/monitoring", headers=PAGE)).text


async def _trouble(app: App) -> None:
    until = app.database.clock.now() + timedelta(hours=1)
    await set_state(app, failure_streak=5, opened_until=until, last_failure="503")
    await app.sources.store.pause(X_SOURCE, "too dear", now=app.database.clock.now())
    await app.enqueue([args.relook(UserId(7))])
    async with app.database.transaction() as connection:
        await connection.exec_driver_sql(
            "UPDATE jobs SET state = 'dead', attempts = max_attempts, last_error = 'it broke'"
        )


def test_the_doctor_tells_of_sources_and_failures(url: str) -> None:
    prepared(url, _trouble, now=datetime.now(UTC))
    found = told(run(doctor, url, "--json"))
    findings = {each["name"]: each for each in found["findings"]}
    assert findings["source x"]["advice"] == "when that is fixed: `mistnet sources resume x`"
    assert "5 failures in a row: 503" in findings["source ebay"]["found"]
    assert findings["listings"]["level"] == "ok"
    assert [(each["name"], each["state"]) for each in found["source_health"]] == [
        ("ebay", "breaker open"),
        ("x", "paused"),
    ]
    assert [(each["key"], each["status"], each["error_message"]) for each in found["recent_failures"]] == [
        ("7", "dead", "it broke")
    ]
    assert (found["stuck_jobs"], found["odd_listings"]) == ([], [])
    shown = run(doctor, url).stdout
    assert "failed and dead jobs, newest first" in shown
    assert "breaker open" in shown


def test_without_a_cap_the_doctor_and_track_warn(url: str) -> None:
    async def capped(app: App) -> None:
        await app.sources.store.set_caps(X_SOURCE, day=None, month=3_000_000)

    def found(**environment: str) -> Any:
        key = {"MISTNET_X_API_KEY": "one", **environment}
        return {each["name"]: each for each in told(run(doctor, url, "--json", **key))["findings"]}["budget"]

    hint = "mistnet sources set x --day-credits 200000"
    warned = found()
    assert (warned["level"], hint in warned["advice"]) == ("warn", True)
    assert found(MISTNET_X_API_KEY="")["level"] == "ok"
    assert found(MISTNET_X_DAY_CREDITS="70")["level"] == "ok"
    (line,) = [line for line in run(track, url, "ann", MISTNET_X_API_KEY="one").stdout.splitlines() if hint in line]
    assert line.startswith("X has no cap on spending.")
    assert told(run(track, url, "ann", "--json", MISTNET_X_API_KEY="one"))["spending_cap"] is False
    prepared(url, capped, now=datetime.now(UTC))
    assert found()["level"] == "ok"
    assert hint not in run(track, url, "bob", MISTNET_X_API_KEY="one").stdout


def test_the_doctor_tells_of_stuck_jobs_and_odd_listings(url: str) -> None:
    async def lost(app: App) -> None:
        await Items(app.database).add([ItemRequest(title="a coin")], app.database.clock.now())
        await app.enqueue([args.relook(UserId(7))])
        async with app.database.transaction() as connection:
            await connection.exec_driver_sql(
                "UPDATE jobs SET state = 'running', worker = 'ann', lease_until = created_at"
            )
            await connection.exec_driver_sql(
                "INSERT INTO odd_listings (source, item_id, digest, problem, payload, first_seen_at, last_seen_at) "
                "SELECT 'ebay_api', id, 'd', 'no price', 'x', added_at, added_at FROM items"
            )

    prepared(url, lost, now=datetime.now(UTC) - timedelta(hours=1))
    done = run(doctor, url, "--json")
    found = told(done)
    assert done.exit_code == 1  # no worker has taken them over for long
    (stuck,) = found["stuck_jobs"]
    assert (stuck["locked_by"], stuck["status"], stuck["seconds_since_heartbeat"] > 3_000) == ("ann", "running", True)
    assert found["odd_listings"] == [{"source": "ebay_api", "listings": 1}]
    assert "stuck jobs: their leases ran out" in run(doctor, url).stdout
    assert "1 of ebay_api" in {each["name"]: each["found"] for each in found["findings"]}["listings"]
