"""The items commands on every database: files as they come from spreadsheets, and every slip told in a line."""

import csv
import io
import json
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mistnet.cli.main import run
from mistnet.prices.model import ItemId
from mistnet.shops.model import PriceKind
from tests.commands import Ran
from tests.followed import point, tell_prices
from tests.harvests import open_harvest
from tests.loops import LOOP
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql


@dataclass(slots=True)
class Here:
    """The command in this process: a hundred of them would take minutes to start."""

    folder: Path
    url: str
    patch: pytest.MonkeyPatch
    printed: pytest.CaptureFixture[bytes]

    def __call__(self, *arguments: str, stdin: str = "") -> Ran:
        self.patch.setenv("MISTNET_DATABASE_URL", self.url)
        self.patch.chdir(self.folder)
        self.patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self.printed.readouterr()
        code = run(arguments)
        out, err = self.printed.readouterr()
        return Ran(code=code, out=out.decode(), err=err.decode())

    def ok(self, *arguments: str) -> Ran:
        done = self(*arguments)
        assert done.code == 0, done
        return done


@pytest.fixture
def items(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Here:
    return Here(tmp_path, url, monkeypatch, capsysbinary)


def written(command: Here, name: str, content: str | bytes) -> str:
    (command.folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def listed(command: Here, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = command.ok("items", "list", "--json", *more).json["items"]
    return found


def put_points(command: Here, item: str) -> None:
    """Three looks, each with another price for the same cent, and one price far from all others."""

    async def look() -> None:
        clock = TurnedClock()
        async with open_harvest(command.url, clock=clock) as app:
            for amount in ("600", "650", "700.50"):
                own = [
                    point(str(Decimal(amount) + n), f"c{n}", clock.now(), kind=PriceKind.SOLD, match_strength=0.9)
                    for n in range(5)
                ]
                await tell_prices(app, ItemId(int(item)), [*own, point("9000", "far", START)])
                clock.turn(days=1)

    LOOP.run(look())


def test_an_item_is_added_changed_paused_asked_for_and_removed(items: Here) -> None:
    about = ("--year", "1909", "--mint-mark", "S", "--attribute", "color=red", "--exclude", "Copy", "--source", "ebay")
    more = ("--url", "https://www.ebay.com/itm/155932418766", "--currency", "usd", "--every-hours", "12")
    added = items.ok("items", "add", "1909-S VDB cent", *about, *more, "--ref", "cent", "--json").json
    item = added["item"]["id"]
    assert (added["outcome"], added["item"]["attributes"]) == (
        "added",
        {"color": "red", "mint_mark": "S", "year": "1909"},
    )
    again = items.ok("items", "add", "1909-S VDB cent", *about, *more, "--ref", "cent").out
    assert again == f"item {item} is already followed with these fields: 1909-S VDB cent\n"
    changed = items.ok("items", "set", item, "--grade", "MS65", "--clear", "color", "--clear", "sources", "--json").json
    assert changed["item"]["attributes"] == {"grade": "MS65", "mint_mark": "S", "year": "1909"}
    assert (changed["outcome"], changed["item"]["sources"], changed["item"]["exclude"]) == ("changed", [], ["copy"])
    assert "was so already" in items.ok("items", "set", item, "--grade", "MS65").out
    made = items.ok("items", "ask", item, "--source", "ebay", "--source", "web", "--json").json
    assert (made["created"], made["duplicates"]) == (2, 0)
    assert "2 were on the list already" in items.ok("items", "ask", item, "--source", "ebay", "--source", "web").out
    assert "; 1 was on the list already" in items.ok("items", "ask", item, "--source", "web").out
    assert "2 sources to be asked now, next look: " in items.ok("items", "show", item).out
    assert items.ok("items", "show", item, "--json").json["questions"] == 2
    assert "paused" in items.ok("items", "pause", item).out
    assert "was paused already" in items.ok("items", "pause", item).out
    assert "items resume" in items("items", "ask", item).err
    assert "followed again" in items.ok("items", "resume", item).out
    assert "are kept" in items.ok("items", "remove", item).out
    assert "removed" in items.ok("items", "show", item).out
    assert listed(items) == []
    assert [each["id"] for each in listed(items, "--state", "removed")] == [item]
    for command in ("remove", "resume", "ask", "pause"):
        refused = items("items", command, item)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "add it again" in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "  "), "an item needs a title"),
        (("add", "A cent", "--currency", "EURO"), "Did you mean 'EUR'?"),
        (("add", "A cent", "--source", "ebya"), "Did you mean 'ebay'?"),
        (("add", "A cent", "--url", "https://shopee.tw.evil.example/x-i.1.2"), "looks like shopee.tw and is not"),
        (("add", "A cent", "--every-hours", "9000"), "8760"),
        (("add", "A cent", "--attribute", "color"), "NAME=VALUE"),
        (("show", "7"), "there is no item 7"),
        (("show", "seven"), "no item's id"),
        (("set", "7", "--title", "x"), "there is no item 7"),
        (("points", "7"), "there is no item 7"),
        (("versions", "7"), "there is no point 7"),
        (("import", "nowhere.csv"), "cannot read nowhere.csv"),
        (("import", "nowhere"), "--format csv"),
        (("import", "-"), "--format csv"),
        (("export", "--format", "sqlite"), "--output"),
    ],
)
def test_a_slip_is_one_line_that_says_what_to_do(items: Here, arguments: tuple[str, ...], said: str) -> None:
    done = items("items", *arguments)
    assert done.code == 2, done
    assert said in done.err
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


def test_a_spreadsheet_is_imported_whatever_its_form_and_again_changes_nothing(items: Here) -> None:
    rows = (
        "\ufeffTitle;Ref;Mint Mark;Year;Color;Exclude;URL\r\n"
        '"1909-S VDB\r\nLincoln ""cent""";a;S;1909;red;copy;https://shop.example/a\r\n'
        ";;;;;;\r\n"
        "Münze 2 €;b;;1999;;;\r\n"
    )
    done = items.ok("items", "import", written(items, "coins.csv", rows), "--json").json
    assert (done["rows"], done["added"], done["bad_rows"], done["written"]) == (2, 2, 0, True)
    second, first = listed(items)
    assert (first["title"], first["ref"]) == ('1909-S VDB Lincoln "cent"', "a")
    assert first["attributes"] == {"color": "red", "mint_mark": "S", "year": "1909"}
    assert (first["exclude"], first["urls"]) == (["copy"], ["https://shop.example/a"])
    assert (second["title"], second["attributes"]) == ("Münze 2 €", {"year": "1999"})
    assert items.ok("items", "import", "coins.csv").out == "2 rows: 0 added, 0 changed, 2 same\n"
    lines = '\ufeff{"title": "A dime", "year": 1999, "attributes": {"finish": "proof"}, "sources": ["ebay"]}\n\n'
    piped = items("items", "import", "-", "--format", "jsonl", "--json", stdin=lines)
    assert (piped.code, piped.json["added"]) == (0, 1)
    assert listed(items)[0]["attributes"] == {"finish": "proof", "year": "1999"}


def test_every_bad_row_is_told_and_nothing_is_written_unless_bad_ones_are_to_be_skipped(items: Here) -> None:
    content = (
        b"ref,title,currency,every_hours\n"
        b"a,A cent,USD,24\n"
        b"b,,EURO,soon\n"
        b'"c","two\nlines",USD,\n'
        b"a,A cent again,USD,24\n"
        b"d,A dime,USD,24,more,cells\n"
        b"e,Last,USD,1\n"
        b"f,not \xff utf-8,USD,1\n"
    )
    name = written(items, "coins.csv", content)
    refused = items("items", "import", name, "--json")
    assert refused.code == 2
    assert (refused.json["written"], refused.json["rows"], refused.json["bad_rows"]) == (False, 7, 4)
    assert [(each["line"], each["field"]) for each in refused.json["problems"]] == [
        (3, "title"),
        (3, "currency"),
        (3, "every_hours"),
        (6, "ref"),
        (7, ""),
        (9, "title"),
    ]
    assert "coins.csv line 3: currency 'EURO': it is not an ISO currency code. Did you mean 'EUR'?" in refused.err
    assert "coins.csv line 6: ref 'a': line 2 has it already" in refused.err
    assert "it has 6 cells and the header 4" in refused.err
    assert "save files as UTF-8" in refused.err
    assert listed(items) == []
    assert items("items", "import", name, "--check", "--skip-bad").code == 2
    assert listed(items) == []
    taken = items("items", "import", name, "--skip-bad")
    assert (taken.code, taken.out) == (3, "7 rows: 3 added, 0 changed, 0 same, 4 bad and left out\n")
    assert [each["title"] for each in listed(items)] == ["Last", "two lines", "A cent"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "has no rows"),
        ("a.csv", b"name,year\nA cent,1909\n", "no column called title"),
        ("a.csv", b"title,year,Year\nA cent,1909,1909\n", "several columns called year"),
        ("a.csv", b"title,\nA cent,what\n", "a column without a name"),
        ("a.csv", "title\nA cent\n".encode("utf-16"), "UTF-16"),
        ("a.csv", b'title,year\n"A cent,1909\nB,1910\n', "is a double quote missing"),
        ("a.jsonl", b'{"title": "A"}\n[1]\n', "line 2: it is no object"),
        ("a.jsonl", b'{"title": "A"}\n{"title": \n', "line 2: it is no JSON"),
        ("a.jsonl", b'{"title": "A", "urls": {"x": 1}}\n', "urls"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_told_so(items: Here, name: str, content: bytes, said: str) -> None:
    done = items("items", "import", written(items, name, content))
    assert done.code == 2, done
    assert said in done.err
    assert "Traceback" not in done.err
    assert listed(items) == []


def test_an_item_is_shown_with_its_worth_what_carries_it_and_what_is_left_out(items: Here) -> None:
    item = items.ok("items", "add", "A cent", "--ref", "cent", "--json").json["item"]["id"]
    put_points(items, item)
    shown = items.ok("items", "show", item).out
    for each in ("worth 702.50 USD (700.50 to 704.50)", "5 points, 1 left out", "course: ▁▄█", "outlier: 13 times"):
        assert each in shown, shown
    whole = items.ok("items", "show", item, "--json").json
    assert (whole["item"]["id"], whole["valuation"]["estimate"]) == (item, "702.50")
    assert sorted(each["point_id"] for each in whole["valuation"]["carriers"]) == ["1", "2", "3", "4", "5"]
    assert [each["left_out"] is None for each in whole["points"]] == [True] * 5 + [False]
    assert [(each["source"], each["listings"]) for each in whole["looks"]] == [("ebay", 6)]
    points = items.ok("items", "points", item, "--limit", "1", "--json").json
    assert ([each["id"] for each in points["points"]], points["next_before"]) == (["6"], "6")
    rest = items.ok("items", "points", item, "--before", "6", "--kind", "sold", "--json").json
    assert [each["amount"] for each in rest["points"]] == ["704.50", "703.50", "702.50", "701.50", "700.50"]
    assert rest["next_before"] is None
    assert "outlier" in items.ok("items", "points", item, "--kind", "ask").out
    earlier = items.ok("items", "versions", "1", "--limit", "1", "--json").json
    assert ([each["amount"] for each in earlier["versions"]], earlier["next_before"]) == (["650"], "2")
    assert "600 USD" in items.ok("items", "versions", "1", "--before", "2").out
    assert items.ok("items", "versions", "6").out == "it has no earlier versions\n"
    past = items.ok("items", "history", item, "--limit", "2", "--json").json
    assert [each["estimate"] for each in past["valuations"]] == ["702.50", "652.00"]
    first = items.ok("items", "history", item, "--before", past["next_before"], "--json").json["valuations"]
    assert [each["estimate"] for each in first] == ["602.00"]
    assert "702.50 USD" in items.ok("items", "list", "--words", "CENT").out
    assert listed(items, "--valued")[0]["worth"]["low"] == "700.50"
    assert listed(items, "--not-valued") == []


def test_an_export_has_items_with_their_worth_and_is_taken_again(items: Here) -> None:
    items.ok("items", "add", "A cent", "--year", "1909", "--attribute", "color=red", "--exclude", "copy", "--ref", "a")
    urls = ("https://shop.example/a;b", "https://shop.example/c")
    items.ok("items", "add", "A dime", "--url", urls[0], "--url", urls[1], "--every-hours", "0.5")
    gone = items.ok("items", "add", "Gone", "--json").json["item"]["id"]
    items.ok("items", "remove", gone)
    put_points(items, "1")
    lines = [json.loads(line) for line in items.ok("items", "export").out.splitlines()]
    assert [(each["title"], each["valuation_estimate"]) for each in lines] == [("A cent", "702.50"), ("A dime", None)]
    assert (lines[0]["year"], lines[0]["attributes"], lines[1]["urls"]) == ("1909", {"color": "red"}, list(urls))
    assert len(items.ok("items", "export", "--removed").out.splitlines()) == 3
    done = items.ok("items", "export", "--format", "csv", "--output", "out.csv", "--json").json
    assert done["rows"] == 2
    table = list(csv.DictReader(io.StringIO((items.folder / "out.csv").read_text(encoding="utf-8"))))
    assert table[0]["valuation_estimate"] == "702.50"
    assert items.ok("items", "import", "out.csv").out == "2 rows: 0 added, 0 changed, 2 same\n"
    written(items, "out.jsonl", items.ok("items", "export").out)
    assert items.ok("items", "import", "out.jsonl").out == "2 rows: 0 added, 0 changed, 2 same\n"
