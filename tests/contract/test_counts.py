"""Numbers that are kept as rows are written equal the rows themselves, whatever was written, pruned and merged."""

import random
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import TextClause, select, text

from mistnet.app import App
from mistnet.governor.bills import RECONCILIATION
from mistnet.governor.model import THREADS_SOURCE, X_SOURCE, CallRecord, KeyLabel
from mistnet.governor.tables import call_sums, calls
from mistnet.operations.counts import CountMerging
from mistnet.operations.overview import By, CallLedger, DashboardStore
from mistnet.operations.pruning import StorePruning
from mistnet.queue.model import JobId
from mistnet.social.accounts import AccountTracked
from mistnet.social.model import UserId, X
from mistnet.social.store.accounts import stored_posts_of
from tests.databases import analyze, noted
from tests.harvests import change, open_harvest, post, rows, tell, user
from tests.support import START, TurnedClock

NOON = START.replace(hour=12, minute=0, second=0, microsecond=0)
ANN, BEA, CARL = UserId(11), UserId(12), UserId(13)


def some_call(chance: random.Random) -> CallRecord:
    """At any moment of four days, often at the very beginning of an hour or a day."""
    at = NOON - timedelta(seconds=chance.randrange(4 * 86_400))
    at = chance.choice([at, at.replace(minute=0, second=0), at.replace(hour=0, minute=0, second=0)])
    failed = chance.random() < 0.2
    return CallRecord(
        source=chance.choice([X_SOURCE, THREADS_SOURCE]),
        key_label=KeyLabel("key-1"),
        endpoint=chance.choice(["tweets", "user/info", RECONCILIATION]),
        at=at,
        seconds=0.1,
        status=500 if failed else 200,
        items=chance.randrange(20),
        credits=chance.randrange(-30, 300),
        job_id=JobId(1),
        account_id=chance.choice([None, ANN, BEA]),
        error="SourceDown: 500" if failed else None,
    )


GROUPS: Mapping[By, Callable[[Mapping[Any, Any]], object]] = {
    By.DAY: lambda row: row["day"],
    By.ENDPOINT: lambda row: row["endpoint"],
    By.ACCOUNT: lambda row: row["account_id"] or None,
    By.SOURCE: lambda row: row["source"],
}


async def added_up(app: App, by: By, since: datetime | None, until: datetime | None) -> dict[object, list[int]]:
    """The slow way: each row of the ledger, and each day that was pruned."""
    sums: dict[object, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in await app.database.fetch_rows(select(calls)):
        if (since is None or row["at"] >= since) and (until is None or row["at"] < until):
            amounts = (row["endpoint"] != RECONCILIATION, row["items"], row["credits"], row["error"] is not None)
            of = sums[GROUPS[by]({**row, "day": row["at"].date().isoformat()})]
            of[:] = [one + int(other) for one, other in zip(of, amounts, strict=True)]
    for row in await app.database.fetch_rows(select(call_sums)):
        begun = datetime.fromisoformat(row["day"]).replace(tzinfo=UTC)
        if (since is None or begun >= since) and (until is None or begun < until):
            of = sums[GROUPS[by](row)]
            amounts = tuple(row[name] for name in ("calls", "items", "credits", "failures"))
            of[:] = [one + int(other) for one, other in zip(of, amounts, strict=True)]
    return dict(sums)


async def assert_spending_is_exact(app: App, chance: random.Random) -> None:
    for by in By:
        bounds: list[datetime | None] = [None, None]
        for place in range(2):
            at = NOON - timedelta(seconds=chance.randrange(5 * 86_400))
            bounds[place] = chance.choice(
                [None, at, at.replace(minute=0, second=0), at.replace(hour=0, minute=0, second=0)]
            )
        since, until = bounds
        found = await CallLedger(app.database).spent(by, since=since, until=until)
        names = [each.account_id if by is By.ACCOUNT else each.name for each in found]
        shown = {
            name: [each.calls, each.items, each.credits, each.failures] for name, each in zip(names, found, strict=True)
        }
        assert len(shown) == len(found)
        assert shown == await added_up(app, by, since, until), (by, since, until)
    of_accounts = await added_up(app, By.ACCOUNT, None, None)
    expected = {name: amounts[2] for name, amounts in of_accounts.items() if name is not None}
    spent_on = await DashboardStore(app.database).spent_on()
    assert {name: spent for name, spent in spent_on.items() if spent} == {k: v for k, v in expected.items() if v}


@pytest.mark.parametrize("seed", range(4))
async def test_spending_equals_the_ledger_after_any_calls_and_prunings(url: str, seed: int) -> None:
    chance = random.Random(seed)
    async with open_harvest(url, clock=TurnedClock(NOON)) as app:
        merging = CountMerging(app.database, slice_rows=chance.choice([1, 3, 100]))
        pruning = StorePruning(app.database, slice_rows=chance.choice([2, 50]))
        for _ in range(12):
            match chance.choice(["record", "record", "prune", "merge"]):
                case "record":
                    await app.sources.store.record([some_call(chance) for _ in range(chance.randint(1, 12))])
                case "prune":
                    await pruning.fold_calls(before=NOON - timedelta(seconds=chance.randrange(4 * 86_400)))
                case _:
                    await merging.merge()
            await assert_spending_is_exact(app, chance)
        await merging.merge()
        await pruning.fold_calls(before=NOON + timedelta(days=1))
        await merging.merge()
        await pruning.fold_calls(before=NOON + timedelta(days=1))
        await assert_spending_is_exact(app, chance)
        assert await rows(app, "SELECT count(*) FROM call_hours UNION ALL SELECT count(*) FROM call_days") == [
            (0,),
            (0,),
        ]


async def counted(app: App) -> dict[int, int]:
    """The slow way: each post."""
    query = (
        "SELECT a.user_id, count(p.id) FROM accounts a LEFT JOIN posts p ON p.author_id = a.user_id GROUP BY a.user_id"
    )
    return dict(await rows(app, query))


async def assert_posts_are_exact(app: App) -> None:
    assert await stored_posts_of(app.database, X, [ANN, BEA, CARL]) == await counted(app)


@pytest.mark.parametrize("seed", range(4))
async def test_numbers_of_stored_posts_equal_the_posts_after_any_writes(url: str, seed: int) -> None:
    chance = random.Random(seed)
    async with open_harvest(url) as app:
        merging = CountMerging(app.database, slice_rows=chance.choice([1, 100]))
        await tell(app, user(ANN), user(BEA), user(CARL))
        for _ in range(25):
            match chance.choice(["write", "write", "write", "track", "remove", "merge"]):
                case "write":  # some of them again
                    new = {chance.randint(1, 60) for _ in range(chance.randint(1, 8))}
                    await tell(app, *(post(each, (ANN, BEA, CARL)[each % 3]) for each in sorted(new)))
                case "track":
                    await tell(app, AccountTracked(platform=X, user_id=chance.choice([ANN, BEA, CARL])))
                case "remove":
                    await change(app, f"DELETE FROM posts WHERE id = {chance.randint(1, 60)}")
                case _:
                    await merging.merge()
            await assert_posts_are_exact(app)


def another(post_id: int) -> TextClause:
    """Adds a post like the first, without the merging of users and jobs that a settlement does."""
    columns = "author_id, text, text_clean, created_at, raw, first_seen_at, last_updated_at"
    return text(f"INSERT INTO posts (platform, id, {columns}) SELECT 'x', {post_id}, {columns} FROM posts WHERE id = 1")


async def test_posts_that_are_being_written_while_their_account_is_first_counted_are_counted_once(
    postgresql_url: str,
) -> None:
    async with open_harvest(postgresql_url) as app:
        await tell(app, user(ANN), post(1), post(2))
        async with app.database.transaction() as writer:
            await writer.execute(another(3))
            await tell(app, AccountTracked(platform=X, user_id=ANN))
            await assert_posts_are_exact(app)
            await app.counts.merge()
            assert await rows(app, "SELECT posts FROM account_posts") == [(2,)]
        await assert_posts_are_exact(app)
        await app.counts.merge()
        assert await rows(app, "SELECT posts FROM account_posts") == [(3,)]
        assert await rows(app, "SELECT count(*) FROM post_deltas") == [(0,)]
        await assert_posts_are_exact(app)


async def test_writers_of_the_same_account_and_hour_do_not_wait_for_each_other(postgresql_url: str) -> None:
    async with open_harvest(postgresql_url) as app:
        await tell(app, user(ANN), AccountTracked(platform=X, user_id=ANN), post(1))
        await app.sources.store.record([some_call(random.Random(1))])
        await app.counts.merge()
        columns = "source, key_label, endpoint, at, seconds, items, credits"
        call = text(f"INSERT INTO calls ({columns}) SELECT {columns} FROM calls WHERE id = 1")
        async with app.database.transaction() as one, app.database.transaction() as other:
            for number, connection in ((2, one), (3, other)):
                await connection.execute(text("SET LOCAL lock_timeout = '1ms'"))
                await connection.execute(another(number))
                await connection.execute(call)
            await app.counts.merge()
        await assert_posts_are_exact(app)
        await assert_spending_is_exact(app, random.Random(2))


@pytest.mark.fresh_database
async def test_a_long_ledger_is_not_read_for_its_sums(url: str) -> None:
    """Of 50,000 calls, those of a part of an hour are read by their time, and no others."""
    async with open_harvest(url, clock=TurnedClock(NOON)) as app:
        await fill(app)
        spent = await plans_of(app, CallLedger(app.database).spent(since=NOON - timedelta(days=20, minutes=10)))
        assert "calls_at" in spent, spent
        assert not re.search(r"Seq Scan on calls|SCAN calls\b(?!.* USING INDEX calls_at)", spent), spent
        posts = await plans_of(app, stored_posts_of(app.database, X, [ANN]))
        assert not re.search(r"on posts(?!.*never executed)|SCAN p\b", posts), posts
        assert await stored_posts_of(app.database, X, [ANN]) == {ANN: 25_000}


async def fill(app: App) -> None:
    """50,000 calls, one a minute, and as many posts of one account."""
    is_postgresql = app.database.dialect == "postgresql"
    series = "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 50000) SELECT n FROM s) AS s"
    at = f"strftime('%Y-%m-%d %H:%M:%f000', '{NOON:%Y-%m-%d %H:%M:%S}', '-' || n || ' minutes')"
    if is_postgresql:
        series, at = (
            "generate_series(1, 50000) AS n",
            f"timestamptz '{NOON:%Y-%m-%d %H:%M:%S}+00' - n * interval '1 minute'",
        )
    seen = ", ".join([f"'{NOON:%Y-%m-%d %H:%M:%S}.000000'"] * 3)
    await tell(app, user(ANN), user(BEA), AccountTracked(platform=X, user_id=ANN))
    ledger = f"""INSERT INTO calls (source, key_label, endpoint, at, seconds, items, credits, account_id)
        SELECT 'x', 'k', 'tweets', {at}, 0.1, 20, 300, n % 50 FROM {series}"""
    written = f"""INSERT INTO posts (platform, id, author_id, text, text_clean, raw, created_at, first_seen_at,
            last_updated_at)
        SELECT 'x', n, {ANN} + n % 2, 'a', 'a', '{{}}', {seen} FROM {series}"""
    for statement in (ledger, written):
        await change(app, re.sub(r":(?=\d|%)", r"\\:", statement))
    await app.counts.merge()
    async with app.database.read() as connection:
        await analyze(connection)


async def plans_of(app: App, read: Awaitable[object]) -> str:
    """How the database goes about what this reads."""
    with noted() as seen:
        await read
    explain = "EXPLAIN QUERY PLAN " if app.database.dialect == "sqlite" else "EXPLAIN (ANALYZE) "
    lines: list[str] = []
    for statement, given in seen:
        async with app.database.read() as connection:
            lines += [str(row[-1]) for row in await connection.exec_driver_sql(explain + statement, given)]
    return "\n".join(lines)
