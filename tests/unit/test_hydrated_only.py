"""A search of the code: users and posts are written in one place, from payloads, and nowhere else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mistnet.kit.types import metadata
from mistnet.social.model import Post, User
from tests.unit.test_docs import line_of, parse_module

SOURCE = Path(__file__).resolve().parents[2] / "src" / "mistnet"
MODULES = sorted(each for each in SOURCE.rglob("*.py") if "migrations" not in each.parts)
STATEMENTS = sorted(SOURCE.rglob("*.sql"))
HYDRATED = ("users", "posts")
INSERT = re.compile(r"\bINSERT\s+(?:OR\s+\w+\s+)?INTO\s+[\"']?(users|posts)\b", re.IGNORECASE)
BY_PAYLOAD = Path("social/store/posts.py")


def short(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def _inserts(module: Path) -> Iterator[tuple[int, str]]:
    """Line and table of each insert: tables handed to one, under whichever name, and inserts written out as text."""
    for node in ast.walk(parse_module(module)):
        if isinstance(node, ast.Call) and re.search("insert|upsert", _called(node.func)):
            named = (each.id for each in node.args if isinstance(each, ast.Name))
            yield from ((node.lineno, name) for name in named if name in HYDRATED)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, name) for name in INSERT.findall(node.value))


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def test_no_other_module_inserts_users_or_posts() -> None:
    others = [each for each in MODULES if each != SOURCE / BY_PAYLOAD]
    assert len(others) == len(MODULES) - 1 > 100
    found = [f"{short(each)}:{line}: inserts {table}" for each in others for line, table in _inserts(each)]
    assert found == []


def test_no_statement_inserts_users_or_posts() -> None:
    assert len(STATEMENTS) > 50
    found = []
    for each in STATEMENTS:
        sql = each.read_text(encoding="utf-8")
        found += [f"{short(each)}:{line_of(sql, insert)}: inserts {insert[1]}" for insert in INSERT.finditer(sql)]
    assert found == []


def test_the_search_would_find_the_one_place_there_is() -> None:
    assert {table for _, table in _inserts(SOURCE / BY_PAYLOAD)} == {"users", "posts"}


@pytest.mark.parametrize("value", [User, Post])
def test_what_is_written_there_cannot_be_made_without_its_payload(value: type[User] | type[Post]) -> None:
    required = {field.name for field in msgspec.structs.fields(value) if field.required}
    assert {"platform", "id", "raw"} <= required


@pytest.mark.parametrize("name", HYDRATED)
def test_neither_table_takes_a_row_without_a_payload_and_the_time_of_its_telling(name: str) -> None:
    columns = metadata.tables[name].columns
    assert not any(columns[each].nullable for each in ("raw", "first_seen_at", "last_updated_at"))
    assert not any(columns[each].server_default for each in ("raw", "first_seen_at", "last_updated_at"))


def test_whatever_refers_to_users_or_posts_is_fenced_and_records_of_ingests_are_not() -> None:
    fenced = set(HYDRATED)
    for table in metadata.sorted_tables:  # what is referred to comes first
        if any(key.column.table.name in fenced for key in table.foreign_keys):
            fenced.add(table.name)
    fenced -= {"users"}
    assert {"posts", "accounts", "follows", "follow_events", "segment_inputs", "segment_members"} <= fenced
    assert fenced.isdisjoint({"ingest_events", "ingest_ids"})
