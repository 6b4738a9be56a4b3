"""Finding, visiting and calling for links reads by an index, however many there are, on any database."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text

from mistnet.shops.store.crawls import call_for_new
from tests.contract.test_page_plans import explained
from tests.databases import analyze, noted
from tests.shops import LANES, Town, open_town, post

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

MANY = 50_000
GROWING = "links|offers|products"
"""What was filled; the queue's own tables have tests of their own."""


async def fill(town: Town) -> None:
    """Many links, most of them visited long ago."""
    database = town.app.database
    series = (
        f"generate_series(1::bigint, {MANY}) AS s(n)"
        if database.dialect == "postgresql"
        else f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {MANY}) SELECT n FROM s)"
    )
    at = "'2026-02-01 00:00:00.000000'"
    async with database.transaction() as connection:
        for sql in (
            f"""INSERT INTO products (platform, item_id, url, first_seen_at, last_seen_at)
                SELECT 'ebay', 'i' || n, 'u' || n, {at}, {at} FROM {series}""",
            f"""INSERT INTO links
                    (url_norm, url, host, lane, platform, kind, state, product_id, first_seen_at, crawled_at)
                SELECT 'https://www.ebay.com/itm/' || n, 'u', 'www.ebay.com', 'ebay', 'ebay', 'item',
                    CASE WHEN n % 100 = 0 THEN 'new' ELSE 'crawled' END, n, {at}, {at} FROM {series}""",
            f"""INSERT INTO offers (product_id, observed_at, last_seen_at, content_hash, path, confidence, evidence)
                SELECT n, {at}, {at}, 'h', 'p', 1, '[]' FROM {series}""",
        ):
            await connection.execute(text(sql))
    async with database.read() as connection:
        await analyze(connection)


def whole_tables(plan: str) -> list[str]:
    sqlite = re.findall(rf"^\s*SCAN (?:{GROWING})\b(?!.* USING ).*", plan, re.MULTILINE)
    return sqlite + re.findall(rf"Seq Scan on (?:{GROWING})\b", plan)


async def test_nothing_on_the_way_from_a_post_to_a_price_reads_a_whole_table(url: str) -> None:
    async with open_town(url, crawl_every_hours=1, crawl_cache=True, crawl_host_seconds=0.1) as town:
        await fill(town)
        with noted() as seen:
            await town.write(post(1, "https://www.ebay.com/itm/155932418766 https://www.ebay.com/itm/77"))
            await town.crawl()
            town.clock.turn(hours=2)
            assert await town.app.crawling.make_due(town.app.job_writer) == 500
            asked = await call_for_new(town.app.database, town.app.job_writer, lanes=LANES, limit=10)
            assert asked.created == 10
        own = re.compile(rf"^\s*(?:SELECT|WITH|UPDATE)\b.*\b(?:{GROWING})\b", re.IGNORECASE | re.DOTALL)
        checked = 0
        for sql, given in seen:
            if own.match(sql) and not isinstance(given, list):
                plan = await explained(town.app, sql, given)
                assert not whole_tables(plan), f"{sql}\n{plan}"
                checked += 1
        assert checked > 5
