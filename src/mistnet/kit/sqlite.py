"""SQLite connections that use a thread only for calls that may wait; files that only their owner can read; copies."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import aiosqlite

from mistnet.kit.database_errors import translate
from mistnet.kit.errors import DatabaseForeign
from mistnet.kit.prepared import Answer

T = TypeVar("T")

_WAITING_CALLS: Final = {"commit", "executemany", "close"}
_WAITING_WORDS: Final = ("BEGIN", "PRAGM", "ANALY", "VACUU")
_CHUNK: Final = 64


class QuickConnection(aiosqlite.Connection):
    """For the queue's statements, which take microseconds once they hold their lock.

    Passing a call to another thread and back costs more than most of them take. Calls that may wait for a lock or the
    disk, or take long, still use the thread, and so do all later calls until these are done: a call whose caller was
    cancelled continues in the thread, and two threads in one connection crash the process.
    """

    def __init__(self, connector: Callable[[], sqlite3.Connection], chunk: int) -> None:
        super().__init__(connector, chunk)
        self._handed: set[object] = set()

    async def _execute(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        if not self._running or not self._connection:
            raise ValueError("Connection closed")
        statement = args[0] if args and isinstance(args[0], str) else ""
        # These calls may wait for a lock or the disk. Closing a cursor does not: its statement is over.
        closes_cursor = fn.__name__ == "close" and isinstance(getattr(fn, "__self__", None), sqlite3.Cursor)
        may_wait = fn.__name__ in _WAITING_CALLS and not closes_cursor
        may_wait = may_wait or statement.lstrip()[:5].upper() in _WAITING_WORDS
        if not may_wait and not self._handed:
            return fn(*args, **kwargs)
        call = object()
        self._handed.add(call)
        handed: T = await super()._execute(self._in_thread, call, fn, *args, **kwargs)  # type: ignore[no-untyped-call]  # aiosqlite's gap
        return handed

    async def ask(self, sql: str, values: Sequence[Any]) -> Answer:
        """Run one statement and read its whole answer, in one call."""
        if not self._running or not self._connection:
            raise sqlite3.OperationalError("connection closed")
        return await self._execute(self._answer, sql, values)

    def _answer(self, sql: str, values: Sequence[Any]) -> Answer:
        cursor = self._conn.execute(sql, values)
        rows, count = cursor.fetchall(), cursor.rowcount
        return [about[0] for about in cursor.description or ()], rows, count

    def _in_thread(self, call: object, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            return fn(*args, **kwargs)
        finally:
            self._handed.discard(call)


def quick(database: str, **about: Any) -> QuickConnection:
    """A connection for SQLAlchemy. Two threads use it, never at the same time."""
    connector = partial(sqlite3.connect, database, **{**about, "check_same_thread": False})
    connection = QuickConnection(connector, _CHUNK)
    connection._thread.daemon = True  # noqa: SLF001 (as SQLAlchemy itself does: a thread must not outlive its program)
    return connection


_OWNER_ONLY: Final = 0o600


def make_private(file: Path) -> None:
    """Create an empty file with mode 0600, whatever the umask is. SQLite gives the files beside it the same mode.

    Raises FileExistsError if there is one: its mode is its owner's choice.
    """
    handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY)
    try:
        # A strict umask takes the owner's own rights too.
        os.fchmod(handle, _OWNER_ONLY)
    finally:
        os.close(handle)


def copy_database(source: Path, target: Path) -> None:
    """Copy one moment of a SQLite database that others may write meanwhile. `target` appears whole, or not at all."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    make_private(part)
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as found,
            closing(sqlite3.connect(part)) as copied,
        ):
            found.backup(copied)  # in one step: a copy in several steps starts again at every write
            copied.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file
            problem = copied.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise DatabaseForeign(str(source), f"its copy is damaged: {problem}")
        part.rename(target)
    except (sqlite3.Error, OSError) as error:
        raise translate(error, str(source)) from None
    finally:
        part.unlink(missing_ok=True)
