"""Connections, transactions, and the server's clock."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Executable, RowMapping, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.selectable import SelectBase

from mistnet.kit import libsql
from mistnet.kit.clock import Clock, ServerClock, SystemClock
from mistnet.kit.database_errors import faults_of, translate
from mistnet.kit.errors import (
    SettingsError,
    require_extra,
)
from mistnet.kit.libsql.server import SCHEMES, address_of, shown
from mistnet.kit.prepared import Prepared

_DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
_FORMS: Final = "use sqlite:///FILE, postgresql://USER@HOST/DATABASE or libsql://HOST?authToken=TOKEN"
_CONNECT_SECONDS: Final = 10
# The quickest of these samples is used: an answer can be off by half of the time that it took.
_CLOCK_SAMPLES: Final = 3
_BUSY_SECONDS: Final = 5
# For each connection; the operating system caches the rest.
_CACHE_KILOBYTES: Final = 8_192
_WORKING: Final = (
    *("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", f"cache_size = -{_CACHE_KILOBYTES}"),
    *("wal_autocheckpoint = 8000", "temp_store = MEMORY"),
)
# For a file that others may write: the connection is read-only, and sets nothing that is kept in the file.
_ONLY_READING: Final = ("query_only = ON", f"cache_size = -{_CACHE_KILOBYTES}", "temp_store = MEMORY")
_KEPT_READERS: Final = 3
# The size of a pool: one more connection costs more than waiting for one of these.
_CONNECTIONS: Final = 10


# The queue's tables grow from empty to millions of rows and shrink again faster than statistics follow. A plan that
# suited an empty table reads millions of rows. All statements of the queue are written for indexes, so use only those.
STEADY_PLANS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
}
_FREE_PLANS: Final[Mapping[str, str]] = {}
_READ_ONLY: Final = {"default_transaction_read_only": "on"}
_TIME_THERE: Final = {
    "postgresql": "SELECT clock_timestamp()",
    "libsql": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') || '+00:00'",
}

# Without BEGIN, SQLite commits each statement: it needs no isolation level that is set and reset for autocommit.
_AUTOCOMMIT: Final[Mapping[str, Mapping[str, Any]]] = {
    "postgresql": {"isolation_level": "AUTOCOMMIT"},
    "sqlite": {"without_begin": True},
}


class QuickReader:
    """One connection to a SQLite file, only for reading: no pool, no compiler, no other thread."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def ask(self, question: Prepared, binds: Mapping[str, Any]) -> list[Any]:
        if self._connection is None:
            self._connection = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA query_only = ON")
        cursor = self._connection.execute(question.sql, question.values(binds))
        return question.rows([about[0] for about in cursor.description], cursor.fetchall())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Pools:
    """The connections to one database, and its statements in compiled form. Belongs to one event loop."""

    def __init__(self, url: str, *, connect_args: Mapping[str, Any] | None = None, read_only: bool = False) -> None:
        # First, because it reports what is wrong with a URL.
        self.url = parse_url(url)
        given = make_url(url)
        self.libsql = libsql.LibsqlServer(address_of(given)) if given.drivername in SCHEMES else None
        self.queue = _engine(self.url, STEADY_PLANS, connect_args or {}, self.libsql, read_only=read_only)
        self.reading = _engine(self.url, _FREE_PLANS, connect_args or {}, self.libsql, read_only=read_only)
        self.questions: dict[SelectBase, Prepared] = {}
        self.readers: list[AsyncConnection] = []

    async def close(self) -> None:
        for reader in self.readers:
            await reader.close()
        self.readers.clear()
        await self.queue.dispose()
        await self.reading.dispose()
        if self.libsql is not None:
            await self.libsql.close()


class Database:
    """One database. `read` runs outside any transaction; `transaction` commits or rolls back as a whole.

    Pools that are passed in are shared: their owner closes them.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        connect_args: Mapping[str, Any] | None = None,
        pools: Pools | None = None,
    ) -> None:
        used = pools or Pools(url, connect_args=connect_args)
        self.shown_url = shown(make_url(url))
        self._own_pools = used if pools is None else None
        self.url = used.url
        self.dialect: Final[str] = used.url.get_backend_name()
        self._libsql = used.libsql
        # Those of the driver come from statements that run on it without SQLAlchemy.
        self._faults: tuple[type[Exception], ...] = (SQLAlchemyError, *faults_of(self.dialect))
        self.product: Final[str] = "libsql" if self._libsql else self.dialect
        self.engine = used.queue
        self._autocommit = self.engine.execution_options(**_AUTOCOMMIT[self.dialect])
        self._reading = used.reading.execution_options(**_AUTOCOMMIT[self.dialect])
        self._one_writer = asyncio.Lock() if self.dialect == "sqlite" else None
        self._quick = QuickReader(str(used.url.database)) if self.product == "sqlite" else None
        self._questions, self._readers = used.questions, used.readers
        self._server_clock = ServerClock() if self.product in _TIME_THERE and clock is None else None
        self.clock: Clock = clock or self._server_clock or SystemClock()

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database; None for a server or a database in memory."""
        name = self.url.database if self.product == "sqlite" else None
        return None if not name or name == ":memory:" or name.startswith("file:") else Path(name).absolute()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection outside any transaction. PostgreSQL plans each statement again."""
        with self._translated():
            async with self._reading.connect() as connection:
                yield connection

    async def fetch_rows(self, query: Executable, binds: Mapping[str, Any] | None = None) -> Sequence[RowMapping]:
        """Run one SELECT outside any transaction. For several that belong together, hold one connection by `read`."""
        async with self.read() as connection:
            return (await connection.execute(query, binds)).mappings().all()

    async def fetch_row(self, query: Executable, binds: Mapping[str, Any] | None = None) -> RowMapping | None:
        """The first row of a SELECT, if there is one."""
        async with self.read() as connection:
            return (await connection.execute(query, binds)).mappings().first()

    async def fetch_value(self, query: Executable, binds: Mapping[str, Any] | None = None) -> Any:
        """The first value of the first row of a SELECT; None if there is no row."""
        async with self.read() as connection:
            return (await connection.execute(query, binds)).scalars().first()

    @asynccontextmanager
    async def read_cached_plan(self) -> AsyncIterator[AsyncConnection]:
        """Like `read`, with cached plans: for the queue's own statements, which must not change plans as it grows."""
        with self._translated():
            async with self._autocommit.connect() as connection:
                yield connection

    @asynccontextmanager
    async def read_quickly(self) -> AsyncIterator[AsyncConnection]:
        """Like `read`, for a handler's small reads. On SQLite it skips the pool of readers."""
        async with self.read_cached_plan() if self.dialect == "sqlite" else self.read() as connection:
            yield connection

    async def fetch_prepared(self, statement: SelectBase, binds: Mapping[str, Any]) -> list[Any]:
        """Run a prepared SELECT straight on the driver, for what handlers read at every step. Rows are named tuples."""
        question = self._questions.get(statement)
        if question is None:
            question = self._questions[statement] = Prepared(statement, self.engine.dialect)
        with self._translated():
            if self._quick is not None:
                return self._quick.ask(question, binds)
            if self._libsql is not None:
                return await libsql.ask_libsql(self._libsql, question, binds)
            # On one of a few connections kept for it: to take one from the pool costs as much as most answers.
            readers = self._readers
            connection = readers.pop() if readers else await self._reading.connect()
            try:
                sync: Any = connection.sync_connection
                driver = sync.connection.driver_connection
                if driver.is_closed():
                    await connection.invalidate()
                    driver = (await connection.get_raw_connection()).driver_connection
                found = await driver.fetch(question.sql, *question.values(binds))
            except BaseException:
                # It may be closed, or in the middle of a response.
                await connection.invalidate()
                await connection.close()
                raise
            if len(readers) < _KEPT_READERS:
                readers.append(connection)
            else:
                await connection.close()
            return question.rows(list(found[0].keys()), found) if found else []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in one transaction: committed at the end of the block, rolled back on any error."""
        with self._translated():
            if self._one_writer is None:
                async with self.engine.begin() as connection:
                    yield connection
            else:
                async with self._one_writer, self.engine.begin() as connection:
                    yield connection

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection for a single writing statement. PostgreSQL saves BEGIN and COMMIT."""
        async with self.transaction() if self.dialect == "sqlite" else self.read_cached_plan() as connection:
            yield connection

    async def correct_clock(self) -> timedelta:
        """Learn the server's time again. Return how far our clock had drifted."""
        if self._server_clock is None:
            return timedelta()
        async with self.read() as connection:
            samples: list[tuple[float, datetime, float]] = []
            for _ in range(_CLOCK_SAMPLES):
                begun = time.monotonic()
                samples.append((begun, await self.time_there(connection), time.monotonic()))
        # The quickest answer is the most exact one: the server read its clock somewhere on the way.
        asked, server_time, answered = min(samples, key=lambda each: each[2] - each[0])
        return self._server_clock.learn(server_time, asked=asked, answered=answered)

    async def time_there(self, connection: AsyncConnection) -> datetime:
        """The server's own time; for a file, this machine's."""
        if self.product not in _TIME_THERE:
            return datetime.now(UTC)
        told = (await connection.exec_driver_sql(_TIME_THERE[self.product])).scalar_one()
        return datetime.fromisoformat(told) if isinstance(told, str) else told

    async def close(self) -> None:
        if self._quick is not None:
            self._quick.close()
        if self._own_pools is not None:
            await self._own_pools.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._faults as error:
            raise translate(error, self.shown_url) from error


class Store:
    """Reads or writes what one part of the system keeps in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database


def parse_url(url: str) -> URL:
    """Parse a database URL with a plain scheme, and choose the driver."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise SettingsError("database_url", "settings", f"not a URL; {_FORMS}") from None
    if parsed.drivername in SCHEMES:
        return URL.create(libsql.known_to_sqlalchemy(), host=address_of(parsed).base_url)
    if parsed.drivername.startswith("postgres"):
        require_extra("postgresql", "a PostgreSQL database")
    driver = _DRIVERS.get(parsed.drivername.split("+")[0])
    if driver is None:
        raise SettingsError("database_url", "settings", f"there is no driver for {parsed.drivername!r}; {_FORMS}")
    if driver.startswith("sqlite") and parsed.database in (None, "", ":memory:"):
        raise SettingsError(
            "database_url", "settings", "it names no file, and nothing would be kept; use sqlite:///FILE"
        )
    query = dict(parsed.query)
    if driver.startswith("postgresql") and "sslmode" in query:
        query["ssl"] = query.pop("sslmode")
    return parsed.set(drivername=driver, query=query)


def _engine(
    url: URL,
    plans: Mapping[str, str],
    connect_args: Mapping[str, Any],
    server: libsql.LibsqlServer | None = None,
    *,
    read_only: bool = False,
) -> AsyncEngine:
    own: dict[str, Any]
    listeners: dict[str, Callable[..., None]]
    if server is not None:
        own, listeners = {"server": server, "read_only": read_only}, {"begin": _begin}
    elif url.get_backend_name() == "postgresql":
        own = {
            "timeout": _CONNECT_SECONDS,
            "server_settings": {
                "application_name": "mistnet",
                "jit": "off",
                **plans,
                **(_READ_ONLY if read_only else {}),
            },
            **connect_args,
        }
        listeners = {"checkout": _replace_unusable}
    else:
        from mistnet.kit.sqlite import quick  # noqa: PLC0415 (only for SQLite)

        creator = {"async_creator_fn": quick} if plans else {}
        own = {"timeout": _BUSY_SECONDS, **creator, **connect_args}
        listeners = {"connect": partial(_prepare_sqlite, pragmas=_WORKING), "begin": _begin}
        if read_only:
            file = Path(str(url.database)).absolute().as_uri()
            url = url.set(database=file, query={"mode": "ro", "uri": "true"})
            listeners = {"connect": partial(_prepare_sqlite, pragmas=_ONLY_READING)}
    # Last in, first out: connections that are not needed stay idle, and the server's caches of the others stay warm.
    engine = create_async_engine(url, pool_size=_CONNECTIONS, max_overflow=0, pool_use_lifo=True, connect_args=own)
    for name, listener in listeners.items():
        event.listen(engine.sync_engine, name, listener)
    return engine


def _replace_unusable(connection: Any, _record: object, _taken_by: object) -> None:
    """Replace a connection that is closed or still in a transaction.

    A failing server may refuse even a ROLLBACK. The pool does not notice, and every later statement on that
    connection would fail.
    """
    driver = connection.driver_connection
    if driver.is_closed() or driver.is_in_transaction():
        # Makes the pool open another one.
        raise DisconnectionError("a connection was lost, or left in a transaction")


def _prepare_sqlite(connection: Any, _record: object, *, pragmas: Sequence[str]) -> None:
    # We issue BEGIN ourselves: the driver's would not be IMMEDIATE.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in pragmas:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Any) -> None:
    if connection.get_execution_options().get("without_begin"):
        return
    if connection.dialect.driver == "libsql":
        connection.connection.dbapi_connection.begin()
    else:
        # IMMEDIATE takes the write lock now. A deferred transaction that reads first and writes later can fail with
        # SQLITE_BUSY at its first write, when waiting for the lock cannot help any more.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
