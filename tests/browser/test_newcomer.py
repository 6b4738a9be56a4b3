"""A new user opens the dashboard: adds an account, watches it fill, reads a conversation."""

import re

from playwright.async_api import Browser, expect

from mistnet.sim.world import World
from tests.browser.dashboards import Site, dashboard, visiting
from tests.worlds import SMALLEST, Oracle

WORLD = World(7, SMALLEST)


async def test_a_newcomer_adds_an_account_watches_it_fill_and_opens_a_conversation(
    browser: Browser, sqlite_url: str
) -> None:
    oracle = Oracle(WORLD)
    handle = next(each for each in oracle.handles if oracle.truth.missing_ancestors([each], oracle.at))
    async with (
        dashboard(sqlite_url, world=WORLD, working=True) as site,
        visiting(browser, site) as visit,
    ):
        page = visit.page
        await visit.go("/")
        await expect(page.get_by_role("heading", name="First steps")).to_be_visible()
        await visit.go("/accounts")
        await expect(page.get_by_text("No account is tracked yet")).to_be_visible()

        await page.get_by_label("Add an account").fill(f"https://x.com/{handle}")
        await page.get_by_role("button", name="Collect").click()
        await expect(page.get_by_text("Added.")).to_be_visible()
        await expect(page).not_to_have_url(re.compile("did="))

        row = page.locator("tbody tr", has_text=f"@{handle}")
        await expect(row.locator(".doing")).to_have_text(re.compile("complete since"))
        await expect(row.locator("td.n").first).to_have_text(re.compile(r"[1-9]"))
        await row.get_by_role("link").click()

        await expect(page.get_by_role("heading", level=1)).to_contain_text(f"@{handle}")
        await expect(page.get_by_text("When it posts")).to_be_visible()
        await expect(page.locator("table.heat td.l5").first).to_be_visible()
        while not await page.get_by_text("a reply", exact=True).count():
            async with page.expect_navigation():  # or the page before would be counted again, and one passed over
                await page.get_by_role("link", name="Older posts").click()
        answer = page.locator("article.post", has=page.get_by_text("a reply", exact=True)).first
        await answer.locator("a.when").click()

        await expect(page.locator(".opening h1")).to_be_visible()
        await expect(page.locator(".opening").get_by_role("link", name=f"@{handle}").first).to_be_visible()
        await expect(page.locator(".tree article:target")).to_be_visible()
        assert await page.locator(".tree > li").count() > 1


async def test_a_handle_that_cannot_be_one_is_told_beside_its_field(browser: Browser, empty_site: Site) -> None:
    async with visiting(browser, empty_site, expected=(400,)) as visit:
        await visit.go("/accounts")
        field = visit.page.get_by_label("Add an account")
        await field.fill("not a handle!")
        await field.press("Enter")
        await expect(visit.page.get_by_role("alert")).to_contain_text("1 to 15 letters")
        await expect(visit.page.get_by_label("Add an account")).to_have_value("not a handle!")


async def test_everything_can_be_reached_by_keyboard(browser: Browser, empty_site: Site) -> None:
    async with visiting(browser, empty_site) as visit:
        await visit.go("/")
        await visit.page.keyboard.press("Tab")
        assert await visit.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        await visit.page.keyboard.press("Enter")
        assert await visit.page.evaluate("document.activeElement.id") == "main"
        await visit.go("/accounts")
        for _ in range(await visit.page.locator("header a, header button, header summary").count() + 2):
            if await visit.page.evaluate("document.activeElement.id") != "handle":
                await visit.page.keyboard.press("Tab")
        assert await visit.page.evaluate("document.activeElement.id") == "handle"
        seen = await visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert seen == "solid"
