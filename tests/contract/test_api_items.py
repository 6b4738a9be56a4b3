"""Items over the API, on every database."""

from datetime import timedelta
from typing import Any

import pytest

from mistnet.governor.model import SourceName
from mistnet.prices.model import ItemId
from mistnet.shops.model import PriceKind
from mistnet.web.tokens import Scope
from tests.apis import PUBLIC, open_api
from tests.followed import follow, point, tell_prices
from tests.harvests import rows
from tests.support import START

pytestmark = pytest.mark.common_sql

CENT = {
    "title": "1909-S VDB Lincoln cent",
    "ref": "cent",
    "attributes": {"Year": 1909, "mint mark": "S"},
    "exclude": ["Copy"],
    "sources": ["ebay"],
    "urls": ["https://www.ebay.com/itm/155932418766"],
    "currency": "usd",
    "every_hours": 12,
}


async def test_items_are_added_once_changed_by_their_ref_and_shown_whole(url: str) -> None:
    async with open_api(url) as api:
        answer = await api.post("/api/items", json={"items": [CENT, {"title": "A dime"}]})
        assert answer.status == 200, answer
        first, second = answer.json["items"]
        assert answer.json["problems"] == []
        assert [each["outcome"] for each in (first, second)] == ["added", "added"]
        assert (first["item"]["attributes"], first["item"]["currency"]) == ({"mint_mark": "S", "year": "1909"}, "USD")
        assert (first["item"]["exclude"], first["item"]["every_hours"]) == (["copy"], 12.0)
        again = await api.post("/api/items", json={"items": [CENT, {**CENT, "title": "Another"}]})
        assert [each["outcome"] for each in again.json["items"]] == ["same", "changed"]
        assert {each["item"]["id"] for each in again.json["items"]} == {first["item"]["id"]}
        shown = await api.ok(f"/api/items/{first['item']['id']}")
        assert (shown["title"], shown["worth"], shown["valuation"], shown["looks"]) == ("Another", None, None, [])
        assert shown["next_look_at"] == "2026-03-01T12:00:00Z"
        listed = [each["id"] async for page in api.pages("/api/items", limit=1) for each in page]
        assert listed == [second["item"]["id"], first["item"]["id"]]
        assert [each["ref"] for each in (await api.ok("/api/items?ref=cent"))["items"]] == ["cent"]
        assert (await api.ok("/api/items?q=DIME&state=active"))["items"][0]["title"] == "A dime"
        assert (await api.get("/api/items/99")).status == 404
        assert "state" in (await api.get("/api/items?state=nonsense")).problems


async def test_bad_rows_are_listed_one_by_one_and_skipped_only_on_request(url: str) -> None:
    async with open_api(url) as api:
        bad = [
            {"title": "Good"},
            {"title": "?!", "currency": "ABC"},
            {"title": "Bad", "sources": ["ebya"], "urls": ["https://shopee.tw.evil.example/x-i.1.2"]},
        ]
        refused = await api.post("/api/items", json={"items": bad})
        assert refused.status == 400
        assert sorted(refused.problems) == ["items.1.currency", "items.1.title", "items.2.sources", "items.2.urls"]
        assert "Did you mean 'ebay'?" in refused.problems["items.2.sources"]
        assert await rows(api.app, "SELECT COUNT(*) FROM items") == [(0,)]
        taken = await api.post("/api/items", json={"items": bad, "skip_bad": True})
        assert [(each["index"], each["item"]["title"]) for each in taken.json["items"]] == [(0, "Good")]
        assert [(each["index"], each["field"], each["value"]) for each in taken.json["problems"]] == [
            (1, "title", "?!"),
            (1, "currency", "ABC"),
            (2, "sources", "ebya"),
            (2, "urls", "https://shopee.tw.evil.example/x-i.1.2"),
        ]
        for sent, field in (
            ({"items": []}, "items"),
            ({"items": [{"title": "x", "every_hours": 0.01}]}, "items.0.every_hours"),
            ({"items": [{"title": "x", "colour": "red"}]}, "items.0.colour"),
            ({"items": [{"title": 7}]}, "items.0.title"),
        ):
            assert field in (await api.post("/api/items", json=sent)).problems


async def test_an_item_is_changed_paused_and_removed_and_its_points_stay(url: str) -> None:
    async with open_api(url) as api:
        item = await follow(api.app, ref="cent", attributes={"year": "1909", "grade": "MS65"}, currency="USD")
        await tell_prices(api.app, item, [point("700", "a", START)])
        path = f"/api/items/{item}"
        sent = {"attributes": {"grade": None, "Color": "red"}, "exclude": ["copy"], "currency": None}
        changed = await api.ask("PATCH", path, json=sent)
        assert changed.json["outcome"] == "changed"
        after = changed.json["item"]
        assert (after["attributes"], after["exclude"]) == ({"color": "red", "year": "1909"}, ["copy"])
        assert (after["currency"], after["ref"], after["title"]) == (None, "cent", "1909-S VDB Lincoln cent")
        assert (await api.ask("PATCH", path, json={})).json["outcome"] == "same"
        assert (await api.ask("PATCH", path, json={"state": "paused"})).json["item"]["state"] == "paused"
        assert (await api.ok(path))["next_look_at"] is None
        assert "title" in (await api.ask("PATCH", path, json={"title": None})).problems
        assert "currency" in (await api.ask("PATCH", path, json={"currency": "QQQ"})).problems
        other = await follow(api.app, "Other", ref="other")
        assert "ref" in (await api.ask("PATCH", f"/api/items/{other}", json={"ref": "cent"})).problems
        assert (await api.ask("DELETE", path)).json["state"] == "removed"
        assert (await api.ask("DELETE", path)).status == 404
        assert (await api.ask("PATCH", path, json={"state": "active"})).status == 404
        assert len((await api.ok(f"{path}/points"))["items"]) == 1
        assert (await api.ok("/api/items?state=removed"))["items"][0]["worth"]["estimate"] == "700.00"


async def test_points_and_history_come_in_pages_with_exact_amounts_and_reasons(url: str) -> None:
    async with open_api(url) as api:
        item = await follow(api.app)
        good = [point(f"{100 + n}.10", f"g{n}", START) for n in range(5)]
        await tell_prices(api.app, item, [*good, point("9000", "z", START, condition="used")])
        api.clock.turn(days=1)
        later = point("150", "bid", START + timedelta(days=1), kind=PriceKind.BID, bid_count=3)
        await tell_prices(api.app, item, [later], source=SourceName("shopee"), listings=4)
        path = f"/api/items/{item}"
        found = [each async for page in api.pages(f"{path}/points", limit=2) for each in page]
        assert [each["amount"] for each in found] == ["150", "9000", "104.10", "103.10", "102.10", "101.10", "100.10"]
        assert "outlier" in found[1]["left_out"]
        assert (found[1]["weight"], found[1]["condition"], found[2]["left_out"]) == (None, "used", None)
        assert round(sum(each["weight"] or 0 for each in found), 3) == 1
        assert [each["id"] for each in (await api.ok(f"{path}/points?kind=bid"))["items"]] == [found[0]["id"]]
        assert (await api.ok(f"{path}/points?source=nowhere"))["items"] == []
        shown = await api.ok(path)
        assert shown["worth"]["estimate"] == shown["valuation"]["estimate"]
        assert (shown["valuation"]["points"], shown["valuation"]["points_left_out"]) == (6, 1)
        assert [each["point_id"] for each in shown["valuation"]["left_out"]] == [found[1]["id"]]
        assert [(each["source"], each["listings"], each["points"]) for each in shown["looks"]] == [
            ("ebay", 6, 6),
            ("shopee", 4, 1),
        ]
        past = [each async for page in api.pages(f"{path}/history", limit=1) for each in page]
        assert [each["points"] for each in past] == [6, 5]
        assert past[0]["estimate"] == shown["worth"]["estimate"]


async def test_earlier_prices_of_a_listing_are_listed_with_its_point(url: str) -> None:
    async with open_api(url) as api:
        item, other = await follow(api.app), await follow(api.app, "Other")
        for day, amount in enumerate(("150", "149", "148.50")):
            told = point(amount, "lot", START + timedelta(days=day))
            await tell_prices(api.app, item, [told, point("9", "still", START)])
        points = {each["amount"]: each["id"] for each in (await api.ok(f"/api/items/{item}/points"))["items"]}
        moved, still = (f"/api/items/{item}/points/{points[amount]}/versions" for amount in ("148.50", "9"))
        versions = [each async for page in api.pages(moved, limit=1) for each in page]
        assert [(each["nr"], each["amount"]) for each in versions] == [(2, "149"), (1, "150")]
        assert (await api.ok(still))["items"] == []
        for nobody in (f"/api/items/{item}/points/777/versions", f"/api/items/{other}/points/{points['9']}/versions"):
            assert (await api.get(nobody)).status == 404


async def test_asking_makes_a_price_job_for_each_source_and_joins_what_is_under_way(url: str) -> None:
    async with open_api(url) as api:
        item = await follow(api.app, sources=(SourceName("ebay"), SourceName("shopee")))
        path = f"/api/items/{item}/ask"
        one = await api.post(path, json={"sources": ["ebay"]})
        assert (one.status, one.json) == (202, {"created": 1, "duplicates": 0})
        both = await api.post(path)
        assert (both.json["created"], both.json["duplicates"]) == (1, 1)
        made = await rows(api.app, "SELECT lane, key FROM jobs WHERE kind = 'price' ORDER BY lane")
        assert made == [("ebay", f"{item}:ebay"), ("shopee", f"{item}:shopee")]
        assert "source" in (await api.post(path, json={"sources": ["ebya"]})).problems
        await api.ask("PATCH", f"/api/items/{item}", json={"state": "paused"})
        assert "resume" in (await api.post(path)).problems["item"]
        assert (await api.post("/api/items/99/ask")).status == 404


async def test_a_token_that_may_only_read_follows_nothing(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        reader = {"Authorization": f"Bearer {await api.token(Scope.READ)}"}
        item: ItemId = await follow(api.app)
        assert (await api.get("/api/items", headers=reader)).status == 200
        assert (await api.post("/api/items", headers=reader, json={"items": [CENT]})).status == 403
        for method, path in (("PATCH", ""), ("DELETE", ""), ("POST", "/ask")):
            sent: dict[str, Any] = {"json": {}} if method != "DELETE" else {}
            assert (await api.ask(method, f"/api/items/{item}{path}", headers=reader, **sent)).status == 403
        assert (await api.get("/api/items")).status == 401
