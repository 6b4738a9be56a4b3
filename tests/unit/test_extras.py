"""A plain installation leaves packages out. What needs one of them says which extra brings it, before it begins."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mistnet.kit.database import parse_url
from mistnet.kit.errors import EXTRAS, MissingExtra, UsageError, require_extra
from mistnet.settings import load_settings

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hide(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, EXTRAS[extra][0], None)


def test_every_extra_is_declared_checked_and_documented() -> None:
    assert set(EXTRAS) | {"all"} == set(OPTIONAL)
    (everything,) = OPTIONAL["all"]
    assert set(re.split(r"[\[\],]", everything)[1:-1]) == set(EXTRAS)
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    assert {name for name in OPTIONAL if f"\n| `{name}` |" not in page} == set()


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_that_is_installed_is_no_problem(extra: str) -> None:
    require_extra(extra, "this test")


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_that_is_missing_is_named(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(extra, monkeypatch)
    with pytest.raises(MissingExtra) as raised:
        require_extra(extra, "this test")
    assert isinstance(raised.value, UsageError)
    assert str(raised.value) == (
        f"this test needs {EXTRAS[extra][1]}, which is not installed: pip install 'mistnet[{extra}]'"
    )


def test_a_package_below_a_missing_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "otel", ("no_such_package.exporter.http", "OpenTelemetry"))
    with pytest.raises(MissingExtra, match=r"mistnet\[otel\]"):
        require_extra("otel", "this test")


@pytest.mark.parametrize(
    ("extra", "name", "value"),
    [
        ("amqp", "broker_url", "amqp://127.0.0.1"),
        ("apprise", "alert_urls", "json://127.0.0.1"),
        ("otel", "otel_endpoint", "http://127.0.0.1:4318"),
    ],
)
def test_a_setting_that_needs_a_missing_extra_is_refused(
    extra: str, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"MISTNET_{name.upper()}", value)
    load_settings()
    hide(extra, monkeypatch)
    with pytest.raises(MissingExtra, match=rf"^{name} needs .* pip install 'mistnet\[{extra}\]'$"):
        load_settings()


def test_a_postgresql_database_needs_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    hide("postgresql", monkeypatch)
    with pytest.raises(MissingExtra, match=r"pip install 'mistnet\[postgresql\]'"):
        parse_url("postgresql://ann@127.0.0.1/mistnet")


def imported_when_loaded(tree: ast.Module) -> Iterator[str]:
    """Modules that a module imports as it is loaded: not in functions, not for type checking."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_no_module_outside_of_rabbitmq_needs_an_extra_to_be_loaded() -> None:
    tops = {module for module, _ in EXTRAS.values()} | {"aiormq", "pamqp", "uvloop", "opentelemetry"}
    files = [each for each in (ROOT / "src" / "mistnet").rglob("*.py") if each.parent.name != "rabbitmq"]
    found = [
        (each.name, module)
        for each in files
        for module in imported_when_loaded(ast.parse(each.read_text(encoding="utf-8")))
        if module.partition(".")[0] in tops
    ]
    assert len(files) > 200
    assert found == []
