"""The real command in a folder of its own, on a fresh database of either sort."""

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import asyncpg
import pytest
from sqlalchemy import text

from mistnet.app import open_app
from mistnet.settings import load_settings
from mistnet.store.database import Database
from mistnet.store.schema import migrate
from tests.plugins import toy
from tests.services.sqld import SqldServer

ROOT = Path(__file__).parents[2]
SOURCES = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
PATIENCE = 60.0
QUICK = {
    "MISTNET_X_API_KEY": "sim-key",
    "MISTNET_X_RATE_PER_MINUTE": "100000",
    "MISTNET_SECOND_LOOK_SECONDS": "0.2",
    "MISTNET_BATCH_FILL_SECONDS": "0.2",
    "MISTNET_BACKOFF_BASE_SECONDS": "0.1",
    "MISTNET_PLUGINS": "[]",
}
"""For collecting from a simulated source, where minutes are moments."""

RESTLESS = {
    "MISTNET_LEASE_SECONDS": "2",
    "MISTNET_HEARTBEAT_SECONDS": "0.5",
    "MISTNET_RECLAIM_SECONDS": "0.5",
    "MISTNET_LEADER_LEASE_SECONDS": "2",
}
"""So that the dead are missed soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(slots=True, kw_only=True)
class CommandLine:
    """Runs `mistnet` as people do, with settings in the environment."""

    folder: Path
    url: str
    settings: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *arguments: str, stdin: str | None = None, **settings: str) -> Ran:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(**settings),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def ok(self, *arguments: str, **settings: str) -> Ran:
        done = self(*arguments, **settings)
        assert done.code == 0, done
        return done

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(**settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "mistnet", *arguments]

    def environment(self, **settings: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MISTNET_")}
        plugins = json.dumps([f"{toy.__name__}:plugin"])
        own = {"MISTNET_DATABASE_URL": self.url, "MISTNET_PLUGINS": plugins, "PYTHONPATH": SOURCES}
        return {**inherited, **own, **self.settings, **settings}

    def sql(self, query: str, **values: object) -> list[dict[str, Any]]:
        """Looks into the database, or puts it into a state that only an accident would."""
        return asyncio.run(_sql(self.url, query, values))

    def add(self, kind: str, *, key: str | None = None, **args: object) -> None:
        """Adds a job without the cost of a process; `jobs add` has tests of its own."""
        asyncio.run(_add(self.url, kind, json.dumps(args), key))

    def prepare(self) -> None:
        asyncio.run(_migrate(self.url))
        self.sql(toy.EFFECTS)

    def stop_all(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


async def _add(url: str, kind: str, args: str, key: str | None) -> None:
    async with open_app(load_settings(database_url=url), plugins=[toy.plugin()]) as app:
        await app.enqueue([app.kinds.new_job(kind, args, key=key)])


async def _migrate(url: str) -> None:
    database = Database(url)
    try:
        await migrate(database)
    finally:
        await database.close()


async def _sql(url: str, query: str, values: dict[str, object]) -> list[dict[str, Any]]:
    database = Database(url)
    try:
        async with database.write() as connection:
            result = await connection.execute(text(query), values)
            return [dict(row) for row in result.mappings()] if result.returns_rows else []
    finally:
        await database.close()


def until(condition: Callable[[], object], *, seconds: float = PATIENCE) -> None:
    """Waits for something to become true; fails if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("the awaited condition never came true")
        time.sleep(0.05)


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


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that nothing has been done to yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'queue.db'}"
    return str(request.getfixturevalue("fresh_postgres"))


@pytest.fixture
def mistnet(empty_url: str, tmp_path: Path) -> Iterator[CommandLine]:
    """The command on a migrated database, with the toy kinds and their table."""
    command = CommandLine(folder=tmp_path, url=empty_url)
    command.prepare()
    yield command
    command.stop_all()


@pytest.fixture
def postgres_command_line(fresh_postgres: str, tmp_path: Path) -> Iterator[CommandLine]:
    """The command on a migrated PostgreSQL database."""
    command = CommandLine(folder=tmp_path, url=fresh_postgres)
    command.prepare()
    yield command
    command.stop_all()


@pytest.fixture
def on_libsql(fresh_libsql: str, tmp_path: Path) -> Iterator[CommandLine]:
    """The command on a migrated database of a libSQL server."""
    command = CommandLine(folder=tmp_path, url=fresh_libsql)
    command.prepare()
    yield command
    command.stop_all()


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[CommandLine]:
    """The command on a SQLite file that does not exist yet."""
    command = CommandLine(folder=tmp_path, url=f"sqlite:///{tmp_path / 'queue.db'}")
    yield command
    command.stop_all()


def numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(row["n"] for row in rows)


@pytest.fixture(scope="module")
def sim_url() -> Iterator[str]:
    """A tiny world behind HTTP, in a process of its own."""
    command = [sys.executable, "-m", "mistnet.sim", "--port", "0", "--size", "tiny", "--tier", "unlimited"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def world_says(sim_url: str, path: str) -> Any:
    """The world's own word on what is true."""
    with urlopen(f"{sim_url}/_sim/{path}", timeout=30) as answer:
        return json.load(answer)


def known_handles(sim_url: str) -> list[str]:
    return [str(each) for each in world_says(sim_url, "accounts")["handles"]]
