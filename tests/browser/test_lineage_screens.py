"""Posts as marks on a product's prices, and an account's products, in a real browser, by mouse, keyboard and finger."""

import re
from typing import Literal

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.dashboards import DESK, PHONE, Site, dashboard, visiting
from tests.browser.promoted import ANN, CAT, PRICES, Promoted, promote

RENEW = """() => new Promise((renewed) => {
    document.addEventListener("htmx:afterSettle", renewed, { once: true });
    htmx.trigger(document.body, "changed");
})"""


async def overflows(page: Page) -> bool:
    return bool(await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
async def test_posts_are_marks_on_the_prices_and_stand_below_with_before_and_after(
    browser: Browser, promoted_site: tuple[Site, Promoted], size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    name = f"{'harness' if size is DESK else 'phone'}-{scheme}"
    site, there = promoted_site
    async with visiting(browser, site, size=size, scheme=scheme) as visit:
        page = visit.page
        await visit.go(f"/products/{there.kettle}")
        marks = page.locator(".marks a")
        await expect(marks).to_have_count(7)  # three posts of two days are one mark
        await expect(page.locator("svg.offers circle")).to_have_count(len(PRICES))
        await expect(page.locator(".mark.repost")).to_have_count(1)
        await expect(page.locator(".mark.quote")).to_have_count(1)
        await expect(
            page.get_by_text("3 posts from").or_(page.get_by_label(re.compile("^3 posts from")))
        ).to_have_count(1)
        posts = page.locator("#posts-title ~ article")
        await expect(posts).to_have_count(9)
        await expect(posts.filter(has_text="No price was known")).to_have_count(1)
        await expect(posts.filter(has_text="gone")).to_have_count(1)
        await expect(posts.filter(has_text="on Threads")).to_have_count(1)
        assert not await overflows(page)
        await visit.shot(f"lineage-product-{name}")
        await marks.nth(1).scroll_into_view_if_needed()
        await marks.nth(1).focus()
        await page.keyboard.press("Tab")
        note = page.locator(".note:visible")
        await expect(note).to_have_count(1)
        box = await note.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
        await visit.shot(f"lineage-note-{name}")
        await page.keyboard.press("Escape")
        await expect(note).to_have_count(0)
        await page.evaluate(RENEW)
        await expect(note).to_have_count(0)  # a page that renews itself does not bring it back
        await visit.go(f"/accounts/{ANN}")
        await expect(page.locator("#linked-title")).to_be_visible()
        await expect(page.locator("svg.spark")).to_have_count(3)
        assert not await overflows(page)
        await visit.shot(f"lineage-account-{name}")


async def test_a_mark_shows_its_post_and_leads_to_the_conversation(
    browser: Browser, promoted_site: tuple[Site, Promoted]
) -> None:
    site, there = promoted_site
    async with visiting(browser, site) as visit:
        page = visit.page
        await visit.go(f"/products/{there.kettle}")
        last = page.locator(".marks a").last
        await last.hover()
        await expect(page.locator(".note:visible")).to_contain_text("@ann_finds")
        await expect(page.locator(".note:visible")).to_contain_text("before")
        await last.click()
        await expect(page).to_have_url(re.compile(rf"/conversations/{there.single}#p{there.single}$"))
        await visit.go(f"/products/{there.kettle}")
        await page.get_by_label(re.compile("^3 posts from")).click()
        await expect(page).to_have_url(re.compile(r"#posts-title$"))


async def test_by_keyboard_alone_a_mark_is_reached_told_and_followed(
    browser: Browser, promoted_site: tuple[Site, Promoted]
) -> None:
    site, there = promoted_site
    async with visiting(browser, site) as visit:
        page = visit.page
        await visit.go(f"/products/{there.kettle}")
        for _ in range(60):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.classList.contains('mark')"):
                break
        await expect(page.locator(".note:visible")).to_have_count(1)
        told = await page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert "@ann_finds" in told
        assert "no price known before" in told
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(rf"/conversations/{there.first}#p{there.first}$"))


async def test_on_a_phone_the_first_tap_tells_and_the_second_follows(
    browser: Browser, promoted_site: tuple[Site, Promoted]
) -> None:
    site, there = promoted_site
    context = await browser.new_context(viewport={"width": 375, "height": 780}, has_touch=True, is_mobile=True)
    try:
        page = await context.new_page()
        await page.goto(f"{site.url}/products/{there.kettle}")
        last = page.locator(".marks a").last
        await last.scroll_into_view_if_needed()
        await last.tap()
        await expect(page.locator(".marks li.shown .note")).to_be_visible()
        await expect(page).to_have_url(re.compile(rf"/products/{there.kettle}$"))
        await last.tap()
        await expect(page).to_have_url(re.compile(rf"/conversations/{there.single}"))
    finally:
        await context.close()


async def test_an_accounts_products_have_a_page_of_their_own_on_either_platform(
    browser: Browser, sqlite_url: str
) -> None:
    async with dashboard(sqlite_url) as site:
        there = await promote(site.app)
        async with visiting(browser, site) as visit:
            page = visit.page
            await visit.go(f"/people/x/{ANN}/products")
            await expect(page.locator("tbody tr")).to_have_count(4)
            await expect(page.locator("tbody tr").first).to_contain_text("Gooseneck kettle")
            await expect(page.locator("tbody tr", has_text="Mug")).to_contain_text("gone")
            await expect(page.locator("tbody tr", has_text="shop.example")).to_have_count(0)
            await visit.shot("lineage-people-desk")
            await visit.go(f"/people/threads/{CAT}/products")
            await page.get_by_role("link", name="Gooseneck kettle").click()
            await expect(page).to_have_url(re.compile(rf"/products/{there.kettle}$"))
