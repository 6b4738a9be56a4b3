"""What users see stays as it is: commands, API, pages, names and schema are compared with files under `tests/golden`.

`MISTNET_TEST_GOLDEN=write` writes the files again. Their diff then shows every visible change of a commit.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import time_machine
import typer
from prometheus_client.parser import text_string_to_metric_families

from mistnet.cli import main as cli
from mistnet.cli.command import BUG
from mistnet.cli.main import INTERRUPTED
from mistnet.cli.output import PIPE_CLOSED
from mistnet.kit.errors import MistnetError, UsageError
from mistnet.settings import Settings
from mistnet.web.errors import _STATUSES
from tests.apis import Api, open_api
from tests.browser.furnished import ANN, HOSTILE, LONG, Furnished, furnish
from tests.commands import run_here
from tests.contract.test_schema import described, in_any_order
from tests.databases import open_database
from tests.harvests import open_harvest
from tests.loops import LOOP
from tests.support import START

FILES: Final = Path(__file__).parents[1] / "golden"
WRITE: Final = os.environ.get("MISTNET_TEST_GOLDEN") == "write"

COMMANDS: Final = (
    "status",
    "alerts list",
    "coverage",
    "coverage ann_of_the_net1",
    "db check",
    "export accounts",
    "export calls",
    "export posts",
    "export users",
    "feeds list",
    "follows events ann_of_the_net1",
    "follows list ann_of_the_net1",
    "follows status ann_of_the_net1",
    "hydrate events",
    "items export",
    "items history {item}",
    "items list",
    "items points {item}",
    "items show {item}",
    "items versions {item}",
    "jobs dead",
    "jobs list",
    "jobs show {dead}",
    "links canonical -",
    "links list",
    "links show {link}",
    "prices parse -",
    "prices watches",
    "products corrections",
    "products export",
    "products lineage {product}",
    "products list",
    "products of ann_of_the_net1",
    "products report",
    "products show {product}",
    "rates list",
    "runs list",
    "runs show {run}",
    "search extraordin*",
    "segments events posts",
    "segments list",
    "segments members posts",
    "segments show posts",
    "sources list",
    "spend",
)
TYPED: Final = '{"url": "https://shopee.tw/product/1/2?utm_source=a", "text": "NT$1,290"}\n'
SHORTENED: Final = {LONG: "LONG", HOSTILE: "HOSTILE"}
PASSING: Final = (
    (r'(name="csrf" value=|"csrf": ?|data-csrf=)"[^"]+"', r'\1"CSRF"'),
    (r"\?v=[0-9a-f]+", "?v=HASH"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"a write takes [\d.]+ ms|[\d.]+ [kMG]B( free on its disk)?", "MEASURED"),
    (r'"(seconds_since_heartbeat|write_seconds|disk_free_bytes|database_bytes)": [\d.e-]+', r'"\1": "MEASURED"'),
)
APART: Final = {"/live", "/metrics"}


def check(name: str, found: str) -> None:
    """Compare one output with its file, or write the file."""
    file = FILES / name
    found = found.rstrip("\n") + "\n"
    if WRITE:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found, encoding="utf-8")
        return
    expected = file.read_text(encoding="utf-8") if file.exists() else ""
    changes = difflib.unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", lineterm="", n=1)
    shown = "\n".join(line[:300] for line in list(changes)[:60])
    assert not shown, f"tests/golden/{name} differs (MISTNET_TEST_GOLDEN=write writes it again):\n{shown}"


def steady(written: str) -> str:
    """Shorten long texts, and leave out what differs in every run."""
    for long, short in SHORTENED.items():
        for form in (
            long,
            json.dumps(long)[1:-1],
            long.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        ):
            written = written.replace(form, short)
    for pattern, replacement in PASSING:
        written = re.sub(pattern, replacement, written)
    return written


def pretty(body: str) -> str:
    return json.dumps(json.loads(body), indent=1, ensure_ascii=False)


async def test_the_api_answers_as_before(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        there = await furnish(api.app)
        document = (await api.get("/api/openapi.json")).text
        described_api = json.loads(document)
        faults = re.compile(r" responses [45]\d\d (content|headers) ")
        check("openapi.txt", "\n".join(line for line in _leaves(described_api) if not faults.search(line)))
        paths = [path for path, methods in described_api["paths"].items() if "get" in methods]
        answers = [await _answer(api, _filled(path, there)) for path in paths if path not in APART]
        check("api.txt", "\n".join(answers))


async def test_the_pages_look_as_before(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        there = await furnish(api.app)
        for place, path in enumerate(there.paths):
            body = (await api.get(path, headers={"Accept": "text/html"})).text
            lines = (" ".join(line.split()) for line in re.sub(r"(?=<(?!/))", "\n", steady(body)).splitlines())
            name = re.split(r"[/?]", path)[1] or "overview"
            check(f"pages/{place:02}-{name}.html", "\n".join(filter(None, lines)))


def test_commands_print_as_before(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "app", typer.main.get_command(cli.app))  # Typer builds the whole tree for every call
    there = LOOP.run(_furnished(sqlite_url))
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**kept, "MISTNET_DATABASE_URL": sqlite_url, "MISTNET_LOG_LEVEL": "ERROR", "COLUMNS": "100"}
    places = {**vars(there), "product": there.shops.product, "link": there.shops.link}
    shown = []
    with time_machine.travel(START, tick=False):
        for line in COMMANDS:
            words = [word.format(**places) for word in line.split()]
            for options in ([],) if "export" in words else ([], ["--json"]):
                ran = run_here([*words, *options], folder=tmp_path, environment=environment, stdin=TYPED)
                shown.append(f"$ mistnet {' '.join([line, *options])}\n{steady(ran.out)}{ran.err}exit {ran.code}\n")
    check("commands.txt", "\n".join(shown).replace(str(tmp_path), "FOLDER").replace(sqlite_url, "DATABASE"))


async def test_names_that_users_rely_on_are_as_before(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        metrics = text_string_to_metric_families((await api.get("/metrics")).text)
        check("metrics.txt", "\n".join(sorted(f"{each.name} {each.type}: {each.documentation}" for each in metrics)))
    errors = sorted(f"{each.__name__}: exit {_exit_code(each)}, HTTP {_status(each)}" for each in _errors(MistnetError))
    check("errors.txt", "\n".join([*errors, f"bug {BUG}, interrupted {INTERRUPTED}, pipe closed {PIPE_CLOSED}"]))
    settings = (f"{name}: {each.annotation} = {each.default!r}" for name, each in Settings.model_fields.items())
    check("settings.txt", "\n".join(settings))


async def test_the_schema_is_as_before(url: str) -> None:
    database = open_database(url)
    async with database.read() as connection:
        lines = await connection.run_sync(described)
    check(f"schema-{database.dialect}.txt", "\n".join(in_any_order(line) for line in lines))
    await database.close()


async def _furnished(url: str) -> Furnished:
    async with open_harvest(url) as app:
        return await furnish(app)


async def _answer(api: Api, path: str) -> str:
    answer = await api.get(path)
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    body = pretty(answer.text) if kind == "application/json" else answer.text
    return steady(f"GET {path} {answer.status} {kind}\n{body}\n")


def _filled(path: str, there: Furnished) -> str:
    """Put ids of the furnished database into a path."""
    ids: dict[str, Any] = {
        "jobs": there.dead,
        "runs": there.run,
        "scrape": there.run,
        "accounts": ANN,
        "users": ANN,
        "posts": there.thread,
        "conversations": there.thread,
        "segments": "posts",
        "links": there.shops.link,
        "products": there.shops.product,
        "items": there.item,
        "sources": "x",
        "lanes": "shopee",
    }
    names = path.split("/")
    filled = [
        str(ids.get(before, 1)) if name.startswith("{") else name
        for before, name in zip(["", *names], names, strict=False)
    ]
    return "/".join(filled)


def _leaves(value: Any, at: str = "") -> Iterator[str]:
    """Every value of a JSON document with the way to it."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(each, f"{at} {name}")
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for place, each in enumerate(value):
            yield from _leaves(each, f"{at} {place}")
    else:
        yield f"{at.lstrip()}: {json.dumps(value, ensure_ascii=False)}"


def _exit_code(error: type[MistnetError]) -> int:
    return 2 if issubclass(error, UsageError) else 1


def _status(error: type[MistnetError]) -> int:
    return next((_STATUSES[each] for each in error.__mro__ if each in _STATUSES), 500)


def _errors(root: type[MistnetError]) -> Iterator[type[MistnetError]]:
    for each in root.__subclasses__():
        if each.__module__.startswith("mistnet."):
            yield each
            yield from _errors(each)
