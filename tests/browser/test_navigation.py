"""The navigation in a real browser: six entries with tabs, a menu on phones, and a search box that leads anywhere."""

from playwright.async_api import Browser, expect

from mistnet.web.pages import ENTRIES
from tests.browser.dashboards import DESK, PHONE, Site, visiting
from tests.browser.furnished import ANN, Furnished

INSIDE = """links => links.every((each) => {
    const box = each.getBoundingClientRect();
    return box.width > 0 && box.left >= 0 && box.right <= window.innerWidth;
})"""


async def test_every_entry_and_tab_leads_to_a_page_that_marks_where_it_is(browser: Browser, empty_site: Site) -> None:
    async with visiting(browser, empty_site, size=DESK) as visit:
        for entry in ENTRIES:
            for tab in entry.tabs:
                await visit.go(tab.href)
                here = visit.page.locator("header .entries [aria-current]")
                await expect(here).to_have_text(entry.name)
                tabs = visit.page.locator(".sections a")
                assert await tabs.count() == (len(entry.tabs) if len(entry.tabs) > 1 else 0)
                if len(entry.tabs) > 1:
                    await expect(visit.page.locator(".sections [aria-current=page]")).to_have_text(tab.name)


async def test_a_page_below_a_tab_marks_the_tab_it_belongs_to(
    browser: Browser, furnished_site: Site, there: Furnished
) -> None:
    places = {f"/jobs/{there.dead}": "Jobs", f"/segments/{there.segment}": "Segments", f"/items/{there.item}": "Items"}
    async with visiting(browser, furnished_site) as visit:
        for path, name in places.items():
            await visit.go(path)
            await expect(visit.page.locator(".sections [aria-current=true]")).to_have_text(name)
        await visit.go(f"/conversations/{there.thread}")
        await expect(visit.page.locator("header .entries [aria-current=true]")).to_have_text("Accounts")


async def test_a_phone_has_a_menu_that_cuts_nothing_off_with_and_without_scripts(
    browser: Browser, empty_site: Site
) -> None:
    every = len(ENTRIES) + sum(len(entry.tabs) for entry in ENTRIES if len(entry.tabs) > 1)
    for scripts in (True, False):
        context = await browser.new_context(
            viewport={"width": PHONE[0], "height": PHONE[1]}, java_script_enabled=scripts
        )
        page = await context.new_page()
        await page.goto(f"{empty_site.url}/jobs")
        links = page.locator(".menu a")
        await expect(links.first).to_be_hidden()
        await page.get_by_text("Menu", exact=True).click()
        assert await links.count() == every
        for place in range(every):
            await expect(links.nth(place)).to_be_in_viewport()
        if scripts:
            assert await links.evaluate_all(INSIDE)
            assert await page.locator(".sections a").evaluate_all(INSIDE)
        await page.locator(".menu").get_by_role("link", name="Links").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Links")
        await page.get_by_role("searchbox", name="Find anything").fill("nothing like it")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Search")
        await context.close()


async def test_a_slash_leads_to_the_search_box_and_a_handle_to_its_account(
    browser: Browser, furnished_site: Site
) -> None:
    async with visiting(browser, furnished_site) as visit:
        await visit.go("/jobs")
        await visit.page.keyboard.press("/")
        assert await visit.page.evaluate("document.activeElement.id") == "jump"
        await visit.page.keyboard.type("@ann_of_the_net1/")
        assert await visit.page.locator("#jump").input_value() == "@ann_of_the_net1/"
        await visit.page.locator("#jump").fill("@ann_of_the_net1")
        await visit.page.keyboard.press("Enter")
        await visit.page.wait_for_url(f"**/accounts/{ANN}")


async def test_an_error_keeps_the_navigation(browser: Browser, empty_site: Site) -> None:
    async with visiting(browser, empty_site, expected=(400, 404)) as visit:
        for path in ("/nothing", "/jobs/999", "/jobs?before=nonsense"):
            await visit.go(path)
            await expect(visit.page.get_by_role("heading", level=1)).to_be_visible()
            await expect(visit.page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_count(6)


async def test_the_page_of_the_api_is_short_and_opens_by_groups(browser: Browser, empty_site: Site) -> None:
    for size in (DESK, PHONE):
        async with visiting(browser, empty_site, size=size) as visit:
            await visit.go("/api/docs")
            await expect(visit.page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_count(
                6 if size == DESK else 0
            )
            tall = await visit.page.evaluate("document.documentElement.scrollHeight / window.innerHeight")
            assert tall < 3, tall
            route = visit.page.locator("summary", has_text="/api/jobs/requeue")
            await expect(route).to_be_hidden()
            await visit.page.locator("summary", has=visit.page.get_by_role("heading", name="Jobs")).click()
            await route.click()
            await expect(visit.page.locator("#jobs").get_by_text("Body:").first).to_be_visible()
            assert await visit.page.evaluate("document.documentElement.scrollWidth") == size[0]
