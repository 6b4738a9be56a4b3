"""The docs keep up with the program: whatever a page must list, it lists."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer
import yaml
from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from sqlalchemy import FromClause

from mistnet import __version__
from mistnet.app import App
from mistnet.cli import work
from mistnet.cli.main import app
from mistnet.data.model import TableName
from mistnet.governor.source import Source
from mistnet.kit import errors
from mistnet.kit.types import metadata
from mistnet.operations.monitoring import recent_jobs, source_health, stuck_jobs
from mistnet.queue.metrics import EngineMetrics, SourceMetrics
from mistnet.settings import KindSettings, Settings
from mistnet.shops.shop import PageRules, Shop
from mistnet.sources.x import client
from scripts import generate_codebook

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "mistnet"
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
STATEMENTS = sorted(SOURCE.rglob("*.sql"))
MODULES = sorted(SOURCE.rglob("*.py"))

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
STAR = re.compile(r"SELECT\s+(\w+\.)?\*", re.IGNORECASE)
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parse_module(path: Path) -> ast.Module:
    """Parsed once per process: it takes seconds for all modules."""
    return ast.parse(path.read_text(encoding="utf-8"))


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


def test_every_setting_is_on_its_page_with_its_variable_and_default() -> None:
    listed = rows(section(page("settings.md"), "## All settings"))
    shown = {name: listed.get(name, [])[:2] for name in Settings.model_fields}
    real = {name: [f"`MISTNET_{name.upper()}`", shown_default(field)] for name, field in Settings.model_fields.items()}
    assert len(real) > 50
    wrong = [f"{name}: the page says {shown[name]}, not {real[name]}" for name in real if shown[name] != real[name]]
    assert wrong == []


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


def different_columns(described: str, table: FromClause) -> list[str]:
    """How the columns of a table differ from those its section on the page lists."""
    listed, real = set(rows(described)), {column.name for column in table.columns}
    return [
        *(f"{table.description}.{name} is not on the page" for name in sorted(real - listed)),
        *(f"{table.description}.{name} is only on the page" for name in sorted(listed - real)),
    ]


def test_every_table_and_column_is_on_the_page_and_no_other() -> None:
    text, different = page("tables.md"), []
    for table in metadata.sorted_tables:
        different += different_columns(section(text, f"## `{table.name}`").partition("| index |")[0], table)
    assert len(metadata.sorted_tables) > 20
    assert different == []


def test_every_index_of_the_live_table_is_on_the_page() -> None:
    listed = section(page("tables.md"), "## `jobs`").partition("| index |")[2]
    assert set(rows(listed)) == {str(index.name) for index in metadata.tables["jobs"].indexes}


def test_every_column_of_a_view_is_on_the_page_and_no_other() -> None:
    text, different = page("tables.md"), []
    for view in (recent_jobs, source_health, stuck_jobs):
        different += different_columns(section(text, f"### View `{view.name}`").partition("\n## ")[0], view)
    assert different == []


def test_every_metric_is_on_its_page() -> None:
    registry = EngineMetrics().registry
    SourceMetrics(registry)
    counted = {f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()}
    listed = {name for name in rows(page("metrics.md")) if name.startswith("mistnet_")}
    assert counted
    assert listed == counted


def subclasses(root: type[Any]) -> Iterator[type[Any]]:
    for each in root.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_error_is_on_its_page_and_in_its_tree() -> None:
    classes = {each.__name__ for each in subclasses(errors.MistnetError) if each.__module__.startswith("mistnet.")}
    assert len(classes) > 70
    assert classes - set(rows(page("errors.md"))) == set()
    assert [name for name in classes if name not in (errors.__doc__ or "")] == []


def test_every_module_opens_with_what_it_is_for() -> None:
    assert len(MODULES) > 100
    bare = [f"{short(each)}:1" for each in MODULES if not ast.get_docstring(parse_module(each))]
    assert bare == []


def test_every_statement_says_why_and_names_its_columns() -> None:
    assert len(STATEMENTS) > 50
    wrong = []
    for each in STATEMENTS:
        sql = each.read_text(encoding="utf-8")
        if not re.match(r"-- \S", sql):
            wrong.append(f"{short(each)}:1: the first line must be a comment that says why")
        wrong += [f"{short(each)}:{line_of(sql, star)}: name the columns" for star in STAR.finditer(sql)]
    assert wrong == []


def line_of(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def without_code(text: str) -> str:
    """The text with its fenced blocks blanked out, each line in its place."""
    return FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)


def test_every_kind_of_job_is_documented_with_its_class() -> None:
    kinds = App(Settings.model_validate({"database_url": "sqlite:///none.db"})).kinds
    listed = rows(section(page("architecture.md"), "## Collecting"))
    assert {name: listed.get(name, [""])[0] for name in kinds} == {
        name: str(int(kinds[name].rules.job_class)) for name in kinds
    }


def test_the_index_and_the_site_have_every_page_once_and_by_the_same_kind() -> None:
    """docs/index.md has a section for each kind of page, mkdocs.yml a menu."""
    sections = re.split(r"^## (\w[\w-]*):.*$", page("index.md"), flags=re.MULTILINE)[1:]
    listed = {
        kind: re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", table, re.MULTILINE)
        for kind, table in zip(sections[::2], sections[1::2], strict=True)
    }
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"][1:]
    menus = {
        kind: [path for entry in entries for path in entry.values()] for menu in site for kind, entries in menu.items()
    }
    assert listed == menus
    pages = sorted(path for paths in listed.values() for path in paths)
    assert pages == sorted(
        [each.name for each in DOCS.glob("*.md") if each.name != "index.md"] + ["decisions/README.md"]
    )


def test_the_readme_is_short_and_leads_from_the_first_try_to_the_data() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    first = [
        line.partition("#")[0].strip()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    assert first[:4] == ["uvx mistnet demo", "pipx install mistnet", "make demo", "make test"]
    steps = [
        "mistnet init",
        "mistnet track nasa",
        "mistnet up",
        "mistnet status",
        "mistnet export posts --output posts.parquet",
    ]
    assert [line for line in first if line in steps] == steps
    assert text.count("](docs/images/") == 1
    assert "\n## Compared with others\n" in text
    dollars = 1_000 * client.POST / client.CREDITS_PER_DOLLAR
    assert f"US$ {dollars:.2f} per 1,000 posts" in text


def test_every_exit_code_is_documented() -> None:
    codes = (0, 1, 2, work.DONE_WITH_GAPS, work.STOPPED_BY_BUDGET, work.SOURCE_REFUSED, 70, 130, 141)
    listed = section(page("errors.md"), "## Exit codes")
    assert [code for code in codes if f"\n| {code} |" not in listed] == []


def test_every_relative_link_leads_somewhere() -> None:
    broken, followed = [], 0
    for written in PAGES:
        prose = without_code(written.read_text(encoding="utf-8"))
        for link in LINK.finditer(prose):
            if "://" not in link[1]:
                followed += 1
                if not (written.parent / link[1]).exists():
                    broken.append(f"{short(written)}:{line_of(prose, link)}: {link[1]}")
    assert followed > 100
    assert broken == []


def test_the_citation_is_one_and_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["title"], cited["version"], cited["license"]) == ("mistnet", __version__, "Apache-2.0")
    # What the schema of the Citation File Format 1.2.0 requires and allows.
    assert cited["cff-version"] == "1.2.0"
    assert cited["message"]
    assert cited["type"] == "software"
    assert all(set(each) <= {"name", "website", "email", "given-names", "family-names"} for each in cited["authors"])
    known = {"abstract", "authors", "cff-version", "keywords", "license", "message", "repository-code", "title", "type"}
    assert set(cited) <= known | {"version", "url", "date-released"}


def test_the_codebook_is_not_stale() -> None:
    assert page("codebook.md") == generate_codebook.page(), "run scripts/generate_codebook.py"
    tables = re.findall(r"^## `(\w+)`$", page("codebook.md"), re.MULTILINE)
    assert tables == [str(name) for name in TableName]
    assert tables[0] == "posts"


def test_every_message_that_the_runbook_quotes_is_one() -> None:
    sources = "".join(each.read_text(encoding="utf-8") for each in MODULES)
    quoted = [
        words.strip()
        for line in page("runbook.md").splitlines()
        if line.startswith("| ")
        for message in re.findall(r'"([^"]+)"', line.split("|")[1])
        for words in re.split("…", message)
        if words.strip(" ()")
    ]
    assert len(quoted) > 6
    assert [words for words in quoted if words not in sources] == []


def test_the_page_on_limits_names_each_duty() -> None:
    text = page("limits-and-duties.md")
    for duty in ("**Deletions.**", "**robots.txt**", "**Terms.**", "Shopee and Taobao pages behind a log-in"):
        assert duty in text


def test_a_broken_link_or_anchor_ends_the_building_of_the_site() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert site["strict"] is True, "warnings are errors"
    assert site["plugins"] == ["search"]
    checks = ("not_found", "anchors", "absolute_links", "unrecognized_links")
    assert {name: site["validation"]["links"][name] for name in checks} == dict.fromkeys(checks, "warn")


def test_examples_import_nothing_but_the_public_interface() -> None:
    lines = [line for each in PAGES for line in each.read_text(encoding="utf-8").splitlines()]
    assert len([line for line in lines if line.startswith("from mistnet import ")]) >= 3
    assert [line for line in lines if re.match(r"(from|import) mistnet\.", line)] == []


def test_every_test_the_docs_name_exists() -> None:
    missing, named = [], 0
    for written in PAGES:
        text = written.read_text(encoding="utf-8")
        for found in NAMED_TEST.finditer(text):
            named += 1
            if not has_test(ROOT / found[1], found[2]):
                missing.append(f"{short(written)}:{line_of(text, found)}: {found[0]}")
    assert named > 10
    assert missing == []


def has_test(file: Path, name: str | None) -> bool:
    if not file.exists() or name is None:
        return file.exists()
    return re.search(rf"^(async )?def {name}\(", file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def test_how_tos_for_plugins_name_every_field() -> None:
    def declared(name: str, kind: str) -> list[str]:
        (table,) = re.findall(rf"^\| field of `{kind}` \|.*\n\|[-|]+\n((?:\|.*\n)+)", page(name), re.MULTILINE)
        return sorted(rows(table))

    assert declared("adding-a-source.md", "Source") == sorted(field.name for field in dataclasses.fields(Source))
    assert declared("adding-a-shop.md", "Shop") == sorted(Shop.__struct_fields__)
    assert declared("adding-a-shop.md", "PageRules") == sorted(PageRules.__struct_fields__)
