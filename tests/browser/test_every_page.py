"""Every page in a real browser: on a phone and a desk, light and dark, with the worst that people write."""

from typing import Literal

import pytest
from playwright.async_api import expect

from tests.browser.dashboards import DESK, PHONE, a_browser, dashboard, visiting
from tests.browser.furnished import ANN, DEEP, HOSTILE, furnish


def named(path: str) -> str:
    place, _, asked = path.strip("/").partition("?")
    sort, *one = place.split("/")
    return "-".join([sort or "overview", *("one" for _ in one), *(["asked"] if asked else [])])


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "light"), (PHONE, "dark"), (DESK, "light"), (DESK, "dark")])
async def test_no_page_is_wider_than_the_screen_asks_elsewhere_or_runs_what_people_wrote(
    sqlite_url: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    async with a_browser() as browser, dashboard(sqlite_url) as site:
        there = await furnish(site.app)
        async with visiting(browser, site, size=size, scheme=scheme) as visit:
            for path in there.paths:
                await visit.go(path)
                await expect(visit.page.locator("h1").first).to_be_attached()
                await visit.shot(f"{named(path)}-{size[0]}-{scheme}")
                wide = await visit.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= size[0], f"{path} is {wide} pixels wide"
                assert (await visit.page.title()).endswith("· mistnet"), path
                for sort in ("img", "main script", "[onerror]", 'a[href^="javascript"]'):
                    assert await visit.page.locator(sort).count() == 0, f"{path} has {sort}"
                outward = visit.page.locator('main a[href^="http"]')
                for place in range(await outward.count()):
                    assert "noopener" in (await outward.nth(place).get_attribute("rel") or ""), path


async def test_html_in_names_posts_reasons_and_errors_is_shown_as_text(sqlite_url: str) -> None:
    async with a_browser() as browser, dashboard(sqlite_url) as site:
        there = await furnish(site.app)
        async with visiting(browser, site) as visit:
            shown = {
                "/": "HTML in an alert and an error",
                "/accounts": "in a name",
                f"/accounts/{ANN}": "in a bio and posts",
                f"/conversations/{there.thread}": "in posts",
                f"/segments/{there.segment}": "in the names of members",
                f"/segments/{there.posts}": "in a rule and posts",
                f"/jobs/{there.dead}": "in an error",
                "/sources": "in the reason of a pause",
                "/feeds": "in why a feed is refused",
                "/links": "in a title",
                f"/links/{there.shops.link}": "in a problem and posts",
                "/products": "in titles",
                f"/products/{there.shops.product}": "in a title, doubts and posts",
                "/items": "in a title",
                f"/items/{there.item}": "in a title, attributes, reasons and a problem",
                "/lanes": "in errors",
                f"/runs/{there.run}": "in a reason",
            }
            for path, what in shown.items():
                await visit.go(path)
                assert HOSTILE in await visit.text(), what


async def test_a_deep_thread_with_a_gap_can_be_read_on_a_phone(sqlite_url: str) -> None:
    async with a_browser() as browser, dashboard(sqlite_url) as site:
        there = await furnish(site.app)
        async with visiting(browser, site, size=PHONE) as visit:
            await visit.go(f"/conversations/{there.thread}")
            articles = visit.page.locator(".tree article")
            assert await articles.count() == DEEP + 1
            await expect(visit.page.locator(".tree .gap")).to_contain_text("is missing, and nothing looks for it")
            narrow = [(await articles.nth(place).bounding_box() or {"width": 0})["width"] for place in (0, 5, DEEP - 1)]
            assert min(narrow) > 240, narrow
            await expect(visit.page.get_by_text("answers @ann_of_the_net1").first).to_be_visible()


async def test_what_is_not_there_is_told_on_a_page_of_its_own(sqlite_url: str) -> None:
    async with (
        a_browser() as browser,
        dashboard(sqlite_url) as site,
        visiting(browser, site, expected=(404,)) as visit,
    ):
        for path in ("/nothing", "/jobs/999", "/accounts/5", "/conversations/5", "/segments/5", "/runs/none"):
            await visit.go(path)
            await expect(visit.page.get_by_role("heading", name="Nothing here")).to_be_visible()
            await expect(visit.page.get_by_role("link", name="Back to the overview")).to_be_visible()
