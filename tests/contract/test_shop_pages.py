"""What the pages of links, products and lanes read, on every database."""

from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest
from sqlalchemy import insert

from mistnet.app import App
from mistnet.governor.model import SourceName
from mistnet.operations.monitoring import LaneStore
from mistnet.queue.model import JobState, Lane
from mistnet.queue.store.operations import GapFilter
from mistnet.queue.tables import job_errors, job_history
from mistnet.shops.model import LinkId, LinkKind, LinkState
from mistnet.shops.store import link_pages
from mistnet.shops.store.link_pages import LinkFilter, LinkPages
from mistnet.shops.store.mentions import MentionCursor, MentionPages, read_mention_cursor
from mistnet.shops.store.product_pages import Asks, ProductFilter, ProductPages
from mistnet.shops.tables import links
from mistnet.social.model import THREADS, Platform, Post, PostId, UserId, X
from mistnet.sources.controls import lane_statuses, percentile
from tests.harvests import open_harvest, post, tell, user
from tests.shelves import DAY, crawl, job, link, link_row, mention, offer, product
from tests.support import START

pytestmark = pytest.mark.common_sql

ANN, BEA = UserId(11), UserId(12)


def threads_post(post_id: int, days: float) -> Post:
    return Post(
        platform=THREADS,
        id=PostId(post_id),
        author_id=BEA,
        text="look",
        url=f"https://www.threads.com/@bea/post/{post_id}",
        created_at=START - days * DAY,
        raw=b"{}",
    )


async def test_links_are_listed_by_lane_state_and_kind_a_page_at_a_time(url: str) -> None:
    async with open_harvest(url) as app:
        database, pages = app.database, LinkPages(app.database)
        for place in range(12):
            lane, state, kind = ("shopee", "ebay")[place % 2], ("new", "gone", "crawled")[place % 3], "item"
            await link(database, f"https://{lane}.example/{place}", lane=lane, state=state, kind=kind)
        await link(database, "https://s.shopee.tw/abc", kind="short")

        async def listed(**wanted: object) -> list[int]:
            found: list[int] = []
            before: int | None = None
            while True:
                page = await pages.list(LinkFilter(**wanted, before=before, limit=2))  # type: ignore[arg-type]
                found += [each.id for each in page.items]
                before = page.next
                if before is None:
                    return found

        assert await listed() == list(range(13, 0, -1))
        assert await listed(lane="ebay") == [12, 10, 8, 6, 4, 2]
        assert await listed(state=LinkState.GONE) == [11, 8, 5, 2]
        assert await listed(lane="ebay", state=LinkState.GONE) == [8, 2]
        assert await listed(kind=LinkKind.SHORT) == [13]
        assert await listed(kind=LinkKind.ITEM, lane="shopee", state=LinkState.NEW) == [7, 1]
        assert await listed(kind=LinkKind.CODE) == []
        assert await listed(words="EBAY.example/1") == [12, 2]
        assert await listed(words="%") == []
        assert await listed(words="example", lane="ebay", state=LinkState.NEW) == [10, 4]


async def test_words_are_looked_for_in_parts_and_no_link_is_left_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_pages, "WINDOW", 3)
    async with open_harvest(url) as app:
        for place in range(10):
            await link(app.database, f"https://shop.example/{'rare' if place in (0, 1, 8) else 'usual'}/{place}")
        pages, found, asked = LinkPages(app.database), [], 0
        before: int | None = None
        while True:
            page = await pages.list(LinkFilter(words="rare", before=before, limit=1))
            found += [each.id for each in page.items]
            before, asked = page.next, asked + 1
            if before is None:
                break
        assert found == [9, 2, 1]
        assert asked < 9


async def test_one_link_shows_where_it_leads_what_leads_to_it_and_its_crawls(url: str) -> None:
    async with open_harvest(url) as app:
        database, pages = app.database, LinkPages(app.database)
        thing = await product(database, "2")
        item = await link(database, "https://shopee.tw/product/1/2", state="crawled", product_id=thing)
        short = await link(database, "https://s.shopee.tw/abc", kind="short", state="resolved", leads_to=item)
        await crawl(database, item, "blocked", problem="captcha", http_status=403)
        await crawl(database, item, "offer", at=START + DAY, product_id=thing, body=b"page")
        found = await pages.one(item)
        assert found is not None
        assert (found.title, found.product_id, found.mentions) == ("Thing 2", thing, 0)
        assert [(each.outcome, each.kept) for each in (await pages.crawls(item, limit=5)).items] == [
            ("offer", True),
            ("blocked", False),
        ]
        latest = await pages.crawls(item, limit=1)
        assert [each.problem for each in (await pages.crawls(item, before=latest.next, limit=5)).items] == ["captcha"]
        assert [each.id for each in await pages.leading_here(item, limit=5)] == [short]
        assert [each.id for each in await pages.of_product(thing, limit=5)] == [item]
        assert await pages.called("https://s.shopee.tw/abc") == short
        assert await pages.called("https://nowhere.example/") is None
        assert await pages.one(LinkId(99)) is None
        assert await pages.latest() == (2, 2)


async def test_mentions_of_all_platforms_come_newest_first_with_every_verbatim_url(url: str) -> None:
    async with open_harvest(url) as app:
        database, pages = app.database, MentionPages(app.database)
        await tell(app, user(ANN, "ann"))
        bea = user(BEA, "bea")
        await tell(app, type(bea)(platform=THREADS, id=BEA, detail=bea.detail, handle="bea", raw=b"{}"))
        await tell(app, post(100), post(200), post(300), threads_post(50, 0.5), threads_post(40, 400))
        thing = await product(database)
        item = await link(database, "https://shopee.tw/product/1/2", product_id=thing)
        middle = await link(database, "https://shp.ee/b", kind="short", leads_to=item)
        short = await link(database, "https://s.shopee.tw/a", kind="short", leads_to=middle)
        other = await link(database, "https://shopee.tw/product/1/3")
        for post_id, own in ((100, item), (200, short), (300, other)):
            await mention(database, own, post_id, url=f"https://verbatim.example/{post_id}")
        await mention(database, item, 200, nr=1, place="entity", url="https://verbatim.example/again")
        for post_id in (50, 40):
            await mention(database, middle, post_id, platform=THREADS)
        reach = await pages.reach_of_product(thing)
        assert sorted(reach) == [item, middle, short]
        assert sorted(await pages.reach_of_link(middle)) == [middle, short]
        whole = await pages.page(reach, limit=10)
        assert whole.next is None
        order = [(str(each.platform), each.post_id) for each in whole.items]
        assert sorted(order) == [("threads", 40), ("threads", 50), ("x", 100), ("x", 200)]
        assert [each.created_at for each in whole.items] == sorted((p.created_at for p in whole.items), reverse=True)
        twice = next(each for each in whole.items if each.post_id == 200)
        assert [(each.url, str(each.place), each.link_id) for each in twice.urls] == [
            ("https://verbatim.example/200", "text", short),
            ("https://verbatim.example/again", "entity", item),
        ]
        paged: list[tuple[str, int]] = []
        before: MentionCursor | None = None
        while True:
            page = await pages.page(reach, before=before, limit=1)
            paged += [(str(each.platform), each.post_id) for each in page.items]
            before = page.next
            if before is None:
                break
        assert paged == order
        assert (await pages.page([other], limit=5)).items[0].handle == "ann"
        assert (await pages.page([], limit=5)).items == []
        links = LinkPages(database)
        await mention(database, item, 100, nr=1, place="entity", url="https://verbatim.example/both")
        counts = {each.id: each.mentions for each in (await links.list(LinkFilter())).items}
        assert counts == {item: 4, middle: 3, short: 1, other: 1}, "posts, by way of short links too"
        for each, count in counts.items():
            assert len((await pages.page(await pages.reach_of_link(each), limit=10)).items) == count
            found = await links.one(each)
            assert found is not None
            assert found.mentions == count


async def test_pages_of_mentions_skip_no_post_whose_id_and_time_disagree(url: str) -> None:
    """Ids of Threads do not grow with time alone."""
    async with open_harvest(url) as app:
        pages = MentionPages(app.database)
        bea = user(BEA, "bea")
        await tell(app, type(bea)(platform=THREADS, id=BEA, detail=bea.detail, handle="bea", raw=b"{}"))
        hours = {50: 9, 40: 1, 30: 7, 20: 8, 10: 2}
        await tell(app, *(threads_post(post_id, ago) for post_id, ago in hours.items()))
        own = await link(app.database, "https://shopee.tw/product/1/2")
        for post_id in hours:
            await mention(app.database, own, post_id, platform=THREADS)
        seen: list[int] = []
        before: MentionCursor | None = MentionCursor()
        while before is not None:
            page = await pages.page([own], before=before, limit=1)
            seen, before = [*seen, *(each.post_id for each in page.items)], page.next
        assert seen == [50, 40, 30, 20, 10]


async def test_pages_of_mentions_go_on_at_any_number_of_platforms(url: str) -> None:
    async with open_harvest(url) as app:
        pages, bea, places = MentionPages(app.database), user(BEA, "bea"), [Platform("bluesky"), THREADS, X]
        own = await link(app.database, "https://shopee.tw/product/1/2")
        for number, platform in enumerate(places):
            await tell(app, type(bea)(platform=platform, id=BEA, detail=bea.detail, handle="bea", raw=b"{}"))
            for post_id in range(1, 4):
                written = threads_post(post_id, 10 * number + post_id)
                await tell(app, msgspec.structs.replace(written, platform=platform))
                await mention(app.database, own, post_id, platform=platform)
        for limit in range(1, 10):
            seen: list[tuple[str, int]] = []
            before: MentionCursor | None = MentionCursor()
            while before is not None:
                page = await pages.page([own], before=before, limit=limit)
                seen += [(each.platform, each.post_id) for each in page.items]
                before = page.next and read_mention_cursor(str(page.next))
            assert sorted(seen) == [(platform, post_id) for platform in places for post_id in range(1, 4)]


@pytest.mark.parametrize("written", ["", "x", "x.0", "x.1~", "1.2", "x.1.2", "X.1", "x.99999999999999999999"])
def test_what_is_no_cursor_of_mentions_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="the cursor that the page before gave"):
        read_mention_cursor(written)


async def test_more_than_a_thousand_links_that_lead_to_a_product_all_count(url: str) -> None:
    many = 1_100
    async with open_harvest(url) as app:
        database, pages = app.database, MentionPages(app.database)
        await tell(app, user(ANN, "ann"), post(100))
        thing = await product(database)
        item = await link(database, "https://shopee.tw/product/1/2", product_id=thing)
        rows = [link_row(f"https://s.shopee.tw/{nr}", kind="short", leads_to=item) for nr in range(many)]
        async with database.transaction() as connection:
            await connection.execute(insert(links), rows)
        reach = await pages.reach_of_product(thing)
        assert len(reach) == len(set(reach)) == many + 1
        await mention(database, LinkId(max(reach)), 100)
        assert [each.post_id for each in (await pages.page(reach, limit=5)).items] == [100]


async def test_products_are_listed_with_what_they_cost_now_and_narrowed(url: str) -> None:
    async with open_harvest(url) as app:
        database, pages = app.database, ProductPages(app.database)
        cup = await product(database, "2", title="A Teacup", brand="Mug & Co")
        bowl = await product(database, "3", platform="ebay", title="A bowl", gone_at=START)
        plain = await product(database, "4", title=None)
        await offer(database, cup, "250")
        await offer(database, cup, "199", at=START + DAY, list_amount=Decimal("250.00"))
        await offer(database, cup, "19900", at=START + 2 * DAY, doubt="a hundred times the last")

        async def ids(**wanted: object) -> list[int]:
            return [each.id for each in (await pages.list(ProductFilter(**wanted))).items]  # type: ignore[arg-type]

        assert await ids() == [plain, bowl, cup]
        assert await ids(shop="ebay") == [bowl]
        assert await ids(words="teaCUP") == [cup]
        assert await ids(words="mug &") == [cup]
        assert await ids(words="_") == []
        assert await ids(asks=Asks.GONE) == [bowl]
        assert await ids(asks=Asks.PRICED) == [cup]
        assert await ids(asks=Asks.UNPRICED, shop="shopee") == [plain]
        first = await pages.list(ProductFilter(limit=2))
        assert first.next == bowl
        assert [each.id for each in (await pages.list(ProductFilter(before=first.next))).items] == [cup]
        found = await pages.one(cup)
        assert found is not None
        assert (found.amount, found.list_amount, found.currency) == (Decimal(199), Decimal("250.00"), "TWD")
        assert await pages.one(type(cup)(99)) is None
        assert await pages.latest() == (3, 3)


async def test_offers_come_latest_first_with_their_evidence_and_doubts_apart(url: str) -> None:
    async with open_harvest(url) as app:
        database, pages = app.database, ProductPages(app.database)
        cup = await product(database)
        same = [await offer(database, cup, str(100 + place), at=START) for place in range(3)]
        late = await offer(database, cup, None, at=START + DAY, availability=None)
        doubted = await offer(database, cup, "9", at=START - DAY, doubt="it fell by half")
        odd = await offer(database, cup, "8", at=START - 2 * DAY, evidence=b'{"not":"a list"}')
        order = [late, *reversed(same), doubted, odd]
        assert [each.id for each in (await pages.offers(cup, limit=9)).items] == order
        paged: list[int] = []
        before: int | None = None
        while paged == [] or before is not None:
            found = await pages.offers(cup, before=before, limit=2)
            paged += [each.id for each in found.items]
            before = found.next
        assert paged == order
        assert [each.id for each in (await pages.offers(cup, limit=9, doubted=True)).items] == [doubted]
        assert doubted not in [each.id for each in (await pages.offers(cup, limit=9, doubted=False)).items]
        last = (await pages.offers(cup, limit=9)).items[-1]
        assert (last.evidence, last.unread) == ([], '{"not":"a list"}')
        newest = (await pages.offers(cup, limit=2)).items[1]
        assert newest.evidence[0].path == "json-ld:offers.price"


async def _history(app: App, lane: str, state: str = "succeeded", *, ago: timedelta) -> None:
    at = app.database.clock.now() - ago
    row = {"kind": "crawl", "lane": lane, "class": 2, "state": state, "args": {}, "attempts": 0, "fence": 1}
    async with app.database.transaction() as connection:
        ((taken,),) = (await connection.exec_driver_sql("SELECT count(*) FROM job_history")).all()
        times = {"run_at": at, "created_at": at, "finished_at": at}
        await connection.execute(insert(job_history), {**row, **times, "id": 1_000 + taken})


async def test_lanes_tell_what_waits_what_went_through_and_how_long_links_waited(url: str) -> None:
    async with open_harvest(url) as app:
        database, now = app.database, app.database.clock.now()
        for state in ("pending", "pending", "queued", "running", "retryable", "dead", "failed"):
            await job(database, "shopee", state)
        old = await job(database, "shopee", "dead", run_at=now - DAY)
        await job(database, "elsewhere")
        for ago in (timedelta(seconds=30), timedelta(minutes=30), timedelta(hours=2)):
            await _history(app, "shopee", ago=ago)
        await _history(app, "shopee", "cancelled", ago=timedelta(seconds=1))
        async with database.transaction() as connection:
            for job_id, fence in ((5, 1), (6, 1), (6, 2), (7, 1), (1_000, 1)):
                failed = {"job_id": job_id, "fence": fence, "at": now, "worker": "w", "error": "e"}
                await connection.execute(insert(job_errors), failed)
        for place in range(20):
            own = await link(database, f"https://shopee.tw/product/1/{place}", first_seen_at=now - DAY)
            await crawl(database, own, at=now - DAY + timedelta(seconds=60 * (place + 1)))
            again = await link(database, f"https://shopee.tw/product/2/{place}", first_seen_at=now - place * DAY / 100)
            await crawl(database, again, at=now)
        await app.sources.store.pause(SourceName("ebay"), "too dear", now=now)
        lanes = {each.lane: each for each in await lane_statuses(app)}
        assert list(lanes)[:4] == ["ebay", "shopee", "taobao", "web"]
        shopee = lanes[Lane("shopee")]
        counted = {"pending": 2, "queued": 1, "running": 1, "retryable": 1, "dead": 2, "failed": 1}
        assert shopee.states == counted
        assert (shopee.dead_letters, shopee.total, shopee.due) == (2, 8, 3)
        assert (shopee.succeeded, shopee.retried, shopee.dead, shopee.failed) == (2, 3, 1, 1)
        assert shopee.jobs_per_second == pytest.approx(1 / 60)
        assert shopee.crawled == 20
        assert shopee.wait_p50 == 9 * DAY / 100
        assert shopee.wait_p95 == 18 * DAY / 100
        assert (lanes[Lane("ebay")].source, shopee.source) == ("paused", "serving")
        assert (lanes[Lane("threads")].source, lanes[Lane("segments")].source) == ("no key", None)
        assert "too dear" in (lanes[Lane("ebay")].why or "")
        assert lanes[Lane("elsewhere")].states == {JobState.PENDING: 1}
        letters = await LaneStore(database).dead_letters(lane="shopee", limit=2)
        assert [each.id for each in letters.items] == [old, 7]
        rest = await LaneStore(database).dead_letters(lane="shopee", before=7, limit=2)
        assert [(each.id, each.state) for each in rest.items] == [(6, "dead")]
        only = await LaneStore(database).dead_letters(states=[JobState.FAILED], limit=9)
        assert [each.id for each in only.items] == [7]


async def test_a_dead_letter_names_its_link_and_a_lane_is_requeued(url: str) -> None:
    async with open_harvest(url) as app:
        database, now = app.database, app.database.clock.now()
        name = "https://shopee.tw/product/1/2"
        own = await link(database, name, url="https://shopee.tw/cup-i.1.2")
        dead = await job(database, "shopee", "dead", key=name)
        failed = await job(database, "shopee", "failed", key="another")
        elsewhere = await job(database, "ebay", "dead", key="third")
        letters = {each.id: each for each in (await LaneStore(database).dead_letters(limit=9)).items}
        assert (letters[dead].link_id, letters[dead].url) == (own, "https://shopee.tw/cup-i.1.2")  # type: ignore[index]
        assert letters[failed].link_id is None  # type: ignore[index]
        done = await app.operations.requeue(GapFilter(lanes=["shopee"], states=[JobState.DEAD]), now=now)
        assert (done.requeued, done.held) == ([dead], [])
        assert sorted(each.id for each in (await LaneStore(database).dead_letters(limit=9)).items) == [
            failed,
            elsewhere,
        ]


@pytest.mark.parametrize(("count", "p50", "p95"), [(1, 1, 1), (2, 1, 2), (20, 10, 19), (100, 50, 95)])
def test_a_percentile_is_one_of_the_values(count: int, p50: int, p95: int) -> None:
    values = [timedelta(seconds=place + 1) for place in range(count)]
    assert percentile(values, 0.50) == timedelta(seconds=p50)
    assert percentile(values, 0.95) == timedelta(seconds=p95)
    assert percentile([], 0.5) is None
