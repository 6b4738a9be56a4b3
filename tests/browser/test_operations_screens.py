"""The pages of Operations with much on them: short enough to read, nothing over anything else, all of it visible."""

from datetime import timedelta

import pytest
from playwright.async_api import Browser, expect
from sqlalchemy import insert

from mistnet.app import App
from mistnet.governor.tables import calls
from mistnet.operations.alerts.model import SERVICE_RULES, Alert, AlertRule, Severity
from mistnet.operations.runs.store import RunService
from mistnet.social.jobs import args
from mistnet.social.model import UserId
from tests.browser.dashboards import dashboard, visiting
from tests.browser.furnished import LONG
from tests.harvests import change, end_badly, tell, user

DESK, PHONE = (1440, 900), (390, 844)
PATHS = ("/jobs", "/jobs?state=gaps", "/lanes", "/sources", "/runs", "/monitoring", "/spend", "/alerts", "/watches")
MANY = 40
LOOK = """() => {
    const wanted = "button, input, select, summary, .tile, .button, .sections a, thead th";
    const shown = [...document.querySelectorAll(wanted)]
        .filter((each) => each.checkVisibility() && !each.closest(".unseen") && each.type !== "hidden")
        .map((each) => [each, each.getBoundingClientRect()])
        .filter(([, box]) => box.width > 1 && box.height > 1);
    const over = ([a, one], [b, other]) => !a.contains(b) && !b.contains(a)
        && Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
        && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;
    return {
        screens: document.documentElement.scrollHeight / window.innerHeight,
        wide: document.documentElement.scrollWidth > window.innerWidth,
        over: shown.flatMap((one, place) => shown.slice(place + 1).filter((other) => over(one, other))
            .map(([other]) => `${one[0].outerHTML.slice(0, 80)} and ${other.outerHTML.slice(0, 80)}`)),
    };
}"""


async def _fill(app: App) -> None:
    now = app.database.clock.now()
    people = [UserId(each) for each in range(1_000, 1_000 + MANY)]
    await tell(app, *(user(each, f"person_{each}") for each in people))
    await end_badly(app, *(args.relook(each) for each in people))
    await change(app, "UPDATE jobs SET last_error = :error", error=f"403: {LONG}")
    for place in range(MANY):
        run = await RunService(app.database, app.job_writer).start(["ann", "bea"], 10, asked_by="local", now=now)
        await RunService(app.database, app.job_writer).cancel(run.id, now + timedelta(seconds=place))
    alerts = [
        Alert(
            rule=AlertRule.DUE_WORK,
            subject=f"lane {place}",
            severity=Severity.WARNING,
            message=f"Wait: `a` {LONG[:300]}",
        )
        for place in range(MANY)
    ]
    await app.watch.alerts.settle(alerts, SERVICE_RULES, now=now)
    await app.watch.alerts.settle(alerts[:12], SERVICE_RULES, now=now)
    paid = {"source": "x", "key_label": "a", "seconds": 0.1, "items": 20, "credits": 300, "endpoint": "search"}
    async with app.database.transaction() as connection:
        made = [{**paid, "account_id": each, "at": now - timedelta(days=each - 1_000)} for each in people]
        await connection.execute(insert(calls), made)


@pytest.mark.parametrize("size", [DESK, PHONE])
async def test_lists_stay_below_three_screens_and_nothing_covers_anything(
    browser: Browser, sqlite_url: str, size: tuple[int, int]
) -> None:
    async with dashboard(sqlite_url) as site:
        await _fill(site.app)
        async with visiting(browser, site, size=size) as visit:
            wrong = []
            for path in PATHS:
                await visit.go(path)
                await visit.shot(f"operations{path.replace('/', '-')}-{size[0]}")
                seen = await visit.page.evaluate(LOOK)
                if seen["screens"] >= 3 or seen["wide"] or seen["over"]:
                    wrong.append((path, round(seen["screens"], 2), seen["wide"], seen["over"][:3]))
            assert not wrong, wrong


async def test_charts_with_nothing_to_draw_say_so_and_have_no_axes(browser: Browser, sqlite_url: str) -> None:
    async with dashboard(sqlite_url) as site:
        async with visiting(browser, site) as visit:
            for path, said in (("/monitoring", 2), ("/spend", 4)):
                await visit.go(path)
                assert await visit.page.locator(".plot").count() == 0
                assert await visit.page.get_by_text("No data yet").count() == said, path
        await _fill(site.app)
    async with dashboard(sqlite_url) as site, visiting(browser, site) as visit:
        for path in ("/monitoring?span=month", "/spend"):
            await visit.go(path)
            await expect(visit.page.locator(".plot")).to_have_count(1)
