"""Posts and prices joined, over the API, on every database."""

import pytest

from mistnet.prices.model import ItemRequest
from mistnet.prices.store.items import Items
from mistnet.social.model import UserId
from mistnet.web.tokens import Scope
from tests.apis import PUBLIC, open_api
from tests.contract.test_lineage import promoted
from tests.harvests import change, post, tell
from tests.shelves import DAY, link, mention, offer, product
from tests.support import START

pytestmark = pytest.mark.common_sql

ANN = UserId(11)


async def test_the_posts_of_a_product_come_with_its_price_before_and_after(url: str) -> None:
    async with open_api(url) as api:
        cup = await promoted(api.app)
        path = f"/api/products/{cup}/lineage"
        found = [each async for page in api.pages(path, limit=1) for each in page]
        assert [each["post_id"] for each in found] == ["3", "2", "1"]
        assert found == (await api.ok(path))["items"]
        third, second, first = found
        assert (second["handle"], second["kind"], second["text"], second["gone_at"]) == ("ann", "own", "post 2", None)
        assert [each["place"] for each in second["urls"]] == ["text", "text", "entity"]
        assert third["kind"] == "repost"
        assert first["prices"]["before"] is None
        assert first["prices"]["before_age_seconds"] is None
        assert first["prices"]["change"] == {"percent": None, "why_not": "no price was known before"}
        prices = second["prices"]
        assert (prices["before"]["amount"], prices["before"]["currency"]) == ("200", "TWD")
        assert prices["at_post"] == prices["before"]
        assert (prices["before_age_seconds"], prices["after_delay_seconds"]) == (0, 2 * 86_400)
        assert (prices["after"]["amount"], prices["change"]["percent"], prices["unchanged"]) == ("150", "-25.00", False)
        assert [(each["days"], each["price"]["amount"], each["over"]) for each in prices["lowest"]] == [
            (7, "150", False),
            (30, "150", False),
        ]
        assert third["prices"]["at_post"] is None
        assert third["prices"]["before_age_seconds"] == 86_400
        assert (await api.get("/api/products/99/lineage")).status == 404
        assert "cursor" in (await api.get(f"{path}?cursor=nonsense")).problems


async def test_the_products_of_an_account_come_with_their_price_course(url: str) -> None:
    async with open_api(url) as api:
        cup = await promoted(api.app)
        bowl = await product(api.app.database, "9", title="A bowl")
        named = await link(api.app.database, "https://shopee.tw/product/1/9", product_id=bowl, state="crawled")
        await tell(api.app, post(5))
        await mention(api.app.database, named, 5)
        for who in ("11", "ann", "@Ann"):
            found = [each async for page in api.pages(f"/api/accounts/{who}/products", limit=1) for each in page]
            assert [each["product"]["id"] for each in found] == [str(bowl), str(cup)]
        assert found[0]["latest"] is None
        assert found[0]["change"]["why_not"] == "no price is known"
        told = found[1]
        assert (told["posts"], told["reposts"], told["first_post_id"], told["latest_post_id"]) == (2, 0, "1", "2")
        assert [each["amount"] for each in told["course"]] == ["200", "150", "180"]
        assert (told["lowest"]["amount"], told["highest"]["amount"], told["latest"]["amount"]) == ("150", "200", "180")
        assert told["at_first"] is None
        assert told["earlier"] == 0
        (repeated,) = (await api.ok("/api/accounts/bea/products"))["items"]
        assert (repeated["posts"], repeated["reposts"], repeated["at_first"]["amount"]) == (1, 1, "150")
        assert repeated["change"]["percent"] == "20.00"
        assert (await api.get("/api/accounts/ann/products?platform=threads")).status == 404
        assert (await api.get("/api/accounts/-77/products?platform=threads")).status == 404
        assert (await api.get("/api/accounts/nobody/products")).status == 404
        assert "platform" in (await api.get("/api/accounts/ann/products?platform=mastodon")).problems


async def test_the_products_of_an_item_are_listed_by_their_ids(url: str) -> None:
    async with open_api(url) as api:
        cup = await promoted(api.app)
        (kept,) = await Items(api.app.database).add([ItemRequest(title="a cup")], START)
        assert (await api.ok(f"/api/items/{kept.item_id}/products"))["items"] == []
        await change(
            api.app,
            "INSERT INTO price_points (item_id, source, dedupe_key, kind, amount, currency, title, url, "
            "match_strength, observed_at, first_seen_at, last_seen_at, product_id) SELECT "
            ":item, 'shopee', 'k', 'ask', 10, 'TWD', 't', 'u', 0.75, first_seen_at, first_seen_at, last_seen_at, id "
            "FROM products",
            item=kept.item_id,
        )
        (found,) = (await api.ok(f"/api/items/{kept.item_id}/products"))["items"]
        assert (found["product"]["id"], found["points"], found["strength"]) == (str(cup), 1, 0.75)
        assert (await api.get("/api/items/99/products")).status == 404


async def test_pages_show_marks_and_prices_and_a_token_is_needed_elsewhere(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        cup = await promoted(api.app)
        await offer(api.app.database, cup, "170", at=START + 8 * DAY, currency="TWD")
        shown = (await api.get(f"/products/{cup}", headers={"Accept": "text/html"})).text
        assert shown.count('class="mark ') == 3
        assert "No price was known" in shown
        assert "-25.00 %" in shown
        older = (await api.get(f"/products/{cup}?before=x.3", headers={"Accept": "text/html"})).text
        assert shown.count('class="post"') == 3
        assert older.count('class="post"') == 2
        listed = (await api.get("/people/x/11/products", headers={"Accept": "text/html"})).text
        assert "A cup" in listed
        assert 'class="spark"' in listed
        assert (await api.get("/people/threads/11/products", headers={"Accept": "text/html"})).status == 404
        assert (await api.get("/people/x/11/products?before=1.1", headers={"Accept": "text/html"})).status == 200
    async with open_api(sqlite_url, host=PUBLIC) as api:
        assert (await api.get(f"/api/products/{cup}/lineage")).status == 401
        reader = {"Authorization": f"Bearer {await api.token(Scope.READ)}"}
        assert (await api.get(f"/api/products/{cup}/lineage", headers=reader)).status == 200
