"""Looks how a database itself is: its tables, whether it takes writes, its room, its connections, its last progress."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import delete, insert, text

from mistnet.kit.database import Database
from mistnet.kit.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseFails,
    DatabaseForeign,
    DatabaseMissing,
    DatabaseNotMigrated,
    DatabaseTooNew,
    DatabaseUnreachable,
)
from mistnet.kit.migrate import require_current
from mistnet.kit.statements import command, statement
from mistnet.queue import tables

DatabaseState = Literal["ok", "unreachable", "busy", "wrong tables", "read-only", "full", "refused"]
FEW_CONNECTIONS: Final = 0.1
"""The share of connections that should stay free: one more process takes several at once."""

STALLED: Final = timedelta(minutes=15)
"""Jobs were due for so long, and none was begun or settled: no one does them, or every try hangs."""

_FILE_SIZE: Final = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
_PATIENCE: Final = ("SET LOCAL lock_timeout = '2s'", "SET LOCAL statement_timeout = '3s'")
_SAID: Final[Mapping[str, DatabaseState]] = {
    "read-only": "read-only",
    "readonly": "read-only",
    "recovery is in progress": "read-only",
    "disk is full": "full",
    "no space left": "full",
    "could not extend file": "full",
    "disk quota": "full",
    "statement timeout": "busy",
}
"""What drivers say, and what it means. Their codes differ more from each other than their words."""


class DatabaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How a database was at one look. What a kind of database does not tell is None."""

    state: DatabaseState
    problem: str | None = None
    """Why it is not ok, in the words of its driver. May name the server: for the log and for operators."""

    write_seconds: float | None = None
    read_only: bool | None = None
    """What the server says of itself: a standby, or set to refuse writes."""

    free_bytes: int | None = None
    """Where a file is kept. A server does not tell."""

    size_bytes: int | None = None
    connections: int | None = None
    most_connections: int | None = None
    last_progress_at: datetime | None = None
    """When a job was last begun or settled."""

    @property
    def few_connections(self) -> bool:
        if self.connections is None or self.most_connections is None:
            return False
        return self.most_connections - self.connections < FEW_CONNECTIONS * self.most_connections


class DatabaseProbe:
    """One look. It never raises for an ill database, and writes a row that no one else can see."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(self) -> DatabaseHealth:
        facts: dict[str, Any] = self._room()
        try:
            await require_current(self._database)
            facts |= await self._facts()
            facts["write_seconds"] = await self._write()
        except DatabaseError as error:
            return DatabaseHealth(state=state_of(error), problem=str(error), **facts)
        return DatabaseHealth(state="ok", **facts)

    def _room(self) -> dict[str, Any]:
        file = self._database.file
        try:
            return {} if file is None else {"free_bytes": shutil.disk_usage(file.parent).free}
        except OSError:
            return {}  # the folder is gone: the look at the tables says so

    async def _facts(self) -> dict[str, Any]:
        async with self._database.read_cached_plan() as connection:
            progress = await connection.execute(statement("last_progress", self._database.dialect))
            facts = {"last_progress_at": progress.scalar()}
            if self._database.product == "libsql":
                return facts
            if self._database.product == "sqlite":
                size = await connection.execute(text(_FILE_SIZE))
                return {**facts, "size_bytes": size.scalar_one()}
            found = (await connection.execute(command("server_facts", self._database.dialect))).one()
            return {
                **facts,
                "read_only": found.in_recovery or found.read_only,
                "connections": found.connections,
                "most_connections": found.most_connections,
                "size_bytes": found.size,
            }

    async def _write(self) -> float:
        """Adds a row and removes it in one transaction, which is committed.

        A write that is rolled back proves little: SQLite keeps it in memory, and a server need not bring it to disk.
        """
        begun = time.perf_counter()
        now = self._database.clock.now()
        probe = {
            **dict.fromkeys(("host", "version", "lanes"), ""),
            **dict.fromkeys(("pid", "concurrency", "running"), 0),
            **dict.fromkeys(("started_at", "seen_at"), now),
            "name": f"write test {secrets.token_hex(8)}",
            "draining": True,
        }
        async with self._database.transaction() as connection:
            if self._database.dialect == "postgresql":  # another's lock on the table must not hold the answer up
                for limit in _PATIENCE:
                    await connection.exec_driver_sql(limit)
            await connection.execute(insert(tables.workers).values(probe))
            await connection.execute(delete(tables.workers).where(tables.workers.c.name == probe["name"]))
        return time.perf_counter() - begun


def stalled(due_since: datetime | None, progress_at: datetime | None, now: datetime) -> float:
    """For how many seconds jobs have been due while none was begun or settled."""
    if due_since is None:
        return 0.0
    since = max(due_since, progress_at) if progress_at else due_since
    return max((now - since).total_seconds(), 0.0)


def state_of(error: DatabaseError) -> DatabaseState:
    said = str(getattr(error, "problem", "")).lower()  # its whole text may name a host
    for words, state in _SAID.items():
        if words in said:
            return state
    match error:
        case DatabaseUnreachable() | DatabaseMissing():
            return "unreachable"
        case DatabaseFails():
            return "refused"
        case DatabaseBusy():
            return "busy"
        case DatabaseNotMigrated() | DatabaseTooNew() | DatabaseForeign():
            return "wrong tables"
        case _:
            return "refused"
