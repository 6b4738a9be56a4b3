"""What the pages of an account and of a job show, on every database."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import insert, update

from mistnet.governor.tables import calls
from mistnet.queue.tables import job_errors, jobs
from mistnet.social.accounts import AccountTracked
from mistnet.social.jobs import args
from mistnet.social.model import PostId, UserId, X
from tests.apis import Api, open_api
from tests.browser.furnished import ANN, furnish
from tests.harvests import end_badly, rows, tell, user

pytestmark = pytest.mark.common_sql

PAGE = {"Accept": "text/html"}
PAID = {"source": "x", "key_label": "a", "seconds": 0.5, "items": 20, "credits": 12_000, "endpoint": "search"}


async def shown(api: Api, path: str) -> str:
    answer = await api.get(path, headers=PAGE)
    assert answer.status == 200, answer.text
    return answer.text


async def test_an_accounts_page_has_charts_hours_posts_conversations_links_products_and_cost(url: str) -> None:
    async with open_api(url) as api:
        await furnish(api.app)
        async with api.app.database.transaction() as connection:
            paid = {**PAID, "account_id": ANN, "at": api.app.database.clock.now()}
            await connection.execute(insert(calls), paid)
        text = await shown(api, f"/accounts/{ANN}")
        for chart, counts in (
            ("posts", "at most 41"),
            ("followers", "from 1,000 to 1,020"),
            ("followings", "from 40 to 38"),
        ):
            assert re.search(rf'id="{chart}-plot" role="img" aria-label="[^"]*{counts}', text), chart
        heat = re.findall(r'<td class="l(\d)"', text)
        assert len(heat) == 7 * 24
        assert {"0", "5"} <= set(heat)
        assert "UTC, from the latest 41 posts." in text
        assert text.count('<details class="long"') == 10, "long posts are cut until they are opened"
        assert re.search(r'id="talk-\d+"><bdi>', text)
        assert 'id="linked-1"' in text
        assert "shopee.tw" in text[text.index("Links in its latest") :]
        assert '<p class="big">$0.12</p><p class="muted">12,000 credits</p>' in text


@pytest.mark.parametrize("state", ["failed", "dead"])
async def test_a_failed_job_shows_when_it_failed_and_not_when_it_would_have_been_due(url: str, state: str) -> None:
    async with open_api(url) as api:
        now = api.app.database.clock.now()
        await tell(api.app, user(ANN, "ann"))
        await end_badly(api.app, args.relook(ANN), state=state)
        ((own,),) = await rows(api.app, "SELECT id FROM jobs")
        for path in ("/jobs", f"/jobs/{own}"):
            text = await shown(api, path)
            assert "failed </span><time" not in text, "nothing says when"
        async with api.app.database.transaction() as connection:
            await connection.execute(update(jobs).values(run_at=now + timedelta(hours=24)))
            failed = {"job_id": own, "fence": 3, "at": now - timedelta(minutes=7), "worker": "w", "error": "it broke"}
            await connection.execute(insert(job_errors), failed)
        for path in ("/jobs", "/jobs?state=gaps", f"/jobs/{own}"):
            text = await shown(api, path)
            assert "in 24 h" not in text, path
            assert "7 min ago" in text, path


async def test_a_job_shows_its_claims_calls_and_failures_in_order_with_the_handle(url: str) -> None:
    async with open_api(url) as api:
        now = api.app.database.clock.now()
        await tell(api.app, user(ANN, "ann"), AccountTracked(platform=X, user_id=ANN))
        await end_badly(api.app, args.relook(ANN))
        ((own,),) = await rows(api.app, "SELECT id FROM jobs WHERE kind = 'relook'")
        async with api.app.database.transaction() as connection:
            claimed = {"started_at": now - timedelta(minutes=5), "fence": 2, "created_at": now - timedelta(hours=1)}
            await connection.execute(update(jobs).where(jobs.c.id == own).values(**claimed))
            for fence, minutes in ((1, 30), (2, 2)):
                failed = {"at": now - timedelta(minutes=minutes), "worker": "w", "error": f"broken {fence}"}
                await connection.execute(insert(job_errors), {"job_id": own, "fence": fence, **failed})
            asked = {**PAID, "job_id": own, "at": now - timedelta(minutes=4), "status": 502, "error": "bad gateway"}
            await connection.execute(insert(calls), asked)
        text = await shown(api, f"/jobs/{own}")
        moments = re.findall(r"<li class=\"[^\"]*\"><p><strong>([^<]*)</strong>", text)
        assert moments[:5] == [
            "Added",
            "Claim 1 failed",
            "Claimed for the 2nd time",
            "search answered 502",
            "Claim 2 failed",
        ]
        assert f'About <a href="/accounts/{ANN}"><bdi>@ann</bdi></a>' in text
        assert 'href="/jobs?account=%40ann"' in text
        assert "broken 2" in text


async def test_a_job_of_a_run_is_named_by_its_handle(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        run = await api.app.runs.start(["bea"], 5, asked_by="local", now=api.app.database.clock.now())
        text = await shown(api, "/jobs")
        assert f'<a href="/runs/{run.id}"><bdi>@bea</bdi></a>' in text


async def test_an_unknown_address_says_so(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        answer = await api.get("/nothing", headers=PAGE)
        assert answer.status == 404
        assert "There is no page at this address." in answer.text
        assert 'aria-label="Pages"' in answer.text


async def test_what_waits_for_the_posts_of_an_account_says_so_with_its_handle(url: str) -> None:
    async with open_api(url) as api:
        now = api.app.database.clock.now()
        await tell(api.app, user(11, "ann"), AccountTracked(platform=X, user_id=UserId(11)))
        await api.app.enqueue([args.hydrate_post(PostId(5))])
        awaited = {"wait_reason": args.awaits_sweep(X, UserId(11)), "run_at": now + timedelta(hours=1)}
        async with api.app.database.transaction() as connection:
            await connection.execute(update(jobs).where(jobs.c.kind == "hydrate_post").values(**awaited))
        ((own,),) = await rows(api.app, "SELECT id FROM jobs WHERE kind = 'hydrate_post'")
        for path in ("/", "/lanes", "/jobs", f"/jobs/{own}"):
            assert "aits for the next posts of @ann" in await shown(api, path), path
