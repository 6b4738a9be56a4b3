"""Nothing is cut off, covered or out of line: filters, forms, charts, names in graphs, cards with little in them."""

from datetime import timedelta

import pytest
from playwright.async_api import Browser, expect
from sqlalchemy import insert

from mistnet.governor.model import X_SOURCE
from mistnet.governor.tables import calls
from mistnet.social.accounts import AccountTracked
from mistnet.social.model import UserId, X
from tests.browser.dashboards import Site, dashboard, visiting
from tests.browser.furnished import ANN
from tests.graphs import follow, segment
from tests.harvests import change, post, tell, user

DESK, PHONE = (1440, 900), (390, 844)
CUT_OFF = """() => [...document.querySelectorAll(".filters select, .filters input")].flatMap((each) => {
    const style = getComputedStyle(each), paper = document.createElement("canvas").getContext("2d");
    paper.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const text = each.localName === "select" ? each.selectedOptions[0].text : each.value || each.placeholder;
    const arrow = each.localName === "select" ? 20 : 0;
    const room = each.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - arrow;
    return paper.measureText(text).width > room ? [text] : [];
})"""
CHARTS = """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
    const card = plot.closest(".card").getBoundingClientRect();
    const box = (each) => each.getBoundingClientRect();
    const bars = [...plot.querySelectorAll("rect")].map(box);
    const outside = [...plot.querySelectorAll(".moment, .rule-at")].filter((each) => box(each).right > card.right
        || box(each).left < card.left);
    const covering = [...plot.querySelectorAll(".rule-at")].filter((each) => bars.some((bar) =>
        Math.min(bar.right, box(each).right) - Math.max(bar.left, box(each).left) > 0.5
        && Math.min(bar.bottom, box(each).bottom) - Math.max(bar.top, box(each).top) > 0.5));
    return [...outside, ...covering].map((each) => `${plot.id}: ${each.textContent}`);
})"""
NAMES = """() => {
    const names = [...document.querySelectorAll(".graph text")].filter((each) => each.checkVisibility())
        .map((each) => [each.textContent, each.getBoundingClientRect()]);
    const over = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
        && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;
    return { names: names.length, over: names.flatMap(([name, one], place) => names.slice(place + 1)
        .filter(([, other]) => over(one, other)).map(([other]) => `${name} and ${other}`)) };
}"""
LABELS = """() => [...document.querySelectorAll(".fields.across")].flatMap((form) => {
    const fields = [...form.querySelectorAll("label + input, label + select")]
        .map((each) => each.getBoundingClientRect());
    return fields.filter((each) => each.height !== fields[0].height || each.top !== fields[0].top).length;
})"""
HEAT = """() => [...document.querySelectorAll("table.heat tbody tr")].filter((row) => {
    const words = document.createRange();
    words.selectNodeContents(row.querySelector("th"));
    return words.getBoundingClientRect().right > row.querySelector("td").getBoundingClientRect().left;
}).length"""


async def test_no_filter_is_cut_off_on_a_phone(browser: Browser, empty_site: Site) -> None:
    async with visiting(browser, empty_site, size=PHONE) as visit:
        cut = {}
        for path in ("/jobs", "/jobs?state=gaps", "/links", "/products", "/items", "/accounts"):
            await visit.go(path)
            assert await visit.page.locator(".filters select").count() > 0
            cut[path] = await visit.page.evaluate(CUT_OFF)
        assert not any(cut.values()), cut


async def test_fields_of_one_row_stand_in_line(browser: Browser, empty_site: Site) -> None:
    async with visiting(browser, empty_site, size=DESK) as visit:
        for path in ("/search", "/segments", "/feeds", "/items", "/runs"):
            await visit.go(path)
            assert await visit.page.evaluate(LABELS) == [0], path


async def test_a_card_is_low_when_nothing_needs_attention_and_a_long_reason_takes_few_lines(
    browser: Browser, sqlite_url: str
) -> None:
    async with dashboard(sqlite_url) as site:
        await tell(site.app, user(ANN, "ann"), AccountTracked(platform=X, user_id=ANN), post(90, ANN))
        await change(site.app, "DELETE FROM jobs")
        async with visiting(browser, site, size=DESK) as visit:
            await visit.go("/")
            card = await visit.page.locator("section", has=visit.page.locator("#attention-title")).bounding_box()
            assert card is not None
            assert card["height"] < 120
            await site.app.sources.store.pause(X_SOURCE, "the key was revoked " * 40, now=site.app.database.clock.now())
            await visit.go("/")
            why = visit.page.get_by_text("the key was revoked").last
            await expect(why).to_be_visible()
            reason = await why.bounding_box()
            assert reason is not None
            assert reason["height"] < 60


@pytest.mark.parametrize("size", [PHONE, DESK])
async def test_labels_of_charts_stay_in_their_card_and_beside_the_bars(
    browser: Browser, sqlite_url: str, size: tuple[int, int]
) -> None:
    """Of a month in which each hour has calls, so that there are bars from one end to the other."""
    async with dashboard(sqlite_url) as site:
        now = site.app.database.clock.now()
        await tell(site.app, user(ANN, "ann"), AccountTracked(platform=X, user_id=ANN), post(90, ANN))
        paid = {"source": "x", "key_label": "a", "seconds": 0.1, "items": 20, "credits": 300, "endpoint": "search"}
        async with site.app.database.transaction() as connection:
            hours = [{**paid, "at": now - timedelta(hours=each)} for each in range(31 * 24)]
            await connection.execute(insert(calls), hours)
        async with visiting(browser, site, size=size) as visit:
            seen, wrong = 0, []
            for path in ("/?span=day", "/?span=month", "/monitoring", "/spend"):
                await visit.go(path)
                seen += await visit.page.locator(".plot").count()
                wrong += [f"{path} {each}" for each in await visit.page.evaluate(CHARTS)]
            assert wrong == []
            assert seen >= 4


@pytest.mark.parametrize("size", [PHONE, DESK])
async def test_weekdays_stand_beside_the_heat_map(
    browser: Browser, furnished_site: Site, size: tuple[int, int]
) -> None:
    async with visiting(browser, furnished_site, size=size) as visit:
        await visit.go(f"/accounts/{ANN}")
        await expect(visit.page.locator("table.heat tbody tr")).to_have_count(7)
        await expect(visit.page.locator("table.heat td.l5")).not_to_have_count(0)
        assert await visit.page.evaluate(HEAT) == 0


@pytest.mark.parametrize("size", [PHONE, DESK])
async def test_names_in_a_graph_do_not_overlap(browser: Browser, sqlite_url: str, size: tuple[int, int]) -> None:
    async with dashboard(sqlite_url) as site:
        crowd = [UserId(each) for each in range(900, 930)]
        await tell(site.app, *(user(each, f"crowd_{each}") for each in crowd))
        await follow(site.app.database, *zip(crowd, [*crowd[1:], crowd[0]], strict=True))
        own = await segment(site.app.database, "ring", crowd, rule={"kind": "followers", "subject": "900"})
        async with visiting(browser, site, size=size) as visit:
            await visit.go(f"/segments/{own}")
            await expect(visit.page.locator(".graph text")).not_to_have_count(0)
            seen = await visit.page.evaluate(NAMES)
            assert seen["over"] == []
            assert seen["names"] >= 3


async def test_buttons_of_a_table_stay_inside_their_rows(browser: Browser, furnished_site: Site) -> None:
    async with visiting(browser, furnished_site, size=DESK) as visit:
        await visit.go("/sources")
        near = """() => [...document.querySelectorAll("tbody .button")].filter((button) => {
            const row = button.closest("tr").getBoundingClientRect(), box = button.getBoundingClientRect();
            return box.top < row.top + 2 || box.bottom > row.bottom - 2;
        }).length"""
        assert await visit.page.locator("tbody .button").count() > 0
        assert await visit.page.evaluate(near) == 0
