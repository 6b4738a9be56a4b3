"""The real commands in a folder of their own, on a fresh database."""

import asyncio
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from mistnet.app import open_app
from mistnet.kit.database import Database
from mistnet.kit.migrate import migrate
from mistnet.settings import load_settings
from tests.commands import DEADLINE_SECONDS, Ran, command_line, run_here, run_process
from tests.databases import Templates
from tests.loops import LOOP
from tests.plugins import toy
from tests.services.sqld import SqldServer
from tests.simulated import world_served
from tests.warm import SOURCES, WarmProcess

QUICK = {
    "MISTNET_X_API_KEY": "sim-key",
    "MISTNET_X_RATE_PER_MINUTE": "100000",
    "MISTNET_SECOND_LOOK_SECONDS": "0.2",
    "MISTNET_BATCH_FILL_SECONDS": "0.2",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_PLUGINS": "[]",
}
"""For collecting from a simulated source without the pauses that a real one needs."""

RESTLESS = {
    "MISTNET_LEASE_SECONDS": "2",
    "MISTNET_HEARTBEAT_SECONDS": "0.5",
    "MISTNET_RECLAIM_SECONDS": "0.5",
    "MISTNET_LEADER_LEASE_SECONDS": "2",
    "MISTNET_IDLE_POLL_SECONDS": "1",
}
"""So that the work of a killed process is taken over soon."""


@dataclass(slots=True, kw_only=True)
class CommandLine:
    """Runs `mistnet` with settings in the environment.

    A call runs the command in the test's process; `process` and `start` start a process of its own, for what needs one.
    """

    folder: Path
    url: str
    settings: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    _database: Database | None = None

    def __call__(self, *arguments: str, stdin: str | None = None, **settings: str) -> Ran:
        return run_here(arguments, folder=self.folder, environment=self.environment(**settings), stdin=stdin)

    def ok(self, *arguments: str, **settings: str) -> Ran:
        done = self(*arguments, **settings)
        assert done.code == 0, done
        return done

    def process(self, *arguments: str, stdin: str | None = None, **settings: str) -> Ran:
        return run_process(arguments, folder=self.folder, environment=self.environment(**settings), stdin=stdin)

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        process = WarmProcess(
            command_line(*arguments),
            cwd=self.folder,
            env=self.environment(**settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def environment(self, **settings: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MISTNET_")}
        plugins = json.dumps([f"{toy.__name__}:plugin"])
        own = {"MISTNET_DATABASE_URL": self.url, "MISTNET_PLUGINS": plugins, "PYTHONPATH": SOURCES}
        return {**inherited, **own, **self.settings, **settings}

    def sql(self, query: str, **values: object) -> list[dict[str, Any]]:
        """Look into the database, or put it into a state that only an accident would.

        Tests look many times a second: a file is asked directly, PostgreSQL through connections that stay open.
        """
        if self.url.startswith("sqlite:///"):
            return _ask_file(self.url.removeprefix("sqlite:///"), query, values)
        self._database = self._database or Database(self.url)
        try:
            return LOOP.run(_ask(self._database, query, values))
        finally:
            if self._database.product == "libsql":  # tests stop and start its server
                self._let_go()

    def add(self, kind: str, *, key: str | None = None, **args: object) -> None:
        """Add a job without a command; `jobs add` has tests of its own."""
        self.add_all([(kind, key, args)])

    def add_all(self, jobs: Sequence[tuple[str, str | None, dict[str, object]]], **settings: Any) -> None:
        """Add many jobs at once: kind, key and arguments of each."""
        asyncio.run(_add(self.url, jobs, settings))

    def prepare(self) -> None:
        """Migrate the database and make the table of the toy kinds."""
        asyncio.run(_migrate(self.url))
        self.sql(toy.EFFECTS)

    def stop_all(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self._let_go()

    def _let_go(self) -> None:
        if self._database:
            LOOP.run(self._database.close())
            self._database = None


async def _add(url: str, jobs: Sequence[tuple[str, str | None, dict[str, object]]], settings: dict[str, Any]) -> None:
    async with open_app(load_settings(database_url=url, **settings), plugins=[toy.plugin()]) as app:
        await app.enqueue([app.kinds.new_job(kind, json.dumps(args), key=key) for kind, key, args in jobs])


async def _migrate(url: str) -> None:
    database = Database(url)
    try:
        await migrate(database)
    finally:
        await database.close()


async def _ask(database: Database, query: str, values: dict[str, object]) -> list[dict[str, Any]]:
    is_read = query.lstrip().upper().startswith("SELECT")  # a look must not wait for a lock that a stopped writer holds
    async with database.read() if is_read else database.transaction() as connection:
        result = await connection.execute(text(query), values)
        return [dict(row) for row in result.mappings()] if result.returns_rows else []


def _ask_file(file: str, query: str, values: dict[str, object]) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(file, timeout=DEADLINE_SECONDS)) as connection, connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query, values)]


def until(condition: Callable[[], object]) -> None:
    """Wait for something to become true; fail if it never does."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("the awaited condition never came true")
        time.sleep(0.1)


@pytest.fixture
def fresh_postgres(postgres_dsn: str) -> Iterator[str]:
    """The URL of a new, empty database."""
    name = f"e2e_{secrets.token_hex(6)}"
    asyncio.run(_administer(postgres_dsn, f"CREATE DATABASE {name}"))
    yield f"{postgres_dsn.rpartition('/')[0]}/{name}"
    asyncio.run(_administer(postgres_dsn, f"DROP DATABASE {name} WITH (FORCE)"))


async def _administer(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def fresh_libsql(sqld: SqldServer) -> Iterator[str]:
    """The URL of a new, empty database on a libSQL server."""
    url = sqld.create()
    yield url
    sqld.drop(url)


@pytest.fixture(scope="session")
def sqlite_template(templates: Templates) -> Path:
    """A migrated SQLite file with the table of the toy kinds, to be copied."""
    file = Path(templates.sqlite().removeprefix("sqlite:///"))
    connection = sqlite3.connect(file)
    connection.execute("DROP TABLE effects")
    connection.execute(toy.EFFECTS)
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return file


@pytest.fixture
def on_sqlite(sqlite_template: Path, tmp_path: Path) -> Iterator[CommandLine]:
    """The command on a migrated SQLite file."""
    shutil.copy(sqlite_template, tmp_path / "queue.db")
    yield from _stopped(CommandLine(folder=tmp_path, url=f"sqlite:///{tmp_path / 'queue.db'}"))


@pytest.fixture
def on_no_file(tmp_path: Path) -> Iterator[CommandLine]:
    """The command on a SQLite file that does not exist yet."""
    yield from _stopped(CommandLine(folder=tmp_path, url=f"sqlite:///{tmp_path / 'queue.db'}"))


@pytest.fixture
def on_postgres(postgresql_url: str, tmp_path: Path) -> Iterator[CommandLine]:
    """The command on a migrated PostgreSQL database."""
    yield from _stopped(_with_toy_table(CommandLine(folder=tmp_path, url=postgresql_url)))


@pytest.fixture
def on_libsql(libsql_url: str, tmp_path: Path) -> Iterator[CommandLine]:
    """The command on a migrated database of a libSQL server."""
    yield from _stopped(_with_toy_table(CommandLine(folder=tmp_path, url=libsql_url)))


@pytest.fixture(params=[pytest.param("on_sqlite", id="sqlite"), pytest.param("on_postgres", id="postgresql")])
def mistnet(request: pytest.FixtureRequest) -> CommandLine:
    """The command on a migrated database, for tests whose SQL or locking depends on the database."""
    command: CommandLine = request.getfixturevalue(request.param)
    return command


def _with_toy_table(command: CommandLine) -> CommandLine:
    command.sql("DROP TABLE effects")
    command.sql(toy.EFFECTS)
    return command


def _stopped(command: CommandLine) -> Iterator[CommandLine]:
    yield command
    command.stop_all()


def numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(row["n"] for row in rows)


@pytest.fixture(scope="session")
def sim_url() -> Iterator[str]:
    """A tiny world that tests share: they ask it and do not change it."""
    with world_served(speed=1.0) as url:
        yield url
