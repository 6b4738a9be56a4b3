"""The dashboard's pages without a browser: on every database, for every sort of visitor."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import aiohttp
import msgspec
import pytest

from mistnet.shops.store.link_pages import LinkPages
from mistnet.social.accounts import AccountTracked, Frontier, HistoryJudged, SuggestionClosed, Swept
from mistnet.social.jobs import args
from mistnet.social.model import Metrics, Post, PostId, UserId, X
from mistnet.social.store.account_pages import AccountPages
from mistnet.web.tokens import Scope
from tests.apis import PUBLIC, Api, open_api
from tests.browser.furnished import ANN, furnish
from tests.harvests import change, days_ago, end_badly, post, rows, tell, user
from tests.shelves import link, mention
from tests.support import START

pytestmark = pytest.mark.common_sql

PAGE = {"Accept": "text/html"}
LEADS_AWAY = re.compile(
    r'^<a [^>]*href="https?://[^"]*" target="_blank" rel="noopener noreferrer nofollow"|^<(input|td) '
)
"""Tags that may contain an outside address: links for a visitor to follow, form inputs and table cells."""


def bearer(token: str) -> dict[str, str]:
    return {**PAGE, "Authorization": f"Bearer {token}"}


async def test_every_page_is_whole_on_every_database(url: str) -> None:
    async with open_api(url, x_api_key="a-real-key-of-somebody") as api:
        for path in (await furnish(api.app)).paths:
            answer = await api.get(path, headers=PAGE)
            assert answer.status == 200, (path, answer.text[:2000])
            assert answer.headers["Content-Type"].startswith("text/html")
            assert answer.text.rstrip().endswith("</html>")
            assert "<script>document" not in answer.text, path
            assert "a-real-key" not in answer.text, path
            outward = [tag for tag in re.findall(r"<[^>]+>", answer.text) if re.search(r"""=["']?(https?:)?//""", tag)]
            assert [tag for tag in outward if not LEADS_AWAY.search(tag)] == [], path


async def test_a_run_whose_jobs_are_dead_is_shown_as_failed(url: str) -> None:
    async with open_api(url) as api:
        run = await api.app.runs.start(["ann"], 5, asked_by="local", now=api.app.database.clock.now())
        await change(api.app, "UPDATE jobs SET state = 'dead', attempts = max_attempts, last_error = 'it broke'")
        assert "it broke" in (await api.get(f"/runs/{run.id}", headers=PAGE)).text
        assert 'class="state failed"' in (await api.get("/runs", headers=PAGE)).text


async def test_a_run_is_cancelled_on_its_page(url: str) -> None:
    async with open_api(url) as api:
        run = await api.app.runs.start(["ann"], 5, asked_by="local", now=api.app.database.clock.now())
        path = f"/runs/{run.id}"
        assert f'action="{path}/cancel"' in (await api.get(path, headers=PAGE)).text
        assert await follow(api, f"{path}/cancel") == f"{path}?did=run-cancelled"
        shown = (await api.get(path, headers=PAGE)).text
        assert 'class="state failed"' in shown
        assert "/cancel" not in shown


async def test_products_and_links_pages_name_the_lanes_that_links_wait_for(sqlite_url: str) -> None:
    said = "2 links wait: the lanes ebay and shopee are not in <code>crawl_lanes</code>"
    for lanes, waits in (([], True), (["shopee", "ebay"], False)):
        async with open_api(sqlite_url, crawl_lanes=lanes) as api:
            if waits:
                await link(api.app.database, "https://shopee.tw/product/1/2")
                await link(api.app.database, "https://www.ebay.com/itm/3", lane="ebay")
                await link(api.app.database, "https://www.ebay.com/itm/4", lane="ebay", state="gone")
            for path in ("/products", "/links"):
                assert (said in (await api.get(path, headers=PAGE)).text) is waits, path


async def test_empty_pages_say_what_to_do_next(sqlite_url: str) -> None:
    hints = {
        "/": "First steps",
        "/accounts": "Type a handle above.",
        "/jobs": "There are no jobs to do.",
        "/runs": "No run yet.",
        "/search": "Search all posts that are stored",
        "/sources": "MISTNET_X_API_KEY",
        "/search?q=nothing": "Try fewer words",
        "/accounts?q=nobody": "No account matches.",
        "/jobs?state=dead": "No job matches.",
        "/feeds": "Type a name above.",
        "/links": "No link was found yet",
        "/links?lane=ebay": "No link matches.",
        "/products": "on the lanes that <code>crawl_lanes</code> names",
        "/products?q=nothing": "No product matches.",
        "/lanes": "nothing to do",
        "/lanes?lane=nowhere": "There is no lane nowhere.",
        "/jobs?account=@nobody": "No account @nobody is known.",
        "/monitoring": "No data yet.",
        "/spend": "No data yet",
        "/alerts": "with what to do",
        "/watches": "No price is watched yet.",
    }
    async with open_api(sqlite_url) as api:
        for path, hint in hints.items():
            assert hint in (await api.get(path, headers=PAGE)).text, path


NONSENSE = (
    "/accounts?state=nonsense",
    "/accounts?after=%00",
    "/accounts?q=%00",
    "/jobs?state=%27%3B--",
    "/go?q=%00",
    "/go?q=https://[",
    "/jobs?kind=%00",
    "/search?q=a&since=2027-13-45",
    "/search?q=-only",
    "/search?q=%22",
    "/search?q=a&author=%00",
    "/?did=%3Cscript%3E",
    "/accounts/99999999999999999999",
    "/conversations/0",
    "/jobs/abc",
    "/runs/%00",
    "/runs?before=nonsense",
    "/sources/nonsense/pause",
    "/feeds?after=-1",
    "/links?state=%00&kind=x&lane=%27",
    "/links?q=%00",
    "/links?q=https://[",
    "/links/0",
    "/links/7",
    "/links/1?before=1.2.3",
    "/products?shop=%00&price=x",
    "/products/99999999999999999999",
    "/products/7",
    "/lanes?lane=%00&state=x",
    "/lanes?lane=%3Cscript%3E",
)


async def test_nonsense_in_an_address_is_never_a_fault_of_ours(url: str) -> None:
    async with open_api(url) as api:
        for path in NONSENSE:
            answer = await api.get(path, headers=PAGE)
            assert answer.status < 500, (path, answer.text)
            assert "<script>" not in answer.text, path


async def test_the_search_box_leads_to_what_was_typed_or_else_to_a_search(url: str) -> None:
    async with open_api(url) as api:
        there = await furnish(api.app)
        shops = there.shops
        expected = {
            "": "/search",
            "@Ann_of_the_net1": f"/accounts/{ANN}",
            "https://x.com/ann_of_the_net1": f"/accounts/{ANN}",
            str(ANN): f"/accounts/{ANN}",
            str(there.thread): f"/conversations/{there.thread}",
            f"https://twitter.com/ann_of_the_net1/status/{there.thread}?s=20": f"/conversations/{there.thread}",
            str(there.dead): f"/jobs/{there.dead}",
            f"job {there.dead}": f"/jobs/{there.dead}",
            f"product {shops.plain}": f"/products/{shops.plain}",
            "post 7": "/conversations/7",
            "a bow": f"/products/{shops.gone}",
            "https://shopee.tw/product/1/9007199254740993?utm_source=a": f"/products/{shops.product}",
            "https://nothing.example/": "/search?q=https%3A%2F%2Fnothing.example%2F",
            "@nobody": "/search?q=%40nobody",
            "99999999999999999999": "/search?q=99999999999999999999",
            "two words": "/search?q=two+words",
            "//evil.example": "/search?q=%2F%2Fevil.example",
        }
        for typed, path in expected.items():
            answer = await api.get("/go", params={"q": typed}, headers=PAGE)
            assert (answer.status, answer.headers["location"]) == (303, path), typed


async def test_who_may_only_read_sees_no_forms_and_may_change_nothing(sqlite_url: str) -> None:
    async with open_api(sqlite_url, host=PUBLIC) as api:
        there = await furnish(api.app)
        reader, operator = await api.token(Scope.READ), await api.token(Scope.OPERATE)
        changes = (
            *(
                "/accounts",
                "/jobs/requeue",
                "/jobs/accept",
                f"/jobs/{there.dead}/retry",
                "/sources/x/pause",
                "/runs",
                "/feeds",
            ),
            "/feeds/cat/remove",
        )
        for path in there.paths:
            shown = (await api.get(path, headers=bearer(reader))).text
            assert set(re.findall(r'method="post" action="([^"]*)"', shown)) <= {"/logout", "/login"}, path
            assert (await api.get(path, headers=PAGE)).status in (200, 303), path
        for path in changes:
            assert (await api.post(path, headers=bearer(reader))).status == 403
            assert (await api.post(path, headers=PAGE)).status == 303  # to the log-in
        assert 'action="/jobs/requeue"' in (await api.get("/jobs", headers=bearer(operator))).text


async def test_many_failed_jobs_are_retried_or_accepted_after_a_question_with_their_number(url: str) -> None:
    async with open_api(url) as api:
        await tell(api.app, user(ANN, "ann"))
        await end_badly(api.app, args.relook(ANN), args.backfill(UserId(7)), args.hydrate_post(PostId(5)))
        shown = (await api.get("/jobs?state=gaps&account=@ann", headers=PAGE)).text
        assert "Retry all 1 failed that match" in shown
        assert shown.count('name="id"') == 1
        word = re.findall(r'name="csrf" value="([^"]+)"', shown)[0]
        here = {**PAGE, "Origin": api.url}

        async def send(action: str, **fields: str) -> Any:
            return await api.post(f"/jobs/{action}", data={"csrf": word, **fields}, headers=here)

        asked = await send("accept", which="all", account="@ann", error="BROKE", state="gaps")
        assert "Accept 1 failed job?" in asked.text
        assert 'name="confirmed" value="yes"' in asked.text
        assert len(await rows(api.app, "SELECT id FROM jobs")) == 3, "nothing changes before it is confirmed"
        nothing = await send("accept", which="all", error="another error")
        assert nothing.headers["location"] == "/jobs?error=another+error&did=not-accepted"
        assert (await send("accept", which="ticked")).headers["location"] == "/jobs?&did=not-accepted"
        done = await send("accept", which="all", account="@ann", error="BROKE", state="gaps", confirmed="yes")
        assert done.headers["location"] == "/jobs?state=gaps&error=BROKE&account=%40ann&did=accepted"
        left = await rows(api.app, "SELECT kind, id FROM jobs ORDER BY kind")
        assert [kind for kind, _ in left] == ["backfill", "hydrate_post"]
        assert "Retry 1 job?" in (await send("requeue", which="ticked", id=str(left[0][1]))).text
        await send("requeue", which="ticked", id=str(left[0][1]), confirmed="yes")
        assert await rows(api.app, "SELECT kind FROM jobs WHERE state = 'pending'") == [("backfill",)]
        await send("requeue", confirmed="yes")
        assert await rows(api.app, "SELECT DISTINCT state FROM jobs") == [("pending",)]


async def test_jobs_about_an_account_are_found_by_its_handle_or_id_and_name_it(url: str) -> None:
    async with open_api(url) as api:
        await tell(api.app, user(ANN, "ann"), AccountTracked(platform=X, user_id=ANN))
        reply = post(90, 8, conversation=80, answers=80)
        walk = args.walk(reply, Frontier(post_id=PostId(80)), ANN)
        mend = args.mend(ANN, PostId(5), PostId(9))
        await end_badly(api.app, args.backfill(ANN), walk, mend, args.relook(UserId(8)), args.hydrate_post(PostId(6)))
        for who in ("ann", "@Ann", "https://x.com/ann", str(ANN)):
            shown = (await api.get("/jobs", params={"account": who}, headers=PAGE)).text
            found = re.findall(r'id="job-\d+">(\w+)', shown)
            assert sorted(found) == ["backfill", "catch_up", "walk"], who
            assert shown.count(">@ann</") == 2
            assert f'href="/accounts/{ANN}"' in shown
            assert "a conversation of @ann" in shown


async def test_jobs_are_searched_some_at_a_time_and_the_page_says_where_to_go_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.queue.store.inspect._SEARCHED", 3)
    async with open_api(url) as api:
        await tell(api.app, user(ANN, "ann"))
        for place in range(5):
            await end_badly(api.app, args.relook(ANN) if place in (0, 1) else args.relook(UserId(100 + place)))
        path, found = "/jobs?account=ann", []
        for _ in range(3):
            shown = (await api.get(path, headers=PAGE)).text
            found += re.findall(r'id="job-(\d+)"', shown)
            more = re.search(r'href="(/jobs\?account=ann&amp;before=\d+)"', shown)
            if more is None:
                break
            path = more[1].replace("&amp;", "&")
        assert len(found) == 2
        assert len(re.findall(r'id="job-\d+"', (await api.get("/jobs?account=ann&state=gaps", headers=PAGE)).text)) == 2


async def test_a_form_without_its_secret_word_changes_nothing(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        there = await furnish(api.app)
        here = {**PAGE, "Origin": api.url}
        page = (await api.get(f"/jobs/{there.dead}", headers=PAGE)).text
        (word,) = {*re.findall(r'name="csrf" value="([^"]+)"', page)}
        retry = f"/jobs/{there.dead}/retry"
        assert (await api.post(retry, headers=here)).status == 403
        assert (await api.post(retry, headers=here, data={"csrf": "wrong"})).status == 403
        assert (await api.post(retry, headers={**PAGE, "Origin": "http://evil"}, data={"csrf": word})).status == 403
        assert await rows(api.app, "SELECT state FROM jobs WHERE id = :id", id=there.dead) == [("dead",)]
        assert (await api.post(retry, headers=here, data={"csrf": word})).status == 303
        assert await rows(api.app, "SELECT state FROM jobs WHERE id = :id", id=there.dead) == [("pending",)]


async def test_what_changes_is_told_to_those_who_listen_and_the_end_of_the_server_ends_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.web.pages.dashboard._CHECK_SECONDS", 0.05)
    async with open_api(url) as api:
        stream = await api.session.get(f"{api.url}/live")
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert await _until(stream, "event: changed")  # it said nothing of what it has seen
        await api.app.operations.pause(next(iter(api.app.kinds)), "for a test", now=START)
        await end_badly(api.app, args.backfill(ANN))
        assert await _until(stream, "event: changed")
        api.service.state.closing.set()
        assert not await _until(stream, "event: never")


async def _until(stream: aiohttp.ClientResponse, awaited: str) -> bool:
    async with asyncio.timeout(50):
        while line := await stream.content.readline():
            if awaited in line.decode():
                return True
    return False


async def test_assets_are_kept_by_browsers_and_pages_are_not(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        page = await api.get("/", headers=PAGE)
        assert page.headers["Cache-Control"] == "no-store"
        assets = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
        assert len(assets) == 5
        for each in assets:
            asset = await api.get(each)
            assert (asset.status, "immutable" in asset.headers["Cache-Control"]) == (200, True), each
        assert (await api.get("/static/../pages/__init__.py")).status == 404
        assert (await api.get("/static/%2e%2e/service.py")).status == 404


async def test_lists_are_narrowed_by_state(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        there = await furnish(api.app)
        for path, shown in (
            ("/jobs?state=dead", True),
            ("/jobs?state=gaps", True),
            ("/jobs?state=failed", False),
            ("/jobs?state=dead&kind=walk", False),
        ):
            assert (f'href="/jobs/{there.dead}"' in (await api.get(path, headers=PAGE)).text) is shown, path
        for path, shown in (("/accounts?state=active", True), ("/accounts?state=protected", False)):
            assert (f'href="/accounts/{ANN}"' in (await api.get(path, headers=PAGE)).text) is shown, path


async def test_a_post_by_its_id_leads_to_its_conversation(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        there = await furnish(api.app)
        answer = await api.get(f"/conversations/{PostId(there.thread + 3)}", headers=PAGE)
        assert (answer.status, answer.headers["Location"]) == (
            303,
            f"/conversations/{there.thread}#p{there.thread + 3}",
        )


async def test_a_conversation_says_what_of_it_is_stored(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        there = await furnish(api.app)
        shown = (await api.get(f"/conversations/{there.thread}", headers=PAGE)).text
        assert "posts are missing" in shown
        assert (
            "The posts of tracked accounts and every post above them are stored, but not every reply of others" in shown
        )


async def follow(api: Api, path: str, **form: Any) -> str:
    return (await api.post(path, headers=PAGE, data=form)).headers["Location"]


async def test_a_dear_account_is_collected_only_after_its_price_was_seen(sqlite_url: str) -> None:
    async with open_api(sqlite_url, x_api_key="key-of-ann") as api:
        await tell(api.app, user(71, "dear", posts_count=5_000), user(72, "cheap", posts_count=10))
        asked = await api.post("/accounts", headers=PAGE, data={"handle": "@dear"})
        assert asked.status == 409
        assert "Collect for about $1.06" in asked.text
        assert await rows(api.app, "SELECT handle FROM suggestions") == []
        location = await follow(api, "/accounts", handle="@dear", confirmed="yes")
        assert location == "/accounts?did=added"
        assert await follow(api, "/accounts", handle="@cheap") == "/accounts?did=added&credits=274"
        assert "likely to cost about 274 credits" in (await api.get("/accounts?credits=274", headers=PAGE)).text


async def test_accounts_are_added_let_go_and_taken_back(url: str) -> None:
    async with open_api(url) as api:
        assert await follow(api, "/accounts", handle="@ann, https://x.com/bea") == "/accounts?did=added"
        assert await follow(api, "/accounts", handle="ann") == "/accounts?did=suggested"
        shown = (await api.get("/accounts", headers=PAGE)).text
        assert "@bea" in shown
        there = await furnish(api.app)
        assert await follow(api, f"/accounts/{ANN}/untrack") == f"/accounts/{ANN}?did=untracked"
        assert "Track again" in (await api.get(f"/accounts/{ANN}", headers=PAGE)).text
        assert await follow(api, f"/accounts/{ANN}/look") == f"/accounts/{ANN}?did=known"
        kinds = {kind for (kind,) in await rows(api.app, "SELECT kind FROM jobs WHERE state = 'pending'")}
        assert "hydrate_user" in kinds
        assert (await api.post("/accounts/5/untrack", headers=PAGE)).status == 404
        for told in ("cancelled", "not-cancelled"):
            assert await follow(api, f"/jobs/{there.dead}/cancel") == f"/jobs/{there.dead}?did={told}"


async def test_a_suspect_account_is_shown_as_one_and_can_be_read_again(url: str) -> None:
    async with open_api(url) as api:
        own = UserId(11)
        swept = Swept(platform=X, user_id=own, backfilled=True, reposts_backfilled=True)
        ann = user(11, posts_count=500, created_at=days_ago(100))
        await tell(api.app, ann, AccountTracked(platform=X, user_id=own), swept)
        await tell(api.app, HistoryJudged(platform=X, user_id=own, suspect=True))
        for path in ("/", "/accounts", "/accounts/11"):
            shown = (await api.get(path, headers=PAGE)).text
            assert 'rect class="suspect"' in shown, path
            assert 'rect class="verified"' not in shown, path
            assert "suspect: 0 of the 500 posts its profile counts are stored" in shown, path
        assert (await api.ok("/api/accounts/11"))["suspect_since"] is not None
        assert (await api.ok("/api/accounts/11/coverage"))["own_posts"][0]["standing"] == "suspect"
        assert await follow(api, "/accounts/11/repair") == "/accounts/11?did=repairing"
        assert await rows(api.app, "SELECT kind, key FROM jobs ORDER BY kind") == [
            ("catch_up", "11:0-"),
            ("reposts", "11:0-"),
        ]


async def test_an_alert_of_a_suspect_account_is_accepted_on_the_page_and_by_the_api(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        for own in (11, 12):
            about: dict[str, Any] = {"platform": X, "user_id": UserId(own)}
            swept = Swept(**about, backfilled=True, reposts_backfilled=True)
            hidden = user(own, handle=f"hidden{own}", posts_count=500, created_at=days_ago(100))
            await tell(api.app, hidden, AccountTracked(**about), swept, HistoryJudged(**about, suspect=True))
        await api.app.watch.check_accounts()
        first, second = sorted(int(each["id"]) for each in (await api.ok("/api/alerts?open=true"))["items"])
        assert f'action="/alerts/{first}/accept"' in (await api.get("/", headers=PAGE)).text
        assert await follow(api, f"/alerts/{first}/accept") == "/?did=alert-accepted"
        done = await api.post(f"/api/alerts/{second}/accept")
        assert (done.status, done.json["id"], done.json["accepted_by"]) == (200, str(second), "local")
        assert (await api.post("/api/alerts/99/accept")).status == 404
        await api.app.watch.check_accounts()
        still = (await api.ok("/api/alerts?open=true"))["items"]
        assert [bool(each["accepted_at"]) for each in still] == [True, True]
        assert "suspect: 0 of the 500 posts" in (await api.get("/accounts/11", headers=PAGE)).text


async def test_pages_of_the_past_are_not_called_looks_for_new_posts(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        own = UserId(11)
        swept = Swept(platform=X, user_id=own, backfilled=True, reposts_backfilled=True)
        await tell(api.app, user(11), AccountTracked(platform=X, user_id=own), swept)
        shown = (await api.get("/accounts/11", headers=PAGE)).text
        assert "<dt>Checks for new posts</dt><dd>none yet</dd>" in shown
        assert '<p class="muted">history read <time' in shown
        assert '<p class="muted">fetched' not in shown


async def test_a_refused_handle_is_on_the_page_until_it_is_dismissed(url: str) -> None:
    async with open_api(url) as api:
        await follow(api, "/accounts", handle="nobody")
        closed = SuggestionClosed(platform=X, handle="nobody", accepted=False, reason="there is nobody")
        await tell(api.app, closed)
        for path in ("/", "/accounts"):
            shown = (await api.get(path, headers=PAGE)).text
            assert "@nobody" in shown, path
            assert "there is nobody" in shown, path
        (refused,) = (await api.ok("/api/suggestions/refused"))["refused"]
        assert (refused["handle"], refused["reason"]) == ("nobody", "there is nobody")
        assert "there is nobody" in (await api.get("/api/accounts/nobody/coverage")).text
        assert await follow(api, "/accounts/refused/nobody/dismiss") == "/accounts?did=dismissed"
        assert "@nobody" not in (await api.get("/accounts", headers=PAGE)).text
        assert (await api.post("/accounts/refused/nobody/dismiss", headers=PAGE)).status == 404


async def test_an_account_shows_its_months_and_the_conversations_and_hosts_of_its_posts(url: str) -> None:
    async with open_api(url) as api:
        own, other = UserId(11), UserId(12)
        begun = days_ago(400)
        root = Post(
            platform=X,
            id=PostId(1_000),
            author_id=other,
            text="the question",
            created_at=begun,
            conversation_id=PostId(1_000),
            metrics=Metrics(likes=5),
            raw=b"{}",
        )
        replies = [
            msgspec.structs.replace(
                root,
                id=PostId(1_001 + place),
                author_id=own,
                text="a reply",
                created_at=begun + timedelta(days=place),
                in_reply_to_id=PostId(1_000),
                metrics=Metrics(likes=10 * (place + 1)),
            )
            for place in range(2)
        ]
        alone = msgspec.structs.replace(
            root,
            id=PostId(2_000),
            author_id=own,
            text="on its own",
            conversation_id=PostId(2_000),
            created_at=days_ago(1),
        )
        people = [user(11, handle="ann", created_at=begun), user(12, handle="bea")]
        swept = Swept(platform=X, user_id=own, backfilled=True, reposts_backfilled=True)
        await tell(api.app, *people, AccountTracked(platform=X, user_id=own), swept, root, *replies, alone)
        database = api.app.database
        shop = await link(database, "https://shop.example/item/1", lane="web")
        for place in range(2):
            await mention(database, shop, 1_001 + place)
        pages = AccountPages(database)
        months = await pages.months(own)
        assert [(each.posts, each.liked, each.likes) for each in months] == [(2, 2, 30), (1, 1, 5)]
        (talk,) = await pages.conversations(own, limit=9)
        assert (talk.id, talk.posts, talk.handle, talk.text) == (1_000, 3, "bea", "the question")
        assert [(each.host, each.posts) for each in await LinkPages(database).hosts_of(X, own, limit=9)] == [
            ("shop.example", 2)
        ]
        shown = (await api.get("/accounts/11", headers=PAGE)).text
        assert 'id="posts-plot"' in shown
        assert 'href="/conversations/1000"' in shown
        assert "shop.example" in shown


async def test_a_conversation_begins_with_what_its_first_post_says_and_leads_back(url: str) -> None:
    async with open_api(url) as api:
        there = await furnish(api.app)
        shown = (await api.get(f"/conversations/{there.thread}", headers=PAGE)).text
        assert re.search(r"<title>&lt;img src=x .*… · mistnet</title>", shown)
        assert f'<a href="/accounts/{ANN}">@ann_of_the_net1</a>' in shown
        assert "1 gap on this page" in shown
