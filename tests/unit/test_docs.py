"""The docs keep up with the program: whatever a page must list, it lists."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from sqlalchemy import Table, TableClause

from mistnet.cli.main import app
from mistnet.domain import errors
from mistnet.engine.metrics import EngineMetrics, SourceMetrics
from mistnet.settings import KindSettings, Settings
from mistnet.store.tables import metadata, recent_jobs, source_health, stuck_jobs

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "mistnet"
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
STATEMENTS = sorted(SOURCE.rglob("*.sql"))
MODULES = sorted(SOURCE.rglob("*.py"))

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands between a heading and the next one of its rank."""
    rank = heading.partition(" ")[0]
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"there is no heading {heading!r}"
    return rest.partition(f"\n{rank} ")[0]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables, by each name in code style in their first cell."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells:
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), cells[1:])
    return found


def shown_default(field: FieldInfo) -> str:
    match field.default:
        case None:
            return "unset"
        case SecretStr():
            return f"`{field.default.get_secret_value()}`"
        case bool():
            return f"`{str(field.default).lower()}`"
        case float() | int():
            return f"`{field.default:g}`"
        case str():
            return f"`{field.default}`"
        case _:
            assert not field.default
            return "none"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_on_its_page_with_its_variable_and_default(name: str) -> None:
    variable, default, *_ = rows(section(page("settings.md"), "## All settings"))[name]
    assert variable == f"`MISTNET_{name.upper()}`"
    assert default == shown_default(Settings.model_fields[name])


def test_every_other_name_of_a_setting_is_on_its_page() -> None:
    choices = [field.validation_alias for field in Settings.model_fields.values()]
    names = {str(each) for choice in choices if isinstance(choice, AliasChoices) for each in choice.choices}
    missing = [name for name in names if name.isupper() and f"`{name}`" not in page("settings.md")]
    assert missing == []


def test_every_setting_of_a_kind_is_on_the_page() -> None:
    listed = rows(section(page("settings.md"), "## One kind: `[kinds.NAME]`"))
    assert set(listed) == set(KindSettings.model_fields)


def commands(command: Any, path: str) -> Iterator[str]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


def test_every_command_is_on_its_page() -> None:
    paths = list(commands(typer.main.get_command(app), "mistnet"))
    assert len(paths) > 10
    headings = page("cli.md").splitlines()
    missing = [path for path in paths if not any(re.match(rf"## `{path}[ `]", line) for line in headings)]
    assert missing == []


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_every_table_and_column_is_on_the_page_and_no_other(table: Table) -> None:
    described = section(page("tables.md"), f"## `{table.name}`")
    columns = rows(described.partition("| index |")[0])
    assert set(columns) == {column.name for column in table.columns}


def test_every_index_of_the_live_table_is_on_the_page() -> None:
    listed = section(page("tables.md"), "## `jobs`").partition("| index |")[2]
    assert set(rows(listed)) == {str(index.name) for index in metadata.tables["jobs"].indexes}


@pytest.mark.parametrize("view", [recent_jobs, source_health, stuck_jobs], ids=lambda view: view.name)
def test_every_column_of_a_view_is_on_the_page_and_no_other(view: TableClause) -> None:
    columns = rows(section(page("tables.md"), f"### View `{view.name}`").partition("\n## ")[0])
    assert set(columns) == {column.name for column in view.columns}


def test_every_metric_is_on_its_page() -> None:
    registry = EngineMetrics().registry
    SourceMetrics(registry)
    counted = {f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()}
    listed = {name for name in rows(page("metrics.md")) if name.startswith("mistnet_")}
    assert counted
    assert listed == counted


def test_every_error_is_on_its_page_and_in_its_tree() -> None:
    classes = {
        name for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.MistnetError)
    }
    assert classes
    assert classes - set(rows(page("errors.md"))) == set()
    assert [name for name in classes if name not in (errors.__doc__ or "")] == []


@pytest.mark.parametrize("module", MODULES, ids=short)
def test_every_module_opens_with_what_it_is_for(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))


@pytest.mark.parametrize("statement", STATEMENTS, ids=short)
def test_every_statement_says_why_and_names_its_columns(statement: Path) -> None:
    sql = statement.read_text(encoding="utf-8")
    assert re.match(r"-- \S", sql), "the first line must be a comment that says why"
    assert not re.search(r"SELECT\s+(\w+\.)?\*", sql, re.IGNORECASE), "name the columns"


@pytest.mark.parametrize("written", PAGES, ids=short)
def test_every_relative_link_leads_somewhere(written: Path) -> None:
    prose = FENCED.sub("", written.read_text(encoding="utf-8"))
    targets = [each for each in LINK.findall(prose) if "://" not in each]
    assert [each for each in targets if not (written.parent / each).exists()] == []


@pytest.mark.parametrize("written", PAGES, ids=short)
def test_every_test_the_docs_name_exists(written: Path) -> None:
    for file, name in NAMED_TEST.findall(written.read_text(encoding="utf-8")):
        source = (ROOT / file).read_text(encoding="utf-8")
        assert not name or re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{file} has no {name}"
