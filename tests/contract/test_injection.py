"""What people type into a filter, an order or a search stays a value: no table changes, and nothing fails."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import typer
from fastapi.dependencies.models import Dependant
from sqlalchemy import select, text

from mistnet.app import App
from mistnet.cli import main as cli
from mistnet.cli.command import SharedOptions
from mistnet.kit.view import ListPage
from mistnet.queue.store.inspect import Inspector, JobFilter
from tests import schema as tables
from tests.apis import Api, api_routes, described_routes, open_api
from tests.commands import Ran, run_here
from tests.harvests import open_harvest, post, tell, user
from tests.loops import LOOP

HOSTILE = (
    "'; DROP TABLE posts; --",
    '" OR "1"="1',
    "created_at; DELETE FROM users",
    "1) UNION SELECT id, handle FROM users --",
    "%' OR '%' = '\\",
)
ENDLESS = {"/live"}
TYPED = (
    '\'; DROP TABLE posts; -- " OR "1"="1 %_\\ \u2018\u02bc\uff07\u201d',
    "1) UNION SELECT id, handle FROM users --",
    "a\0b",
    "9" * 5_000,
)
"""What no shell stops anyone from typing; a NUL can only come from a program."""

CHANGING = {
    *("add", "ask", "cancel", "check", "close", "crawl", "declare", "define", "demo", "disable", "enable", "forget"),
    *("import", "init", "materialize", "migrate", "open", "pause", "poll", "posts", "posts-of", "refresh", "remove"),
    *("requeue", "resume", "retry", "scan", "serve", "set", "start", "suggest", "sync", "token", "track", "try"),
    *("untrack", "unwatch", "up", "users", "watch", "work"),
}
"""The last words of commands that change something or go on until they are stopped; all others only read."""

FILES = {"file", "output"}
HARMLESS = {"name": "some", "query": "text", "what": "posts", "who": "ann", "handle": "ann"}
"""Values for what a command insists on, beside the one that is tried."""


def filters() -> Iterator[tuple[str, str]]:
    """Every value in the address of every route that only reads: those of the query, and those of the path."""
    for route in api_routes(described_routes()):
        if "GET" in (route.methods or ()) and str(route.path) not in ENDLESS:
            path = str(route.path)
            yield from ((path, f"?{name}=") for name in sorted({*_query(route.dependant)}))
            yield from ((path, name) for name in re.findall(r"\{(\w+)", path))


def _query(of: Dependant) -> Iterator[str]:
    yield from (each.alias for each in of.query_params)
    for below in of.dependencies:
        yield from _query(below)


def address(template: str, name: str, value: str) -> str:
    """With this value in the one place, and with harmless ones in all others."""
    path = re.sub(r"\{(\w+)[^}]*\}", lambda found: quote(value, safe="") if found[1] == name else "1", template)
    return f"{path}{name}{quote(value, safe='')}" if name.startswith("?") else path


def options() -> Iterator[tuple[list[str], str]]:
    """Every option and argument with a value of every command that only reads: the command line, with room for it."""
    for words, command in _commands(cli.app):
        if words[-1] in CHANGING:
            continue
        given = [
            each for each in command.params if each.name not in SharedOptions.__struct_fields__ and not _is_flag(each)
        ]
        required = [each for each in given if each.required]
        for tried in (each for each in given if each.name not in FILES):
            others = [HARMLESS.get(each.name, "1") for each in required if each is not tried]
            name = tried.opts[-1] if tried.param_type_name == "option" else ""
            yield [*words, *others], name


def _commands(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield words, command.load() if isinstance(command, cli.LateCommand) else command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, *words, name)


def _is_flag(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False))


async def content(app: App) -> dict[str, list[Any]]:
    async with app.database.read() as connection:
        return {
            name: [tuple(row) for row in await connection.execute(select(table))]
            for name, table in tables.metadata.tables.items()
        }


@pytest.mark.in_turn(2)
async def test_no_filter_order_or_search_of_the_api_reaches_the_database_as_sql(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        await tell(api.app, user(1), post(10, 1), post(11, 1))
        before = await content(api.app)
        asked = [(template, name, value) for template, name in filters() for value in HOSTILE]
        assert await failures(api, asked) == []
        assert await content(api.app) == before
        assert len(asked) > 500


async def failures(api: Api, asked: Iterable[tuple[str, str, str]]) -> list[tuple[str, int, bytes]]:
    return [
        (where, answer.status, answer.body[:200])
        for where in (address(*each) for each in asked)
        if (answer := await api.get(where)).status >= 500
    ]


async def test_a_filter_that_is_written_into_the_sql_is_noticed(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant: one list puts its filter between quotes instead of binding it."""

    async def careless(self: Inspector, wanted: JobFilter) -> ListPage[Any]:
        async with self._database.read() as connection:
            await connection.execute(text(f"SELECT 1 FROM jobs WHERE lane = '{wanted.lane}'"))
        return ListPage(items=[], next=None)

    monkeypatch.setattr(Inspector, "page", careless)
    async with open_api(sqlite_url) as api:
        asked = [("/jobs", name, value) for template, name in filters() if template == "/jobs" for value in HOSTILE]
        assert {where.partition("=")[0] for where, _, _ in await failures(api, asked)} == {"/jobs?lane"}


def is_clean(ran: Ran) -> bool:
    """Whether a command answered, or refused its command line in one line."""
    refused = ran.code == 2 and ran.err.startswith("mistnet: error: ") and ran.err.count("\n") == 1
    return (ran.code == 0 or refused) and "the database" not in ran.err and "Traceback" not in ran.err


@pytest.mark.in_turn(1)
def test_no_option_of_a_command_that_reads_reaches_the_database_as_sql(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "app", typer.main.get_command(cli.app))  # Typer builds the whole tree for every call
    environment = {**os.environ, "MISTNET_DATABASE_URL": sqlite_url, "MISTNET_LOG_LEVEL": "ERROR"}

    def ran(*arguments: str) -> Ran:
        return run_here(arguments, folder=tmp_path, environment=environment, stdin=None)

    async def prepare() -> None:
        async with open_harvest(sqlite_url) as app:
            await tell(app, user(1), post(10, 1), post(11, 1))

    async def look() -> dict[str, list[Any]]:
        async with open_harvest(sqlite_url) as app:
            return await content(app)

    LOOP.run(prepare())
    for line in (("segments", "define", "some", "--specified"), ("items", "add", "Cup"), ("track", "bob")):
        assert ran(*line).code == 0, ran(*line)
    before = LOOP.run(look())
    tried = [(line, name, value) for line, name in options() for value in TYPED]
    unclean = [
        (line, name, value[:40], done.code, done.err[-300:])
        for line, name, value in tried
        if not is_clean(done := ran(*line, *([f"{name}={value}"] if name else ["--", value])))
    ]
    assert unclean == []
    assert LOOP.run(look()) == before
    assert len(tried) > 400
