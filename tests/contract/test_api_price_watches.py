"""Price watches over the API and on the pages of products, on every database."""

from __future__ import annotations

from typing import Any

import pytest

from mistnet.prices.model import ItemRequest
from mistnet.prices.store.items import Items
from mistnet.web.tokens import Scope
from tests.apis import PUBLIC, Api, open_api
from tests.harvests import rows
from tests.shelves import link, offer, product
from tests.support import START

pytestmark = pytest.mark.common_sql

PAGE = {"Accept": "text/html"}


async def stocked(api: Api) -> tuple[str, str]:
    """A product with an offer that two looks saw, and an item."""
    database = api.app.database
    thing = await product(database, "9007199254740993", title="A <teacup>")
    page = await link(database, "https://shopee.tw/product/1/9007199254740993", product_id=thing, state="crawled")
    await offer(database, thing, "250.50", link_id=page, times_seen=2)
    (kept,) = await Items(database).add([ItemRequest(title="1921 Morgan dollar")], START)
    return str(thing), str(kept.item_id)


async def added(api: Api, **wanted: Any) -> dict[str, Any]:
    answer = await api.post("/api/price-watches", json=wanted)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def test_a_watch_is_made_shown_listed_and_taken_back(url: str) -> None:
    async with open_api(url) as api:
        thing, item = await stocked(api)
        made = await added(api, kind="changed", product_id=thing, percent=10)
        watch = made["watch"]
        assert made["added"]
        assert (watch["product_id"], watch["item_id"], watch["percent"]) == (thing, None, 10)
        assert watch["known"] == {
            "at": "2026-03-01T12:00:00Z",
            "amount": "250.50",
            "currency": "TWD",
            "availability": watch["known"]["availability"],
        }
        assert (watch["standing"], watch["title"], watch["events"]) == ("watching", "A <teacup>", 0)
        again = await added(api, kind="changed", product_id=thing, percent=10)
        assert (again["added"], again["watch"]["id"]) == (False, watch["id"])
        below = (await added(api, kind="below", product_id=thing, target="200.00", currency="TWD"))["watch"]
        assert below["target"] == "200.00"
        of_item = (await added(api, kind="below", item_id=item, target="30", currency="USD"))["watch"]
        assert (of_item["standing"], of_item["known"]) == ("waiting", None)
        listed = [each["id"] async for page in api.pages("/api/price-watches", limit=2) for each in page]
        assert listed == [of_item["id"], below["id"], watch["id"]]
        own = (await api.ok(f"/api/price-watches?item_id={item}"))["items"]
        assert [each["id"] for each in own] == [of_item["id"]]
        own = (await api.ok(f"/api/price-watches?product_id={thing}"))["items"]
        assert [each["id"] for each in own] == [below["id"], watch["id"]]
        assert (await api.ok(f"/api/price-watches/{watch['id']}"))["id"] == watch["id"]
        gone = await api.ask("DELETE", f"/api/price-watches/{watch['id']}")
        assert (gone.status, gone.json["id"]) == (200, watch["id"])
        assert (await api.get(f"/api/price-watches/{watch['id']}")).status == 404
        assert (await api.ask("DELETE", f"/api/price-watches/{watch['id']}")).status == 404


async def test_a_watch_whose_price_is_below_its_target_already_asks_for_a_second_look(url: str) -> None:
    async with open_api(url) as api:
        thing, _ = await stocked(api)
        watch = (await added(api, kind="below", product_id=thing, target="300", currency="TWD"))["watch"]
        assert (watch["standing"], watch["suspected"]["amount"]) == ("unconfirmed", "250.50")
        (job,) = await rows(api.app, "SELECT kind, lane FROM jobs WHERE key LIKE 'again:%'")
        assert tuple(job) == ("crawl", "shopee")


@pytest.mark.parametrize(
    ("wanted", "status", "problem"),
    [
        ({"kind": "changed", "product_id": "99", "percent": 10}, 404, "there is no product"),
        ({"kind": "changed", "item_id": "99", "percent": 10}, 404, "there is no item 99"),
        ({"kind": "changed", "percent": 10}, 400, "either a product or an item"),
        ({"kind": "changed", "product_id": "1"}, 400, "the percentage"),
        ({"kind": "below", "product_id": "1", "target": "9"}, 400, "the currency of"),
        ({"kind": "back_in_stock", "item_id": "1"}, 400, "and no stock"),
        ({"kind": "changed", "product_id": "9" * 19, "percent": 10}, 404, "9" * 19),
    ],
)
async def test_what_cannot_be_watched_is_refused_with_the_reason(
    url: str, wanted: dict[str, Any], status: int, problem: str
) -> None:
    async with open_api(url) as api:
        answer = await api.post("/api/price-watches", json=wanted)
        assert answer.status == status, answer
        assert problem in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"kind": "sometimes", "product_id": "1"}, "kind"),
        ({"kind": "changed", "product_id": 1, "percent": 10}, "product_id"),
        ({"kind": "changed", "product_id": "1", "percent": -1}, "percent"),
        ({"kind": "below", "product_id": "1", "target": 9.9, "currency": "TWD"}, "target"),
        ({"kind": "below", "product_id": "1", "target": "1e9", "currency": "TWD"}, "target"),
        ({"kind": "below", "product_id": "1", "target": "9", "currency": "NT$"}, "currency"),
        ({"kind": "changed", "product_id": "1", "percent": 10, "cheap": True}, "cheap"),
    ],
)
async def test_a_field_that_cannot_be_is_named(url: str, wanted: dict[str, Any], field: str) -> None:
    async with open_api(url) as api:
        answer = await api.post("/api/price-watches", json=wanted)
        assert answer.status == 400
        assert field in answer.problems


async def test_who_may_only_read_sees_watches_and_makes_none(url: str) -> None:
    async with open_api(url, host=PUBLIC) as api:
        thing, _ = await stocked(api)
        reads = {"Authorization": f"Bearer {await api.token(Scope.READ)}"}
        assert (await api.get("/api/price-watches", headers=reads)).status == 200
        wanted = {"kind": "changed", "product_id": thing, "percent": 10}
        assert (await api.post("/api/price-watches", json=wanted, headers=reads)).status == 403


async def test_the_page_of_an_item_shows_its_watches(url: str) -> None:
    async with open_api(url) as api:
        _, item = await stocked(api)
        empty = (await api.get(f"/items/{item}", headers=PAGE)).text
        assert f"mistnet prices watch --item {item} --change 10" in empty
        await added(api, kind="below", item_id=item, target="29.90", currency="USD")
        shown = (await api.get(f"/items/{item}", headers=PAGE)).text
        assert "No price is confirmed yet." in shown
        assert "29.90" in shown


async def test_the_page_of_a_product_shows_how_its_watches_stand(url: str) -> None:
    async with open_api(url) as api:
        thing, _ = await stocked(api)
        empty = (await api.get(f"/products/{thing}", headers=PAGE)).text
        assert f"mistnet prices watch --product {thing} --change 10" in empty
        await added(api, kind="changed", product_id=thing, percent=12.5)
        await added(api, kind="below", product_id=thing, target="300", currency="TWD")
        await added(api, kind="back_in_stock", product_id=thing)
        shown = (await api.get(f"/products/{thing}", headers=PAGE)).text
        for words in (
            "a change of more than 12.5 %",
            "back in stock",
            "Not confirmed yet: ",
            "watching",
            "unconfirmed",
        ):
            assert words in shown
