"""Feeds, links, products and lanes in a real browser: what is added, followed, doubted and retried."""

import re
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from mistnet.queue.model import JobId
from tests.browser.dashboards import DESK, PHONE, Site, dashboard, visiting
from tests.browser.furnished import HOSTILE, Furnished, furnish
from tests.browser.stocked import OFFERS
from tests.harvests import change, rows
from tests.shelves import offer


async def test_feeds_are_added_read_and_removed_and_slips_are_told(browser: Browser, sqlite_url: str) -> None:
    async with (
        dashboard(sqlite_url) as site,
        visiting(browser, site, expected=(400,)) as visit,
    ):
        page = visit.page
        await visit.go("/")
        await page.get_by_role("link", name="Network").click()
        await page.get_by_role("link", name="Feeds", exact=True).click()
        await expect(page.get_by_text("No feed yet")).to_be_visible()
        await page.get_by_label("Add accounts of Threads").fill("not a handle!")
        await page.get_by_role("button", name="Add").click()
        await expect(page.get_by_role("alert")).to_contain_text("https://www.threads.com/@name")
        await expect(page.get_by_label("Add accounts of Threads")).to_have_value("not a handle!")
        await page.get_by_label("Add accounts of Threads").fill("@ann, https://www.threads.com/@bea.b")
        await page.get_by_label("Poll", exact=True).select_option("day")
        await page.get_by_role("button", name="Add").click()
        await expect(page.get_by_text("The feed is added")).to_be_visible()
        await expect(page.locator("tbody tr")).to_have_count(2)
        await expect(page.locator("tbody tr", has_text="@bea.b")).to_contain_text("every day")
        await page.get_by_role("button", name="Remove @ann").click()
        await expect(page.get_by_text("The feed is removed.")).to_be_visible()
        await expect(page.locator("tbody tr")).to_have_count(1)
        assert await rows(site.app, "SELECT handle, state FROM feeds ORDER BY id") == [
            ("ann", "removed"),
            ("bea.b", "new"),
        ]
        await page.get_by_role("button", name="Read @bea.b now").click()
        await expect(page.get_by_text("It will be polled now")).to_be_visible()


async def test_from_a_link_one_comes_to_who_posted_it_its_crawls_and_what_it_costs(
    browser: Browser, furnished_site: Site, there: Furnished
) -> None:
    async with visiting(browser, furnished_site) as visit:
        page = visit.page
        await visit.go("/links")
        await expect(page.locator("tbody tr")).to_have_count(4)
        await page.get_by_label("Lane").select_option("shopee")
        await page.get_by_label("State").select_option("blocked")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("tbody tr")).to_have_count(1)
        await visit.go("/links")
        await page.get_by_label("Part of a URL").fill("https://shopee.tw/any-slug-i.1.9007199254740993?utm_source=x")
        await page.get_by_role("button", name="Filter").click()
        await page.locator("tbody th a").click()
        await expect(page.get_by_text("The shop blocks us.")).to_be_visible()
        assert HOSTILE in await visit.text()
        posts = page.locator("article.post")
        await expect(posts).to_have_count(18)
        await expect(posts.filter(has_text="on Threads")).to_have_count(1)
        await expect(page.locator("#crawls-title + table tbody tr")).to_have_count(5)
        await page.locator("article").get_by_role("link", name="through another link").first.click()
        await expect(page.get_by_text("Leads to")).to_be_visible()
        await page.get_by_role("link", name="the product").click()
        await expect(page).to_have_url(re.compile(rf"/products/{there.shops.product}$"))


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (DESK, "light")])
async def test_a_product_shows_its_offers_as_a_drawing_with_doubted_ones_apart(
    browser: Browser, furnished_url: str, there: Furnished, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    async with dashboard(furnished_url) as site, visiting(browser, site, size=size, scheme=scheme) as visit:
        page = visit.page
        await visit.go(f"/products/{there.shops.product}")
        drawing = page.locator("svg.offers")
        await expect(drawing.locator("circle")).to_have_count(OFFERS - 2)
        await expect(drawing.locator(".doubt")).to_have_count(2)
        await expect(drawing).to_have_attribute("aria-label", re.compile(r"28 offers from .* TWD; 2 doubted"))
        box = await drawing.bounding_box()
        assert box is not None
        assert 250 < box["width"] <= size[0]
        colours = await page.evaluate(
            """() => [".offers .line", ".offers .doubt path"].map((each) =>
                    getComputedStyle(document.querySelector(each)).stroke)"""
        )
        paper = await page.locator(".card").first.evaluate("each => getComputedStyle(each).backgroundColor")
        assert len({*colours, paper}) == 3
        await page.locator("main details summary").first.click()
        await expect(page.get_by_text("shopee:item.price", exact=True).first).to_be_visible()
        chosen = page.locator("main details[open] table tbody tr", has_text="chosen")
        await expect(chosen).to_contain_text("7.25")
        await expect(chosen).to_contain_text("data and visible")
        await expect(page.get_by_text("mistnet products correct").first).to_be_visible()
        await expect(page.get_by_text("Corrected by hand")).to_have_count(1)
        await offer(site.app.database, there.shops.product, "42", at=site.app.database.clock.now())
        await expect(drawing.locator("circle")).to_have_count(OFFERS - 1)
        await expect(page.locator(".price")).to_have_text("42 TWD")
        assert await page.locator("main details").nth(1).get_attribute("open") is not None  # as it was left
        await visit.go(f"/products/{there.shops.gone}")
        await expect(page.get_by_text("Gone since")).to_be_visible()
        await visit.go(f"/products/{there.shops.plain}")
        await expect(page.get_by_text("None of its pages has been read yet.")).to_be_visible()


async def test_a_lane_says_what_it_waits_for_and_leads_to_its_failed_jobs(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url) as site:
        there = await furnish(site.app)
        async with visiting(browser, site) as visit:
            page = visit.page
            await visit.go("/lanes")
            shopee = page.locator("tbody tr", has=page.get_by_role("link", name="shopee", exact=True))
            await expect(shopee).to_contain_text("serving")
            await expect(shopee).to_contain_text("10 jobs due, the oldest for")
            await expect(shopee).to_contain_text("1 job running")
            await expect(shopee).to_contain_text("3 pages to visit handed to the broker")
            await expect(page.locator("tbody tr", has_text="by hand, since").first).to_be_visible()
            await shopee.get_by_role("link", name="2 failed of shopee").click()
            await page.get_by_role("button", name=f"Retry job {there.shops.letter}").click()
            await expect(page.get_by_text("The job is due now")).to_be_visible()
            await visit.go("/jobs?lane=shopee&state=dead")
            await page.get_by_role("button", name="Retry all 1 failed that match").click()
            await expect(page.get_by_text("All that match: lane shopee.")).to_be_visible()
            await page.get_by_role("button", name="Retry 1", exact=True).click()
            await expect(page.get_by_text("Failed jobs are retried.")).to_be_visible()
            await expect(page.get_by_text("No job matches.")).to_be_visible()
        left = await rows(site.app, "SELECT lane, state FROM jobs WHERE state IN ('dead', 'failed') ORDER BY id")
        assert ("shopee", "dead") not in left
        assert ("ebay", "failed") in left


NEWS = "new Promise(done => new EventSource('/live?seen=0').addEventListener('changed', done)).then(() => true)"


async def test_an_open_job_list_shows_newly_dead_jobs_and_keeps_ticked_rows(
    browser: Browser, furnished_url: str, there: Furnished
) -> None:
    async with dashboard(furnished_url) as site:
        (change_,) = await site.app.operations.retry([JobId(there.shops.letter)], now=site.app.database.clock.now())
        assert change_.changed
        async with visiting(browser, site) as visit:
            await visit.go("/jobs?lane=shopee&state=gaps")
            await expect(visit.page.locator("#pulse[data-state=on]")).to_be_visible()
            await expect(visit.page.locator(".jobs tbody tr")).to_have_count(1)
            await change(site.app, "UPDATE jobs SET state = 'dead' WHERE id = :id", id=there.shops.letter)
            await expect(visit.page.locator(".jobs tbody tr")).to_have_count(2)
            await visit.page.clock.install()
            await visit.page.get_by_label(f"Job {there.shops.letter}", exact=True).check()
            await change(site.app, "UPDATE jobs SET state = 'dead' WHERE lane = 'shopee' AND state = 'queued'")
            await visit.page.evaluate(NEWS)
            await visit.page.clock.run_for(10_000)
            await expect(visit.page.locator(".jobs tbody tr")).to_have_count(2)
            await expect(visit.page.get_by_label(f"Job {there.shops.letter}", exact=True)).to_be_checked()
