"""A search of the code: users and posts are written in one place, from payloads, and nowhere else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mistnet.domain.social import Post, User
from mistnet.store.tables import metadata

SOURCE = Path(__file__).resolve().parents[2] / "src" / "mistnet"
MODULES = sorted(each for each in SOURCE.rglob("*.py") if "migrations" not in each.parts)
STATEMENTS = sorted(SOURCE.rglob("*.sql"))
HYDRATED = ("users", "posts")
INSERT = re.compile(r"\bINSERT\s+(?:OR\s+\w+\s+)?INTO\s+[\"']?(users|posts)\b", re.IGNORECASE)
BY_PAYLOAD = Path("store/social.py")


def short(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def _inserts(module: Path) -> Iterator[str]:
    """Tables that are handed to an insert, under whichever name; and inserts written out as text."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func).endswith("insert"):
            yield from (each.id for each in node.args if isinstance(each, ast.Name) and each.id in HYDRATED)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from INSERT.findall(node.value)


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


@pytest.mark.parametrize("module", [each for each in MODULES if each != SOURCE / BY_PAYLOAD], ids=short)
def test_no_other_module_inserts_users_or_posts(module: Path) -> None:
    assert list(_inserts(module)) == []


@pytest.mark.parametrize("statement", STATEMENTS, ids=short)
def test_no_statement_inserts_users_or_posts(statement: Path) -> None:
    assert INSERT.findall(statement.read_text(encoding="utf-8")) == []


def test_the_search_would_find_the_one_place_there_is() -> None:
    assert set(_inserts(SOURCE / BY_PAYLOAD)) == {"users", "posts"}


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
