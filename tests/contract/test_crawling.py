"""From a post to a product: one link, one crawl, an offer with its evidence, and what becomes of all else."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal

import pytest

from mistnet.queue.model import Continue, Done, Retry, Snooze
from mistnet.shops.links.mentions import MOST_LINKS
from mistnet.shops.model import Crawled, CrawlOutcome, LinkState, PageFacts, PageVerdict, ProductName
from mistnet.shops.shopee import SHOPEE
from mistnet.shops.store.crawls import StoreHosts
from mistnet.sim.shelf import BY_CANONICAL, BY_ITEM, POSTED, SHORT_LINKS
from mistnet.social.model import Reference
from tests.shops import LANES, open_town, post

pytestmark = pytest.mark.common_sql

COIN = "https://shopee.tw/product/178926468/21448123549"
JOBS = "SELECT count(*) FROM jobs WHERE kind = 'crawl'"


async def test_a_link_in_a_thousand_posts_is_one_link_one_crawl_and_a_thousand_mentions(url: str) -> None:
    async with open_town(url) as town:
        for start in range(0, 1_000, 250):
            await town.write(*(post(start + n + 1, f"look {COIN}?x={n}") for n in range(250)))
        assert await town.one("SELECT count(*) FROM links") == 1
        assert await town.one("SELECT count(*) FROM post_links") == 1_000
        assert await town.one(JOBS) == 1
        await town.crawl()
        assert await town.one("SELECT count(*) FROM crawls") == 1
        await town.write(post(5_000, f"again {COIN}"))
        assert await town.one(JOBS) == 0, "it was crawled already"


async def test_a_post_written_again_mentions_each_link_once_and_loses_none(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, f"{COIN}", nested=True))
        await town.write(post(1, f"https://shop.example.com/coins/denarius and {COIN}"))
        await town.write(post(1, f"https://shop.example.com/coins/denarius and {COIN}"))
        found = await town.rows("SELECT l.url_norm FROM post_links m JOIN links l ON l.id = m.link_id ORDER BY m.nr")
        assert [row.url_norm for row in found] == [COIN, "https://shop.example.com/coins/denarius"]


async def test_links_are_found_in_entities_and_quoted_posts_too(url: str) -> None:
    quoted = Reference(id=post(2, "").id, text="see https://www.ebay.com/itm/155932418766")
    async with open_town(url) as town:
        await town.write(post(1, "buy https://t.co/0", links=[COIN], quoted=quoted))
        found = await town.rows("SELECT l.url_norm, m.place FROM post_links m JOIN links l ON l.id = m.link_id")
        assert {tuple(row) for row in found} == {
            (COIN, "entity"),
            ("https://www.ebay.com/itm/155932418766", "quoted"),
        }


async def test_a_post_without_links_writes_nothing(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, "just words. and more words, 3.50 of them"))
        assert await town.one("SELECT count(*) FROM links") == 0


async def test_where_a_lane_is_not_crawled_links_are_written_and_left_alone(url: str) -> None:
    async with open_town(url, crawl_lanes=["ebay"]) as town:
        await town.write(post(1, f"{COIN} https://www.ebay.com/itm/155932418766"))
        assert await town.one("SELECT count(*) FROM links") == 2
        assert (await town.one("SELECT lane, key FROM jobs")) == ("ebay", "https://www.ebay.com/itm/155932418766")


async def test_a_very_long_link_is_written_under_a_name_every_database_takes(url: str) -> None:
    long = "https://shop.example.com/coins/" + "x" * 2_900
    async with open_town(url) as town:
        await town.write(post(1, f"{long}a {long}b"))
        names = [row.url_norm for row in await town.rows("SELECT url_norm FROM links")]
        assert len(set(names)) == 2
        assert all(len(name.encode()) <= 2_000 for name in names)


async def test_a_tao_kouling_is_kept_as_unresolved_and_never_crawled(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, "复制这段话￥ABcd1EFgh2I￥打开淘宝「老银元收藏册」"))
        kind, state, problem = await town.one("SELECT kind, state, problem FROM links")
        assert (kind, state) == ("code", "unresolved")
        assert "老银元收藏册" in problem
        assert await town.one(JOBS) == 0


async def test_a_link_that_only_looks_like_a_shops_is_kept_with_the_reason_and_never_visited(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, "cheap! https://shopee.tw.evil.com/product/1/2", links=["https://x.com/ann/status/7"]))
        kept, kind, state, problem = await town.one("SELECT url_norm, kind, state, problem FROM links")
        assert (kept, kind, state) == ("https://shopee.tw.evil.com/product/1/2", "refused", "unresolved")
        assert "looks like shopee.tw and is not" in problem
        assert await town.one(JOBS) == 0


async def test_a_post_with_too_many_links_says_so_among_the_refused(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, " ".join(f"https://example.com/{number}" for number in range(MOST_LINKS + 1))))
        assert await town.one("SELECT count(*) FROM post_links") == MOST_LINKS + 1
        kept, state, problem = await town.one("SELECT url_norm, state, problem FROM links WHERE kind = 'refused'")
        assert (kept, state) == ("left-out:x:1", "unresolved")
        assert problem == "not followed: the post has 1 more link than the 500 that are kept for one post"
        assert await town.one(JOBS) == MOST_LINKS


@pytest.mark.parametrize("posted", POSTED)
async def test_every_way_to_post_a_thing_leads_to_its_product(sqlite_url: str, posted: str) -> None:
    canonical = POSTED[posted]
    thing = BY_CANONICAL[SHORT_LINKS.get(canonical, canonical)]
    async with open_town(sqlite_url) as town:
        await town.write(post(1, f"look {posted} !"))
        outcomes = await town.crawl()
        assert all(isinstance(each, Done) for each in outcomes), outcomes
        row = await town.one(
            "SELECT p.platform, p.title, p.url, o.amount, o.currency, o.doubt FROM products p "
            "JOIN offers o ON o.id = p.offer_id"
        )
        assert (row.platform, row.url, row.currency, row.doubt) == (thing.shop, thing.canonical, thing.currency, None)
        assert Decimal(row.amount) == thing.price(town.clock.now())


async def test_an_offer_has_its_evidence(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        row = await town.one("SELECT path, confidence, evidence, list_amount, sold_count FROM offers")
        told = row.evidence if isinstance(row.evidence, list) else json.loads(row.evidence)
        assert any(each["field"] == "amount" and each["snippet"] for each in told)
        assert row.confidence > 0
        assert row.sold_count == BY_CANONICAL[COIN].sold(town.clock.now())
        crawl = await town.one("SELECT outcome, http_status, bytes, body FROM crawls")
        assert (crawl.outcome, crawl.http_status, crawl.body) == ("offer", 200, None)


@pytest.mark.parametrize("short", SHORT_LINKS)
async def test_a_short_link_becomes_the_link_it_leads_to_in_one_transaction(url: str, short: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, f"{short} "))
        await town.step()
        rows = await town.rows("SELECT id, url_norm, state, leads_to FROM links ORDER BY id")
        assert [(row.url_norm, row.state) for row in rows] == [(short, "resolved"), (SHORT_LINKS[short], "new")]
        assert rows[0].leads_to == rows[1].id
        assert await town.one("SELECT key FROM jobs") == SHORT_LINKS[short]


async def test_two_short_links_to_one_thing_make_one_crawl_of_it(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, f"https://shp.ee/a1B2c3D and {COIN}"))
        await town.crawl()
        assert await town.one("SELECT count(*) FROM crawls WHERE outcome = 'offer'") == 1
        assert await town.one("SELECT count(*) FROM links") == 2
        assert town.transport.crowded == []


async def test_an_unchanged_page_moves_last_seen_and_adds_no_offer(url: str) -> None:
    async with open_town(url, crawl_every_hours=1) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        later = town.clock.turn(hours=2)
        assert await town.app.crawling.make_due(town.app.job_writer) == 1
        assert await town.app.crawling.make_due(town.app.job_writer) == 0
        await town.crawl()
        assert [row.outcome for row in await town.rows("SELECT outcome FROM crawls ORDER BY id")] == [
            "offer",
            "unchanged",
        ]
        times_seen, last_seen = await town.one("SELECT times_seen, last_seen_at FROM offers")
        assert times_seen == 2
        assert str(last_seen)[:16] == f"{later:%Y-%m-%d %H:%M}"


async def test_a_changed_price_is_a_new_offer_and_the_old_one_stays(url: str) -> None:
    async with open_town(url, crawl_every_hours=1) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        thing, before = BY_CANONICAL[COIN], BY_CANONICAL[COIN].price(town.clock.now())
        while thing.price(town.clock.now()) == before:
            town.clock.turn(days=1)
        await town.app.crawling.make_due(town.app.job_writer)
        await town.crawl()
        amounts = [Decimal(row.amount) for row in await town.rows("SELECT amount FROM offers ORDER BY id")]
        assert amounts == [before, thing.price(town.clock.now())]
        shown = await town.one("SELECT o.amount FROM products p JOIN offers o ON o.id = p.offer_id")
        assert Decimal(shown) == amounts[1]


async def test_a_page_that_is_gone_is_no_failure_and_marks_its_product(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, "https://www.ebay.com/itm/186600998877"))
        (outcome,) = await town.crawl()
        assert isinstance(outcome, Done)
        assert await town.one("SELECT state FROM links") == "gone"
        assert await town.one("SELECT gone_at FROM products") is not None
        assert await town.one("SELECT count(*) FROM jobs") == 0


@pytest.mark.parametrize(
    "walled",
    ["https://shopee.tw/product/55512345/7700112244", "https://item.taobao.com/item.htm?id=601122334455"],
)
async def test_a_wall_is_blocked_and_never_no_price(url: str, walled: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, walled))
        (outcome,) = await town.step()
        assert isinstance(outcome, Retry)
        assert await town.one("SELECT outcome FROM crawls") == "blocked"
        assert await town.one("SELECT state FROM links") == "blocked"
        assert await town.one("SELECT count(*) FROM offers") == 0


async def test_walls_in_a_row_open_the_shops_breaker_and_slow_all_of_it(url: str) -> None:
    async with open_town(url, breaker_failures=2, backoff_base_seconds=1) as town:
        await town.write(post(1, "https://shopee.tw/product/55512345/7700112244"))
        for _ in range(2):
            await town.crawl()
            town.clock.turn(minutes=1)
        await town.write(post(2, f"{COIN} https://www.ebay.com/itm/155932418766"))
        outcomes = await town.crawl()
        assert any(isinstance(each, Snooze) and "failures in a row" in each.reason for each in outcomes), outcomes
        assert await town.one("SELECT count(*) FROM offers") == 1, "ebay has no wall"


async def test_a_decoy_price_is_kept_apart_looked_at_again_and_never_shown(url: str) -> None:
    decoy = BY_ITEM["shopee", "6600998877"]
    async with open_town(url) as town:
        await town.write(post(1, decoy.canonical))
        (outcome,) = await town.crawl()
        assert isinstance(outcome, Continue)
        assert await town.one("SELECT count(*) FROM offers WHERE doubt IS NOT NULL") == 1
        assert await town.one("SELECT offer_id FROM products") is None
        town.clock.turn(minutes=10)
        (outcome,) = await town.crawl()
        assert isinstance(outcome, Done)
        assert await town.one("SELECT offer_id FROM products") is None
        assert await town.one("SELECT count(*) FROM offers WHERE doubt IS NULL") == 0
        assert await town.one("SELECT count(*) FROM crawls WHERE outcome = 'doubted'") == 2


@pytest.mark.parametrize(
    ("posted", "why"),
    [
        ("https://trap.example.com/thing", "its address is link-local"),
        ("https://loop.example.com/thing", "redirects more than"),
        ("https://shop.example.com/checkout/basket", "robots.txt"),
        ("https://s.shopee.tw/evilCode66", "leads to"),
    ],
)
async def test_what_must_not_be_fetched_fails_with_the_reason(sqlite_url: str, posted: str, why: str) -> None:
    async with open_town(sqlite_url) as town:
        await town.write(post(1, posted))
        await town.crawl()
        row = await town.one("SELECT state, last_error FROM jobs")
        assert row.state == "failed"
        assert why in row.last_error
        assert await town.one("SELECT state FROM links") == "failed"
        assert await town.one("SELECT outcome FROM crawls") == "refused"
        assert not any("169.254" in visited for visited in town.shops.stats.visits)


async def test_a_dead_short_link_is_gone(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, "https://s.shopee.tw/deadCode99"))
        await town.crawl()
        assert await town.one("SELECT state FROM links") == "gone"


@pytest.mark.parametrize("posted", ["https://pictures.example.com/coin.png", "http://example.com/"])
async def test_a_page_without_a_price_is_crawled_and_names_no_product(sqlite_url: str, posted: str) -> None:
    async with open_town(sqlite_url) as town:
        await town.write(post(1, posted))
        await town.crawl()
        assert await town.one("SELECT outcome FROM crawls") == "no_price"
        assert await town.one("SELECT state FROM links") == "crawled"
        assert await town.one("SELECT count(*) FROM products") == 0


async def test_a_page_beyond_the_limits_is_unreadable_with_the_reason_and_not_tried_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.shops.extraction.documents._FEW_TAGS", 0)
    monkeypatch.setattr("mistnet.shops.extraction.documents.DEEPEST", 0)
    async with open_town(url) as town:
        await town.write(post(1, "https://www.ebay.com/itm/155932418766"))
        (outcome,) = await town.crawl()
        assert isinstance(outcome, Done)
        crawl = await town.one("SELECT outcome, problem FROM crawls")
        assert crawl.outcome == "unreadable"
        assert "inside each other" in crawl.problem
        assert await town.one("SELECT state FROM links") == "failed"
        assert await town.one("SELECT count(*) FROM jobs") == 0


async def test_pages_are_kept_packed_where_the_settings_say_so(url: str) -> None:
    async with open_town(url, crawl_keep_pages=True) as town:
        await town.write(post(1, "https://www.ebay.com/itm/155932418766"))
        await town.crawl()
        size, body = await town.one("SELECT bytes, body FROM crawls")
        assert 0 < len(body) < size


async def test_a_kept_answer_saves_the_second_visit(url: str) -> None:
    async with open_town(url, crawl_every_hours=1, crawl_cache=True, crawl_cache_seconds=3 * 3600) as town:
        await town.write(post(1, "https://www.ebay.com/itm/155932418766"))
        await town.crawl()
        for hours, asked, unchanged in ((2, 1, 0), (2, 2, 1)):
            town.clock.turn(hours=hours)
            await town.app.crawling.make_due(town.app.job_writer)
            await town.crawl()
            assert town.shops.stats.visits["www.ebay.com/itm/155932418766"] == asked
            assert town.shops.stats.not_modified == unchanged
        assert await town.one("SELECT times_seen FROM offers") == 2, "what the cache told was not seen again"
        town.clock.turn(days=40)
        assert await town.app.crawling.forget() == 1


async def test_of_many_workers_one_gets_a_hosts_turn(url: str) -> None:
    async with open_town(url) as town:
        hosts, now = StoreHosts(town.app.database), town.clock.now()
        won = await asyncio.gather(*(hosts.claim("shop.example.com", now=now, delay=5) for _ in range(8)))
        assert won.count(None) == 1
        assert {each for each in won if each} == {town.clock.turn(seconds=5)}
        assert await hosts.claim("shop.example.com", now=town.clock.now(), delay=5) is None


async def test_a_polite_pause_is_a_snooze_with_its_reason(url: str) -> None:
    async with open_town(url, crawl_host_seconds=30) as town:
        await town.write(post(1, "https://shop.example.com/coins/denarius https://shop.example.com/coins/morgan-1921"))
        outcomes = await town.step()
        snoozed = [each for each in outcomes if isinstance(each, Snooze)]
        assert len(snoozed) == 1
        assert "visited every 30 s" in snoozed[0].reason
        assert await town.one("SELECT attempts FROM jobs") == 0


async def test_a_paused_lane_stands_still_and_loses_nothing(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, COIN))
        await town.app.sources.store.pause(LANES[0], "by hand", now=town.clock.now())  # type: ignore[arg-type]
        (outcome,) = await town.step()
        assert isinstance(outcome, Snooze)
        assert await town.app.sources.paused_lanes() == {"shopee"}
        assert "shopee" in await town.app.halted()


async def test_a_doubted_offer_that_is_seen_again_and_believed_is_doubted_no_more(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        link_id = await town.one("SELECT id FROM links")
        product = ProductName(platform=SHOPEE, region="tw", shop_id="178926468", item_id="21448123549", url=COIN)
        leap = PageFacts(verdict=PageVerdict.OFFER, amount=Decimal(9_999), currency="TWD")
        for doubt in ("it jumps", None):
            town.clock.turn(minutes=10)
            seen = Crawled(
                link_id=link_id,
                job_id=None,
                outcome=CrawlOutcome.DOUBTED if doubt else CrawlOutcome.OFFER,
                state=LinkState.CRAWLED,
                product=product,
                facts=leap,
                doubt=doubt,
            )
            async with town.app.database.transaction() as connection:
                await town.app.writers.write(connection, town.app.writers.prepare([seen]), town.clock.now())
            shown = Decimal(await town.one("SELECT o.amount FROM products p JOIN offers o ON o.id = p.offer_id"))
            assert (shown == 9_999) is (doubt is None)
        assert await town.one("SELECT count(*) FROM offers") == 2
        assert await town.one("SELECT count(*) FROM offers WHERE doubt IS NOT NULL") == 0
