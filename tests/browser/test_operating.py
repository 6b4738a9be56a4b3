"""An operator at work: log-in, retries, pauses, runs; and pages that renew themselves."""

import re
from datetime import timedelta

from playwright.async_api import Browser, expect
from sqlalchemy import insert

from mistnet.governor.tables import calls
from mistnet.operations.alerts.model import SERVICE_RULES, Alert, AlertRule, Severity
from mistnet.operations.tables import alerts
from mistnet.social.accounts import AccountTracked
from mistnet.social.jobs import args
from mistnet.social.model import X
from mistnet.web.tokens import Scope, Tokens
from tests.apis import PUBLIC
from tests.browser.dashboards import DESK, HERE, PHONE, Visit, dashboard, visiting
from tests.browser.furnished import ANN, Furnished
from tests.harvests import change, end_badly, rows, tell, user

SPENT = "80 % of the day's credits are spent."
HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_a_dead_job_is_retried_from_the_overview(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url) as site:
        await end_badly(site.app, args.backfill(ANN))
        async with visiting(browser, site) as visit:
            await visit.go("/")
            need = visit.page.locator(".needs li", has_text="1 backfill job is dead")
            await expect(need).to_contain_text("All attempts are used up.")
            await need.get_by_role("button", name="Retry").click()
            await expect(visit.page.get_by_text("The job is due now")).to_be_visible()
            await expect(visit.page.get_by_role("heading", level=1)).to_contain_text("pending")
        assert await rows(site.app, "SELECT state, attempts FROM jobs") == [("pending", 0)]


async def test_an_alert_is_accepted_from_the_overview(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url) as site:
        now = site.app.database.clock.now()
        row = {
            "rule": "budget_80",
            "subject": "x",
            "severity": "warning",
            "message": "80 % of the day's credits are spent.",
        }
        async with site.app.database.transaction() as connection:
            await connection.execute(insert(alerts), {**row, "opened_at": now, "last_seen_at": now})
        for size in (DESK, PHONE):
            async with visiting(browser, site, size=size) as visit:
                await visit.go("/")
                alert = visit.page.locator(".needs li", has_text=SPENT)
                await expect(alert.get_by_role("button", name="Accept")).to_be_visible()
                await visit.shot(f"alert-{size[0]}")
        async with visiting(browser, site) as visit:
            await visit.go("/")
            await visit.page.locator(".needs li").get_by_role("button", name="Accept").click()
            await expect(visit.page.get_by_text(SPENT)).to_have_count(0)
            await visit.shot("alert-accepted")
        assert await rows(site.app, "SELECT accepted_at IS NULL FROM alerts") == [(0,)]


async def test_alerts_open_and_past_are_listed_with_what_to_do(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url) as site:
        now = site.app.database.clock.now()
        paused = Alert(
            rule=AlertRule.SOURCE_PAUSED,
            subject="x",
            severity=Severity.CRITICAL,
            message="Then `mistnet sources resume x`.",
        )
        late = Alert(rule=AlertRule.DUE_WORK, subject="x", severity=Severity.WARNING, message="Start more workers.")
        store = site.app.watch.alerts
        await store.settle([paused, late], SERVICE_RULES, now=now)
        await store.settle([paused], SERVICE_RULES, now=now)
        async with visiting(browser, site) as visit:
            page = visit.page
            await visit.go("/alerts")
            await expect(page.locator(".needs li code")).to_have_text("mistnet sources resume x")
            await expect(page.get_by_role("row", name=re.compile("Due work"))).to_contain_text("Start more workers.")
            await page.get_by_role("button", name="Accept").click()
            await expect(page.get_by_text("The alert is accepted.")).to_be_visible()
            await expect(page.get_by_text("Accepted by local")).to_be_visible()
            assert page.url.endswith("/alerts")


async def test_money_is_shown_by_day_source_account_and_endpoint(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url, x_day_credits=200_000) as site:
        now = site.app.database.clock.now()
        await tell(site.app, user(ANN, "ann"), AccountTracked(platform=X, user_id=ANN))
        paid = {"source": "x", "key_label": "a", "seconds": 0.1, "items": 20, "account_id": ANN, "endpoint": "search"}
        async with site.app.database.transaction() as connection:
            days = [{**paid, "at": now - timedelta(days=day), "credits": 50_000} for day in (0, 1, 8, 300)]
            await connection.execute(insert(calls), days)
        async with visiting(browser, site) as visit:
            page = visit.page
            await visit.go("/spend")
            await expect(page.locator(".tile", has_text="All sources in 31 days")).to_contain_text("$1.50")
            await expect(page.locator(".plot rect")).to_have_count(3)
            for title in ("By source", "By account", "By endpoint"):
                await expect(page.locator("section", has=page.get_by_role("heading", name=title))).to_contain_text(
                    "$1.50"
                )
            await expect(page.get_by_role("link", name="@ann")).to_have_attribute("href", f"/accounts/{ANN}")
            await expect(page.locator(".tile", has_text="x today")).to_contain_text("of $2.00")
            await page.get_by_role("link", name="week").click()
            await expect(page.locator(".tile", has_text="All sources in 7 days")).to_contain_text("$1.00")


async def test_jobs_are_filtered_inspected_requeued_and_cancelled(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url) as site:
        await end_badly(site.app, args.backfill(ANN), args.relook(ANN))
        async with visiting(browser, site) as visit:
            page = visit.page
            await visit.go("/jobs")
            await page.get_by_label("Kind").select_option("relook")
            await page.get_by_label("State").select_option("dead")
            await page.get_by_role("button", name="Filter").click()
            await expect(page.locator("tbody tr")).to_have_count(1)
            await page.locator("tbody th a").click()
            await expect(page.get_by_text("it broke")).to_be_visible()
            await expect(page.get_by_text('"user_id"')).to_be_visible()
            await page.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_text("The job is cancelled.")).to_be_visible()
            await visit.go("/jobs?state=gaps")
            await page.get_by_role("button", name="Retry all 1 failed").click()
            await expect(page.get_by_role("heading", name="Retry 1 failed job?")).to_be_visible()
            await page.get_by_role("link", name="Back").click()
            await page.get_by_label("Job 1", exact=True).check()
            await page.get_by_role("button", name="Retry ticked").click()
            await page.get_by_role("button", name="Retry 1", exact=True).click()
            await expect(page.get_by_text("Failed jobs are retried.")).to_be_visible()
        assert await rows(site.app, "SELECT kind, state FROM jobs") == [("backfill", "pending")]


async def test_who_comes_from_elsewhere_logs_in_with_a_token_and_out_again(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url, host=PUBLIC) as site:
        now = site.app.database.clock.now()
        _, token = await Tokens(site.app.database).make("a reader", Scope.READ, now=now)
        async with visiting(browser, site, expected=(401, 403)) as visit:
            page = visit.page
            await visit.go("/accounts")
            await page.get_by_label("Token").fill("mn_wrong")
            await page.get_by_role("button", name="Log in").click()
            await expect(page.get_by_role("alert")).to_contain_text("not valid")
            await page.get_by_label("Token").fill(token)
            await page.get_by_role("button", name="Log in").click()
            await expect(page.get_by_role("heading", name="First steps")).to_be_visible()
            (cookie,) = await visit.context.cookies()
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
            assert token not in cookie["value"]
            await visit.go("/accounts")
            await expect(page.get_by_role("button", name="Collect")).to_have_count(0)  # he may only read
            await page.get_by_role("button", name="Log out").click()
            await expect(page.get_by_label("Token")).to_be_visible()
            await visit.go("/")
            await expect(page.get_by_label("Token")).to_be_visible()


async def test_the_link_of_the_terminal_logs_in_once(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url) as site, visiting(browser, site, expected=(401,)) as visit:
        page, link = visit.page, site.service.state.authenticator.links.make()
        is_open = page.get_by_text("Everyone on this machine can see and change everything here.")
        await visit.go("/")
        await expect(is_open).to_be_visible()
        await visit.go(f"/login/{link}")
        await expect(page.get_by_role("heading", name="First steps")).to_be_visible()
        await expect(is_open).to_have_count(0)
        assert link not in page.url
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await visit.go(f"/login/{link}")
        await expect(page.get_by_role("alert")).to_contain_text("This link was used or has expired.")


async def test_a_source_is_paused_limited_and_resumed(browser: Browser, sqlite_url: str) -> None:
    async with (
        dashboard(sqlite_url) as site,
        visiting(browser, site, expected=(400,)) as visit,
    ):
        page = visit.page
        await visit.go("/sources")
        await page.get_by_role("link", name="Edit x").click()
        await page.locator("#drawer").get_by_role("link", name="Close").click()
        await expect(page.locator("#drawer")).to_have_count(0)
        await page.get_by_role("link", name="Edit x").click()
        await page.get_by_label("Reason").fill("too dear")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_role("heading", name="Pause x?")).to_be_visible()
        await page.get_by_role("button", name="Pause x").click()
        await expect(page.get_by_text("by hand, since")).to_contain_text("too dear")
        await page.get_by_role("link", name="Edit x").click()
        await page.get_by_label("Credits a day").fill("lots")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("is not a number of credits")
        await page.get_by_label("Credits a day").fill("200,000")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("of $2.00")).to_be_visible()
        await page.get_by_role("link", name="Edit x").click()
        await page.get_by_role("button", name="Resume").click()
        await expect(page.get_by_text("Resumed.")).to_be_visible()
        assert await rows(site.app, "SELECT paused_at, day_cap FROM sources") == [(None, 200_000)]


async def test_starting_a_second_run_names_the_run_in_progress(browser: Browser, sqlite_url: str) -> None:
    async with (
        dashboard(sqlite_url) as site,
        visiting(browser, site, expected=(400, 409)) as visit,
    ):
        page = visit.page
        await visit.go("/runs")
        await page.get_by_label("Accounts to fetch").fill("alice, bob")
        await page.get_by_role("button", name="Start a run").click()
        await expect(page.get_by_text("The run has started.")).to_be_visible()
        await expect(page.locator("tbody tr")).to_have_count(2)
        ((run_id,),) = await rows(site.app, "SELECT id FROM runs")
        await visit.go("/runs")
        await page.get_by_label("Accounts to fetch").fill("carol")
        await page.get_by_role("button", name="Start a run").click()
        await expect(page.get_by_role("alert")).to_contain_text(run_id)
        await page.get_by_label("Posts of each, at most").fill("many")
        await page.get_by_role("button", name="Start a run").click()
        await expect(page.get_by_role("alert")).to_contain_text("number of posts")


async def test_a_page_updates_in_place_and_reconnects_when_shown_again(
    browser: Browser, furnished_url: str, there: Furnished
) -> None:
    async with dashboard(furnished_url) as site, visiting(browser, site) as visit:
        page = visit.page
        await visit.go("/")
        await expect(page.locator("#pulse[data-state=on]")).to_be_visible()
        top = await page.locator("#accounts-title").bounding_box()
        await change(site.app, "UPDATE jobs SET state = 'failed' WHERE id = :id", id=there.dead)
        await expect(page.locator(".needs")).to_contain_text("1 backfill job is failed")
        assert await page.locator("#accounts-title").bounding_box() == top  # and nothing has moved

        await visit.go("/jobs/" + str(there.dead))
        await expect(page.locator("#pulse[data-state=on]")).to_be_visible()
        await page.evaluate(HIDE, arg=True)
        streams = _streams(visit)
        await change(site.app, "UPDATE jobs SET state = 'dead' WHERE id = :id", id=there.dead)
        await page.evaluate(HIDE, arg=False)
        await expect(page.get_by_role("heading", level=1)).to_contain_text("dead")
        assert _streams(visit) == streams + 1


def _streams(visit: Visit) -> int:
    return sum("/live?seen=" in url for url in visit.asked)


async def test_a_page_reconnects_to_a_restarted_dashboard(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url) as site:
        port = int(site.url.rpartition(":")[2])
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(site.url)
        await expect(page.locator("#pulse[data-state=on]")).to_be_visible()
    await expect(page.locator("#pulse[data-state=off]")).to_be_visible()
    async with dashboard(sqlite_url, port=port) as again:
        assert again.url == f"http://{HERE}:{port}"
        await expect(page.locator("#pulse[data-state=on]")).to_be_visible()
    await context.close()
