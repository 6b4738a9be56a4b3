"""No page and no list of links, products or dead letters reads a whole table while a request waits for it."""

import re

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.social.model import UserId
from tests.apis import open_api
from tests.contract.test_page_plans import explained, stand_still
from tests.databases import noted
from tests.harvests import tell, user

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

LINKS, PRODUCTS, JOBS = 15_000, 5_000, 10_000
FIRST_POST = 2_000_000_000_000_000_000
PAGE = {"Accept": "text/html"}
TABLES = "links|post_links|products|offers|crawls|posts|jobs|job_history"
AT = "'2026-02-01 00:00:00.000000'"


def series(app: App, count: int) -> str:
    if app.database.dialect == "postgresql":
        return f"generate_series(1::bigint, {count}) AS s(n)"
    return f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s)"


async def fill(app: App) -> None:
    """A link in a hundred is short and leads to an item; each item is a product's, each mentioned by a few posts."""
    await tell(app, user(UserId(1), "ann"))
    lane = "CASE n % 4 WHEN 0 THEN 'shopee' WHEN 1 THEN 'taobao' WHEN 2 THEN 'ebay' ELSE 'web' END"
    state = "CASE n % 7 WHEN 0 THEN 'new' WHEN 1 THEN 'gone' WHEN 2 THEN 'blocked' ELSE 'crawled' END"
    statements = (
        f"""INSERT INTO posts (platform, id, author_id, text, text_clean, created_at, raw, first_seen_at,
                last_updated_at)
            SELECT 'x', {FIRST_POST} + n, 1, 'look', 'look', {AT}, '{{}}', {AT}, {AT} FROM {series(app, LINKS)}""",
        f"""INSERT INTO products (platform, item_id, url, title, first_seen_at, last_seen_at, offer_id)
            SELECT {lane}, CAST(n AS text), 'https://shop.example', 'A cup', {AT}, {AT}, n
            FROM {series(app, PRODUCTS)}""",
        f"""INSERT INTO links (url_norm, url, host, lane, platform, kind, state, product_id, leads_to, first_seen_at)
            SELECT 'https://shop.example/' || n, 'https://shop.example/' || n, 'shop.example', {lane}, {lane},
                CASE WHEN n % 100 = 0 THEN 'short' ELSE 'item' END, {state},
                CASE WHEN n % 100 = 0 THEN NULL ELSE n % {PRODUCTS} + 1 END,
                CASE WHEN n % 100 = 0 THEN n - 1 ELSE NULL END, {AT} FROM {series(app, LINKS)}""",
        f"""INSERT INTO post_links (platform, post_id, nr, link_id, url, place, seen_at)
            SELECT 'x', {FIRST_POST} + n, 0, n, 'https://verbatim.example', 'text', {AT} FROM {series(app, LINKS)}""",
        f"""INSERT INTO offers (product_id, observed_at, last_seen_at, content_hash, path, confidence, evidence)
            SELECT n % {PRODUCTS} + 1, {AT}, {AT}, 'h', 'p', 1.0, '[]' FROM {series(app, LINKS)}""",
        f"""INSERT INTO crawls (link_id, at, outcome) SELECT n, {AT}, 'offer' FROM {series(app, LINKS)}""",
        f"""INSERT INTO jobs (kind, key, lane, class, state, args, attempts, max_attempts, run_at, created_at)
            SELECT 'crawl', 'https://shop.example/' || n, {lane}, 2,
                CASE WHEN n % 50 = 0 THEN 'dead' ELSE 'pending' END, '{{}}', 0, 5, {AT}, {AT}
            FROM {series(app, JOBS)}""",
    )
    async with app.database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    if app.database.product != "libsql":  # it refuses; what it knows of its tables must do
        async with app.database.read() as connection:
            await connection.execute(text("ANALYZE"))


def reads_a_whole_table(plan: str) -> bool:
    scans = [line for line in plan.splitlines() if re.match(rf"\s*SCAN ({TABLES})\b(?!.* USING )", line)]
    return bool(scans) or re.search(rf"Seq Scan on ({TABLES})\b", plan) is not None


ASKED = (
    *("/links", "/links?before=9999", "/links?lane=ebay", "/links?state=gone", "/links?kind=short"),
    *("/links?lane=web&state=new&kind=item&before=5000", "/links?kind=code&state=gone"),
    *("/links?q=shop.example/29", "/links?q=https://shop.example/77"),
    *("/links/99", "/links/100", "/links/99?crawls_before=50"),
    *("/products", "/products?shop=ebay&before=900", "/products?q=cup", "/products?price=gone"),
    *("/products/100", "/products/100?offers_before=20100", "/jobs?lane=shopee&state=gaps&before=9000"),
    *("/api/links?lane=taobao", "/api/links/99/mentions", "/api/links/99/crawls", "/api/products?shop=web"),
    *("/api/products/100/offers?doubted=true", "/api/products/100/mentions"),
    *("/api/lanes/ebay/dead-letters", "/api/lanes/ebay/dead-letters?state=failed"),
)


async def test_nothing_that_is_shown_of_links_and_products_reads_a_whole_table(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("link_pages", "product_pages"):
        monkeypatch.setattr(f"mistnet.shops.store.{module}.WINDOW", 500)
    async with open_api(url) as api:
        await fill(api.app)
        for path in ("/", "/lanes"):
            await api.get(path, headers=PAGE)
        stand_still(api)
        for path in ASKED:
            with noted() as seen:
                answer = await api.get(path, headers=PAGE)
            assert answer.status == 200, (path, answer.text[:500])
            asked = [(sql, given) for sql, given in seen if sql.lstrip().upper().startswith(("SELECT", "WITH"))]
            assert 0 < len(asked) <= 20, f"{path} asks {len(asked)} questions"
            for sql, given in asked:
                plan = await explained(api.app, sql, given)
                assert not reads_a_whole_table(plan), f"{path}:\n{sql}\n{plan}"
