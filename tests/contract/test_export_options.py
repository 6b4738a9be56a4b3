"""What `mistnet export` writes with its options, as the programs of analysts read it."""

import csv
import io
import json
import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow.parquet as pq
import pytest

from mistnet.data.model import TableName
from tests.contract.test_export import RICH, fill, run

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
RECIPE: Final = re.compile(r"`(pandas\.read_csv\(\"posts\.csv\"[^`]*)`")


@pytest.mark.parametrize(
    ("table", "options", "ids"),
    [
        ("posts", ("--account", "bea"), ["9"]),
        ("posts", ("--account", "bea", "--account", "11", "--since", "2026-03-07"), ["6", "7"]),
        ("posts", ("--since", "2026-03-04", "--until", "2026-03-06"), ["3", "4"]),
        ("posts", ("--query", "quoted -mist"), [str(RICH.id)]),
        ("posts", ("--segment", "few"), ["1"]),
        ("posts", ("--platform", "threads"), ["3"]),
        ("posts", ("--stored-since", "2026-03-02"), []),
        ("users", ("--segment", "people"), ["12"]),
        ("links", ("--query", "mist", "--account", "bea"), ["2"]),
    ],
)
def test_each_filter_leaves_the_rows_that_fit(
    sqlite_url: str, table: str, options: tuple[str, ...], ids: list[str]
) -> None:
    fill(sqlite_url)
    shown = run(sqlite_url, table, *options)
    found = [json.loads(line)["id"] for line in shown.stdout.rstrip("\n").split("\n") if line]
    assert (shown.exit_code, found) == (0, ids), shown.stderr
    alone = run(sqlite_url, table, *options, "--ids-only")
    assert (alone.exit_code, alone.stdout.splitlines()) == (0, ids)


def test_parquet_has_times_decimals_64_bit_integers_lists_and_structs(sqlite_url: str, tmp_path: Path) -> None:
    fill(sqlite_url)
    folder = tmp_path / "birds"
    assert run(sqlite_url, "all", "--output", str(folder), "--format", "parquet").exit_code == 0
    assert {each.stem for each in folder.glob("*.parquet")} == set(TableName)
    posts, offers = pq.read_table(folder / "posts.parquet"), pq.read_table(folder / "offers.parquet")
    types = {field.name: str(field.type) for field in posts.schema}
    assert {name: types[name] for name in ("id", "likes", "created_at", "author_handle", "author_name", "nested")} == {
        "id": "int64",
        "likes": "int64",
        "created_at": "timestamp[us, tz=UTC]",
        "author_handle": "string",
        "author_name": "string",
        "nested": "bool",
    }
    assert types["media"].startswith("list<element: struct<kind: string, ")
    (rich,) = [row for row in posts.to_pylist() if row["nested"]]
    assert (rich["id"], rich["created_at"], rich["likes"]) == (RICH.id, RICH.created_at, 2**40)
    assert (rich["author_handle"], rich["media"][0]["alt_text"]) == ("Ann", 'say "net"')
    assert str(offers.schema.field("amount").type) == "decimal128(38, 10)"
    assert Decimal("10.10") in offers["amount"].to_pylist()


def test_ids_of_a_csv_survive_pandas_as_the_page_says(sqlite_url: str, tmp_path: Path, monkeypatch: Any) -> None:
    fill(sqlite_url)
    monkeypatch.chdir(tmp_path)
    assert run(sqlite_url, "posts", "--output", "posts.csv").exit_code == 0
    with Path("posts.csv").open(encoding="utf-8", newline="") as file:
        written = [(row["id"], row["quoted_id"]) for row in csv.DictReader(file)]
    assert max(int(own) for own, _ in written) > 2**53, "a float would round it"
    assert {quoted == "" for _, quoted in written} == {True, False}, "unknown ids make floats of the others"
    recipes = [(page, found) for page in DOCS.glob("*.md") for found in RECIPE.findall(page.read_text("utf-8"))]
    assert {page.name for page, _ in recipes} >= {"analyse.md", "tutorial.md"}
    for _, recipe in recipes:
        frame = eval(recipe, {"pandas": pd})
        assert [str(each) for each in frame["id"]] == [own for own, _ in written], recipe
        assert ["" if pd.isna(each) else str(each) for each in frame["quoted_id"]] == [other for _, other in written]


def test_a_csv_for_excel_says_its_encoding_and_keeps_ids(sqlite_url: str, tmp_path: Path) -> None:
    fill(sqlite_url)
    path = tmp_path / "posts.csv"
    assert run(sqlite_url, "posts", "--excel", "--output", str(path)).exit_code == 0
    written = path.read_bytes()
    assert written.startswith(b"\xef\xbb\xbfplatform,id,"), "without a mark Excel takes it for a local encoding"
    rows = list(csv.DictReader(io.StringIO(written.decode("utf-8-sig"), newline="")))
    assert f"'{RICH.id}" in {row["id"] for row in rows}, "Excel keeps 15 digits of a number"
    assert {row["created_at"] for row in rows} > {"2026-03-02T12:00:00.000000Z"}
    assert not run(sqlite_url, "posts", "--format", "csv").stdout.startswith("\ufeff")


TYPES: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": Decimal,
    "boolean": {"true": True, "false": False}.__getitem__,
    "datetime": datetime.fromisoformat,
    "array": json.loads,
    "any": json.loads,
}
"""The types of Table Schema that are used, and how their cells are read."""


def test_the_data_package_is_one_and_every_cell_has_the_type_it_tells(sqlite_url: str, tmp_path: Path) -> None:
    fill(sqlite_url)
    folder = tmp_path / "birds"
    assert run(sqlite_url, "all", "--output", str(folder)).exit_code == 0
    package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    assert package["$schema"] == "https://datapackage.org/profiles/2.0/datapackage.json"
    assert re.fullmatch(r"[a-z0-9._-]+", package["name"])
    datetime.fromisoformat(package["created"])
    for resource in package["resources"]:
        assert re.fullmatch(r"[a-z0-9._-]+", resource["name"])
        assert (resource["type"], resource["format"], resource["encoding"]) == ("table", "csv", "utf-8")
        with (folder / resource["path"]).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == resource["rows"]
        fields = {field["name"]: field for field in resource["schema"]["fields"]}
        for row in rows:
            assert set(row) == set(fields)
            for name, cell in row.items():
                required = fields[name].get("constraints", {}).get("required", False)
                assert cell or not required, (resource["name"], name)
                if cell:
                    TYPES[fields[name]["type"]](cell)
        keys = resource["schema"].get("primaryKey", [])
        named = [tuple(row[key] for key in keys) for row in rows]
        assert not keys or len(set(named)) == len(rows), resource["name"]
    assert {resource["path"] for resource in package["resources"]} == {each.name for each in folder.glob("*.csv")}
