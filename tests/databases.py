"""Migrated databases for tests: one of each kind per process, emptied before each test, or a fresh copy for one test.

Creating a database, connecting to it and compiling statements cost many times what a small test does. So a process
keeps one database of each kind, one pool of connections to it and one event loop. `SharedDatabase.reset` empties only
what a test has written, then asks the database whether anything is left.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import msgspec
from sqlalchemy import BigInteger, Column, Engine, MetaData, Table, Text, event, make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.app import App
from mistnet.kit.clock import Clock
from mistnet.kit.database import Database, Pools
from mistnet.kit.libsql.client import CLOSE, LibsqlServer, Result, rows_of
from mistnet.kit.libsql.driver import outcome_of
from mistnet.kit.libsql.server import address_of
from mistnet.kit.migrate import migrate
from mistnet.kit.types import metadata
from mistnet.settings import Settings
from tests.loops import LOOP
from tests.services.sqld import TEMPLATE, SqldServer

effects = Table(
    "effects",
    MetaData(),
    Column("job_id", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
)
"""One row for each effect of a toy job: tests count them."""

TABLES = [table.name for table in (*metadata.sorted_tables, effects)]
USED = " UNION ALL ".join(f"SELECT '{name}' AS name WHERE EXISTS (SELECT 1 FROM {name})" for name in TABLES)
"""Asks for the names of the tables that have rows."""

SQLITE_SCHEMA = """
    SELECT name, sql FROM sqlite_master UNION ALL SELECT 'revision', version_num FROM alembic_version ORDER BY 1
"""
LIBSQL_EMPTY = ";".join(
    [
        "BEGIN IMMEDIATE",
        *(f"DELETE FROM {name}" for name in reversed(TABLES)),
        *(f"DELETE FROM {name}" for name in ("call_hours", "call_days", "account_posts")),  # triggers count deletions
        "INSERT INTO posts_search (posts_search) VALUES ('delete-all')",
        "DELETE FROM posts_search_rows",
        "DELETE FROM sqlite_sequence",
        "COMMIT",
    ]
)
LIBSQL_USED = f"{USED} UNION ALL SELECT 'sequences' WHERE EXISTS (SELECT 1 FROM sqlite_sequence)"
PG_USED = f"""
    {USED}
    UNION ALL SELECT 'sequence ' || sequencename FROM pg_sequences
    WHERE schemaname = 'public' AND last_value IS NOT NULL
"""
PG_SCHEMA = """
    SELECT (SELECT sum(hashtext(relname::text || relnatts)) FROM pg_class WHERE relnamespace = 'public'::regnamespace),
        (SELECT sum(hashtext(tgname::text || tgenabled::text)) FROM pg_trigger WHERE NOT tgisinternal),
        (SELECT sum(hashtext(conname::text)) FROM pg_constraint WHERE connamespace = 'public'::regnamespace),
        (SELECT sum(hashtext(proname::text)) FROM pg_proc WHERE pronamespace = 'public'::regnamespace),
        (SELECT string_agg(version_num, ' ') FROM alembic_version)
"""
"""Changes when a test adds or removes a table, column, index, constraint, trigger or function, or the revision."""

_pools: dict[str, Pools | None] = {}
"""By URL: the connections of this process to its shared databases, made when a test first opens one."""


class IncompleteReset(Exception):
    """Something of the previous test is still in the database."""

    def __init__(self, url: str, left: Sequence[str]) -> None:
        super().__init__(f"the reset left rows behind: {', '.join(left)}")
        self.url, self.left = url, left


class SharedDatabase(Protocol):
    """One database that test after test finds empty."""

    url: str

    def reset(self) -> None:
        """Empty the database. Raises IncompleteReset if it is not as it was after its migration."""

    def close(self) -> None:
        """Give back the connection that resets it."""


class SharedSqlite:
    """A file that is overwritten with the migrated template, page by page, while connections to it stay open."""

    def __init__(self, template: Path, file: Path) -> None:
        self.url = f"sqlite:///{file}"
        shutil.copy(template, file)
        with closing(sqlite3.connect(template)) as migrated:
            self._template = sqlite3.connect(":memory:")
            migrated.backup(self._template)
        self._target = sqlite3.connect(file, isolation_level=None)
        self._schema = self._described()

    def reset(self) -> None:
        self._template.backup(self._target)
        if left := [name for (name,) in self._target.execute(USED)]:
            raise IncompleteReset(self.url, left)
        if self._described() != self._schema:
            raise IncompleteReset(self.url, ["schema"])

    def close(self) -> None:
        self._template.close()
        self._target.close()

    def _described(self) -> list[tuple[str, str]]:
        return self._target.execute(SQLITE_SCHEMA).fetchall()


class SharedPostgres:
    """A database on the tests' server whose used tables are truncated. If a test changed the schema, it is replaced."""

    def __init__(self, dsn: str, template: str) -> None:
        self._dsn = dsn
        self._template = template
        self._name = f"shared_{os.getpid()}_{secrets.token_hex(3)}"
        self._connection: Any = None
        self._schema: Any = None
        self.url = with_database(dsn, self._name)
        LOOP.run(self._create())

    def reset(self) -> None:
        LOOP.run(self._reset())

    def close(self) -> None:
        LOOP.run(self._connection.close())

    async def _create(self) -> None:
        await create_database(self._dsn, self._name, template=self._template)
        self._connection = await asyncpg.connect(self.url)
        self._schema = await self._connection.fetchrow(PG_SCHEMA)

    async def _reset(self) -> None:
        if await self._connection.fetchrow(PG_SCHEMA) != self._schema:
            await self._connection.close()
            await close_pools(self.url)
            await drop_database(self._dsn, self._name)
            await self._create()
        if used := await self._used():
            await self._empty(used)
        if left := await self._used():
            raise IncompleteReset(self.url, left)

    async def _used(self) -> list[str]:
        return [name for (name,) in await self._connection.fetch(PG_USED)]

    async def _empty(self, used: Sequence[str]) -> None:
        named = [name for name in used if not name.startswith("sequence ")]
        sequences = [name.removeprefix("sequence ") for name in used if name.startswith("sequence ")]
        truncate = [f"TRUNCATE {', '.join(named)} CASCADE"] if named else []
        restart = [f"SELECT setval('{name}', 1, false)" for name in sequences]
        await self._connection.execute("; ".join([*truncate, *restart]))


class SharedLibsql:
    """A namespace of a libSQL server, emptied in one request. If a test changed the schema, it is replaced."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make
        self._open()

    def reset(self) -> None:
        if LOOP.run(self._ask(SQLITE_SCHEMA, before=[LIBSQL_EMPTY])) != self._schema:
            LOOP.run(close_pools(self.url))
            self.close()
            self._open()
        if left := LOOP.run(self._ask(LIBSQL_USED)):
            raise IncompleteReset(self.url, [str(name) for (name,) in left])

    def close(self) -> None:
        LOOP.run(self._server.close())

    def _open(self) -> None:
        self.url = self._make()
        self._server = LibsqlServer(address_of(make_url(self.url)))
        self._schema = LOOP.run(self._ask(SQLITE_SCHEMA))

    async def _ask(self, sql: str, *, before: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        scripts = [{"type": "sequence", "sql": script} for script in before]
        answer = await self._server.send([*scripts, {"type": "execute", "stmt": {"sql": sql}}, CLOSE])
        if refused := [each.error for each in answer.results if each.error]:
            raise IncompleteReset(self.url, [str(error) for error in refused])
        return rows_of(msgspec.json.decode(outcome_of(answer.results[len(scripts)]), type=Result).rows)


class Templates:
    """The databases of one process: migrated once, then shared by its tests or copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[str, SharedDatabase] = {}
        self._postgresql: dict[str, str] = {}
        self._libsql: set[int] = set()

    def close(self) -> None:
        for shared in self._shared.values():
            shared.close()
        LOOP.run(_close_all_pools())

    def shared_sqlite(self) -> str:
        return self._reset("sqlite", lambda: SharedSqlite(self._sqlite(), self._folder / "shared.db"))

    def shared_postgresql(self, dsn: str) -> str:
        return self._reset(dsn, lambda: SharedPostgres(dsn, self._migrated_on(dsn)))

    def shared_libsql(self, server: SqldServer) -> str:
        return self._reset(f"libsql:{server.port}", lambda: SharedLibsql(lambda: self.libsql(server)))

    def sqlite(self) -> str:
        """A migrated file for one test alone."""
        fresh = self._folder / f"{secrets.token_hex(6)}.db"
        shutil.copy(self._sqlite(), fresh)
        return f"sqlite:///{fresh}"

    def postgresql(self, dsn: str) -> str:
        """A migrated database for one test alone, to be dropped by it."""
        name = f"test_{secrets.token_hex(6)}"
        asyncio.run(create_database(dsn, name, template=self._migrated_on(dsn)))
        return with_database(dsn, name)

    def libsql(self, server: SqldServer) -> str:
        """A migrated namespace for one test alone."""
        template = f"{TEMPLATE}{id(self)}"
        if server.port not in self._libsql:
            asyncio.run(_prepare(server.create(template)))
            self._libsql.add(server.port)
        return server.copy(template)

    def _reset(self, name: str, make: Callable[[], SharedDatabase]) -> str:
        if name not in self._shared:
            self._shared[name] = make()
        self._shared[name].reset()
        url = self._shared[name].url
        _pools.setdefault(url, None)
        return url

    def _sqlite(self) -> Path:
        template = self._folder / "template.db"
        if not template.exists():
            asyncio.run(_prepare(f"sqlite:///{template}"))
        return template

    def _migrated_on(self, dsn: str) -> str:
        if dsn not in self._postgresql:
            self._postgresql[dsn] = f"template_{os.getpid()}_{secrets.token_hex(3)}"
            asyncio.run(create_database(dsn, self._postgresql[dsn]))
            asyncio.run(_prepare(with_database(dsn, self._postgresql[dsn])))
        return self._postgresql[dsn]


def open_database(url: str, *, clock: Clock | None = None) -> Database:
    """A database as a process would open it. On a shared one, tests in the shared loop use its warm connections."""
    if url not in _pools or not LOOP.is_running_here:
        return Database(url, clock=clock)
    pools = _pools[url] = _pools[url] or Pools(url)
    return Database(url, clock=clock, pools=pools)


async def close_pools(url: str) -> None:
    if pools := _pools.get(url):
        await pools.close()
        _pools[url] = None


async def _close_all_pools() -> None:
    for url in _pools:
        await close_pools(url)


def with_database(dsn: str, name: str) -> str:
    return f"{dsn.rsplit('/', 1)[0]}/{name}"


async def analyze(connection: AsyncConnection) -> None:
    """Gives the planner its statistics. A libSQL server takes no such order: plans must be good there without any."""
    if connection.dialect.driver != "libsql":
        await connection.execute(text("ANALYZE"))


def numbers(first: int, last: int) -> str:
    """A table of one column `n` for a FROM clause, in words that every database understands."""
    counted = f"SELECT CAST({first} AS BIGINT) UNION ALL SELECT n + 1 FROM counted WHERE n < {last}"
    return f"(WITH RECURSIVE counted(n) AS ({counted}) SELECT n FROM counted) AS numbers"


async def create_database(dsn: str, name: str, *, template: str = "template1") -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    finally:
        await connection.close()


async def drop_database(dsn: str, name: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    finally:
        await connection.close()


async def _prepare(url: str) -> None:
    database = Database(url)
    try:
        await migrate(database)
        async with database.transaction() as connection:
            await connection.run_sync(effects.create)
        if database.product == "sqlite":
            async with database.read() as connection:
                await connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
    finally:
        await database.close()


def make_app(settings: Settings, *, clock: Clock | None = None, **parts: Any) -> App:
    """The app on `open_database`: on a shared database it uses the warm connections of this process."""
    database = open_database(settings.database_url.get_secret_value(), clock=clock)
    return App(settings, database=database, **parts)


@contextmanager
def noted() -> Iterator[list[tuple[str, Any]]]:
    """Every statement that reaches a database meanwhile."""
    seen: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        seen.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)
