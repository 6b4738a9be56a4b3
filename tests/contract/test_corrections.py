"""Prices that were read wrongly: listed, corrected by hand, seen again as corrected, exported without the page."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from mistnet.prices.model import ItemRequest
from mistnet.prices.service import correct_offer
from mistnet.prices.store.items import Items
from mistnet.shops.extraction import KeptReading, PriceCandidate
from mistnet.shops.model import (
    Crawled,
    CrawlOutcome,
    Evidence,
    LinkId,
    LinkState,
    OfferId,
    OfferNotFound,
    PageFacts,
    PageKind,
    PageVerdict,
    ProductName,
)
from mistnet.shops.shopee import SHOPEE
from mistnet.shops.store.corrections import Correction, CorrectionPages, case_of
from mistnet.sim.shelf import BY_CANONICAL
from tests.shops import Town, open_town, post
from tests.support import START

pytestmark = pytest.mark.common_sql

COIN = "https://shopee.tw/product/178926468/21448123549"
CURRENT = "SELECT o.amount FROM products p JOIN offers o ON o.id = p.offer_id"


def corrected(offer_id: int, amount: str | None, **about: str) -> Correction:
    currency = "TWD" if amount else None
    return Correction(
        offer_id=OfferId(offer_id),
        author="kim",
        amount=Decimal(amount) if amount else None,
        currency=currency,
        note=about.get("note"),
    )


async def visit_again(town: Town) -> None:
    town.clock.turn(hours=2)
    await town.app.crawling.make_due(town.app.job_writer)
    await town.crawl()


async def test_a_corrected_price_is_the_products_and_is_seen_again_where_the_page_is_read_the_same_way(
    url: str,
) -> None:
    async with open_town(url, crawl_every_hours=1) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        offer_id, read = await town.one("SELECT id, amount FROM offers")
        shown = await correct_offer(town.app, corrected(offer_id, "649", note="the cents stand apart"))
        assert (shown.amount, shown.currency) == (Decimal(649), "TWD")
        await visit_again(town)
        assert Decimal(read) == BY_CANONICAL[COIN].price(town.clock.now()), "the page says what it said before"
        assert Decimal(await town.one(CURRENT)) == Decimal(649)
        assert await town.one("SELECT times_seen FROM offers") == 2
        (line,) = (await CorrectionPages(town.app.database).corrections(limit=10)).items
        assert (line.read_amount, line.amount, line.author) == (Decimal(read), Decimal(649), "kim")
        assert line.note == "the cents stand apart"


async def doubt(town: Town, link_id: int) -> None:
    """One more visit that reads the same, and does not believe it."""
    item = BY_CANONICAL[COIN]
    facts = PageFacts(verdict=PageVerdict.OFFER, amount=Decimal(item.price(START)) * 9, currency="TWD")
    name = await town.one("SELECT region, shop_id, item_id, url FROM products")
    seen = Crawled(
        link_id=LinkId(link_id),
        job_id=None,
        outcome=CrawlOutcome.DOUBTED,
        state=LinkState.CRAWLED,
        product=ProductName(platform=SHOPEE, region=name[0], shop_id=name[1], item_id=name[2], url=name[3]),
        facts=facts,
        doubt="the price jumped",
    )
    async with town.app.database.transaction() as connection:
        await town.app.writers.write(connection, town.app.writers.prepare([seen]), town.clock.turn(hours=1))


async def test_a_doubted_offer_that_is_confirmed_is_believed_and_not_doubted_again(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        link_id = await town.one("SELECT id FROM links")
        await doubt(town, link_id)
        pages = CorrectionPages(town.app.database)
        (doubted,) = (await pages.doubted(limit=10)).items
        assert doubted.doubt == "the price jumped"
        await correct_offer(town.app, corrected(doubted.id, f"{doubted.amount}"))
        assert (await pages.doubted(limit=10)).items == []
        assert await town.one("SELECT offer_id FROM products") == doubted.id
        await doubt(town, link_id)
        assert (await pages.doubted(limit=10)).items == []
        assert await town.one("SELECT outcome FROM crawls ORDER BY id DESC LIMIT 1") == "unchanged"
        assert await town.one("SELECT offer_id FROM products") == doubted.id


async def test_items_are_valued_again_after_a_correction(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, COIN))
        await Items(town.app.database).add([ItemRequest(title="mine", urls=(COIN,))], START)
        await town.crawl()
        offer_id = await town.one("SELECT id FROM offers")
        town.clock.turn(minutes=1)
        await correct_offer(town.app, corrected(offer_id, "649"))
        assert Decimal(await town.one("SELECT amount FROM price_points")) == Decimal(649)
        assert Decimal(await town.one("SELECT estimate FROM valuations")) == Decimal(649)


async def test_a_page_may_be_corrected_to_tell_no_price(url: str) -> None:
    async with open_town(url) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        shown = await correct_offer(town.app, corrected(await town.one("SELECT id FROM offers"), None))
        assert (shown.amount, shown.currency) == (None, None)
        assert await town.one(CURRENT) is None


async def test_an_older_offer_that_is_corrected_is_not_the_current_one(url: str) -> None:
    async with open_town(url, crawl_every_hours=1) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        before = BY_CANONICAL[COIN].price(town.clock.now())
        while BY_CANONICAL[COIN].price(town.clock.now()) == before:
            town.clock.turn(days=1)
        await town.app.crawling.make_due(town.app.job_writer)
        await town.crawl()
        first, second = [row.id for row in await town.rows("SELECT id FROM offers ORDER BY id")]
        await correct_offer(town.app, corrected(first, "1"))
        assert await town.one("SELECT offer_id FROM products") == second


async def test_a_correction_of_an_unknown_offer_changes_nothing(url: str) -> None:
    async with open_town(url) as town:
        with pytest.raises(OfferNotFound):
            await correct_offer(town.app, corrected(99, "1"))
        assert await town.one("SELECT count(*) FROM offer_corrections") == 0


async def test_a_test_case_has_the_candidates_and_nothing_of_the_page(url: str) -> None:
    kept = KeptReading(
        page_kind=PageKind.PRODUCT,
        kind_evidence=[Evidence(field="page_kind", path="json-ld:Product", snippet="Kim's secret shelf", confidence=1)],
        candidates=[
            PriceCandidate(
                amount=Decimal(64), currency="TWD", path="visible:b", snippet="Kim pays 64", features={"near": 1.5}
            )
        ],
    )
    async with open_town(url) as town:
        await town.write(post(1, COIN))
        await town.crawl()
        offer_id = await town.one("SELECT id FROM offers")
        async with town.app.database.transaction() as connection:
            await connection.exec_driver_sql(f"UPDATE offers SET reading = '{_quoted(kept)}'")
        await correct_offer(town.app, corrected(offer_id, "649"))
        (line,) = (await CorrectionPages(town.app.database).corrections(limit=10)).items
        case = case_of(line)
        assert case["expected"]["amount"] == Decimal(649)
        assert case["candidates"][0]["features"] == {"near": 1.5}
        written = msgspec.json.encode(case, enc_hook=str).decode()
        assert "Kim" not in written
        assert "shopee" not in written
        assert (line.title or COIN) not in written


def _quoted(kept: KeptReading) -> str:
    return msgspec.json.encode(kept).decode().replace("'", "''")
