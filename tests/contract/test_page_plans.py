"""No page reads all posts or all jobs while a request waits for it, on any database."""

import math
import re
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.social.accounts import AccountTracked
from mistnet.social.model import UserId, X
from tests.apis import Api, open_api
from tests.browser.furnished import ANN, furnish
from tests.databases import analyze, noted
from tests.harvests import tell, user

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

POSTS, AUTHORS = 20_000, 50
FIRST_ID = 2_000_000_000_000_000_000
PAGE = {"Accept": "text/html"}


async def fill(app: App) -> None:
    authors = [UserId(each) for each in range(1, AUTHORS + 1)]
    people = [user(each, f"user{each}") for each in authors]
    await tell(app, *people, *(AccountTracked(platform=X, user_id=each) for each in authors))
    series = (
        f"generate_series(1::bigint, {POSTS}) AS s(n)"
        if app.database.dialect == "postgresql"
        else f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {POSTS}) SELECT n FROM s)"
    )
    at = "'2026-02-01 00:00:00.000000'"
    async with app.database.transaction() as connection:
        await connection.execute(
            text(
                f"""INSERT INTO posts (platform, id, author_id, text, text_clean, created_at, conversation_id, raw,
                    first_seen_at, last_updated_at)
                SELECT 'x', {FIRST_ID} + n * 4194304, n % {AUTHORS} + 1, 'a rare coin', 'a rare coin', {at},
                    {FIRST_ID} + (n / 10) * 41943040, '{{}}', {at}, {at} FROM {series}"""
            )
        )
    async with app.database.read() as connection:
        await analyze(connection)


def stand_still(api: Api) -> None:
    """What is counted behind the pages is not renewed any more."""
    dashboard = api.service.state.dashboard
    for snapshot in (dashboard.collected, dashboard.queue, dashboard.account_counts, dashboard._lanes):
        snapshot._due_at = math.inf
        snapshot._found_at = math.inf


async def explained(app: App, statement: str, parameters: Any) -> str:
    explain = "EXPLAIN QUERY PLAN " if app.database.dialect == "sqlite" else "EXPLAIN "
    async with app.database.read() as connection:
        rows = await connection.exec_driver_sql(explain + statement, parameters)
        return "\n".join(str(row[-1]) for row in rows)


def reads_all_posts(plan: str) -> bool:
    whole = [line for line in plan.splitlines() if re.match(r"\s*SCAN posts\b(?!.* USING )", line)]
    return bool(whole) or re.search(r"Seq Scan on posts\b", plan) is not None


@pytest.mark.in_turn(2)
async def test_no_page_scans_all_posts_during_a_request(url: str) -> None:
    async with open_api(url) as api:
        await fill(api.app)
        there = await furnish(api.app)
        paths = [*there.paths, "/accounts/7", f"/conversations/{FIRST_ID + 41943040}", "/search?q=rare&author=user7"]
        for path in ("/", "/accounts", "/lanes", f"/accounts/{ANN}", "/accounts/7"):
            await api.get(path, headers=PAGE)
        stand_still(api)
        for path in paths:
            with noted() as seen:
                assert (await api.get(path, headers=PAGE)).status == 200, path
            asked = [(sql, given) for sql, given in seen if sql.lstrip().upper().startswith(("SELECT", "WITH"))]
            assert len(asked) <= 25, f"{path} asks {len(asked)} questions"
            for sql, given in asked:
                plan = await explained(api.app, sql, given)
                assert not reads_all_posts(plan), f"{path}:\n{sql}\n{plan}"
                counts = "count(" in sql and "posts" in sql and "conversation_id" not in sql and "hour" not in sql
                assert not counts, f"{path} counts posts:\n{sql}"
