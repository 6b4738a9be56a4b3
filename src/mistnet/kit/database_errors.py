"""Translates what database drivers raise into our errors."""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mistnet.kit.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseFails,
    DatabaseForeign,
    DatabaseNotMigrated,
    DatabaseUnreachable,
    WriteRefused,
)
from mistnet.kit.libsql.server import ServerBusy, ServerGone

_BUSY_STATES: Final = {"40001", "40P01", "55P03", "53200", "53300"}
_GONE_STATES: Final = ("08", "28", "57P", "3D", "58")
# Invalid data, violated constraints, values too large for an index: a retry would fail in the same way.
_BLAMED_STATES: Final = ("22", "23", "54")


def faults_of(dialect: str) -> tuple[type[Exception], ...]:
    """What a database's driver raises, and OSError of the network."""
    if dialect == "postgresql":
        import asyncpg  # noqa: PLC0415 (slow to load, and only for PostgreSQL)

        return asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError
    return sqlite3.Error, OSError


def translate(error: Exception, url: str) -> DatabaseError:
    """Translate a driver's error."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    cause = origin or error
    problem = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    # SQLAlchemy's text begins with the driver's class.
    if problem.startswith("<class") and ">: " in problem:
        problem = problem.split(">: ", 1)[1]
    # Includes time-outs.
    if isinstance(origin, OSError | ServerGone):
        return DatabaseUnreachable(url, problem or type(origin).__name__)
    code = str(getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None) or "")
    locked = "database is locked" in problem or "database table is locked" in problem
    if code in _BUSY_STATES or locked or isinstance(origin, ServerBusy | PoolTimeout):
        return DatabaseBusy(problem)
    if code == "42P01" or "no such table" in problem:
        return DatabaseNotMigrated(url, None, "its tables")
    if "not a database" in problem or "malformed" in problem:
        return DatabaseForeign(url, problem)
    gone = isinstance(error, DBAPIError) and error.connection_invalidated
    if (
        gone
        or code.startswith(_GONE_STATES)
        or "unable to open database" in problem
        or "connection is closed" in problem
    ):
        return DatabaseUnreachable(url, problem)
    return WriteRefused(problem) if _blames_the_write(error, origin, code) else DatabaseFails(problem)


def _blames_the_write(error: Exception, origin: BaseException | None, code: str) -> bool:
    """Whether the written values are at fault. All other errors are the database's, and temporary."""
    if code:
        return code.startswith(_BLAMED_STATES)
    if "disk is full" in str(origin):
        return False
    if isinstance(error, SQLAlchemyError) and not isinstance(error, DBAPIError):
        # The statement could not even be sent.
        return True
    blamed = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, ValueError)
    causes = (origin, getattr(origin, "__cause__", None))
    return any(isinstance(each, blamed) for each in causes) or "binding parameter" in str(origin)
