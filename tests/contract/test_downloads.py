"""Downloads of the dashboard's lists: all rows that the page's filters leave, in the formats of exports."""

import csv
import io
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from mistnet.social.accounts import AccountTracked
from mistnet.social.model import Post, PostId, UserId, X
from mistnet.web.tokens import Scope
from tests.apis import PUBLIC, Api, open_api
from tests.browser.furnished import ANN, furnish
from tests.harvests import days_ago, tell, user
from tests.shelves import link, product
from tests.support import START

pytestmark = pytest.mark.common_sql

PAGE = {"Accept": "text/html"}
LISTS = ("/accounts", "/segments", "/feeds", "/links", "/products", "/items", "/jobs", "/runs", "/alerts")
OFFERED = re.compile(r'href="(/download/[^"]+)"')


async def lines(api: Api, path: str) -> list[Mapping[str, Any]]:
    answer = await api.get(f"/download/{path}", headers=PAGE)
    assert answer.status == 200, answer.text
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return [msgspec.json.decode(line) for line in answer.text.splitlines()]


async def test_a_download_has_the_rows_that_the_filters_of_its_page_leave(url: str) -> None:
    async with open_api(url) as api:
        database = api.app.database
        own = [UserId(11), UserId(12)]
        people = [user(11, handle="ann", name="Ann"), user(12, handle="bea", name="Bea")]
        posts = [
            Post(
                platform=X,
                id=PostId(100 + place),
                author_id=own[place % 2],
                text=f"a {'rare' if place < 2 else 'plain'} coin",
                created_at=days_ago(10 - place),
                conversation_id=PostId(100 if place < 3 else 103),
                raw=b"{}",
            )
            for place in range(4)
        ]
        await tell(api.app, *people, *(AccountTracked(platform=X, user_id=each) for each in own), *posts)
        for place, lane in enumerate(("ebay", "ebay", "web")):
            await link(database, f"https://{lane}.example/{place}", lane=lane, state="gone" if place else "new")
        await link(database, "https://shopee.tw/product/1/2")
        await product(database, "7", title="Silver coin")
        await product(database, "8", title="Gold coin", gone_at=START)

        async def of(path: str, column: str) -> list[Any]:
            return [row[column] for row in await lines(api, path)]

        assert await of("accounts.jsonl?q=be", "handle") == ["bea"]
        assert await of("accounts.jsonl?state=protected", "handle") == []
        assert await of("posts.jsonl?q=rare", "id") == ["100", "101"]
        assert await of("posts.jsonl?q=coin&author=@ann", "id") == ["100", "102"]
        assert await of("posts.jsonl?account=12", "author_handle") == ["bea", "bea"]
        assert await of("posts.jsonl?conversation=100&platform=x", "id") == ["100", "101", "102"]
        day = days_ago(8).date()
        assert await of(f"posts.jsonl?q=coin&since={day}&until={day}", "id") == ["102"]
        assert await of("links.jsonl?lane=ebay&state=gone", "url") == ["https://ebay.example/1"]
        assert await of("links.jsonl?q=web.example", "lane") == ["web"]
        assert await of("links.jsonl?q=https://shopee.tw/any-slug-i.1.2", "lane") == ["shopee"]
        assert await of("products.jsonl?q=silver&shop=shopee&price=unpriced", "item_id") == ["7"]
        assert await of("products.jsonl?price=gone", "item_id") == ["8"]


async def test_csv_for_excel_has_ids_as_text_and_no_formulas(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        await tell(api.app, user(11, handle="ann", name="=1+1"), AccountTracked(platform=X, user_id=UserId(11)))
        for query, user_id, name in (("", "11", "=1+1"), ("?excel=yes", "'11", "'=1+1")):
            answer = await api.get(f"/download/accounts.csv{query}", headers=PAGE)
            assert answer.headers["Content-Disposition"] == 'attachment; filename="accounts.csv"'
            assert answer.text.startswith("\ufeff") is bool(query)
            (row,) = csv.DictReader(io.StringIO(answer.text.removeprefix("\ufeff")))
            assert (row["user_id"], row["name"]) == (user_id, name)


async def test_every_download_that_a_page_offers_is_there(url: str) -> None:
    async with open_api(url) as api:
        there = await furnish(api.app)
        offered: set[str] = set()
        for path in (*there.paths, "/spend", "/alerts", "/watches"):
            found = OFFERED.findall((await api.get(path, headers=PAGE)).text)
            assert found or path not in LISTS, f"{path} has no download"
            offered |= {each.replace("&amp;", "&") for each in found}
        kinds = {each.split("/")[2].partition(".")[0] for each in offered}
        tables = {"accounts", "posts", "links", "products", "offers", "items", "price_points", "segment_members"}
        assert kinds >= tables | {"jobs", "alerts", "feeds", "runs", "segments"}
        for path in sorted(offered):
            answer = await api.get(path, headers=PAGE)
            assert answer.status == 200, path
        assert f"/download/posts.csv?account={ANN}" in offered


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("ledger.csv", 404),
        ("jobs.csv?state=%00&account=not%20a%20handle", 200),
        ("posts.xml", 422),
        ("posts.csv?q=a&since=2027-13-45", 400),
        ("posts.csv?author=nobody", 404),
        ("posts.csv?q=-only", 400),
        ("posts.csv?account=0", 404),
        ("links.csv?state=%00&lane=%27", 200),
        ("segment_members.csv?segment=none", 404),
    ],
)
async def test_nonsense_is_refused_before_anything_is_sent(sqlite_url: str, path: str, status: int) -> None:
    async with open_api(sqlite_url) as api:
        answer = await api.get(f"/download/{path}", headers=PAGE)
        assert answer.status in (status, 400 if status == 422 else status), answer.text


async def test_downloads_need_permission_to_read(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        reader = await api.token(Scope.READ)
        for headers, status in (({**PAGE, "Authorization": f"Bearer {reader}"}, 200), ({}, 401)):
            assert (await api.get("/download/accounts.csv", headers=headers)).status == status


async def test_jobs_are_downloaded_by_the_filters_of_their_page(url: str) -> None:
    async with open_api(url) as api:
        there = await furnish(api.app)
        of_kind = "jobs.jsonl?state=gaps&kind=backfill"
        (dead,) = await lines(api, of_kind)
        assert (dead["id"], dead["kind"]) == (str(there.dead), "backfill")
        assert dead["args"]["user_id"] == ANN
        assert await lines(api, f"{of_kind}&account=@nobody_is_so_called") == []
        assert [row["id"] for row in await lines(api, f"{of_kind}&account={ANN}")] == [str(there.dead)]
        (run,) = await lines(api, "runs.jsonl")
        assert run["id"] == str(there.run)
        assert [row["name"] for row in await lines(api, "segments.jsonl")][:1] == ["posts"]
