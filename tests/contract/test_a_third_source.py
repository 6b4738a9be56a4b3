"""A social source from outside is swept, searched, listed, exported, shown and paused: nothing in src knows it."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mistnet import App, Platform, load_settings, suggestion
from mistnet.cli.export import export
from mistnet.cli.search import search
from mistnet.governor.model import SourceName
from mistnet.sources.controls import resume
from tests.apis import open_api
from tests.databases import make_app
from tests.harvests import rows, run, told
from tests.toy_source.server import TOKEN, ToyPlatform, note

PAGE = {"Accept": "text/html"}
TOY = Platform("toy")
ANN, BOB = 7, 8
AT = 1_750_000_000
PEOPLE = [
    {"id": ANN, "name": "ann", "about": "Notes on the moon.", "notes": 13, "since": AT - 90_000},
    {"id": BOB, "name": "bob", "about": "", "notes": 1, "since": AT - 80_000},
]
NOTES = [
    *(note(100 + n, ANN, f"moonrise number {n}", AT + n * 60) for n in range(12)),
    note(90, BOB, "Is anyone looking up?", AT - 600),
    note(120, ANN, "Yes, the moon is full", AT + 4_000, answers=90, thread=90),
]
IDS = sorted(each["n"] for each in NOTES)
PLUGIN = "tests.toy_source.source:plugin"


ROOT = Path(__file__).parents[2]
OWN_FILES = [file for file in (ROOT / "tests" / "toy_source").glob("*.py") if file.name != "server.py"]


@asynccontextmanager
async def collected(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[App, ToyPlatform]]:
    """An app that has tracked one account of the toy platform until there was nothing left to do."""
    platform = ToyPlatform(PEOPLE, NOTES)
    async with platform.serving() as base_url:
        monkeypatch.setenv("TOY_URL", base_url)
        monkeypatch.setenv("TOY_TOKEN", TOKEN)
        settings = load_settings(database_url=url, plugins=[PLUGIN], second_look_seconds=0, batch_fill_seconds=0)
        app = make_app(settings)
        try:
            await app.enqueue([suggestion("ann", TOY)])
            await work(app)
            yield app, platform
        finally:
            await app.database.close()


async def work(app: App) -> None:
    async with app.worker(concurrency=4, until_idle=True) as worker:
        await worker.run()


async def test_an_account_is_swept_to_its_confirmed_end_with_its_conversations(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collected(url, monkeypatch) as (app, platform):
        assert await rows(app, "SELECT kind, last_error FROM jobs") == []
        found = await rows(app, "SELECT platform, user_id, oldest_post_id, newest_post_id, backfilled_at FROM accounts")
        assert [row[:4] for row in found] == [("toy", ANN, 100, 120)]
        assert found[0][4] is not None
        assert await rows(app, "SELECT platform, id FROM posts ORDER BY id") == [("toy", each) for each in IDS]
        calls = await rows(app, "SELECT source, credits, error FROM calls")
        assert calls == [("toy", 0, None)] * platform.calls


async def test_its_posts_are_listed_and_searched(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with collected(url, monkeypatch), open_api(url, plugins=[PLUGIN]) as api:
        listed = (await api.ok("/api/posts?platform=toy&limit=100"))["items"]
        assert sorted(int(each["id"]) for each in listed) == IDS
        found = (await api.ok("/api/posts?q=moonrise&limit=100"))["items"]
        assert [(each["platform"], each["handle"]) for each in found] == [("toy", "ann")] * 12
        assert "number 11" in (await api.get("/search?q=moonrise", headers=PAGE)).text


def test_its_posts_are_found_and_exported_by_commands(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def collect() -> None:
        async with collected(sqlite_url, monkeypatch):
            pass

    asyncio.run(collect())
    found = told(run(search, sqlite_url, "moonrise", "--json"))["posts"]
    assert {each["platform"] for each in found} == {"toy"}
    file = tmp_path / "posts.csv"
    assert run(export, sqlite_url, "posts", "--output", str(file)).exit_code == 0
    exported = csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig")))
    assert sorted(int(each["id"]) for each in exported) == IDS


async def test_the_dashboard_shows_its_account(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with collected(url, monkeypatch), open_api(url, plugins=[PLUGIN]) as api:
        for path in ("/", "/accounts?platform=toy", f"/accounts/{ANN}?platform=toy"):
            assert "@ann" in (await api.get(path, headers=PAGE)).text, path
        assert f'href="/accounts/{ANN}?platform=toy"' in (await api.get("/accounts?platform=toy", headers=PAGE)).text
        assert "moonrise number 11" in (await api.get(f"/accounts/{ANN}?platform=toy", headers=PAGE)).text


async def test_an_operator_can_pause_and_resume_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with collected(url, monkeypatch) as (app, platform):
        async with open_api(url, plugins=[PLUGIN]) as api:
            assert [each["name"] for each in (await api.ok("/api/sources"))["items"]] == ["x", "toy"]
            assert 'id="source-toy"' in (await api.get("/sources", headers=PAGE)).text
            done = await api.post("/api/sources/toy/pause", json={"reason": "by hand"})
            assert done.json == {"source": "toy", "paused": True, "changed": True, "woken": 0}
        calls = platform.calls
        await app.enqueue([suggestion("bob", TOY)])
        other = make_app(app.settings)  # a process that has called before learns of a pause within a second
        try:
            await work(other)
            assert await other.stopped_by() == ("toy", "paused")
            assert platform.calls == calls
            await resume(other, SourceName(TOY), by="ann")
            await work(other)
        finally:
            await other.database.close()
        assert [row[0] for row in await rows(app, "SELECT user_id FROM accounts ORDER BY user_id")] == [ANN, BOB]


def test_a_source_takes_a_few_files_that_use_public_names_alone() -> None:
    assert len(OWN_FILES) <= 8
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in OWN_FILES) <= 250
    for file in OWN_FILES:
        for module in re.findall(r"^(?:from|import) (mistnet[\w.]*)", file.read_text(encoding="utf-8"), re.MULTILINE):
            assert module == "mistnet", file


def test_the_how_to_shows_the_declaration_and_counts_its_files() -> None:
    page = (ROOT / "docs" / "adding-a-source.md").read_text(encoding="utf-8")
    written = (ROOT / "tests" / "toy_source" / "source.py").read_text(encoding="utf-8")
    declaration = written.partition('"""\n\n')[2].replace("tests.toy_source", "toy_source")
    assert f"```python\n{declaration}```" in page
    assert f"| new files | **{len(OWN_FILES)}**" in page
