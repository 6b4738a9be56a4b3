"""Connections and cursors as drivers have them. Outside a transaction a statement is one request, on no stream."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec

from mistnet.store.libsql.errors import AnswerTooLarge, ServerGone
from mistnet.store.libsql.large import only_reads, read_large
from mistnet.store.libsql.protocol import (
    CLOSE,
    IN_TRANSACTION,
    Result,
    after,
    close_sql,
    statement,
    step,
    store_sql,
    stored,
)
from mistnet.store.libsql.server import Server
from mistnet.store.libsql.stream import Stream, outcome_of, results
from mistnet.store.libsql.values import Plain, rows_of

_TEXT_ID: Final = 1
_RESULT: Final = msgspec.json.Decoder(Result)
_MOST_ROWS: Final = 1_000
"""Of one request of many: a larger body gains nothing and holds the server's one writer for longer."""


class Connection:
    """Commits by itself until `begin` is said. Costs nothing to open: the server hears of it with the first request."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stream: Stream | None = None
        self.changes: str | int | None = None
        """The server's own count of changes as of the last answer, where it keeps one."""

    def begin(self) -> None:
        """From here on all is one transaction. It is sent with the first statement, and costs no round trip."""
        if self._stream is not None:
            raise sqlite3.OperationalError("cannot start a transaction within a transaction")
        self._stream = Stream(self._server)

    def cursor(self) -> Cursor:
        return Cursor(self)

    async def run(self, sql: str, values: Sequence[object] = ()) -> Result:
        if self._stream is None:
            try:
                return await self._run_alone(sql, values)
            except AnswerTooLarge:
                if not only_reads(sql):
                    raise
                return await read_large(self._server, sql, values)
        done = await self._stream.run([step(statement(sql, values), IN_TRANSACTION)])
        return results(done)[0]

    async def run_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """One request for a batch; the text of the statement travels once. Returns how many rows were touched.

        Outside a transaction it is one of its own: all of the rows or none.
        """
        if self._stream is not None:
            return await _run_many(self._stream, sql, rows)
        self.begin()
        try:
            touched = await self.run_many(sql, rows)
            await self.commit()
        finally:
            await self.rollback()
        return touched

    async def commit(self) -> None:
        """The stream ends either way: a commit that fails has undone everything."""
        if self._stream is None:
            return
        self.changes = await self._stream.commit()
        self._stream = None

    async def rollback(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.abandon()

    async def close(self) -> None:
        await self.rollback()

    def stop(self) -> None:
        """For when nothing can be awaited any more: the server undoes what it does not hear of again."""
        self._stream = None

    async def _run_alone(self, sql: str, values: Sequence[object]) -> Result:
        answer = await self._server.send([{"type": "execute", "stmt": statement(sql, values)}, CLOSE])
        try:
            result = _RESULT.decode(outcome_of(answer.results[0]))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ServerGone(f"the server's answer cannot be read: {error}") from None
        self.changes = result.replication_index
        return result


class Cursor:
    """What PEP 249 asks for, awaited."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[Plain, ...]] = []
        self.description: Sequence[tuple[Any, ...]] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, operation: str, parameters: Sequence[object] = ()) -> Self:
        result = await self._connection.run(operation, parameters)
        self._rows = rows_of(result.rows)
        self.description = [(column.name, None, None, None, None, None, None) for column in result.cols] or None
        self.rowcount = result.affected_row_count
        if result.last_insert_rowid is not None:
            self.lastrowid = int(result.last_insert_rowid)
        return self

    async def executemany(self, operation: str, parameters: Sequence[Sequence[object]]) -> Self:
        self._rows, self.description = [], None
        self.rowcount = await self._connection.run_many(operation, parameters)
        return self

    async def fetchall(self) -> Sequence[tuple[Plain, ...]]:
        rows, self._rows = self._rows, []
        return rows

    async def fetchmany(self, size: int | None = None) -> Sequence[tuple[Plain, ...]]:
        wanted = size or self.arraysize
        rows, self._rows = self._rows[:wanted], self._rows[wanted:]
        return rows

    async def fetchone(self) -> tuple[Plain, ...] | None:
        return self._rows.pop(0) if self._rows else None

    async def close(self) -> None:
        self._rows = []


async def _run_many(stream: Stream, sql: str, rows: Sequence[Sequence[object]]) -> int:
    touched = 0
    for start in range(0, len(rows), _MOST_ROWS):
        part = [stored(_TEXT_ID, row) for row in rows[start : start + _MOST_ROWS]]
        steps = [step(each, after(place - 1) if place else IN_TRANSACTION) for place, each in enumerate(part)]
        done = await stream.run(steps, before=[store_sql(_TEXT_ID, sql)], also=[close_sql(_TEXT_ID)])
        touched += sum(result.affected_row_count for result in results(done))
    return touched
