"""Price watches on every database: suspected by one look, told by a second, in the transaction that wrote it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from mistnet.governor.model import SourceName
from mistnet.prices.model import BadWatch, ItemId, ItemNotFound, ItemRequest, PriceFetch, PricePoint, WatchNotFound
from mistnet.prices.store.items import Items
from mistnet.prices.store.valuations import RateStore
from mistnet.prices.valuation import DatedRate
from mistnet.prices.watches import WatchId, WatchKind, WatchLine, WatchRequest
from mistnet.shops.model import (
    Availability,
    Crawled,
    CrawlOutcome,
    LinkState,
    PageFacts,
    PageVerdict,
    PriceKind,
    ProductId,
    ProductName,
    ProductNotFound,
)
from mistnet.shops.shopee import SHOPEE
from mistnet.shops.store.crawls import call_for_products
from tests.priced import COIN, CUP, Mood, PricedTown, open_priced, plain
from tests.shops import post

pytestmark = pytest.mark.common_sql

CHANGED, BELOW, BACK = "price.changed", "price.below_target", "price.back_in_stock"
AGAIN = "SELECT key, lane, run_at FROM jobs WHERE key LIKE 'again:%'"


@asynccontextmanager
async def stocked(url: str, thing: str = COIN, price: object = 1000, **settings: Any) -> AsyncIterator[PricedTown]:
    """A town with one thing that was looked at twice."""
    async with open_priced(url, **settings) as town:
        town.tag(thing, price)
        await town.write(post(1, thing))
        await town.crawl()
        await town.look()
        yield town


async def product_of(town: PricedTown) -> ProductId:
    return ProductId(await town.one("SELECT id FROM products"))


async def watched(town: PricedTown, kind: WatchKind = WatchKind.CHANGED, **line: Any) -> WatchLine:
    given = line or {WatchKind.CHANGED: {"percent": 10.0}}.get(kind, {})
    added = await town.app.price_watches.add(WatchRequest(kind=kind, product_id=await product_of(town), **given))
    assert added.added
    return added.watch


async def held(town: PricedTown, watch: WatchLine) -> WatchLine:
    return await town.app.price_watches.get(watch.id)


async def test_a_lasting_change_is_told_once_with_the_second_look_and_not_before(url: str) -> None:
    async with stocked(url) as town:
        watch = await watched(town)
        assert watch.known is not None
        assert watch.known.amount == 1000
        town.tag(COIN, 800)
        await town.look()
        first_at = town.clock.now()
        suspected = await held(town, watch)
        assert (suspected.standing, await town.told()) == ("unconfirmed", [])
        assert suspected.suspected is not None
        assert suspected.suspected.amount == 800
        again = await town.one(AGAIN)
        assert (again.key, again.lane) == (f"again:{COIN}", "shopee")
        await town.second_look()
        ((kind, said),) = await town.events()
        assert kind == CHANGED
        assert (plain(said["before"]), plain(said["after"])) == ("1000", "800")
        assert (said["percent"], said["currency"], said["source"]) == ("-20.00", "TWD", "shopee")
        assert said["product_id"] == str(watch.product_id)
        assert said["watch_id"] == str(watch.id)
        assert said["url"] == COIN
        assert said["first_look_at"].startswith(f"{first_at:%Y-%m-%dT%H:%M}")
        assert said["second_look_at"].startswith(f"{town.clock.now():%Y-%m-%dT%H:%M}")
        for _ in range(3):
            await town.look()
        assert len(await town.events()) == 1
        now = await held(town, watch)
        assert (now.events, now.standing) == (1, "watching")
        assert now.known is not None
        assert now.known.amount == 800
        assert await town.rows(AGAIN) == []


async def test_a_price_that_was_back_at_the_second_look_is_never_told(url: str) -> None:
    async with stocked(url) as town:
        watch = await watched(town)
        town.tag(COIN, 800)
        await town.look()
        assert (await held(town, watch)).standing == "unconfirmed"
        town.tag(COIN, 1000)
        await town.second_look()
        await town.second_look()  # two looks minutes apart disagreed, and so it was looked at once more
        assert (await held(town, watch)).standing == "watching"
        for _ in range(3):
            await town.look()
        assert await town.told() == []


@pytest.mark.parametrize("mood", [Mood.WALL, Mood.DOWN, Mood.NO_PRICE, Mood.GONE])
async def test_what_is_no_look_is_no_change_and_confirms_nothing(url: str, mood: Mood) -> None:
    async with stocked(url) as town:
        watches = [
            await watched(town),
            await watched(town, WatchKind.BELOW, target=Decimal(900), currency="TWD"),
            await watched(town, WatchKind.BACK_IN_STOCK),
        ]
        before = [await held(town, each) for each in watches]
        town.tag(COIN, 1, mood=mood)
        await town.look()
        assert [await held(town, each) for each in watches] == before
        assert await town.told() == []


@pytest.mark.parametrize("mood", [Mood.WALL, Mood.DOWN, Mood.NO_PRICE, Mood.GONE])
async def test_a_second_look_that_fails_leaves_the_suspicion_to_a_later_one(url: str, mood: Mood) -> None:
    async with stocked(url, max_attempts=2, backoff_base_seconds=1) as town:
        watch = await watched(town)
        town.tag(COIN, 800)
        await town.look()
        suspicion = (await held(town, watch)).suspected
        town.tag(COIN, 800, mood=mood)
        await town.second_look()
        await town.second_look()
        assert (await held(town, watch)).suspected == suspicion
        assert await town.told() == []
        town.tag(COIN, 800)
        await town.app.crawling.answers.prune(before=town.clock.now())
        await _crawl_all(town)
        assert await town.told() == [(CHANGED, "1000", "800")]


async def _crawl_all(town: PricedTown) -> None:
    town.clock.turn(hours=1)
    await call_for_products(town.app.database, town.app.job_writer, [await product_of(town)])
    await town.crawl()
    await town.second_look()


async def test_a_doubted_offer_is_no_look(url: str) -> None:
    async with stocked(url) as town:
        watch = await watched(town)
        town.tag(COIN, Decimal("1500.37"))  # no shop asks for parts of a unit that has none
        before = await held(town, watch)
        for _ in range(3):
            await town.look()
            await town.second_look()
        assert await town.one("SELECT count(*) FROM offers WHERE doubt IS NOT NULL") > 0
        assert await held(town, watch) == before
        assert await town.told() == []


async def test_a_leap_is_doubted_first_and_told_only_after_two_looks_that_are_believed(url: str) -> None:
    async with stocked(url) as town:
        await watched(town)
        town.tag(COIN, 100)
        await town.look()
        assert await town.told() == []
        await town.second_look()  # believed now, and so suspected
        assert await town.told() == []
        await town.second_look()
        assert await town.told() == [(CHANGED, "1000", "100")]


async def test_another_currency_suspends_the_watch_and_says_so(url: str) -> None:
    async with stocked(url, CUP, 50) as town:
        watch = await watched(town)
        town.tag(CUP, 50, currency="USD")
        for _ in range(3):
            await town.look()
            await town.second_look()
        assert await town.one("SELECT o.currency FROM products p JOIN offers o ON o.id = p.offer_id") == "USD"
        now = await held(town, watch)
        assert (now.standing, await town.told()) == ("suspended", [])
        assert now.problem is not None
        assert "EUR is watched" in now.problem
        town.tag(CUP, 50)
        for _ in range(3):
            await town.look()
            await town.second_look()
        assert (await held(town, watch)).standing == "watching"
        assert await town.told() == []


async def test_a_target_is_told_once_until_the_price_was_above_it(url: str) -> None:
    async with stocked(url) as town:
        await watched(town, WatchKind.BELOW, target=Decimal(900), currency="TWD")
        for price in (850, 820, 1000, 850):
            town.tag(COIN, price)
            for _ in range(2):
                await town.look()
                await town.second_look()
                await town.second_look()
        assert [(kind, after) for kind, _, after in await town.told()] == [(BELOW, "850"), (BELOW, "850")]
        assert {said["target"] for _, said in await town.events()} == {"900"}


async def test_a_price_that_is_below_the_target_already_is_looked_at_again_at_once_and_told(url: str) -> None:
    async with stocked(url) as town:
        town.clock.turn(minutes=30)
        await watched(town, WatchKind.BELOW, target=Decimal(2000), currency="TWD")
        assert await town.told() == []
        await town.crawl()
        assert await town.told() == [(BELOW, None, "1000")]


async def test_a_thing_that_comes_back_is_told_and_one_empty_look_is_not(url: str) -> None:
    async with stocked(url) as town:
        await watched(town, WatchKind.BACK_IN_STOCK)
        town.tag(COIN, 1000, stock=0)
        await town.look()
        town.tag(COIN, 1000)
        await town.second_look()
        await town.look()
        assert await town.told() == [], "it was not away, as far as two looks know"
        town.tag(COIN, 1000, stock=0)
        await town.look()
        await town.second_look()
        town.tag(COIN, 1000)
        await town.look()
        await town.second_look()
        ((kind, said),) = await town.events()
        assert (kind, said["was"], said["availability"]) == (BACK, "out_of_stock", "in_stock")


async def test_a_price_that_was_seen_once_is_looked_at_again_when_its_watch_begins(url: str) -> None:
    async with open_priced(url) as town:
        town.tag(COIN, 1000)
        await town.write(post(1, COIN))
        await town.crawl()
        watch = await watched(town)
        assert watch.known is None
        assert watch.standing == "unconfirmed"
        town.clock.turn(minutes=10)
        await town.crawl()
        settled = await held(town, watch)
        assert settled.known is not None
        assert settled.known.amount == 1000
        assert await town.told() == [], "a first price is no change"


async def test_a_remembered_page_is_no_second_look_and_a_second_look_takes_none(url: str) -> None:
    async with stocked(url, CUP, 50, crawl_cache=True, crawl_cache_seconds=86_400) as town:
        watch = await watched(town)
        await town.second_look()
        town.tag(CUP, 40)
        await town.app.crawling.answers.prune(before=town.clock.now() + timedelta(days=30))
        await town.look()
        assert (await held(town, watch)).standing == "unconfirmed"
        town.tag(CUP, 50)  # the page is remembered with 40 by now
        await town.look(minutes=8)
        assert await town.told() == []
        await town.look()
        await town.second_look()
        assert await town.told() == []
        assert (await held(town, watch)).standing == "watching"


async def test_two_links_to_one_thing_seconds_apart_are_not_two_looks(url: str) -> None:
    async with stocked(url) as town:
        await watched(town)
        town.tag(COIN, 800)
        await town.look()
        town.clock.turn(seconds=30)
        await _saw(town, 800)
        assert await town.told() == []
        town.clock.turn(minutes=10)
        await _saw(town, 800)
        assert await town.told() == [(CHANGED, "1000", "800")]
        await town.crawl()
        assert len(await town.events()) == 1, "the look that was asked for comes and finds nothing new"


def seen_by(link_id: Any, amount: object, **about: Any) -> Crawled:
    """A visit as a handler hands it on."""
    name = ProductName(platform=SHOPEE, region="tw", shop_id="178926468", item_id="21448123549", url=COIN)
    facts = PageFacts(
        verdict=PageVerdict.OFFER, amount=Decimal(str(amount)), currency="TWD", availability=Availability.IN_STOCK
    )
    told: dict[str, Any] = {"outcome": CrawlOutcome.OFFER, "state": LinkState.CRAWLED, "facts": facts, **about}
    return Crawled(link_id=link_id, job_id=None, product=name, **told)


async def _saw(town: PricedTown, *amounts: object, **about: Any) -> None:
    link_id = await town.one("SELECT min(id) FROM links")
    async with town.app.database.transaction() as connection:
        visits = [seen_by(link_id, amount, **about) for amount in amounts]
        await town.app.writers.write(connection, town.app.writers.prepare(visits), town.clock.now())


async def test_what_is_rolled_back_is_neither_suspected_nor_told(url: str) -> None:
    async with stocked(url) as town:
        watch = await watched(town)
        before = await held(town, watch)
        link_id = await town.one("SELECT id FROM links")
        with pytest.raises(ZeroDivisionError):
            await _roll_back(town, seen_by(link_id, 800))
        assert await held(town, watch) == before
        assert await town.rows(AGAIN) == []
        town.clock.turn(hours=1)
        await _saw(town, 800)
        town.clock.turn(hours=1)
        with pytest.raises(ZeroDivisionError):
            await _roll_back(town, seen_by(link_id, 800))
        assert await town.told() == []


async def _roll_back(town: PricedTown, *visits: Crawled) -> None:
    async with town.app.database.transaction() as connection:
        await town.app.writers.write(connection, town.app.writers.prepare(list(visits)), town.clock.now())
        raise ZeroDivisionError


async def test_second_looks_that_are_written_at_the_same_time_tell_once(url: str) -> None:
    async with stocked(url) as town:
        await watched(town)
        town.clock.turn(hours=1)
        await _saw(town, 800)
        town.clock.turn(minutes=10)
        await asyncio.gather(*(_saw(town, 800) for _ in range(6)))
        assert await town.told() == [(CHANGED, "1000", "800")]


async def test_everything_is_watched_where_the_settings_say_so_and_rests_where_they_do_not(url: str) -> None:
    async with stocked(url, price_watch_percent=10) as town:
        (line,) = (await town.app.price_watches.page()).items
        assert (line.automatic, line.percent, line.standing) == (True, 10.0, "watching")
        with pytest.raises(BadWatch, match="price_watch_percent"):
            await town.app.price_watches.remove(line.id)
        town.tag(COIN, 800)
        await town.look()
        await town.second_look()
        assert await town.told() == [(CHANGED, "1000", "800")]
        explicit = await watched(town, percent=50.0)
        (now,) = (await town.app.price_watches.page()).items
        assert now.id == explicit.id, "an explicit watch replaces the automatic one"
    async with open_priced(url, clock=town.clock) as town:
        town.tag(COIN, 500)
        await town.look()
        await town.second_look()
        assert Decimal(await town.one("SELECT o.amount FROM products p JOIN offers o ON o.id = p.offer_id")) == 500
        assert len(await town.events()) == 1, "37 % is below the 50 of the one that is left"


async def test_an_automatic_watch_follows_the_setting(url: str) -> None:
    async with stocked(url, price_watch_percent=10) as town:
        clock = town.clock
    async with open_priced(url, clock=clock, price_watch_percent=30) as town:
        town.tag(COIN, 800)
        await town.look()
        (line,) = (await town.app.price_watches.page()).items
        assert (line.percent, line.standing) == (30.0, "watching")
    async with open_priced(url, clock=clock) as town:
        town.tag(COIN, 100)
        for _ in range(3):
            await town.look()
            await town.second_look()
        assert await town.told() == []


async def test_the_very_same_watch_is_there_once_however_many_ask_at_once(url: str) -> None:
    async with stocked(url) as town:
        wanted = WatchRequest(kind=WatchKind.CHANGED, product_id=await product_of(town), percent=10.0)
        done = await asyncio.gather(*(town.app.price_watches.add(wanted) for _ in range(5)))
        assert sorted(each.added for each in done) == [False, False, False, False, True]
        assert len((await town.app.price_watches.page()).items) == 1


async def test_a_watch_that_was_taken_back_tells_nothing(url: str) -> None:
    async with stocked(url) as town:
        watch = await watched(town)
        gone = await town.app.price_watches.remove(watch.id)
        assert gone.id == watch.id
        with pytest.raises(WatchNotFound):
            await town.app.price_watches.remove(watch.id)
        town.tag(COIN, 500)
        await town.look()
        await town.second_look()
        assert await town.told() == []
        assert (await town.app.price_watches.page()).items == []


async def test_what_is_not_there_cannot_be_watched(url: str) -> None:
    async with open_priced(url) as town:
        book = town.app.price_watches
        with pytest.raises(ProductNotFound):
            await book.add(WatchRequest(kind=WatchKind.CHANGED, product_id=ProductId(99), percent=1.0))
        with pytest.raises(ItemNotFound):
            await book.add(WatchRequest(kind=WatchKind.CHANGED, item_id=ItemId(99), percent=1.0))
        with pytest.raises(WatchNotFound):
            await book.get(WatchId(99))


async def test_watches_are_listed_a_page_at_a_time_and_by_what_they_watch(url: str) -> None:
    async with stocked(url) as town:
        product_id = await product_of(town)
        made = [await watched(town, percent=float(n)) for n in (10, 20, 30)]
        book = town.app.price_watches
        first = (await book.page(product_id=product_id, limit=2)).items
        rest = (await book.page(product_id=product_id, limit=2, after=first[-1].id)).items
        assert [each.id for each in (*first, *rest)] == [each.id for each in reversed(made)]
        assert (await book.page(product_id=ProductId(product_id + 1))).items == []


# Items


SHOP = SourceName("coinshop")


@asynccontextmanager
async def followed(url: str, *prices: object, **settings: Any) -> AsyncIterator[tuple[PricedTown, ItemId]]:
    """An item that a source was asked for twice."""
    async with open_priced(url, **settings) as town:
        (kept,) = await Items(town.app.database).add(
            [ItemRequest(title="1921 Morgan dollar", currency="USD")], town.clock.now()
        )
        await asked(town, kept.item_id, *prices)
        await asked(town, kept.item_id, *prices)
        yield town, kept.item_id


def listing(number: int, amount: object, town: PricedTown, **about: Any) -> PricePoint:
    told: dict[str, Any] = {"kind": PriceKind.ASK, "currency": "USD", "match_strength": 1.0, **about}
    return PricePoint(
        amount=Decimal(str(amount)),
        title="1921 Morgan dollar",
        url=f"https://coins.example/{number}",
        observed_at=town.clock.now(),
        dedupe_key=f"ext_{number}",
        **told,
    )


async def asked(
    town: PricedTown, item_id: ItemId, *prices: object, minutes: float = 60, source: SourceName = SHOP, **about: Any
) -> None:
    """One look at one source, some time later."""
    town.clock.turn(minutes=minutes)
    points = [listing(number, price, town) for number, price in enumerate(prices)]
    await tell(town, item_id, points, source=source, **about)


async def tell(
    town: PricedTown, item_id: ItemId, points: Sequence[PricePoint], *, source: SourceName = SHOP, **about: Any
) -> None:
    look = PriceFetch(item_id=item_id, source=source, points=points, listings=len(points), **about)
    async with town.app.database.transaction() as connection:
        await town.app.writers.write(connection, town.app.writers.prepare([look]), town.clock.now())


async def watched_item(town: PricedTown, item_id: ItemId, *prices: object, **line: Any) -> WatchLine:
    """Watched, and looked at once more."""
    wanted = WatchRequest(kind=WatchKind.BELOW if "target" in line else WatchKind.CHANGED, item_id=item_id, **line)
    watch = (await town.app.price_watches.add(wanted)).watch
    await asked(town, item_id, *prices)
    return watch


async def test_a_changed_estimate_is_reported_after_a_second_look(url: str) -> None:
    async with followed(url, 30, 32, 34) as (town, item_id):
        watch = await watched_item(town, item_id, 30, 32, 34, percent=10.0)
        now = await held(town, watch)
        assert now.known is not None
        assert now.known.amount == 32
        await asked(town, item_id, 24, 25, 26)
        assert (await held(town, watch)).standing == "unconfirmed"
        await asked(town, item_id, 24, 25, 26, minutes=5)
        assert await town.told() == [], "the pause is not over"
        await asked(town, item_id, 24, 25, 26, minutes=5)
        ((kind, said),) = await town.events()
        assert (kind, plain(said["before"]), plain(said["after"]), said["percent"]) == (CHANGED, "32", "25", "-21.88")
        assert (said["item_id"], said["product_id"], said["source"]) == (str(item_id), None, "coinshop")
        assert said["url"].startswith("https://coins.example/")
        for _ in range(3):
            await asked(town, item_id, 24, 25, 26)
        assert len(await town.events()) == 1


async def test_an_estimate_that_falls_below_its_target_is_told(url: str) -> None:
    async with followed(url, 30, 32, 34) as (town, item_id):
        await watched_item(town, item_id, 30, 32, 34, target=Decimal(28), currency="USD")
        for _ in range(3):
            await asked(town, item_id, 24, 25, 26)
        assert await town.told() == [(BELOW, "32", "25")]


async def test_an_estimate_that_was_back_at_the_second_look_is_not_told(url: str) -> None:
    async with followed(url, 30, 32, 34) as (town, item_id):
        watch = await watched_item(town, item_id, 30, 32, 34, percent=10.0)
        await asked(town, item_id, 24, 25, 26)
        await asked(town, item_id, 30, 32, 34)
        assert (await held(town, watch)).standing == "watching"
        assert await town.told() == []


async def test_a_source_that_failed_tells_nothing_of_an_item(url: str) -> None:
    async with followed(url, 30, 32, 34) as (town, item_id):
        watch = await watched_item(town, item_id, 30, 32, 34, percent=10.0)
        await asked(town, item_id, 24, 25, 26)
        suspicion = (await held(town, watch)).suspected
        await asked(town, item_id, problem="the source does not answer")
        assert (await held(town, watch)).suspected == suspicion
        assert await town.told() == []


async def test_an_answer_without_the_listings_that_moved_the_estimate_confirms_nothing(url: str) -> None:
    async with followed(url, 30, 32, 34) as (town, item_id):
        watch = await watched_item(town, item_id, 30, 32, 34, percent=10.0)
        await asked(town, item_id, 24, 25, 26)
        await asked(town, item_id)
        await asked(town, item_id, 99, source=SourceName("othershop"), minutes=20)
        assert (await held(town, watch)).suspected is not None
        assert await town.told() == []


async def test_a_remembered_answer_confirms_nothing(url: str) -> None:
    async with followed(url, 30, 32, 34) as (town, item_id):
        await watched_item(town, item_id, 30, 32, 34, percent=10.0)
        town.clock.turn(minutes=60)
        remembered = [listing(number, price, town) for number, price in enumerate((24, 25, 26))]
        await tell(town, item_id, remembered)
        town.clock.turn(minutes=60)
        await tell(town, item_id, remembered, cached=True)
        assert await town.told() == []
        await asked(town, item_id, 24, 25, 26)
        assert await town.told() == [(CHANGED, "32", "25")]


async def test_a_sale_need_not_be_seen_again(url: str) -> None:
    async with followed(url, 30) as (town, item_id):
        await watched_item(town, item_id, 30, percent=10.0)
        town.clock.turn(minutes=60)
        await tell(town, item_id, [listing(number, 20, town, kind=PriceKind.SOLD) for number in (7, 8, 9)])
        await asked(town, item_id, 30)
        assert [kind for kind, _ in await town.events()] == [CHANGED]


async def test_a_missing_rate_is_never_a_change(url: str) -> None:
    async with followed(url, 30) as (town, item_id):
        day = town.clock.now().date()
        await told_rate(town, DatedRate(base="EUR", quote="USD", day=day, rate=Decimal("1.10")))
        dear = {"currency": "EUR"}
        for _ in range(2):
            town.clock.turn(minutes=60)
            await tell(
                town, item_id, [listing(0, 30, town), listing(1, 60, town, **dear), listing(2, 60, town, **dear)]
            )
        watch = (
            await town.app.price_watches.add(WatchRequest(kind=WatchKind.CHANGED, item_id=item_id, percent=10.0))
        ).watch
        town.clock.turn(minutes=60)
        await tell(town, item_id, [listing(0, 30, town), listing(1, 60, town, **dear), listing(2, 60, town, **dear)])
        now = await held(town, watch)
        assert now.known is not None
        assert now.known.amount == 66
        town.clock.turn(days=40)  # the rate is too old to serve
        for _ in range(4):
            town.clock.turn(minutes=60)
            await tell(
                town, item_id, [listing(0, 30, town), listing(1, 60, town, **dear), listing(2, 60, town, **dear)]
            )
        worth = await town.one("SELECT estimate FROM valuations")
        assert Decimal(worth) == 30, "all that is left of it"
        now = await held(town, watch)
        assert (now.standing, await town.told()) == ("suspended", [])
        assert "no rate from EUR to USD is known" in str(now.problem)
        await told_rate(town, DatedRate(base="EUR", quote="USD", day=town.clock.now().date(), rate=Decimal("1.10")))
        for _ in range(2):
            town.clock.turn(minutes=60)
            await tell(
                town, item_id, [listing(0, 30, town), listing(1, 60, town, **dear), listing(2, 60, town, **dear)]
            )
        assert (await held(town, watch)).standing == "watching"
        assert await town.told() == []


async def told_rate(town: PricedTown, rate: DatedRate) -> None:
    await RateStore(town.app.database).save([rate], origin=None, now=town.clock.now())


async def test_second_looks_at_items_go_to_the_sources_of_what_moved_and_to_their_pages_first(url: str) -> None:
    async with stocked(url, COIN, 1000) as town:
        product_id = await product_of(town)
        (kept,) = await Items(town.app.database).add([ItemRequest(title="coin", currency="TWD")], town.clock.now())
        lane = SourceName("shopee")
        for price in (1000, 1000):
            town.clock.turn(minutes=60)
            point = listing(1, price, town, currency="TWD", product_id=product_id)
            await tell(town, kept.item_id, [point], source=lane)
        await town.app.price_watches.add(WatchRequest(kind=WatchKind.CHANGED, item_id=kept.item_id, percent=10.0))
        keys = {row.key for row in await town.rows(AGAIN)}
        assert keys == {f"again:{kept.item_id}:shopee", f"again:{COIN}"}
        due = {row.key: row.run_at for row in await town.rows(AGAIN)}
        assert due[f"again:{COIN}"] < due[f"again:{kept.item_id}:shopee"]


async def test_a_source_that_is_no_longer_configured_is_not_asked_and_nothing_breaks(url: str) -> None:
    async with followed(url, 30) as (town, item_id):
        await watched_item(town, item_id, 30, percent=10.0)
        await asked(town, item_id, 20)
        assert await town.rows(AGAIN) == []
        await asked(town, item_id, 20)
        assert await town.told() == [(CHANGED, "30", "20")]
