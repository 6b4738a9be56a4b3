"""Items with what they are worth: pages that leave nothing out, what changed in a month, and plans that use indexes."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.governor.model import SourceName
from mistnet.prices.model import ItemId, ItemRequest, ItemState
from mistnet.prices.service import items_of, weigh_points
from mistnet.prices.store.item_listing import ItemFilter, ItemListing
from mistnet.prices.store.price_jobs import items_due
from mistnet.prices.store.valuations import Valuations
from tests.apis import open_api
from tests.contract.test_page_plans import explained, stand_still
from tests.databases import analyze, noted
from tests.followed import EBAY, follow, point, tell_prices
from tests.harvests import open_harvest
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql

PAGE = {"Accept": "text/html"}
ITEMS, POINTS = 30_000, 60_000
TABLES = "items|price_points|valuations|valuation_history|item_looks|price_point_versions"
AT = "'2026-02-01 00:00:00.000000'"


async def found(app: App, **wanted: object) -> list[int]:
    """All pages of one."""
    ids: list[int] = []
    asked = ItemFilter(**wanted)  # type: ignore[arg-type]  # whichever the test names
    after: int | None = None
    while True:
        page = await ItemListing(app.database).page(asked, after=after, limit=1)
        ids += [each.id for each in page.items]
        if page.next is None:
            return ids
        after = page.next


async def test_every_item_is_on_exactly_one_page_the_newest_first(url: str) -> None:
    async with open_harvest(url) as app:
        ids = [await follow(app, f"Coin number {n}", ref=f"r{n}") for n in range(6)]
        await items_of(app).set_state(ids[1], ItemState.PAUSED, START)
        await items_of(app).set_state(ids[3], ItemState.REMOVED, START)
        await tell_prices(app, ids[4], [point("12.50", "a", START)])
        assert await found(app) == [ids[n] for n in (5, 4, 2, 1, 0)]
        assert await found(app, state=ItemState.PAUSED) == [ids[1]]
        assert await found(app, state=ItemState.REMOVED) == [ids[3]]
        assert await found(app, words="NUMBER 2") == [ids[2]]
        assert await found(app, words="r5") == [ids[5]]
        assert await found(app, words="100%") == []
        assert await found(app, ref="r0") == [ids[0]]
        assert await found(app, ref="r3") == []
        assert await found(app, ref="r3", state=ItemState.REMOVED) == [ids[3]]
        assert await found(app, valued=True) == [ids[4]]
        assert await found(app, valued=False) == [ids[n] for n in (5, 2, 1, 0)]


async def test_words_are_looked_for_in_a_window_and_a_short_page_says_where_to_go_on(sqlite_url: str) -> None:
    async with open_harvest(sqlite_url) as app:
        first = await follow(app, "the needle")
        about = "'{}', '[]', '[]', '[]', 'active', :at, :at, :at"
        hay = (
            "INSERT INTO items (title, digest, attributes, exclude, sources, urls, state, added_at, changed_at, "
            f"next_look_at) SELECT 'hay', 'h' || n, {about} FROM (WITH RECURSIVE s(n) AS "
            "(SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20050) SELECT n FROM s)"
        )
        async with app.database.transaction() as connection:
            await connection.execute(text(hay), {"at": "2026-02-01 00:00:00.000000"})
        page = await ItemListing(app.database).page(ItemFilter(words="needle"), limit=5)
        assert (list(page.items), page.next is not None) == ([], True)
        rest = await ItemListing(app.database).page(ItemFilter(words="needle"), after=page.next, limit=5)
        assert ([each.id for each in rest.items], rest.next) == ([first], None)


async def test_the_change_is_that_of_the_last_thirty_days_or_since_the_first_valuation(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        pages = ItemListing(app.database)
        item = await follow(app)
        line = await pages.one(item)
        assert line is not None
        assert (line.worth, line.earlier, line.change, line.next_look_at) == (None, None, None, START)
        for days, amount in ((0, "100"), (20, "150"), (25, "120")):
            clock.turn(days=days)
            await tell_prices(app, item, [point(amount, "a", clock.now())])
        line = await pages.one(item)
        assert line is not None
        assert line.worth is not None
        assert line.earlier is not None
        assert (line.worth.estimate, line.earlier.estimate, line.change) == (Decimal("120.00"), Decimal("100.00"), 0.2)
        clock.turn(days=6)
        line = await pages.one(item)
        assert line is not None
        assert line.earlier is not None
        assert (line.earlier.estimate, line.change) == (Decimal("150.00"), -0.2)
        assert [f"{each.estimate:f}" for each in await pages.past_summaries(item, limit=2)] == ["150.00", "120.00"]


async def test_the_first_look_at_several_sources_is_no_change(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        pages, item = ItemListing(app.database), await follow(app)
        for seconds, amount, key in ((0, "100", "a"), (1, "184", "b"), (600, "190", "c")):
            clock.turn(seconds=seconds)
            await tell_prices(app, item, [point(amount, key, clock.now())])
            line = await pages.one(item)
            assert line is not None
            assert line.worth is not None
            assert (line.earlier, line.change) == (None, None)
            first = line.worth.estimate
        clock.turn(days=1)
        await tell_prices(app, item, [point("400", each, clock.now()) for each in "abc"])
        line = await pages.one(item)
        assert line is not None
        assert line.earlier is not None
        assert (line.earlier.estimate, line.change) == (first, round(float((400 - first) / first), 6))


async def test_points_are_told_with_their_weight_or_why_they_have_none(url: str) -> None:
    async with open_harvest(url) as app:
        item = await follow(app)
        good = [point(str(100 + n), f"g{n}", START) for n in range(5)]
        odd = [point("9000", "far", START), point("10", "doubted", START, doubt="a tenth of the last")]
        await tell_prices(app, item, [*good, *odd, point("90", "eur", START, currency="EUR")])
        facts = Valuations(app.database)
        points = (await facts.points(item)).items
        valuation = (await facts.current([item]))[item]
        shown = {each.dedupe_key: each for each in weigh_points(points, valuation)}
        assert round(sum(shown[f"ext_g{n}"].weight or 0 for n in range(5)), 3) == 1
        assert "outlier" in (shown["ext_far"].left_out or "")
        assert shown["ext_doubted"].left_out == "a tenth of the last"
        assert "rate from EUR to USD" in (shown["ext_eur"].left_out or "")
        assert (shown["ext_far"].amount, shown["ext_far"].weight) == (Decimal(9000), None)
        assert weigh_points(points, None)[0].weight is None


async def fill(app: App) -> None:
    def series(count: int) -> str:
        if app.database.dialect == "postgresql":
            return f"generate_series(1::bigint, {count}) AS s(n)"
        return f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s)"

    state = "CASE n % 10 WHEN 0 THEN 'paused' WHEN 1 THEN 'removed' ELSE 'active' END"
    worth = "12.5, 10, 15, 'USD', 3, 0, 0.5, " + AT + ", '[]', '[]', " + AT
    columns = (
        "estimate, low, high, currency, points, points_left_out, confidence, newest_at, carriers, left_out, valued_at"
    )
    statements = (
        f"""INSERT INTO items (ref, title, digest, attributes, exclude, sources, urls, state, added_at, changed_at,
                next_look_at)
            SELECT CASE WHEN n % 2 = 0 THEN 'r' || n END, 'A coin ' || n, 'd' || n, '{{}}', '[]', '[]', '[]', {state},
                {AT}, {AT}, {AT} FROM {series(ITEMS)}""",
        f"""INSERT INTO price_points (item_id, source, dedupe_key, kind, amount, currency, title, url, match_strength,
                observed_at, first_seen_at, last_seen_at)
            SELECT n % {ITEMS} + 1, 'ebay', 'ext_' || n, 'ask', 12.5, 'USD', 'A coin', 'https://shop.example', 1,
                {AT}, {AT}, {AT} FROM {series(POINTS)}""",
        f"INSERT INTO valuations (item_id, {columns}) SELECT n, {worth} FROM {series(ITEMS)}",
        f"INSERT INTO valuation_history (item_id, {columns}) SELECT n, {worth} FROM {series(ITEMS)}",
        f"INSERT INTO item_looks (item_id, source, looked_at) SELECT n, 'ebay', {AT} FROM {series(ITEMS)}",
    )
    async with app.database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    async with app.database.read() as connection:
        await analyze(connection)


def whole_tables(plan: str) -> list[str]:
    """A look at all rows of one of these that goes through no index."""
    sqlite = re.findall(rf"^\s*SCAN (?:{TABLES})\b(?!.* USING ).*", plan, re.MULTILINE)
    return sqlite + re.findall(rf"Seq Scan on (?:{TABLES})\b", plan)


async def explained_steadily(app: App, statement: str, parameters: Any) -> str:
    """As those plan it who write."""
    explain = "EXPLAIN QUERY PLAN " if app.database.dialect == "sqlite" else "EXPLAIN "
    async with app.database.read_cached_plan() as connection:
        return "\n".join(str(row[-1]) for row in await connection.exec_driver_sql(explain + statement, parameters))


async def test_an_item_whose_sources_are_to_be_asked_says_so_beside_its_next_look(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        (kept,) = await items_of(api.app).add([ItemRequest(title="cent")], START)
        before = (await api.get(f"/items/{kept.item_id}", headers=PAGE)).text
        assert ["Queries waiting" in before, "queried on schedule" in before] == [False, True]
        assert (await api.post(f"/items/{kept.item_id}/ask", headers=PAGE)).status == 303
        after = (await api.get(f"/items/{kept.item_id}", headers=PAGE)).text
        assert ["Queries waiting" in after, "4 sources" in after, "queried on schedule" in after] == [
            True,
            True,
            False,
        ]


async def test_no_list_or_page_of_items_and_no_round_of_looks_reads_a_whole_table(url: str) -> None:
    async with open_api(url) as api:
        await fill(api.app)
        await api.get("/items", headers=PAGE)
        stand_still(api)
        own = re.compile(rf"^\s*(?:SELECT|WITH|UPDATE)\b.*\b(?:{TABLES})\b", re.IGNORECASE | re.DOTALL)
        paths = (
            *("/items", "/items?state=paused&valued=yes", "/items?q=coin&before=29000", "/items/777"),
            *("/items/777?kind=ask&points_before=50000", "/api/items?ref=r20", "/api/items?valued=false&limit=5"),
            *("/api/items/777", "/api/items/777/points?kind=ask", "/api/items/777/history", "/api/items?q=nothing"),
        )
        with noted() as read:
            for path in paths:
                answer = await api.get(path, headers={} if path.startswith("/api") else PAGE)
                assert answer.status == 200, (path, answer)
            await ItemListing(api.app.database).latest()
        with noted() as written:
            async with api.app.database.transaction() as connection:
                due = await items_due(
                    connection, now=api.clock.now(), default_every=timedelta(hours=24), sources=[EBAY]
                )
            assert len(due) == 500
            await follow(api.app, "A coin 20", ref="r20")
            await follow(api.app, "A coin of no ref")
            await tell_prices(api.app, ItemId(777), [point("1", "x", START)], source=SourceName("ebay"))
        checked = 0
        for sql, values in [*read, *written]:
            if "LIKE" in sql:  # words have no index: they are looked for in a window, by whichever way is shorter
                assert "items.id >=" in sql
            elif own.match(sql) and not isinstance(values, list):
                steady = (sql, values) in written
                plan = await (explained_steadily if steady else explained)(api.app, sql, values)
                assert not whole_tables(plan), f"{sql}\n{plan}"
                checked += 1
        assert checked > 25
