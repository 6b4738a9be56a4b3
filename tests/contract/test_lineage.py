"""Posts and prices joined, against a plain model of random posts, links and offers, on every database."""

import csv
import io
import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from mistnet.app import App
from mistnet.kit.database import Database
from mistnet.kit.export import BadExport, Format
from mistnet.prices.lineage import NoChange, Promotion
from mistnet.prices.model import ItemId, ItemRequest
from mistnet.prices.store import lineage as lineage_store
from mistnet.prices.store import related_products
from mistnet.prices.store.items import Items
from mistnet.prices.store.lineage import NAMES, Lineage, LineageSelection, Lined, export_lineage
from mistnet.prices.store.related_products import AccountProducts, ItemProducts, LinkedProduct, ProductCursor
from mistnet.shops.model import ProductId
from mistnet.shops.store import mentions as mention_pages
from mistnet.shops.store.mentions import MentionCursor
from mistnet.social.model import THREADS, Platform, UserId, X
from tests.databases import open_database
from tests.examples import count_examples
from tests.harvests import change, open_harvest, post, tell, user
from tests.lineages import AUTHORS, Offered, Story, Written, stories, tell_story
from tests.loops import LOOP
from tests.shelves import DAY, link, mention, offer, product
from tests.support import START

pytestmark = pytest.mark.common_sql

RANDOM = settings(
    max_examples=count_examples(15),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
HOUR = timedelta(hours=1)


async def all_posts(database: Database, story: Story, number: int, limit: int) -> list[Lined]:
    found: list[Lined] = []
    before: MentionCursor | None = None
    while True:
        page = await Lineage(database).page(ProductId(number), now=story.now, limit=limit, before=before)
        assert len(page.posts) <= limit
        found += page.posts
        if page.next is None:
            return found
        before = page.next


async def all_products(database: Database, platform: Platform, author: int, limit: int) -> list[LinkedProduct]:
    found: list[LinkedProduct] = []
    before: ProductCursor | None = None
    while True:
        page = await AccountProducts(database).page(platform, UserId(author), limit=limit, before=before)
        assert len(page.items) <= limit
        found += page.items
        if page.next is None:
            return found
        before = page.next


def in_order(some: list[Written]) -> list[Written]:
    """Each platform by its ids, the later head first."""
    lines = [
        sorted((each for each in some if each.platform == there), key=lambda each: each.id) for there in (X, THREADS)
    ]
    found: list[Written] = []
    while any(lines):
        latest = max((each for each in lines if each), key=lambda each: (each[-1].at, each[-1].id))
        found.append(latest.pop())
    return found


def percent(before: Offered | None, after: Offered | None) -> Decimal | None:
    if before is None or after is None or before.currency != after.currency or not before.amount:
        return None
    assert after.amount is not None
    return round((after.amount - before.amount) / before.amount * 100, 2)


def expect_prices(story: Story, number: int, at: datetime, lined: Lined) -> None:
    course, told = story.course(number), lined.prices
    earlier, later = [each for each in course if each.at <= at], [each for each in course if each.at > at]
    before = earlier[-1] if earlier else None
    seen_again = before is not None and before.last > at
    after = later[0] if later else before if seen_again else None
    assert (told.before and told.before.id) == (before and before.id)
    assert (told.after and told.after.id) == (after and after.id)
    assert (told.at_post and told.at_post.id) == (before.id if before and before.last >= at else None)
    age = None if before is None else max(at - before.last, timedelta()).total_seconds()
    assert told.before_age_seconds == (age if age is None else int(age))
    assert told.change.percent == percent(before, after)
    assert (told.change.percent is None) == (told.change.why_not is not None)
    assert told.unchanged == (after is not None and after is before)
    currency = before.currency if before else after.currency if after else None
    for each in told.lowest:
        until = at + timedelta(days=each.days)
        held = [before] if before and seen_again else []
        inside = [one for one in (*held, *later) if one.at <= until and one.currency == currency]
        lowest = min((one.amount for one in inside if one.amount is not None), default=None)
        assert (each.price and each.price.amount) == lowest
        assert each.over == (until <= story.now)


@RANDOM
@given(story=stories())
def test_a_products_posts_and_the_prices_around_them_are_those_of_the_model(url: str, story: Story) -> None:
    async def look() -> None:
        database = open_database(url)
        try:
            await tell_story(database, story)
            for number in range(1, story.products + 1):
                wanted = in_order(story.promoting(number))
                for limit, few in ((2, 0), (50, 400)):
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr(mention_pages, "_FEW", few)
                        found = await all_posts(database, story, number, limit)
                    assert [(each.post.platform, each.post.post_id) for each in found] == [
                        (each.platform, each.id) for each in wanted
                    ]
                for each, lined in zip(wanted, found, strict=True):
                    assert lined.post.kind == story.kind(each, number)
                    assert (lined.post.gone_at is not None) == each.gone
                    assert lined.post.author_id == each.author
                    expect_prices(story, number, each.at, lined)
        finally:
            await database.close()

    LOOP.run(look())


def expect_linked(story: Story, platform: Platform, author: int, found: list[LinkedProduct]) -> None:
    own = {
        number: posts
        for number in range(1, story.products + 1)
        if (posts := [p for p in story.promoting(number) if (p.platform, p.author) == (platform, author)])
    }
    wanted = sorted(own, key=lambda number: (max(each.id for each in own[number]), number), reverse=True)
    assert [each.product.id for each in found] == wanted
    for linked in found:
        posts, course = own[linked.product.id], story.course(linked.product.id)
        first = min(each.at for each in posts)
        assert (linked.mentions.posts, linked.mentions.reposts) == (len(posts), sum(each.reposted for each in posts))
        assert (linked.mentions.first_at, linked.mentions.latest_at) == (first, max(each.at for each in posts))
        earlier = [each for each in course if each.at <= first]
        since = [*earlier[-1:], *(each for each in course if each.at > first)]
        assert [each.id for each in linked.course] == [each.id for each in since]
        assert (linked.at_first and linked.at_first.id) == (earlier[-1].id if earlier else None)
        latest = since[-1] if since else None
        assert (linked.latest and linked.latest.id) == (latest and latest.id)
        amounts = [
            each.amount for each in since if latest and each.currency == latest.currency and each.amount is not None
        ]
        assert (linked.lowest and linked.lowest.amount) == (min(amounts) if amounts else None)
        assert (linked.highest and linked.highest.amount) == (max(amounts) if amounts else None)
        assert linked.change.percent == percent(earlier[-1] if earlier else None, latest)


@RANDOM
@given(story=stories())
def test_an_accounts_products_are_those_of_the_model_however_small_the_pages(url: str, story: Story) -> None:
    async def look() -> None:
        database = open_database(url)
        try:
            await tell_story(database, story)
            for platform in (X, THREADS):
                for author in AUTHORS:
                    expect_linked(story, platform, author, await all_products(database, platform, author, 50))
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr(related_products, "WINDOWS", (1, 1))
                        patch.setattr(related_products, "_STEP", 5)
                        patch.setattr(mention_pages, "_FEW", 0)
                        expect_linked(story, platform, author, await all_products(database, platform, author, 1))
        finally:
            await database.close()

    LOOP.run(look())


@RANDOM
@given(story=stories())
def test_an_export_has_each_post_with_each_product_once_with_the_same_prices(url: str, story: Story) -> None:
    async def look() -> None:
        database = open_database(url)
        try:
            await tell_story(database, story)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lineage_store, "_POSTS", 2)
                patch.setattr(mention_pages, "_FEW", 0)
                rows = await exported(database, story.now)
            wanted = sorted(
                (str(post.platform), post.id, number)
                for number in range(1, story.products + 1)
                for post in story.promoting(number)
            )
            assert [(row["platform"], int(row["post_id"]), int(row["product_id"])) for row in rows] == wanted
            told = {(row["platform"], row["post_id"], row["product_id"]): row for row in rows}
            for number in range(1, story.products + 1):
                for lined in await all_posts(database, story, number, 50):
                    row = told[str(lined.post.platform), str(lined.post.post_id), str(number)]
                    before = lined.prices.before
                    assert row["before_amount"] == (None if before is None else f"{before.amount:f}")
                    assert row["kind"] == lined.post.kind
                    change = lined.prices.change.percent
                    assert row["change_percent"] == (None if change is None else f"{change:f}")
        finally:
            await database.close()

    LOOP.run(look())


async def exported(database: Database, now: datetime, **wanted: Any) -> list[dict[str, Any]]:
    written = io.BytesIO()
    rows = await export_lineage(database, LineageSelection(**wanted), Format.JSONL, written, now=now)
    found = [json.loads(line) for line in written.getvalue().splitlines()]
    assert len(found) == rows
    return found


async def promoted(app: App) -> ProductId:
    """A cup that cost 200, then 150 and 180; three posts, one of them before any price was known."""
    database = app.database
    await tell(app, user(UserId(11), "ann"), user(UserId(12), "bea"))
    for number, author, day in ((1, 11, -5.0), (2, 11, 2.0), (3, 12, 6.0)):
        told = post(number, author, reposts=2 if number == 3 else None)
        await tell(app, told)
        at = START + day * DAY
        await change(app, "UPDATE posts SET created_at = :at WHERE id = :id", at=_moment(app, at), id=number)
    cup = await product(database, "2", title="A cup")
    item = await link(database, "https://shopee.tw/product/1/2", product_id=cup, state="crawled")
    short = await link(database, "https://s.shopee.tw/abc", kind="short", state="resolved", leads_to=item)
    shorter = await link(database, "https://t.example/1", lane="web", kind="short", state="resolved", leads_to=short)
    await mention(database, shorter, 1)
    await mention(database, item, 2)
    await mention(database, short, 2, nr=1)
    await mention(database, item, 2, place="entity", nr=2)
    await mention(database, short, 3)
    await offer(database, cup, "200", at=START, last_seen_at=START + 3 * DAY)
    await offer(database, cup, "150", at=START + 4 * DAY, last_seen_at=START + 5 * DAY)
    await offer(database, cup, "1.50", at=START + 4.5 * DAY, doubt="a hundredth")
    await offer(database, cup, "180", at=START + 7 * DAY)
    return cup


def _moment(app: App, at: datetime) -> Any:
    return at if app.database.dialect == "postgresql" else at.replace(tzinfo=None).isoformat(" ", "microseconds")


async def test_each_post_stands_once_with_its_price_before_at_and_after(url: str) -> None:
    async with open_harvest(url) as app:
        cup = await promoted(app)
        page = await Lineage(app.database).page(cup, now=START + 20 * DAY, limit=10)
        third, second, first = page.posts
        assert [each.post.post_id for each in page.posts] == [3, 2, 1]
        assert [each.post.kind for each in page.posts] == [Promotion.REPOST, Promotion.OWN, Promotion.OWN]
        assert len(second.post.urls) == 3
        assert first.prices.before is None
        assert first.prices.before_age_seconds is None
        assert first.prices.at_post is None
        assert first.prices.change.why_not is NoChange.NONE_BEFORE
        assert first.prices.after is not None
        assert (first.prices.after.amount, first.prices.after_delay_seconds) == (Decimal(200), 5 * DAY.total_seconds())
        assert second.prices.before == second.prices.at_post == first.prices.after
        assert second.prices.before_age_seconds == 0
        assert second.prices.after is not None
        assert (second.prices.after.amount, second.prices.after_delay_seconds) == (
            Decimal(150),
            2 * DAY.total_seconds(),
        )
        assert second.prices.change.percent == Decimal("-25.00")
        assert [(each.days, each.price and each.price.amount, each.over) for each in second.prices.lowest] == [
            (7, Decimal(150), True),
            (30, Decimal(150), False),
        ]
        assert third.prices.at_post is None
        assert third.prices.before_age_seconds == DAY.total_seconds()
        assert third.prices.change.percent == Decimal("20.00")


async def test_a_price_that_was_only_seen_again_is_unchanged(url: str) -> None:
    async with open_harvest(url) as app:
        cup = await promoted(app)
        await change(app, "DELETE FROM offers WHERE amount <> :first AND doubt IS NULL", first=_amount(app, "200"))
        page = await Lineage(app.database).page(cup, now=START + 20 * DAY, limit=10)
        told = {each.post.post_id: each.prices for each in page.posts}
        assert told[2].unchanged  # type: ignore[index]
        assert told[2].change.percent == 0  # type: ignore[index]
        assert told[2].after_delay_seconds == DAY.total_seconds()  # type: ignore[index]
        assert told[3].after is None  # type: ignore[index]
        assert told[3].change.why_not is NoChange.NONE_AFTER  # type: ignore[index]


def _amount(app: App, amount: str) -> Any:
    return Decimal(amount) if app.database.dialect == "postgresql" else amount


async def test_currencies_are_never_compared(url: str) -> None:
    async with open_harvest(url) as app:
        cup = await promoted(app)
        await change(app, "UPDATE offers SET currency = 'USD' WHERE amount = :amount", amount=_amount(app, "150"))
        page = await Lineage(app.database).page(cup, now=START + 20 * DAY, limit=10)
        second = page.posts[1].prices
        assert second.change.why_not is NoChange.OTHER_CURRENCY
        assert [each.price and each.price.amount for each in second.lowest] == [Decimal(180), Decimal(180)]


async def test_posts_that_are_gone_and_products_that_are_gone_keep_their_lineage(url: str) -> None:
    async with open_harvest(url) as app:
        cup = await promoted(app)
        at = _moment(app, START + 9 * DAY)
        await change(
            app,
            "INSERT INTO missing (platform, what, id, reason, asked_at) VALUES ('x', 'post', 2, 'gone', :at)",
            at=at,
        )
        await change(app, "UPDATE products SET gone_at = :at", at=at)
        page = await Lineage(app.database).page(cup, now=START + 20 * DAY, limit=10)
        assert [each.post.gone_at for each in page.posts] == [None, START + 9 * DAY, None]
        (linked,) = (await AccountProducts(app.database).page(X, UserId(11), limit=5)).items
        assert linked.product.gone_at == START + 9 * DAY
        assert linked.at_first is None
        assert linked.change.why_not is NoChange.NONE_BEFORE
        assert [str(each.amount) for each in linked.course] == ["200", "150", "180"]
        assert (linked.mentions.posts, linked.mentions.first_post_id, linked.mentions.latest_post_id) == (2, 1, 2)


async def test_the_products_an_items_points_came_from_are_listed(url: str) -> None:
    async with open_harvest(url) as app:
        cup, bowl = await promoted(app), await product(app.database, "9")
        at = _moment(app, START)
        (kept,) = await Items(app.database).add([ItemRequest(title="a cup")], START)
        for place, (number, strength) in enumerate(((cup, 0.5), (cup, 0.9), (bowl, 0.4), (None, 1.0))):
            await change(
                app,
                "INSERT INTO price_points (item_id, source, dedupe_key, kind, amount, currency, title, url, "
                "match_strength, observed_at, first_seen_at, last_seen_at, product_id) VALUES "
                "(:item, 'shopee', :key, 'ask', 10, 'TWD', 't', 'u', :strength, :at, :at, :at, :product)",
                item=kept.item_id,
                key=str(place),
                strength=strength,
                at=at,
                product=number,
            )
        store = ItemProducts(app.database)
        found = (await store.page(kept.item_id, limit=10)).items
        assert [(each.product.id, each.points, each.strength) for each in found] == [(cup, 2, 0.9), (bowl, 1, 0.4)]
        assert [each.product.id for each in (await store.page(kept.item_id, after=cup, limit=10)).items] == [bowl]
        assert await store.has_item(kept.item_id)
        assert not await store.has_item(ItemId(kept.item_id + 1))


async def test_an_export_can_be_of_one_author_or_span_and_csv_has_all_columns(url: str) -> None:
    async with open_harvest(url) as app:
        await promoted(app)
        now = START + 20 * DAY
        assert [row["post_id"] for row in await exported(app.database, now)] == ["1", "2", "3"]
        assert [row["post_id"] for row in await exported(app.database, now, author="@Ann")] == ["1", "2"]
        assert [row["post_id"] for row in await exported(app.database, now, since=START)] == ["2", "3"]
        assert [row["post_id"] for row in await exported(app.database, now, until=START + 2 * DAY)] == ["1"]
        with pytest.raises(BadExport, match="no stored user has the handle 'nobody'"):
            await exported(app.database, now, author="nobody")
        written = io.BytesIO()
        await export_lineage(app.database, LineageSelection(), Format.CSV, written, now=now)
        rows = list(csv.DictReader(io.StringIO(written.getvalue().decode(), newline="")))
        assert list(rows[0]) == list(NAMES)
        assert (rows[0]["before_amount"], rows[0]["no_change_because"]) == ("", "no price was known before")
        assert (rows[1]["before_amount"], rows[1]["after_amount"], rows[1]["change_percent"]) == (
            "200",
            "150",
            "-25.00",
        )
        assert (rows[1]["held_at_post"], rows[1]["lowest_30_over"], rows[2]["kind"]) == ("true", "false", "repost")
