"""Links, products and lanes over the API, on every database."""

from decimal import Decimal

import pytest

from mistnet.social.model import UserId
from mistnet.web.tokens import Scope
from tests.apis import PUBLIC, Api, open_api
from tests.harvests import post, rows, tell, user
from tests.shelves import DAY, crawl, job, link, mention, offer, product
from tests.support import START

pytestmark = pytest.mark.common_sql

ANN = UserId(11)
LARGE = 2**60 + 1


async def stocked(api: Api) -> tuple[int, int, int]:
    """A product, the link that names it, and a short link that leads there."""
    database = api.app.database
    await tell(api.app, user(ANN, "ann"), post(LARGE), post(LARGE + 1))
    thing = await product(database, "9007199254740993", title="A teacup")
    item = await link(
        database, "https://shopee.tw/product/1/9007199254740993", product_id=thing, state="crawled", crawled_at=START
    )
    short = await link(database, "https://s.shopee.tw/abc", kind="short", state="resolved", leads_to=item)
    await mention(database, item, LARGE, url="https://shopee.tw/cup-i.1.9007199254740993?utm_source=x")
    await mention(database, short, LARGE + 1, url="https://s.shopee.tw/abc")
    await offer(database, thing, "250.50", link_id=item)
    await offer(database, thing, "0.10", at=START + DAY, doubt="it fell to nothing", amount_max=Decimal("0.20"))
    await crawl(database, item, "blocked", problem="captcha")
    await crawl(database, item, "offer", at=START + DAY)
    return thing, item, short


async def test_links_are_listed_and_one_is_shown_with_its_crawls_and_mentions(url: str) -> None:
    async with open_api(url) as api:
        thing, item, short = await stocked(api)
        listed = (await api.ok("/api/links"))["items"]
        assert [each["id"] for each in listed] == [str(short), str(item)]
        assert [each["mentions"] for each in listed] == [1, 2]
        assert [page[0]["id"] async for page in api.pages("/api/links", limit=1)] == [str(short), str(item)]
        for asked, found in (
            ("lane=shopee&state=crawled", [item]),
            ("kind=short", [short]),
            ("lane=ebay", []),
            ("q=S.SHOPEE", [short]),
            ("q=https://shopee.tw/x-i.1.9007199254740993?sp_atk=1", [item]),
            ("q=https://nowhere.example/x", []),
        ):
            assert [each["id"] for each in (await api.ok(f"/api/links?{asked}"))["items"]] == list(map(str, found))
        shown = await api.ok(f"/api/links/{item}")
        assert (shown["product_id"], shown["title"], shown["item_id"]) == (str(thing), "A teacup", None)
        assert [each["id"] for each in shown["leading_here"]] == [str(short)]
        assert [each["outcome"] for each in shown["crawls"]] == ["offer", "blocked"]
        assert (await api.ok(f"/api/links/{short}"))["target"]["id"] == str(item)
        crawls = [each["outcome"] async for page in api.pages(f"/api/links/{item}/crawls", limit=1) for each in page]
        assert crawls == ["offer", "blocked"]
        path = f"/api/links/{item}/mentions"
        mentions = [each async for page in api.pages(path, limit=1) for each in page]
        assert [each["post_id"] for each in mentions] == [str(LARGE + 1), str(LARGE)]
        assert mentions[1]["urls"] == [
            {
                "link_id": str(item),
                "url": "https://shopee.tw/cup-i.1.9007199254740993?utm_source=x",
                "place": "text",
            }
        ]
        assert (await api.get("/api/links/99")).status == 404
        assert (await api.get("/api/links/99999999999999999999")).status == 400
        assert "state" in (await api.get("/api/links?state=nonsense")).problems


async def test_products_show_exact_amounts_and_offers_their_evidence(url: str) -> None:
    async with open_api(url) as api:
        thing, item, _ = await stocked(api)
        (listed,) = (await api.ok("/api/products?price=priced&q=teacup&shop=shopee"))["items"]
        assert (listed["id"], listed["amount"], listed["currency"]) == (str(thing), "250.50", "TWD")
        assert listed["item_id"] == "9007199254740993"
        assert (await api.ok("/api/products?price=gone"))["items"] == []
        assert await api.ok(f"/api/products/{thing}") == listed
        path = f"/api/products/{thing}/offers"
        found = [each async for page in api.pages(path, limit=1) for each in page]
        assert [(each["amount"], each["amount_max"], each["doubt"]) for each in found] == [
            ("0.10", "0.20", "it fell to nothing"),
            ("250.50", None, None),
        ]
        assert found[1]["evidence"][0]["path"] == "json-ld:offers.price"
        assert found[1]["link_id"] == str(item)
        assert [each["amount"] for each in (await api.ok(f"{path}?doubted=false"))["items"]] == ["250.50"]
        mentions = (await api.ok(f"/api/products/{thing}/mentions"))["items"]
        assert [each["post_id"] for each in mentions] == [str(LARGE + 1), str(LARGE)]
        assert (await api.get("/api/products/99/offers")).status == 404
        assert "price" in (await api.get("/api/products?price=cheap")).problems


async def test_the_api_lists_lanes_and_requeues_their_dead_letters(url: str) -> None:
    async with open_api(url) as api:
        database = api.app.database
        dead = [await job(database, "shopee", "dead", key=f"https://shopee.tw/{n}") for n in range(3)]
        failed = await job(database, "shopee", "failed", key="https://shopee.tw/gone")
        await job(database, "ebay", "dead", key="https://www.ebay.com/itm/1")
        lanes = {each["lane"]: each for each in (await api.ok("/api/lanes"))["items"]}
        assert (lanes["shopee"]["states"], lanes["web"]["states"]) == ({"dead": 3, "failed": 1}, {})
        assert lanes["shopee"]["source"] == "serving"
        path = "/api/lanes/shopee/dead-letters"
        letters = [each["id"] async for page in api.pages(path, limit=1) for each in page]
        assert letters == [str(each) for each in (failed, *reversed(dead))]
        assert [each["id"] for each in (await api.ok(f"{path}?state=failed"))["items"]] == [str(failed)]
        answer = await api.post("/api/lanes/shopee/requeue")
        assert answer.json == {"requeued": [str(each) for each in dead], "held": [], "problem": None}
        again = await api.post("/api/lanes/shopee/requeue", json={"failed": True})
        assert again.json["requeued"] == [str(failed)]
        assert (await api.post("/api/lanes/nowhere/requeue")).status == 404
        assert "failed" in (await api.post("/api/lanes/shopee/requeue", json={"failed": 7})).problems
        left = await rows(api.app, "SELECT lane, state FROM jobs WHERE state <> 'pending'")
        assert left == [("ebay", "dead")]


async def test_a_token_that_may_only_read_requeues_nothing(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        reader = {"Authorization": f"Bearer {await api.token(Scope.READ)}"}
        assert (await api.get("/api/lanes", headers=reader)).status == 200
        assert (await api.post("/api/lanes/shopee/requeue", headers=reader)).status == 403
