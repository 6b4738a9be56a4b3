"""What a driver's error means: whom it blames, and whether to wait."""

import sqlite3

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError, StatementError

from mistnet.kit.database_errors import translate
from mistnet.kit.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseFails,
    DatabaseForeign,
    DatabaseNotMigrated,
    DatabaseUnreachable,
    WriteRefused,
)
from mistnet.kit.libsql.server import ServerGone

URL = "postgresql://db.example.org/mistnet"


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (asyncpg.QueryCanceledError("canceling statement due to user request"), DatabaseFails),
        (asyncpg.QueryCanceledError("canceling statement due to statement timeout"), DatabaseFails),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute UPDATE in a read-only transaction"), DatabaseFails),
        (asyncpg.DiskFullError("could not extend file"), DatabaseFails),
        (asyncpg.InsufficientPrivilegeError("permission denied for table jobs"), DatabaseFails),
        (asyncpg.InternalServerError("unexpected chunk number"), DatabaseFails),
        (asyncpg.IdleInTransactionSessionTimeoutError("terminating connection"), DatabaseFails),
        (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), DatabaseBusy),
        (asyncpg.DeadlockDetectedError("deadlock detected"), DatabaseBusy),
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), DatabaseBusy),
        (asyncpg.AdminShutdownError("terminating connection due to administrator command"), DatabaseUnreachable),
        (asyncpg.UndefinedTableError('relation "jobs" does not exist'), DatabaseNotMigrated),
        (asyncpg.UniqueViolationError("duplicate key value"), WriteRefused),
        (asyncpg.NotNullViolationError("null value"), WriteRefused),
        (asyncpg.CharacterNotInRepertoireError("invalid byte sequence"), WriteRefused),
        (asyncpg.ProgramLimitExceededError("index row size 3000 exceeds maximum"), WriteRefused),
        (sqlite3.OperationalError("database or disk is full"), DatabaseFails),
        (sqlite3.OperationalError("attempt to write a readonly database"), DatabaseFails),
        (sqlite3.OperationalError("disk I/O error"), DatabaseFails),
        (sqlite3.OperationalError("database is locked"), DatabaseBusy),
        (sqlite3.OperationalError("unable to open database file"), DatabaseUnreachable),
        (sqlite3.OperationalError("no such table: jobs"), DatabaseNotMigrated),
        (sqlite3.DatabaseError("database disk image is malformed"), DatabaseForeign),
        (sqlite3.IntegrityError("UNIQUE constraint failed: jobs.key"), WriteRefused),
        (sqlite3.DataError("string or blob too big"), WriteRefused),
        (sqlite3.ProgrammingError("Error binding parameter 1: type 'set' is not supported"), WriteRefused),
        (ServerGone("no answer"), DatabaseUnreachable),
        (ConnectionRefusedError(111, "Connection refused"), DatabaseUnreachable),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:40],
)
def test_only_what_was_to_be_written_is_blamed_for_it(error: Exception, meaning: type[DatabaseError]) -> None:
    assert type(translate(error, URL)) is meaning
    if not isinstance(error, OSError):
        assert type(translate(DBAPIError("UPDATE jobs", {}, error), URL)) is meaning


def test_values_that_cannot_even_be_sent_are_refused() -> None:
    unfit = StatementError("can't adapt", "UPDATE jobs", {}, ValueError("a time without a zone"))
    assert type(translate(unfit, URL)) is WriteRefused
    wrapped = RuntimeError("invalid input for query argument $1")
    wrapped.__cause__ = ValueError("expected str, got int")
    assert type(translate(DBAPIError("UPDATE jobs", {}, wrapped), URL)) is WriteRefused
