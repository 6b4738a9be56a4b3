"""SQLAlchemy's SQLite dialect with our driver. It keeps the name `sqlite`, because SQL for SQLite works unchanged."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from sqlalchemy import pool
from sqlalchemy.connectors.asyncio import (
    AsyncAdapt_dbapi_connection,
    AsyncAdapt_dbapi_cursor,
    AsyncAdapt_dbapi_module,
    AsyncAdapt_terminate,
)
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL

from mistnet.kit.libsql import driver
from mistnet.kit.libsql.client import LibsqlServer
from mistnet.kit.libsql.errors import ServerGone

DRIVER: Final = "libsql"
_OLDEST_SQLITE: Final = (3, 45, 1)
"""Every libSQL server with Hrana 3 has at least this SQLite. `mistnet doctor` reads the actual version."""


class LibsqlCursor(AsyncAdapt_dbapi_cursor):
    """Runs our coroutines for SQLAlchemy, whose calls are synchronous."""

    __slots__ = ()


class LibsqlConnection(AsyncAdapt_terminate, AsyncAdapt_dbapi_connection):
    """Runs our coroutines for SQLAlchemy, whose calls are synchronous."""

    __slots__ = ()

    _cursor_cls = LibsqlCursor
    _ss_cursor_cls = LibsqlCursor  # type: ignore[assignment]  # answers arrive whole: there is nothing to stream

    def begin(self) -> None:
        self._connection.begin()

    async def _terminate_graceful_close(self) -> None:
        await self._connection.close()

    def _terminate_force_close(self) -> None:
        self._connection.stop()


class LibsqlModule(AsyncAdapt_dbapi_module):
    """What PEP 249 expects of a driver's module. Its errors are those of sqlite3."""

    paramstyle = "qmark"
    sqlite_version_info = _OLDEST_SQLITE
    sqlite_version = ".".join(map(str, _OLDEST_SQLITE))
    threadsafety = 1

    def __init__(self) -> None:
        super().__init__(driver, dbapi_module=sqlite3)

    def __getattr__(self, key: str) -> Any:
        """Errors and constructors, by their names in sqlite3."""
        return getattr(sqlite3, key)

    def connect(self, *, server: LibsqlServer) -> LibsqlConnection:
        return LibsqlConnection(self, driver.Connection(server))  # type: ignore[arg-type]  # ours lacks methods that SQLAlchemy does not call


class LibsqlDialect(SQLiteDialect_pysqlite):
    """Connects without a query: everything that SQLAlchemy asks at connect is known."""

    driver = DRIVER
    is_async = True
    has_terminate = True
    supports_statement_cache = True
    supports_server_side_cursors = False

    @classmethod
    def import_dbapi(cls) -> Any:
        return LibsqlModule()

    @classmethod
    def get_pool_class(cls, _url: URL) -> type[pool.Pool]:
        return pool.AsyncAdaptedQueuePool

    def create_connect_args(self, _url: URL) -> Any:
        """No arguments from the URL: the engine passes the server itself."""
        return [], {}

    def on_connect(self) -> Any:
        """Nothing to do: a server takes no SQL functions from us."""
        return None

    def get_default_isolation_level(self, _connection: Any) -> Any:
        return "SERIALIZABLE"

    def reset_isolation_level(self, _connection: Any) -> None:
        """Nothing to do: there is only one level."""

    def is_disconnect(self, e: Any, _connection: Any, _cursor: Any) -> bool:
        return isinstance(e, ServerGone)

    def get_driver_connection(self, connection: Any) -> Any:
        return connection._connection  # noqa: SLF001 (as SQLAlchemy's own dialects do)

    def do_terminate(self, dbapi_connection: Any) -> None:
        dbapi_connection.terminate()


def known_to_sqlalchemy() -> str:
    """Register the driver with SQLAlchemy. Return its full name."""
    registry.register(f"sqlite.{DRIVER}", __name__, LibsqlDialect.__name__)
    return f"sqlite+{DRIVER}"
