"""Nothing of lineage reads a whole table, and what is one product's or one account's costs what that one has."""

import io
import re
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.kit.export import Format
from mistnet.prices.model import ItemId, ItemRequest
from mistnet.prices.store.items import Items
from mistnet.prices.store.lineage import Lineage, LineageSelection, export_lineage
from mistnet.prices.store.related_products import AccountProducts, ItemProducts, ProductCursor
from mistnet.shops.model import ProductId
from mistnet.shops.store.mentions import MentionCursor
from mistnet.social.model import PostId, UserId, X
from tests.apis import open_api
from tests.contract.test_page_plans import explained, stand_still
from tests.contract.test_shop_plans import series
from tests.databases import analyze, noted
from tests.harvests import open_harvest, tell, user
from tests.support import START

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

POSTS, AUTHORS, PRODUCTS, OFFERS = 20_000, 500, 2_000, 20_000
FIRST = 2_000_000_000_000_000_000
LATELY = ProductCursor(post_id=FIRST + POSTS - 1_000)
PAGE = {"Accept": "text/html"}
AT = "'2026-02-01 00:00:00.000000'"
TABLES = "links|post_links|products|offers|posts|price_points"


async def fill(app: App) -> None:
    """Each post has a short link of its own, which leads to one of its product's ten items."""
    await tell(app, *(user(UserId(each), f"user{each}") for each in range(1, AUTHORS + 1)))
    await Items(app.database).add([ItemRequest(title=f"a cup {each}") for each in range(500)], START)
    items = PRODUCTS * 5
    made = {
        "post": series(app, POSTS),
        "product": series(app, PRODUCTS),
        "link": series(app, items),
        "short": series(app, POSTS),
        "offer": series(app, OFFERS),
    }
    times = f"{AT}, {AT}"
    statements = (
        f"""INSERT INTO posts (platform, id, author_id, text, text_clean, created_at, raw, first_seen_at,
                last_updated_at) SELECT 'x', {FIRST} + n, n % {AUTHORS} + 1, 'look', 'look', {AT}, '{{}}', {times}
            FROM {made["post"]}""",
        f"""INSERT INTO products (platform, item_id, url, title, first_seen_at, last_seen_at)
            SELECT 'shopee', CAST(n AS text), 'https://shop.example', 'A cup', {times} FROM {made["product"]}""",
        f"""INSERT INTO links (id, url_norm, url, host, lane, platform, kind, state, product_id, first_seen_at)
            SELECT n, 'https://shop.example/' || n, 'u', 'h', 'shopee', 'shopee', 'item', 'crawled',
                n % {PRODUCTS} + 1, {AT} FROM {made["link"]}""",
        f"""INSERT INTO links (id, url_norm, url, host, lane, platform, kind, state, leads_to, first_seen_at)
            SELECT {items} + n, 'https://s.example/' || n, 'u', 'h', 'shopee', 'shopee', 'short', 'resolved',
                (n / {AUTHORS} * 37 + n) % {items} + 1, {AT} FROM {made["short"]}""",
        f"""INSERT INTO post_links (platform, post_id, nr, link_id, url, place, seen_at)
            SELECT 'x', {FIRST} + n, 0, {items} + n, 'https://s.example', 'text', {AT} FROM {made["short"]}""",
        f"""INSERT INTO offers (product_id, observed_at, last_seen_at, amount, currency, content_hash, path, confidence,
                evidence) SELECT n % {PRODUCTS} + 1, {times}, '10', 'TWD', 'h', 'p', 1.0, '[]' FROM {made["offer"]}"""
        if app.database.dialect == "sqlite"
        else f"""INSERT INTO offers (product_id, observed_at, last_seen_at, amount, currency, content_hash, path,
                confidence, evidence) SELECT n % {PRODUCTS} + 1, {times}, 10, 'TWD', 'h', 'p', 1.0, '[]'
            FROM {made["offer"]}""",
        f"""INSERT INTO price_points (item_id, source, dedupe_key, kind, amount, currency, title, url, match_strength,
                observed_at, first_seen_at, last_seen_at, product_id)
            SELECT n % 500 + 1, 'shopee', 'key' || n, 'ask', 10, 'TWD', 't', 'u', 1.0, {AT}, {times}, n % {PRODUCTS} + 1
            FROM {made["offer"]}""",
    )
    async with app.database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    async with app.database.read() as connection:
        await analyze(connection)


def reads_a_whole_table(plan: str) -> bool:
    scans = [line for line in plan.splitlines() if re.match(rf"\s*SCAN ({TABLES})\b", line)]
    whole = re.search(
        rf"Seq Scan on ({TABLES})\b|Index (Only )?Scan using \w+ on ({TABLES})\b(?!.*\n\s*Index Cond)", plan
    )
    return bool(scans) or whole is not None


async def all_are_by_index(app: App, seen: Sequence[tuple[str, Any]], *, most: int) -> None:
    asked = [(sql, given) for sql, given in seen if sql.lstrip().upper().startswith(("SELECT", "WITH"))]
    assert 0 < len(asked) <= most, len(asked)
    for sql, given in dict(asked).items():
        plan = await explained(app, sql, given)
        assert not reads_a_whole_table(plan), f"{sql[:2_000]}\n{plan[:4_000]}"


async def test_no_question_of_lineage_reads_a_whole_table(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_harvest(url) as app:
        await fill(app)
        for few in (400, 0):
            monkeypatch.setattr("mistnet.shops.store.mentions._FEW", few)
            await questions_are_by_index(app)
        await an_export_is_by_index(app, monkeypatch)


async def questions_are_by_index(app: App) -> None:
    database = app.database
    with noted() as seen:
        page = await Lineage(database).page(
            ProductId(7), now=START, limit=5, before=MentionCursor({X: PostId(FIRST + 15_000)})
        )
        assert len(page.posts) == 5
        assert page.next is not None
        assert len(await Lineage(database).course(ProductId(7))) == OFFERS // PRODUCTS
    await all_are_by_index(app, seen, most=12)
    with noted() as seen:
        linked = await AccountProducts(database).page(X, UserId(7), limit=10, before=LATELY)
        assert len(linked.items) == 10
        assert linked.next is not None
    await all_are_by_index(app, seen, most=14)
    with noted() as seen:
        assert len((await ItemProducts(database).page(ItemId(7), limit=3)).items) == 3
    await all_are_by_index(app, seen, most=3)


async def an_export_is_by_index(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads its tables page by page."""
    monkeypatch.undo()
    monkeypatch.setattr("mistnet.prices.store.lineage._POSTS", 20)
    with noted() as seen:
        wanted = LineageSelection(author="user7")
        assert await export_lineage(app.database, wanted, Format.JSONL, io.BytesIO(), now=START) == POSTS // AUTHORS
    await all_are_by_index(app, seen, most=200)


PATHS = (
    "/products/7",
    "/people/x/7/products",
    "/api/products/7/lineage",
    "/api/accounts/7/products",
    "/api/accounts/user7/products?limit=5",
    "/api/items/7/products",
)


async def test_pages_and_routes_of_lineage_read_no_whole_table(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        await fill(api.app)
        await api.get("/", headers=PAGE)
        stand_still(api)
        for path in PATHS:
            with noted() as seen:
                answer = await api.get(path, headers=PAGE)
            assert answer.status == 200, answer.text[:500]
            await all_are_by_index(api.app, seen, most=24)
