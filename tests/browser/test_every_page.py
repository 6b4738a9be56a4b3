"""Every page in a real browser: on a phone and a desktop, light and dark, with the worst that people write."""

from typing import Literal, TypeAlias

import pytest
from playwright.async_api import Browser, expect

from mistnet.social.accounts import AccountTracked
from mistnet.social.model import UserId, X
from tests.browser.dashboards import DESK, PHONE, Site, dashboard, visiting
from tests.browser.furnished import ANN, DEEP, HOSTILE, Furnished
from tests.harvests import change, tell, user
from tests.shelves import link, product

Scheme: TypeAlias = Literal["light", "dark"]


def named(path: str) -> str:
    place, _, asked = path.strip("/").partition("?")
    sort, *one = place.split("/")
    return "-".join([sort or "overview", *("one" for _ in one), *(["asked"] if asked else [])])


FORBIDDEN = ("img", "main script", "[onerror]", 'a[href^="javascript"]', 'main a[href^="http"]:not([rel~=noopener])')
LOOK = """forbidden => ({
    width: document.documentElement.scrollWidth,
    title: document.title,
    heading: document.querySelector("h1") !== null,
    forbidden: forbidden.filter((each) => document.querySelector(each)),
    broken: [...document.querySelectorAll("thead th")].filter((each) => each.clientWidth > 1).flatMap((each) => {
        const text = each.firstChild?.nodeType === Node.TEXT_NODE ? each.firstChild : null;
        return [...(text?.data ?? "").matchAll(/\\S+/g)].filter((word) => {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            return range.getClientRects().length > 1;
        }).map((word) => word[0]);
    }),
})"""


@pytest.mark.parametrize(("size", "schemes"), [(PHONE, ("light", "dark")), (DESK, ("dark", "light"))])
async def test_no_page_is_wider_than_the_screen_asks_elsewhere_or_runs_what_people_wrote(
    browser: Browser, furnished_site: Site, there: Furnished, size: tuple[int, int], schemes: tuple[Scheme, Scheme]
) -> None:
    """Each page is loaded in one scheme and then turned to the other, as the system's settings may do."""
    async with visiting(browser, furnished_site, size=size) as visit:
        wrong = []
        for path in there.paths:
            for scheme in schemes:
                await visit.page.emulate_media(color_scheme=scheme)
                if scheme == schemes[0]:
                    await visit.go(path)
                await visit.shot(f"{named(path)}-{size[0]}-{scheme}")
                seen = await visit.page.evaluate(LOOK, FORBIDDEN)
                if seen["width"] > size[0]:
                    wrong.append(f"{path} in {scheme} is {seen['width']} pixels wide")
                if not (seen["heading"] and seen["title"].endswith("· mistnet")):
                    wrong.append(f"{path} has no heading, or is entitled {seen['title']}")
                wrong += [f"{path} has {each}" for each in seen["forbidden"]]
                wrong += [f"{path} breaks {word} in the heading of a column" for word in seen["broken"]]
        assert wrong == []


async def test_html_in_names_posts_reasons_and_errors_is_shown_as_text(
    browser: Browser, furnished_site: Site, there: Furnished
) -> None:
    async with visiting(browser, furnished_site) as visit:
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


async def test_a_deep_thread_with_a_gap_can_be_read_on_a_phone(
    browser: Browser, furnished_site: Site, there: Furnished
) -> None:
    async with visiting(browser, furnished_site, size=PHONE) as visit:
        await visit.go(f"/conversations/{there.thread}")
        articles = visit.page.locator(".tree article")
        assert await articles.count() == DEEP + 1
        await expect(visit.page.locator(".tree .gap")).to_contain_text("is missing, and no job fetches it")
        narrow = [(await articles.nth(place).bounding_box() or {"width": 0})["width"] for place in (0, 5, DEEP - 1)]
        assert min(narrow) > 240, narrow
        await expect(visit.page.get_by_text("replies to @ann_of_the_net1").first).to_be_visible()


async def test_what_is_not_there_is_told_on_a_page_of_its_own(browser: Browser, empty_site: Site) -> None:
    async with visiting(browser, empty_site, expected=(404,)) as visit:
        for path in ("/nothing", "/jobs/999", "/accounts/5", "/conversations/5", "/segments/5", "/runs/none"):
            await visit.go(path)
            await expect(visit.page.get_by_role("heading", name="Nothing here")).to_be_visible()
            await expect(visit.page.get_by_role("link", name="Back to the overview")).to_be_visible()


async def test_the_overview_shows_spending_once_and_every_alert_in_view(
    browser: Browser, furnished_url: str, there: Furnished
) -> None:
    lanes = ["shopee", "taobao", "ebay", "web"]
    async with dashboard(furnished_url, crawl_lanes=lanes) as site, visiting(browser, site) as visit:
        await change(site.app, "UPDATE jobs SET last_error = 'upstream does not return this user'")
        await visit.go("/")
        await expect(visit.page.get_by_text("Spent today", exact=True)).to_have_count(1)
        needs = visit.page.locator(".needs > li")
        await expect(visit.page.locator(".needs > li.note")).not_to_have_count(0)
        for place in range(await needs.count()):
            await expect(needs.nth(place)).to_be_visible()


@pytest.mark.parametrize("size", [PHONE, DESK])
async def test_a_new_installation_sees_its_first_steps_and_no_empty_chart(
    browser: Browser, sqlite_url: str, size: tuple[int, int]
) -> None:
    async with dashboard(sqlite_url) as site, visiting(browser, site, size=size) as visit:
        page = visit.page
        await visit.go("/")
        steps = page.locator(".steps li")
        await expect(steps).to_have_count(4)
        await expect(page.locator(".steps li.done")).to_have_count(1)  # the key
        await expect(page.locator(".plot")).to_have_count(0)
        await visit.shot(f"first-steps-{size[0]}")
        await page.get_by_role("button", name="At most $2 a day").click()
        await visit.go("/")
        await expect(steps.nth(1)).to_contain_text("At most $2.00 a day")
        await page.get_by_label("Handle").fill("@somebody")
        await page.get_by_role("button", name="Collect").click()
        await visit.go("/")
        await expect(steps.nth(2)).to_contain_text("1 asked for")
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]


async def test_each_chart_of_the_overview_has_one_axis_and_its_bars_can_be_seen(
    browser: Browser, furnished_site: Site
) -> None:
    async with visiting(browser, furnished_site) as visit:
        await visit.go("/?span=day")
        bars = visit.page.locator(".plot.posts rect")
        await expect(bars).not_to_have_count(0)
        sizes = [await bars.nth(place).bounding_box() for place in range(await bars.count())]
        assert all(each and each["width"] > 3 for each in sizes), sizes
        assert max(each["height"] for each in sizes if each) > 100, sizes
        await expect(visit.page.locator(".plot.money")).to_have_count(0)
        await expect(visit.page.get_by_text("Nothing was spent in this time.")).to_be_visible()


LISTS = ("/accounts", "/segments", "/feeds", "/links", "/products", "/items", "/search?q=extraordin*")


@pytest.mark.parametrize("size", [(390, 844), (1440, 900)])
async def test_lists_are_no_higher_than_three_screens_however_long_the_texts_are(
    browser: Browser, furnished_url: str, there: Furnished, size: tuple[int, int]
) -> None:
    """Of accounts, links and products there are more than a page holds."""
    async with dashboard(furnished_url) as site, visiting(browser, site, size=size) as visit:
        crowd = [UserId(each) for each in range(5_000, 5_040)]
        await tell(
            site.app,
            *(user(each, f"account{each}", name="A name of usual length") for each in crowd),
            *(AccountTracked(platform=X, user_id=each) for each in crowd),
        )
        for place in range(40):
            await link(site.app.database, f"https://shopee.tw/product/9/{place}")
            await product(site.app.database, f"many-{place}")
        heights = {}
        for path in LISTS:
            await visit.go(path)
            heights[path] = await visit.page.evaluate("document.documentElement.scrollHeight / window.innerHeight")
            await visit.shot(f"list-{named(path)}-{size[0]}")
        assert max(heights.values()) <= 3, heights


async def test_a_long_post_is_cut_until_it_is_opened(browser: Browser, furnished_site: Site, there: Furnished) -> None:
    async with visiting(browser, furnished_site, size=PHONE) as visit:
        await visit.go(f"/accounts/{ANN}")
        long = visit.page.locator("article .long > summary").first
        box = await long.bounding_box()
        assert box is not None
        assert box["height"] < 160
        await long.click(position={"x": 5, "y": 60})
        await expect(visit.page.locator("article .long").first).to_have_attribute("open", "")
        opened = await long.bounding_box()
        assert opened is not None
        assert opened["height"] > box["height"]


OVERLAPS = """() => {
    const apart = (one, other) => one.right <= other.left || other.right <= one.left
        || one.bottom <= other.top || other.bottom <= one.top;
    return [...document.querySelectorAll(".plot")].filter((plot) => {
        const labels = [...plot.querySelectorAll(".moment, .rule-at")].map((each) => each.getBoundingClientRect());
        return labels.some((one, place) => labels.slice(place + 1).some((other) => !apart(one, other)));
    }).map((plot) => plot.id);
}"""


@pytest.mark.parametrize("size", [PHONE, DESK])
async def test_labels_of_charts_do_not_overlap(
    browser: Browser, furnished_site: Site, there: Furnished, size: tuple[int, int]
) -> None:
    async with visiting(browser, furnished_site, size=size) as visit:
        seen = 0
        for path in ("/?span=day", "/?span=month", f"/accounts/{ANN}", f"/segments/{there.segment}"):
            await visit.go(path)
            seen += await visit.page.locator(".plot").count()
            assert await visit.page.evaluate(OVERLAPS) == [], path
        assert seen >= 5
