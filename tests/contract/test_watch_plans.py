"""Watches are found by their indexes, however many there are: every offer that is written asks for its own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.prices.model import ItemId
from mistnet.prices.watches import WatchId
from mistnet.shops.model import ProductId
from tests.contract.test_page_plans import explained
from tests.contract.test_shop_plans import series
from tests.databases import noted
from tests.priced import COIN, PricedTown, open_priced
from tests.shops import post

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

MANY = 20_000
AT = "'2026-02-01 00:00:00.000000'"


async def fill(town: PricedTown) -> None:
    """A watch for each product and each item, and as many that were taken back."""
    numbers = series(town.app, MANY)
    statements = (
        f"""INSERT INTO products (platform, item_id, url, title, first_seen_at, last_seen_at)
            SELECT 'web', CAST(n AS text), 'https://shop.example', 'A cup', {AT}, {AT} FROM {numbers}""",
        f"""INSERT INTO price_watches (product_id, kind, percent, state, added_at)
            SELECT n, 'changed', 10, CASE WHEN n % 2 = 0 THEN 'active' ELSE 'removed' END, {AT} FROM {numbers}""",
    )
    async with town.app.database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    if town.app.database.product != "libsql":
        async with town.app.database.read() as connection:
            await connection.execute(text("ANALYZE"))


async def test_watches_are_found_by_their_indexes_among_many(url: str) -> None:
    async with open_priced(url) as town:
        await fill(town)
        book = town.app.price_watches
        with noted() as seen:
            assert len((await book.page()).items) == 50
            assert len((await book.page(after=1_000)).items) == 50
            assert len((await book.page(product_id=ProductId(70))).items) == 1
            assert (await book.page(item_id=ItemId(7))).items == []
            assert (await book.get(WatchId(70))).id == 70
        assert len(seen) == 5
        await require_indexes(town, seen)


async def test_an_offer_without_watches_reads_them_once_and_writes_nothing(url: str) -> None:
    async with open_priced(url) as town:
        await fill(town)
        town.tag(COIN, 1000)
        await town.write(post(1, COIN))
        with noted() as seen:
            await town.crawl()
        own = [(sql, given) for sql, given in seen if "price_watches" in sql]
        assert len(own) == 1
        assert own[0][0].startswith("SELECT")
        await require_indexes(town, own)


async def require_indexes(town: PricedTown, seen: list[tuple[str, Any]]) -> None:
    for sql, given in seen:
        plan = await explained(town.app, sql, given)
        assert not re.search(r"Seq Scan on price_watches|SCAN price_watches\b(?!.* USING )", plan), f"{sql}\n{plan}"
