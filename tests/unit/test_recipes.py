"""The recipes of CONTRIBUTING.md work: each is followed on a copy of the tree, exactly as it is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
STEP = re.compile(
    r"^\d+\. (?:[A-Z][^.\n`]*\. )?"
    r"(?:Create `(?P<created>[^`]+)`[^\n]*"
    r"|In `(?P<edited>[^`]+)`, after (?:`(?P<line>[^`]+)`|\"(?P<row>[^\"]+)\")(?: in `(?P<inside>\w+)`)?, add):\n\n"
    r"   ```\w+\n(?P<text>.*?\n)   ```$",
    re.DOTALL | re.MULTILINE,
)
ONE_PROCESS = """
import asyncio, sys

async def main():
    {}

asyncio.run(main())
"""


def recipe(title: str) -> str:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^### {re.escape(title)}.*?(?=^##)", page, re.DOTALL | re.MULTILINE)
    return str(found)


def follow(text: str, tree: Path) -> set[str]:
    """Do the steps of a recipe. Return the files that were created or edited."""
    steps = list(STEP.finditer(text))
    assert len(steps) == len(re.findall(r"^\d+\. ", text, re.MULTILINE)), "every numbered step can be followed"
    revisions = sorted(each.name[:4] for each in (tree / "src/mistnet/kit/migrations/versions").glob("[0-9]*.py"))
    numbers = {"MMMM": revisions[-1], "NNNN": f"{int(revisions[-1]) + 1:04}"}
    changed = set()
    for step in steps:
        added = "".join(line.removeprefix("   ") for line in step["text"].splitlines(keepends=True))
        name = step["created"] or step["edited"]
        for placeholder, number in numbers.items():
            added, name = added.replace(placeholder, number), name.replace(placeholder, number)
        file = tree / name
        changed.add(name)
        if step["created"]:
            assert not file.exists()
            file.write_text(added, encoding="utf-8")
            continue
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        inside = f"class {step['inside']}" if step["inside"] else ""
        begin = next(number for number, line in enumerate(lines) if line.startswith(inside))
        anchor = step["line"] or step["row"]
        places = [n for n, line in enumerate(lines) if n >= begin and line.strip() == anchor]
        assert len(places) == 1 or (step["inside"] and places), f"{name} has this line once: {anchor}"
        lines.insert(places[0] + 1, added)
        file.write_text("".join(lines), encoding="utf-8")
    return changed


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    copy = tmp_path_factory.mktemp("recipes")
    for name in ("src", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    yield copy
    shutil.rmtree(copy)


def run(tree: Path, *arguments: str, **settings: str) -> str:
    """What a process on the copy prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MISTNET_")}
    environment |= {"PYTHONPATH": str(tree / "src"), "MISTNET_DATABASE_URL": f"sqlite:///{tree}/nests.db", **settings}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def evaluate(tree: Path, program: str, **settings: str) -> str:
    indented = dedent(program).strip().replace("\n", "\n    ")
    return run(tree, "-c", ONE_PROCESS.format(indented), **settings)


def test_a_setting_takes_three_files(tree: Path) -> None:
    assert len(follow(recipe("A setting (3 files)"), tree)) == 2, "and the one that uses it"
    program = "from mistnet.settings import load_settings\nprint(load_settings().nests_at_once)"
    assert evaluate(tree, program) == "5\n"
    assert evaluate(tree, program, MISTNET_NESTS_AT_ONCE="7") == "7\n"
    refused = evaluate(
        tree,
        """
        from mistnet.kit.errors import SettingsError
        from mistnet.settings import load_settings
        try:
            load_settings()
        except SettingsError as error:
            print(error)
        """,
        MISTNET_NESTS_AT_ONCE="101",
    )
    assert "MISTNET_NESTS_AT_ONCE" in refused


def test_a_command_takes_two_files(tree: Path) -> None:
    assert len(follow(recipe("A command (2 files)"), tree)) == 2
    assert "Count the nests." in run(tree, "-m", "mistnet", "--help")
    run(tree, "-m", "mistnet", "db", "migrate")
    assert run(tree, "-m", "mistnet", "nests") == "20 nests\n"
    assert run(tree, "-m", "mistnet", "nests", "--json") == '{\n  "nests": 20\n}\n'


def test_a_metric_takes_two_files(tree: Path) -> None:
    assert len(follow(recipe("A metric (2 files)"), tree)) == 2
    shown = evaluate(
        tree,
        """
        from prometheus_client import generate_latest
        from mistnet.queue.metrics import EngineMetrics
        metrics = EngineMetrics()
        metrics.nests.labels("oak").inc()
        print(generate_latest(metrics.registry).decode())
        """,
    )
    assert 'mistnet_nests_total{tree="oak"} 1.0' in shown


def test_a_dashboard_page_takes_three_files(tree: Path) -> None:
    assert len(follow(recipe("A dashboard page (3 files)"), tree)) == 3
    shown = evaluate(
        tree,
        """
        from mistnet.app import open_app
        from mistnet.settings import load_settings
        from mistnet.web.application import make_service
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": "/nests", "root_path": "",
            "query_string": b"", "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8470),
            "headers": [(b"host", b"127.0.0.1:8470"), (b"accept", b"text/html")],
        }
        async def receive():
            return {"type": "http.request", "body": b""}
        async def send(message):
            print(message.get("status", ""), message.get("body", b"").decode())
        async with open_app(load_settings(), create=True) as app:
            await make_service(app)(scope, receive, send)
        """,
    )
    assert shown.startswith("200")
    assert '<p class="card">20 nests</p>' in shown
    assert '<a href="/nests" aria-current="page">Nests</a>' in shown


def test_a_column_of_posts_takes_four_places(tree: Path) -> None:
    steps = recipe("A column of posts (4 places")
    assert len(STEP.findall(steps)) == 4
    changed = follow(steps, tree)
    assert {each.split("/")[2] for each in changed} == {"social", "kit", "sources"}
    shown = evaluate(
        tree,
        """
        import json, mistnet, msgspec
        from datetime import UTC, datetime
        from mistnet.app import open_app
        from mistnet.data.export import Exporter
        from mistnet.data.model import Selection, TableName
        from mistnet.kit.export import Format
        from mistnet.settings import load_settings
        from mistnet.social.model import X
        from mistnet.social.store.post_listing import PostListing
        from mistnet.social.store.posts import write_posts, write_users
        from mistnet.sources.x.decode import gather_posts
        from mistnet.web.api.posts import PostDocument
        payload = {
            "type": "tweet", "id": "2", "text": "a nest", "createdAt": "Fri Jul 31 22:22:43 +0000 2026",
            "author": {"type": "user", "userName": "ann", "id": "1"}, "saveCount": 5,
        }
        gathered, _ = gather_posts([msgspec.Raw(json.dumps(payload).encode())], "test")
        now = datetime(2026, 8, 1, tzinfo=UTC)
        async with open_app(load_settings(database_url="sqlite:///saves.db"), create=True) as app:
            async with app.database.transaction() as connection:
                await write_users(connection, list(gathered.users.values()), now)
                await write_posts(connection, list(gathered.posts.values()), now)
            (found,) = await PostListing(app.database).some([(X, 2)])
            print("API", PostDocument.model_validate(found).saves)
            await Exporter(app.database).export(Selection(what=TableName.POSTS), Format.JSONL, sys.stdout.buffer)
        with mistnet.open("saves.db") as data:
            (row,) = data.posts()
            print("Python", row.saves, data.posts().columns["saves"])
        """,
    )
    assert "API 5" in shown
    assert '"saves":5' in shown.replace(" ", "")
    assert "Python 5 The number of saves when it was last seen." in shown
