"""Imported rates: taken whole or not at all, listed by pages, and worth something to the items they touch."""

import asyncio
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.cli.main import app as commands
from mistnet.kit.database import Database
from mistnet.prices.model import CurrentValuation, ItemId
from mistnet.prices.store.valuations import RateStore, Valuations, items_affected_by, rates_between, revalue
from mistnet.prices.tables import currency_rates
from mistnet.prices.valuation import DatedRate
from tests.contract.test_points import asked, opened, plan_of, point, write
from tests.harvests import run
from tests.loops import LOOP
from tests.support import START

pytestmark = pytest.mark.common_sql

DAY = START.date()


def rate(base: str, quote: str, worth: str, day: date = DAY) -> DatedRate:
    return DatedRate(base=base, quote=quote, day=day, rate=Decimal(worth))


async def tell(database: Database, *rates: DatedRate) -> None:
    await RateStore(database).save(rates, origin="a test", now=START)


async def worth(database: Database, item: int = 1) -> CurrentValuation | None:
    return (await Valuations(database).current([ItemId(item)])).get(ItemId(item))


async def test_rates_told_for_one_day_replace_each_other_and_are_listed_by_pages(url: str) -> None:
    async with opened(url, 0) as database:
        days = [DAY - timedelta(days=back) for back in range(3)]
        await tell(database, *(rate("EUR", quote, "2", day) for quote in ("USD", "GBP") for day in days))
        await tell(database, rate("EUR", "USD", "1.080000000000000001"), rate("GBP", "USD", "1.3"))
        book = RateStore(database)
        page = await book.page(limit=4)
        first, rest = page.items, (await book.page(after=page.next)).items
        listed = [(each.base, each.quote, each.day) for each in (*first, *rest)]
        assert listed == sorted(listed)
        assert len(listed) == 7
        found = {(each.base, each.quote, each.day): each.rate for each in (*first, *rest)}
        assert found["EUR", "USD", DAY] == Decimal("1.080000000000000001")
        assert [each.base for each in (await book.page(quote="USD")).items] == ["EUR"] * 3 + ["GBP"]
        assert len((await book.page(base="EUR", quote="GBP")).items) == 3


async def test_impossible_rates_are_refused_by_the_schema(url: str) -> None:
    async with opened(url, 0) as database:
        for bad in (rate("EUR", "EUR", "1"), rate("EURO", "USD", "1")):
            with pytest.raises(Exception, match=r"(?i)check|currencies"):
                await tell(database, rate("GBP", "USD", "1"), bad)
        assert (await RateStore(database).page()).items == []


async def test_a_look_uses_the_rates_that_are_known(url: str) -> None:
    async with opened(url) as database:
        await tell(database, rate("EUR", "USD", "1.1"), rate("GBP", "EUR", "1.2"))
        given = [point(1, "110"), point(2, "100", currency="EUR"), point(3, "100", currency="GBP")]
        await write(database, asked(*given, point(4, "9000", currency="JPY")))
        found = await worth(database)
        assert found is not None
        assert {each.point_id: (each.amount, each.rate) for each in found.carriers} == {
            1: (Decimal(110), None),
            2: (Decimal("110.00"), "EUR/USD 1.1 of 2026-03-01"),
            3: (Decimal("132.00"), "GBP/EUR 1.2 of 2026-03-01, EUR/USD 1.1 of 2026-03-01"),
        }
        assert [each.why for each in found.left_out] == ["no rate from JPY to USD is known for 2026-03-01"]


async def test_new_rates_value_the_items_they_touch_and_no_others(url: str) -> None:
    async with opened(url, 5) as database:
        await write(database, asked(point(1, "100"), point(2, "200", currency="EUR")))  # touched
        await write(database, asked(point(1, "100"), item=2))  # one currency
        await write(
            database, asked(point(1, "100"), point(2, "200", currency="TWD"), item=3)
        )  # its way may lead over EUR
        old = START - timedelta(days=90)
        await write(
            database, asked(point(1, "9", observed_at=old), point(2, "9", currency="EUR", observed_at=old), item=4)
        )
        await write(database, asked(point(1, "50", currency="EUR"), item=5))  # all of it in another currency
        told = [rate("EUR", "USD", "1.5")]
        await tell(database, *told)
        touched = await items_affected_by(database, told)
        assert touched == [1, 3, 5]
        done: list[int] = []
        assert await revalue(database, touched, on_done=done.append) == 2
        assert sum(done) == 3
        found, other = await worth(database, 1), await worth(database, 5)
        assert found is not None
        assert other is not None
        assert (found.points, found.points_left_out) == (2, 0)
        assert (other.estimate, other.currency) == (Decimal("75.00"), "USD")
        assert [each.points for each in (await Valuations(database).history(ItemId(1))).items] == [2, 1]
        assert await revalue(database) == 0


async def test_an_item_without_a_currency_of_its_own_is_touched_by_a_rate_between_its_points(url: str) -> None:
    async with opened(url, currency=None) as database:
        old = [point(nr, "100", observed_at=START - timedelta(days=100)) for nr in range(3)]
        await write(database, asked(*old, point(9, "90", currency="EUR")))
        assert await items_affected_by(database, [rate("EUR", "USD", "1.1")]) == [1]
        assert await items_affected_by(database, [rate("EUR", "USD", "1.1", DAY + timedelta(days=1))]) == []
        assert await items_affected_by(database, []) == []


async def test_only_rates_that_may_lead_there_are_read_and_by_an_index(url: str) -> None:
    async with opened(url, 0) as database:
        pairs = [("EUR", "USD"), ("USD", "TWD"), ("GBP", "EUR"), ("CHF", "DKK"), ("SEK", "NOK")]
        days = [DAY - timedelta(days=back) for back in range(400)]
        await tell(database, *(rate(base, quote, "2", day) for base, quote in pairs for day in days))
        async with database.transaction() as connection:
            known = await rates_between(connection, {"TWD", "EUR"}, DAY, DAY)
        assert known.convert(Decimal(8), "TWD", "EUR", DAY) is not None
        assert known.convert(Decimal(8), "TWD", "EUR", DAY - timedelta(days=32)) is None
        assert known.convert(Decimal(8), "CHF", "DKK", DAY) is None
        own = currency_rates.c
        asked_for = currency_rates.select().where(
            own.quote.in_(["TWD"]), own.base.not_in(["TWD"]), own.day >= "2026-02-01"
        )
        assert "currency_rates_quote" in await plan_of(database, asked_for)


def call(url: str, *arguments: str) -> Any:
    result = run(commands, url, "rates", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(url: str, *arguments: str) -> str:
    result = run(commands, url, "rates", *arguments)
    told = result.stderr or str(result.exception)
    assert result.exit_code == 2, (result.stdout, told)
    assert "Traceback" not in told
    return told


def listed(url: str) -> list[tuple[str, str, str, str]]:
    return [(each["day"], each["base"], each["quote"], each["rate"]) for each in call(url, "list")["rates"]]


CSV = "day,base,quote,rate\n2026-01-02,EUR,USD,1.08\n\n2026-01-02,usd,twd, 32.5\n"
ROWS = [("2026-01-02", "EUR", "USD", "1.08"), ("2026-01-02", "USD", "TWD", "32.5")]


@pytest.mark.parametrize(
    "written",
    [
        CSV,
        "\ufeff" + CSV.replace("\n", "\r\n"),
        "quote,rate,base,day,note\nUSD,1.08,EUR,2026-01-02,x\nTWD,32.5,USD,2026-01-02,y\n",
        "2026-01-02,EUR,USD,1.08\n2026-01-02,USD,TWD,32.5\n2026-01-02,USD,TWD,32.50\n",
        (
            '{"day": "2026-01-02", "base": "EUR", "quote": "USD", "rate": "1.08"}\n\n'
            '{"day": "2026-01-02", "base": "USD", "quote": "TWD", "rate": 32.5}'
        ),
    ],
)
def test_rates_are_read_from_csv_in_any_order_of_columns_and_from_json_lines(
    sqlite_url: str, tmp_path: Path, written: str
) -> None:
    file = tmp_path / "rates"
    file.write_bytes(written.encode())
    assert call(sqlite_url, "import", str(file))["told"] == 2
    assert listed(sqlite_url) == ROWS
    assert call(sqlite_url, "import", str(file))["told"] == 2
    assert listed(sqlite_url) == ROWS


BAD = (
    CSV
    + "2026-13-01,EUR,USD,1\n2026-01-03,EUR,USD,1,08\n2026-01-03,EUR,XYZ,1\n2026-01-03,EUR,EUR,1\n"
    + "2026-01-03,EUR,USD,-1\n2026-01-03,EUR,USD,abc\n2999-01-01,EUR,USD,1\n2026-01-03,EUR,,1\n2026-01-02,EUR,USD,2\n"
)
PROBLEMS = [
    "line 5: '2026-13-01' is no day",
    "line 6: it has 5 cells, not 4",
    "line 7: 'XYZ' is no currency we know",
    "line 8: EUR in EUR needs no rate",
    "line 9: a rate is a number above 0, not -1",
    "line 10: 'abc' is no number",
    "line 11: 2999-01-01 is not over yet",
    "line 12: quote missing",
    "line 13: EUR/USD of 2026-01-02 is 1.08 in an earlier row",
]


def test_if_any_row_is_bad_nothing_is_written_and_each_is_told_with_its_line(sqlite_url: str, tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(BAD)
    said = refused(sqlite_url, "import", str(file))
    assert "9 of 11 rows" in said
    assert "nothing was written" in said
    assert "--skip-bad" in said
    assert [each for each in PROBLEMS if each not in said] == []
    assert len(said.strip().splitlines()) == 1
    assert listed(sqlite_url) == []


def test_skip_bad_leaves_bad_rows_out_and_reports_each(sqlite_url: str, tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(BAD)
    result = run(commands, sqlite_url, "rates", "import", str(file), "--skip-bad", "--json")
    assert result.exit_code == 0
    skipped = [f"line {each['line']}: {each['problem']}" for each in json.loads(result.stdout)["skipped"]]
    assert all(told.startswith(problem) for told, problem in zip(skipped, PROBLEMS, strict=True))
    assert all(problem in result.stderr for problem in PROBLEMS)
    assert listed(sqlite_url) == ROWS


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (b"\xff\xfed\x00", "not UTF-8"),
        (b'{"day": 1}\n[1]\n{', "line 1: base and quote and rate missing"),
        (b'2026-01-01,"EUR,USD,1\n', "line 1: it cannot be read as CSV"),
    ],
)
def test_a_file_that_is_none_of_it_is_refused(sqlite_url: str, tmp_path: Path, written: bytes, problem: str) -> None:
    file = tmp_path / "rates"
    file.write_bytes(written)
    assert problem in refused(sqlite_url, "import", str(file))
    assert listed(sqlite_url) == []


def test_a_file_that_is_not_there_is_refused(sqlite_url: str) -> None:
    assert "cannot read" in refused(sqlite_url, "import", "/nowhere/rates.csv")


def test_one_rate_is_told_for_a_day_or_for_today(url: str) -> None:
    assert call(url, "set", "eur", "USD", "1.0800", "--on", "2026-01-02")["told"] == 1
    call(url, "set", "EUR", "USD", "1.09")
    today = datetime.now(UTC).date().isoformat()
    assert [(day, Decimal(worth)) for day, _, _, worth in listed(url)] == [
        ("2026-01-02", Decimal("1.08")),
        (today, Decimal("1.09")),
    ]
    assert "is no day" in refused(url, "set", "EUR", "USD", "1", "--on", "tomorrow")
    assert "is no number" in refused(url, "set", "EUR", "USD", "1,08")
    assert "is no currency" in refused(url, "set", "EUR", "US$", "1.08")


def test_rates_are_listed_by_pages(sqlite_url: str) -> None:
    for day in range(1, 6):
        call(sqlite_url, "set", "EUR", "USD", "1.08", "--on", f"2026-01-0{day}")
    first = call(sqlite_url, "list", "--limit", "3")
    assert first["next_after"] == "EUR/USD/2026-01-03"
    rest = call(sqlite_url, "list", "--limit", "3", "--after", first["next_after"], "--base", "eur")
    assert [each["day"] for each in rest["rates"]] == ["2026-01-04", "2026-01-05"]
    assert rest["next_after"] is None
    assert "EUR/USD/2026-11-01" in refused(sqlite_url, "list", "--after", "x")
    shown = run(commands, sqlite_url, "rates", "list").stdout
    assert "1.08 USD" in shown
    assert "rates import" in run(commands, sqlite_url, "rates", "list", "--base", "CHF").stdout


def test_telling_a_rate_values_what_it_touches(url: str) -> None:
    async def prepare() -> None:
        async with opened(url) as database:
            await write(database, asked(point(1, "100"), point(2, "200", currency="EUR")))

    LOOP.run(prepare())
    told = call(url, "set", "EUR", "USD", "1.5", "--on", DAY.isoformat())
    assert told == {"told": 1, "items_valued": 1, "items_changed": 1}
    again = call(url, "set", "EUR", "USD", "1.5", "--on", DAY.isoformat())
    assert again == {"told": 1, "items_valued": 1, "items_changed": 0}


async def test_rates_told_while_a_look_is_written_count_for_it_one_way_or_the_other(postgresql_url: str) -> None:
    """A look that began before the rates were there is valued again after it, because both hold the item."""
    async with opened(postgresql_url) as database:
        told = [rate("EUR", "USD", "1.5")]

        async def look(nr: int) -> None:
            await write(database, asked(point(nr, "100", currency="EUR"), point(100 + nr, "100")))

        async def rates() -> None:
            await tell(database, *told)
            await revalue(database, await items_affected_by(database, told))

        async with asyncio.timeout(50):
            await asyncio.gather(*(look(nr) for nr in range(8)), rates(), *(look(nr) for nr in range(8, 16)))
        async with database.read() as connection:
            count = (await connection.execute(text("SELECT count(*) FROM price_points"))).scalar_one()
        found = await worth(database)
        assert found is not None
        assert (count, found.points, found.points_left_out) == (32, 32, 0)
