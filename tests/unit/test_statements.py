"""SQL files are read for a dialect: lists, types of binds, and mistakes in them."""

from collections.abc import Iterator, Mapping

import pytest
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.url import URL

from mistnet.kit import statements
from mistnet.kit.statements import BadStatement, load, statement

DIALECTS: dict[str, Dialect] = {
    "sqlite": URL.create("sqlite").get_dialect()(),
    "postgresql": URL.create("postgresql+asyncpg").get_dialect()(),
}


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """SQL files by name, for all dialects."""
    written: dict[str, str] = {}
    monkeypatch.setattr(statements, "_read", lambda name, _dialect: written[name])
    load.cache_clear()
    yield written
    load.cache_clear()


def sql_of(name: str, dialect: str) -> str:
    return str(load(name, dialect).clause.compile(dialect=DIALECTS[dialect]))


@pytest.mark.parametrize(("dialect", "name"), [key for key in statements._files() if key[0] != "common"])
def test_every_statement_of_a_dialect_can_be_read(dialect: str, name: str) -> None:
    assert load(name, dialect).clause is not None


@pytest.mark.parametrize("name", [name for dialect, name in statements._files() if dialect == "common"])
def test_every_common_statement_can_be_read(name: str) -> None:
    for dialect in DIALECTS:
        assert " each(" not in sql_of(name, dialect)


def test_no_statement_is_written_for_one_dialect_and_for_all() -> None:
    known = statements._files()
    assert [name for dialect, name in known if dialect != "common" and ("common", name) in known] == []


def test_a_list_of_values(files: dict[str, str]) -> None:
    files["some"] = "-- Why.\nSELECT id FROM jobs WHERE id IN each(:ids bigint) AND lane NOT IN each(:lanes text)"
    assert "id IN (SELECT value FROM json_each(?)) AND lane NOT IN (SELECT value" in sql_of("some", "sqlite")
    assert "id = ANY (CAST(" in sql_of("some", "postgresql")
    assert "lane <> ALL (CAST(" in sql_of("some", "postgresql")
    assert load("some", "postgresql").values({"ids": [1], "lanes": []}) == {"ids": [1], "lanes": []}


def test_a_list_of_rows(files: dict[str, str]) -> None:
    files["some"] = "-- Why.\nSELECT held.id FROM each(:held) AS held (id bigint, at time)"
    assert "(SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS at" in sql_of("some", "sqlite")
    assert "AS timestamptz[])) AS held (id, at)" in sql_of("some", "postgresql")
    rows: Mapping[str, object] = {"held": [(1, None, "left out"), (2, None, "left out")]}
    assert load("some", "sqlite").values(rows) == rows
    assert load("some", "postgresql").values(rows) == {"held_id": [1, 2], "held_at": [None, None]}


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("-- Why.\n-- :now tiem\nSELECT :now", "unknown type 'tiem'"),
        ("-- Why.\n-- :now time, :limit integer\nSELECT :now", "declares limit and does not use it"),
    ],
)
def test_a_mistake_in_a_file_is_named(files: dict[str, str], sql: str, problem: str) -> None:
    files["some"] = sql
    with pytest.raises(BadStatement, match=problem):
        load("some", "sqlite")


@pytest.mark.parametrize(
    "sql", ["-- Why.\nDELETE FROM jobs", "-- Why.\nSELECT h.a FROM each(:held) AS h (a bigint, b bigint)"]
)
def test_a_statement_that_only_run_can_execute_is_not_handed_out(files: dict[str, str], sql: str) -> None:
    files["some"] = sql
    with pytest.raises(BadStatement, match="needs `run`"):
        statement("some", "postgresql")
