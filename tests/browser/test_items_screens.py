"""Items in a real browser: what is followed, what it is worth, which points carry that, and slips that are told."""

import re
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from mistnet.app import App
from mistnet.prices.model import ItemId
from tests.browser.dashboards import DESK, PHONE, dashboard, visiting
from tests.browser.valued import WEEKS, value
from tests.followed import point, tell_prices
from tests.harvests import rows

CENT = "1909-S VDB Lincoln cent"


async def test_a_thing_is_followed_asked_for_paused_and_removed(browser: Browser, sqlite_url: str) -> None:
    async with (
        dashboard(sqlite_url) as site,
        visiting(browser, site, expected=(400,)) as visit,
    ):
        page = visit.page
        await visit.go("/")
        await page.get_by_role("link", name="Prices").click()
        await page.get_by_role("link", name="Items", exact=True).click()
        await expect(page.get_by_text("No item is followed yet")).to_be_visible()
        await page.get_by_label("Follow the price of an item").fill(CENT)
        await page.get_by_label("Valued in").fill("UDS")
        await page.get_by_role("button", name="Follow").click()
        await expect(page.get_by_role("alert")).to_contain_text("Did you mean 'USD'?")
        await expect(page.get_by_label("Follow the price of an item")).to_have_value(CENT)
        await page.get_by_label("Valued in").fill("usd")
        await page.get_by_role("button", name="Follow").click()
        await expect(page.get_by_text("Added. Its sources")).to_be_visible()
        await expect(page.get_by_role("heading", name=CENT)).to_be_visible()
        await expect(page.get_by_text("Nothing was found yet.")).to_be_visible()
        await page.get_by_role("button", name="Query now").click()
        await expect(page.get_by_text("Its sources will be queried")).to_be_visible()
        assert len(await rows(site.app, "SELECT id FROM jobs WHERE kind = 'price'")) == len(site.app.valuing.by_name)
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator("h1 .state")).to_have_text("paused")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.get_by_text("Resumed. Its sources")).to_be_visible()
        await page.get_by_role("button", name="Remove").click()
        await expect(page.get_by_text("It is not followed any more,")).to_be_visible()
        assert await rows(site.app, "SELECT title, currency, state FROM items") == [(CENT, "USD", "removed")]
        await visit.go("/items")
        await expect(page.get_by_text("No item is followed yet")).to_be_visible()
        await page.get_by_label("State").select_option("removed")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (DESK, "light")])
async def test_an_item_is_drawn_with_its_range_and_its_points_by_kind_and_left_out_ones_say_why(
    browser: Browser, sqlite_url: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    async with dashboard(sqlite_url) as site:
        item = await value(site.app, title=CENT)
        async with visiting(browser, site, size=size, scheme=scheme) as visit:
            page = visit.page
            await visit.go("/items")
            row = page.locator("tbody tr")
            await expect(row).to_contain_text("USD")
            await expect(row).to_contain_text("↑")
            await page.locator(f"#item-{item}").click()
            drawing = page.locator("svg.points[role=img]")
            for kind in ("sold", "ask", "bid"):
                await expect(drawing.locator(f".point.{kind}:not(.left-out)")).to_have_count(WEEKS)
            await expect(drawing.locator(".point.left-out")).to_have_count(2)
            await expect(drawing).to_have_attribute(
                "aria-label", re.compile(r"from .* to .* USD, now within .* points")
            )
            await expect(page.get_by_text("1 point in a currency without a known exchange rate")).to_be_visible()
            for said in ("outlier", "a tenth of the last", "rate from EUR to USD"):
                await expect(page.locator("#points-title").locator("xpath=../..")).to_contain_text(said)
            await expect(page.get_by_text("it answers with a riddle")).to_be_visible()
            box = await drawing.bounding_box()
            assert box is not None
            assert 250 < box["width"] <= size[0]
            strokes = await page.evaluate(
                """() => [".point.ask", ".point.sold", ".point.bid", ".point.left-out"].map((each) =>
                    getComputedStyle(document.querySelector(`svg[role=img] ${each}`)).stroke)"""
            )
            assert len(set(strokes)) == 4
            await page.get_by_role("link", name="bid", exact=True).click()
            await expect(page.locator("#points-title").locator("xpath=../..").locator("tbody tr")).to_have_count(WEEKS)
            await visit.go(f"/items/{item}")
            before = await page.locator(".price").inner_text()
            await _dearer(site.app, item)
            await expect(page.locator(".price")).not_to_have_text(before)


async def _dearer(app: App, item: ItemId) -> None:
    now = app.database.clock.now()
    points = [point(str(1_100 + n), f"new{n}", now, title=CENT) for n in range(20)]
    await tell_prices(app, item, points)
