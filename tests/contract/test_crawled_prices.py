"""Crawled pages as sources of prices: an item's own links, products that share its words, nothing that is doubted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.governor.model import CallPurpose, SourceName
from mistnet.prices.model import ItemRequest, ItemState, PriceListing
from mistnet.prices.store.crawled_prices import BEFORE_THE_VISIT, CrawledPrices
from mistnet.prices.store.items import Items
from mistnet.queue.errors import NotNow
from mistnet.queue.model import Snooze
from mistnet.shops.model import Crawled, CrawlOutcome, LinkState, PageFacts, PageVerdict, PriceKind, ProductName
from mistnet.shops.shop import WEB
from mistnet.shops.store.links import LinkWriter
from mistnet.shops.store.products import CANDIDATES, products_called
from mistnet.sim.shelf import BY_CANONICAL
from tests.contract.test_page_plans import explained
from tests.contract.test_shop_plans import reads_a_whole_table, series
from tests.databases import analyze, noted
from tests.markets import Fair, an_item
from tests.shops import LANES, Town, open_town, post
from tests.support import START

pytestmark = pytest.mark.common_sql

MORGAN = "https://www.ebay.com/itm/155932418766"
WEB_MORGAN = "https://shop.example.com/coins/morgan-1921"
DENARIUS = "https://shop.example.com/coins/denarius"
COIN = "https://shopee.tw/product/178926468/21448123549"
SHORT = "https://shp.ee/a1B2c3D"
DECOY = "https://shopee.vn/product/77712345/6600998877"


@asynccontextmanager
async def stocked(url: str, *links: str, **settings: Any) -> AsyncIterator[Town]:
    """A town whose shops were visited for these links."""
    async with open_town(url, **settings) as town:
        await town.write(*(post(number + 1, link) for number, link in enumerate(links)))
        await town.crawl()
        while await town.one("SELECT count(*) FROM jobs WHERE state = 'pending'"):
            town.clock.turn(seconds=2)  # a host is visited now and then only
            await town.crawl()
        yield town


async def asked(town: Town, lane: str, title: str = "nothing of the kind", **about: Any) -> Sequence[PriceListing]:
    source = CrawledPrices(town.app.database, SourceName(lane))
    return (await source.search(an_item(title, **about), purpose=CallPurpose())).listings


async def tell(town: Town, title: str | None, amount: str, *, doubt: str | None = None, cached: bool = False) -> None:
    """One more visit to the same page."""
    link = await town.one("SELECT id FROM links WHERE url_norm = :url", url=WEB_MORGAN)
    row = await town.one("SELECT region, shop_id, item_id FROM products WHERE url = :url", url=WEB_MORGAN)
    name = ProductName(platform=WEB, region=row[0], shop_id=row[1], item_id=row[2], url=WEB_MORGAN)
    facts = PageFacts(verdict=PageVerdict.OFFER, title=title, amount=Decimal(amount), currency="EUR")
    outcome = CrawlOutcome.DOUBTED if doubt else CrawlOutcome.OFFER
    seen = Crawled(
        link_id=link,
        job_id=None,
        outcome=outcome,
        state=LinkState.CRAWLED,
        product=name,
        facts=facts,
        doubt=doubt,
        cached=cached,
    )
    async with town.app.database.transaction() as connection:
        await town.app.writers.write(connection, town.app.writers.prepare([seen]), town.clock.now())


async def test_an_item_that_names_a_page_has_its_price_whatever_the_title(url: str) -> None:
    async with stocked(url, MORGAN) as town:
        (found,) = await asked(town, "ebay", urls=(f"{MORGAN}?hash=item244",))
        thing = BY_CANONICAL[MORGAN]
        assert (found.kind, found.amount, found.currency) == (PriceKind.ASK, thing.price(START), "USD")
        assert (found.strength, found.title, found.observed_at) == (1.0, thing.title, START)
        row = await town.one("SELECT p.id, o.id AS offer FROM products p JOIN offers o ON o.id = p.offer_id")
        assert (found.product_id, found.offer_id) == tuple(row)
        assert await asked(town, "web", urls=(MORGAN,)) == [], "each lane answers for its own pages"


async def test_a_short_link_leads_to_its_price(url: str) -> None:
    async with stocked(url, SHORT) as town:
        (found,) = await asked(town, "shopee", urls=(SHORT,))
        assert (found.currency, found.strength) == ("TWD", 1.0)


async def test_products_are_found_by_the_words_of_their_titles(url: str) -> None:
    async with stocked(url, MORGAN, WEB_MORGAN, COIN, DENARIUS) as town:
        (found,) = await asked(town, "web", "MORGAN dollar, 1921!")
        assert found.url == WEB_MORGAN
        assert found.strength is None, "how well it fits is for the match to say"
        assert [each.url for each in await asked(town, "ebay", "1921 morgan")] == [MORGAN]
        assert [each.url for each in await asked(town, "shopee", "銀幣")] == [COIN]
        assert await asked(town, "web", "Buffalo Nickel") == []
        assert await asked(town, "web", "!!! ---") == []


async def test_a_title_that_changes_is_found_by_its_new_words_alone(url: str) -> None:
    async with stocked(url, WEB_MORGAN) as town:
        await tell(town, "Peace Dollar 1922", "50")
        assert await asked(town, "web", "Morgan") == []
        assert len(await asked(town, "web", "Peace")) == 1
        await tell(town, None, "50")
        assert len(await asked(town, "web", "Peace")) == 1, "a page that says no title takes none away"


async def test_a_new_price_has_the_name_of_the_old_one(url: str) -> None:
    async with stocked(url, WEB_MORGAN) as town:
        (before,) = await asked(town, "web", urls=(WEB_MORGAN,))
        town.clock.turn(hours=1)
        await tell(town, None, "55.50")
        (after,) = await asked(town, "web", urls=(WEB_MORGAN,))
        assert after.external_id == before.external_id
        assert (after.amount, after.observed_at) == (Decimal("55.50"), town.clock.now())
        assert after.offer_id != before.offer_id
        town.clock.turn(hours=1)
        await tell(town, None, "55.50")
        (again,) = await asked(town, "web", urls=(WEB_MORGAN,))
        assert (again.offer_id, again.observed_at) == (after.offer_id, town.clock.now())


async def test_what_is_doubted_is_no_price(url: str) -> None:
    async with stocked(url, DECOY, WEB_MORGAN) as town:
        assert await asked(town, "shopee", urls=(DECOY,)) == []
        (before,) = await asked(town, "web", urls=(WEB_MORGAN,))
        await tell(town, None, "1", doubt="too good to be true")
        assert await asked(town, "web", urls=(WEB_MORGAN,)) == [before]


async def test_an_item_waits_for_the_visit_to_its_own_page_but_not_for_ever(url: str) -> None:
    async with open_town(url) as town:
        found = LinkWriter(town.app.job_writer, LANES)
        await Items(town.app.database, found).add([ItemRequest(title="x", urls=(MORGAN,))], START)
        with pytest.raises(NotNow, match="about to be crawled") as wait:
            await asked(town, "ebay", urls=(MORGAN,))
        assert wait.value.until == START + BEFORE_THE_VISIT
        assert await asked(town, "web", urls=(MORGAN,)) == [], "another lane has nothing to wait for"
        town.clock.turn(hours=1, seconds=1)
        assert await asked(town, "ebay", urls=(MORGAN,)) == []
        await town.crawl()
        assert len(await asked(town, "ebay", urls=(MORGAN,))) == 1


async def prices(town: Town) -> list[type]:
    """Price jobs, as a worker would run them; what came of each."""
    return [type(outcome) for outcome in await Fair(app=town.app, clock=town.clock, market=town.shops).look()]  # type: ignore[arg-type]


async def test_a_crawled_price_becomes_a_point_of_the_item_with_its_product_and_offer(url: str) -> None:
    async with stocked(url, MORGAN, WEB_MORGAN) as town:
        request = ItemRequest(title="Morgan Dollar", attributes={"year": "1921"}, urls=(MORGAN,))
        (kept,) = await Items(town.app.database).add([request], START)
        await town.app.valuing.ask([kept.item_id], None, town.app.job_writer)
        await prices(town)
        rows = await town.rows(
            "SELECT source, match_strength, kind, product_id, offer_id FROM price_points ORDER BY source"
        )
        assert [(row.source, row.match_strength, row.kind) for row in rows] == [
            ("ebay", 1.0, "ask"),
            ("web", 1.0, "ask"),
        ]
        assert all(row.product_id and row.offer_id for row in rows)
        assert await town.one("SELECT count(*) FROM item_looks") == len(LANES)
        town.clock.turn(hours=1)
        await tell(town, None, "61")
        await town.app.valuing.ask([kept.item_id], [SourceName("web")], town.app.job_writer)
        await prices(town)
        assert await town.one("SELECT count(*) FROM price_points") == 2
        assert Decimal(await town.one("SELECT amount FROM price_points WHERE source = 'web'")) == 61


async def test_a_remembered_page_is_not_seen_again(url: str) -> None:
    async with stocked(url, WEB_MORGAN) as town:
        await Items(town.app.database).add([ItemRequest(title="mine", urls=(WEB_MORGAN,))], START)
        await tell(town, None, "61")
        seen = "SELECT last_seen_at, times_seen FROM {} ORDER BY id"
        before = [await town.rows(seen.format(table)) for table in ("offers", "price_points")]
        product = await town.one("SELECT last_seen_at FROM products")
        town.clock.turn(minutes=5)
        await tell(town, None, "61", cached=True)
        assert [await town.rows(seen.format(table)) for table in ("offers", "price_points")] == before
        assert await town.one("SELECT last_seen_at FROM products") == product


async def worth(town: Town) -> list[tuple[int, Decimal]]:
    rows = await town.rows("SELECT item_id, estimate FROM valuations ORDER BY item_id")
    return [(row.item_id, Decimal(row.estimate)) for row in rows]


async def test_a_crawled_offer_is_a_point_of_its_items_in_the_same_transaction(url: str) -> None:
    async with stocked(url, WEB_MORGAN) as town:
        items = Items(town.app.database)
        requests = [
            ItemRequest(title="Morgan Dollar", attributes={"year": "1921"}),
            ItemRequest(title="mine", urls=(WEB_MORGAN,)),
            ItemRequest(title="mine, asked of others", urls=(WEB_MORGAN,), sources=(SourceName("ebay"),)),
            ItemRequest(title="mine, later", urls=(WEB_MORGAN,)),
        ]
        by_words, named, _, paused = await items.add(requests, START)
        await town.app.valuing.ask([by_words.item_id], [SourceName("web")], town.app.job_writer)
        await prices(town)
        await items.set_state(paused.item_id, ItemState.PAUSED, START)
        looks = await town.rows("SELECT * FROM item_looks")
        town.clock.turn(hours=1)
        await tell(town, None, "61")
        assert await worth(town) == [(by_words.item_id, Decimal(61)), (named.item_id, Decimal(61))]
        rows = await town.rows("SELECT item_id, source, product_id, offer_id, match_strength FROM price_points")
        offer = await town.one("SELECT id, offer_id FROM products")
        assert {tuple(row)[1:4] for row in rows} == {("web", *offer)}
        assert {row.item_id: row.match_strength for row in rows}[named.item_id] == 1.0
        assert await town.rows("SELECT * FROM item_looks") == looks, "no source was asked"
        await tell(town, None, "1", doubt="too good to be true")
        assert {each for _, each in await worth(town)} == {Decimal(61)}


async def test_the_first_visit_to_an_items_own_page_brings_its_price_by_a_short_link_too(url: str) -> None:
    async with open_town(url) as town:
        items = Items(town.app.database, LinkWriter(town.app.job_writer, LANES))
        first, second = await items.add(
            [ItemRequest(title="x", urls=(MORGAN,)), ItemRequest(title="y", urls=(SHORT,))], START
        )
        while await town.one("SELECT count(*) FROM jobs WHERE state = 'pending'"):
            await town.crawl()
            town.clock.turn(seconds=2)
        assert [each for each, _ in await worth(town)] == [first.item_id, second.item_id]
        await items.change(first.item_id, ItemRequest(title="x"), town.clock.now())
        assert await town.one("SELECT count(*) FROM item_links") == 1, "what it does not name any more is not its own"


async def test_an_items_own_pages_are_visited_again_when_it_is_looked_for_again(url: str) -> None:
    async with open_town(url, items_every_hours=10) as town:
        found = LinkWriter(town.app.job_writer, LANES)
        items = Items(town.app.database, found)
        await items.add([ItemRequest(title="x", urls=(MORGAN,), sources=(SourceName("ebay"),))], START)
        await town.app.valuing.make_due(town.app.job_writer)
        await town.crawl()
        await prices(town)
        assert await town.one("SELECT count(*) FROM crawls") == 1
        town.clock.turn(hours=10, seconds=1)
        assert await town.app.valuing.make_due(town.app.job_writer) == 1
        assert await town.one("SELECT count(*) FROM jobs WHERE kind = 'crawl'") == 1
        assert await prices(town) == [Snooze], "it waits for the visit"


MANY = 30_000
OLD = 1_500
AT = "'2026-02-01 00:00:00.000000'"


async def fill(app: App) -> None:
    """Coins without an end, each with a number of its own."""
    numbers = series(app, MANY)
    statements = (
        f"""INSERT INTO products (platform, item_id, url, title, first_seen_at, last_seen_at, offer_id)
            SELECT 'web', CAST(n AS text), 'https://shop.example', 'coin', {AT}, {AT}, n FROM {numbers}""",
        f"""INSERT INTO offers (product_id, observed_at, last_seen_at, amount, currency, content_hash, path,
                confidence, evidence)
            SELECT n, {AT}, {AT}, 5, 'USD', 'h', 'p', 1.0, '[]' FROM {numbers}""",
        f"""INSERT INTO links (url_norm, url, host, lane, platform, kind, state, product_id, first_seen_at)
            SELECT 'https://shop.example/' || n, 'https://shop.example/' || n, 'shop.example', 'web', 'web', 'page',
                'crawled', n, {AT} FROM {numbers}""",
        f"INSERT INTO product_words (product_id, word, lane) SELECT n, 'coin', 'web' FROM {numbers}",
        f"INSERT INTO product_words (product_id, word, lane) SELECT n, 'nr' || n, 'web' FROM {numbers}",
    )
    async with app.database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    async with app.database.read() as connection:
        await analyze(connection)


async def test_looking_for_words_reads_no_whole_table_and_the_rare_word_tells_most(url: str) -> None:
    async with open_town(url) as town:
        await fill(town.app)
        statement = products_called("web", f"coin nr{OLD}")
        assert statement is not None
        async with town.app.database.read() as connection:
            found = list((await connection.execute(statement)).scalars())
        assert found[0] == OLD, "though it is not among the newest that are called a coin"
        assert len(found) == CANDIDATES
        with noted() as questions:
            await asked(town, "web", f"coin nr{OLD}", urls=(WEB_MORGAN,))
        plans = [await explained(town.app, *question) for question in questions if "SELECT" in question[0]]
        assert len(plans) >= 2
        for plan in plans:
            assert not reads_a_whole_table(plan), plan
            assert re.search(r"Seq Scan on product_words|SCAN product_words", plan) is None, plan
