"""Who promoted a thing and what it cost then, by the real commands: tables, a plot, JSON, files, slips of the pen."""

import asyncio
import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mistnet.prices.store.lineage import NAMES
from tests.commands import DEADLINE_SECONDS
from tests.contract.test_lineage import promoted
from tests.contract.test_lineage_plans import POSTS, fill
from tests.e2e.conftest import CommandLine
from tests.e2e.slips import list_misreported
from tests.harvests import open_harvest


def stocked(command: CommandLine) -> str:
    """The product's id."""

    async def put() -> int:
        async with open_harvest(command.url) as app:
            return await promoted(app)

    return str(asyncio.run(put()))


def test_a_things_posts_are_shown_with_its_prices_and_a_plot(on_sqlite: CommandLine) -> None:
    cup = stocked(on_sqlite)
    shown = on_sqlite.ok("products", "lineage", cup, PYTHONIOENCODING="utf-8").out
    assert f"product {cup}: A cup" in shown
    assert "200 TWD" in shown
    assert "-25.00 %" in shown
    assert "no price was known before" in shown
    assert "▲" in shown
    assert "△ a repost" in shown
    plain = on_sqlite.ok("products", "lineage", cup, PYTHONIOENCODING="ascii:replace").out
    assert "^ a post" in plain
    told = on_sqlite.ok("products", "lineage", "https://s.shopee.tw/abc", "--json").json
    assert [each["post_id"] for each in told["posts"]] == ["3", "2", "1"]
    assert [each["kind"] for each in told["posts"]] == ["repost", "own", "own"]
    assert told["posts"][1]["prices"]["change"] == {"percent": "-25.00", "why_not": None}
    assert told["posts"][2]["prices"]["before"] is None
    assert [each["amount"] for each in told["course"]] == ["200", "150", "180"]
    first = on_sqlite.ok("products", "lineage", cup, "--limit", "1", "--json").json
    rest = on_sqlite.ok("products", "lineage", cup, "--before", first["next_before"], "--json").json
    assert [each["post_id"] for each in (*first["posts"], *rest["posts"])] == ["3", "2", "1"]
    assert rest["next_before"] is None


def test_what_an_account_promotes_is_shown_since_it_was_named_first(on_sqlite: CommandLine) -> None:
    cup = stocked(on_sqlite)
    shown = on_sqlite.ok("products", "of", "@bea").out
    assert "1 (1 repost)" in shown
    assert "+20.00 %" in shown
    (told,) = on_sqlite.ok("products", "of", "ann", "--json").json["products"]
    assert (told["product"]["id"], told["posts"], told["at_first"]) == (cup, 2, None)
    assert (told["lowest"]["amount"], told["highest"]["amount"]) == ("150", "200")
    assert told["change"]["why_not"] == "no price was known before"
    on_sqlite.sql(
        "INSERT INTO users (platform, id, handle, handle_key, detail, raw, first_seen_at, last_updated_at) "
        "SELECT 'threads', -5, handle, handle_key, detail, raw, first_seen_at, last_updated_at "
        "FROM users WHERE handle = 'ann'"
    )
    unclear = on_sqlite("products", "of", "@ann")
    assert unclear.code == 2
    assert "@ann is on threads and x: say which with --platform" in unclear.err
    assert on_sqlite.ok("products", "of", "@ann", "--platform", "threads", "--json").json["products"] == []
    assert "no product is known" in on_sqlite.ok("products", "of", "@ann", "--platform", "threads").out


def test_lineage_is_exported_as_lines_and_as_a_file(on_sqlite: CommandLine, tmp_path: Path) -> None:
    stocked(on_sqlite)
    rows = [json.loads(line) for line in on_sqlite.ok("export", "lineage").out.splitlines()]
    assert [(row["post_id"], row["before_amount"], row["after_amount"]) for row in rows] == [
        ("1", None, "200"),
        ("2", "200", "150"),
        ("3", "150", "180"),
    ]
    assert list(rows[0]) == list(NAMES)
    file = tmp_path / "lineage.csv"
    done = on_sqlite.ok("export", "lineage", "--format", "csv", "--output", str(file), "--author", "ann", "--json").json
    assert (done["rows"], done["format"]) == (2, "csv")
    assert [row["post_id"] for row in csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))] == ["1", "2"]
    again = on_sqlite("export", "lineage", "--format", "csv", "--output", str(file))
    assert again.code == 2
    assert "--force" in again.err


SLIPS = (
    (("products", "lineage", "99"), "there is no product '99'"),
    (("products", "lineage", "1", "--before", "x"), "it must be the cursor that the page before gave"),
    (("products", "of", "@nobody"), "no collected data mentions @nobody"),
    (("products", "of"), "name an account as @handle, or an item with --item ID"),
    (("products", "of", "@ann", "--item", "1"), "name an account as @handle, or an item with --item ID"),
    (("products", "of", "--item", "99"), "there is no item 99"),
    (("export", "lineage", "--raw"), "--raw goes with tables, not with lineage"),
    (("export", "lineage", "--format", "gexf"), "gexf is for graphs"),
    (("export", "lineage", "--format", "parquet"), "--output FILE"),
    (("export", "lineage", "--author", "nobody"), "no stored user has the handle 'nobody'"),
)


def test_a_slip_is_one_line_and_exit_code_2(on_sqlite: CommandLine) -> None:
    assert list_misreported(on_sqlite, SLIPS) == []


MEASURED = """
import asyncio, io, resource, sys
from mistnet.kit.database import Database
from mistnet.kit.export import Format
from mistnet.prices.store.lineage import LineageSelection, export_lineage

class Nowhere(io.RawIOBase):
    def write(self, some):
        return len(some)

async def main():
    database = Database(sys.argv[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = await export_lineage(database, LineageSelection(), Format.JSONL, Nowhere(), now=database.clock.now())
    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    await database.close()

asyncio.run(main())
"""


@pytest.mark.in_turn(2)
def test_an_export_of_many_posts_needs_little_memory(on_sqlite: CommandLine) -> None:
    async def put() -> None:
        async with open_harvest(on_sqlite.url) as app:
            await fill(app)

    asyncio.run(put())
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, on_sqlite.url],
        env=on_sqlite.environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
    )
    rows, grown = map(int, done.stdout.split())
    assert rows == POSTS
    assert grown < 40 * 1024, f"{grown} KiB for {rows} rows"
