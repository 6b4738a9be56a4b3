"""Segments in a real browser: one is defined, materialized by a worker, and watched as it changes."""

import re
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from mistnet.sim.world import World
from tests.browser.dashboards import DESK, PHONE, Site, dashboard, visiting
from tests.browser.furnished import ANN, CROWD, Furnished
from tests.graphs import turn
from tests.harvests import rows
from tests.worlds import SMALLEST, Oracle

WORLD = World(7, SMALLEST)


async def test_a_defined_segment_shows_its_members_as_they_arrive(browser: Browser, sqlite_url: str) -> None:
    handle = Oracle(WORLD).handles[0]
    async with (
        dashboard(sqlite_url, world=WORLD, working=True) as site,
        visiting(browser, site) as visit,
    ):
        page = visit.page
        await visit.go("/")
        await page.get_by_role("link", name="Network").click()
        await page.get_by_role("link", name="Segments", exact=True).click()
        await expect(page.get_by_text("No segment yet.")).to_be_visible()
        await page.get_by_label("Name").fill("crowd")
        await page.get_by_label("Who is in it").select_option("followed")
        await page.get_by_label("Whom", exact=True).fill(f"https://x.com/{handle}")
        await page.get_by_label("Materialized").select_option("day")
        await page.get_by_role("button", name="Define").click()
        await expect(page.get_by_text("The segment is defined")).to_be_visible()
        await expect(page).not_to_have_url(re.compile("did="))
        await expect(page.get_by_text(f"users whom @{handle} follows; materialized every day")).to_be_visible()
        members = page.locator(".tile", has=page.get_by_role("heading", name="Members"))
        count = members.locator(".big")
        await expect(count).to_have_text(re.compile(r"^[1-9]"))
        await expect(page.locator("svg.graph circle").first).to_be_visible()
        shown = await count.inner_text()
        while await rows(site.app, "SELECT count(*) FROM segment_members") != [(int(shown.replace(",", "")),)]:
            await expect(count).not_to_have_text(shown)  # more came in meanwhile, and the page must show it
            shown = await count.inner_text()
        listed = page.locator("[aria-labelledby=members-title] tbody tr")
        await expect(listed).to_have_count(min(int(shown.replace(",", "")), 50))


async def test_a_slip_in_the_form_is_told_and_what_was_typed_stays(browser: Browser, empty_site: Site) -> None:
    async with visiting(browser, empty_site, expected=(400,)) as visit:
        page = visit.page
        await visit.go("/segments")
        await page.get_by_label("Name").fill("Not A Name")
        await page.get_by_label("Whom", exact=True).fill("@ann")
        await page.get_by_label("Who is in it").select_option("mutuals")
        await page.get_by_role("button", name="Define").click()
        await expect(page.get_by_role("alert")).to_contain_text("a name begins with a letter")
        await expect(page.get_by_label("Name")).to_have_value("Not A Name")
        await expect(page.get_by_label("Who is in it")).to_have_value("mutuals")


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (DESK, "light")])
async def test_the_plot_and_the_picture_fit_the_screen_and_show_in_light_and_dark(
    browser: Browser, furnished_site: Site, there: Furnished, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    async with visiting(browser, furnished_site, size=size, scheme=scheme) as visit:
        page = visit.page
        for edges in ("follows", "replies"):
            await visit.go(f"/segments/{there.segment}?edges={edges}")
            await expect(page.locator("svg.graph circle")).to_have_count(CROWD + 1)
            await expect(page.locator("#members-plot .line")).to_be_visible()
            box = await page.locator("svg.graph").bounding_box()
            assert box is not None
            assert 200 < box["width"] <= size[0]
            await visit.shot(f"segment-{edges}-{size[0]}-{scheme}")
            assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
        small = page.locator("svg.graph text.named-1").first
        await (expect(small).to_be_hidden() if size == PHONE else expect(small).to_be_visible())
        colours = await page.evaluate(
            """() => [document.querySelector("svg.graph circle"), document.querySelector(".card")]
                .map((each) => getComputedStyle(each)).map((style) => [style.fill, style.backgroundColor])"""
        )
        assert colours[0][0] != colours[1][1]
        await visit.go(f"/accounts/{ANN}")
        await expect(page.locator("#followers-plot .line")).to_be_visible()
        await visit.shot(f"account-follows-{size[0]}-{scheme}")


async def test_an_open_segment_page_shows_changes_of_its_members(
    browser: Browser, furnished_url: str, there: Furnished
) -> None:
    async with dashboard(furnished_url) as site, visiting(browser, site) as visit:
        page = visit.page
        await visit.go(f"/segments/{there.segment}")
        await expect(page.locator(".went.gone")).to_have_count(1)
        await expect(page.locator("#pulse[data-state=on]")).to_be_visible()
        now = site.app.database.clock.now()
        await turn(site.app.database, there.segment, entered=[], left=[910], members=CROWD, at=now)
        await expect(page.locator(".went.gone")).to_have_count(2)
        await expect(page.locator("#members-plot")).to_have_attribute(
            "aria-label", re.compile("^4 counts .* from 60 to 60 users")
        )


async def test_a_segment_is_materialized_disabled_and_enabled_by_its_buttons(
    browser: Browser, furnished_url: str, there: Furnished
) -> None:
    async with dashboard(furnished_url) as site:
        async with visiting(browser, site) as visit:
            page = visit.page
            await visit.go(f"/segments/{there.segment}")
            await page.get_by_role("button", name="Materialize now").click()
            await expect(page.get_by_text("It will be materialized")).to_be_visible()
            await expect(page.get_by_role("link", name="Waits to be materialized")).to_be_visible()
            await page.get_by_role("button", name="Disable").click()
            await expect(page.locator("h1 .state")).to_have_text("disabled")
            await page.get_by_role("button", name="Enable").click()
            await expect(page.get_by_role("button", name="Materialize now")).to_be_visible()
        kinds = await rows(site.app, "SELECT count(*) FROM jobs WHERE kind = 'materialize'")
        assert kinds == [(1,)]
