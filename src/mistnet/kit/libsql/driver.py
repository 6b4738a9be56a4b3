"""A libSQL driver: its connections and cursors, and SQLAlchemy's SQLite dialect with them.

Outside a transaction, each statement is one request without a stream. The dialect keeps the name `sqlite`, because
SQL for SQLite works unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
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

from mistnet.kit.libsql.client import (
    CLOSE,
    IN_TRANSACTION,
    LibsqlServer,
    PipelineAnswer,
    Plain,
    Request,
    RequestOutcome,
    Result,
    Step,
    Steps,
    after,
    batch,
    decoded,
    read_large,
    rows_of,
    statement,
    step,
    stored,
)
from mistnet.kit.libsql.server import AnswerTooLarge, ServerGone, StreamLost, TransactionLost, refusal

if TYPE_CHECKING:
    from mistnet.kit.prepared import Prepared

# Most servers enforce foreign keys by default, but not all. Inside a transaction it is too late to turn them on.
_OPENING: Final = ("PRAGMA foreign_keys = ON", "BEGIN IMMEDIATE")
_OPENING_TO_READ: Final = ("BEGIN",)
_STEPS: Final = msgspec.json.Decoder(Steps)


class Stream:
    """A transaction from BEGIN to COMMIT or ROLLBACK. Every answer has the baton for the next request."""

    def __init__(self, server: LibsqlServer, opening: Sequence[str]) -> None:
        self._server = server
        self._opening = opening
        self._baton: str | None = None
        self._base_url: str | None = None
        self._begun = False
        self._sending: asyncio.Task[PipelineAnswer] | None = None
        self._broken: sqlite3.Error | None = None

    async def run(
        self, steps: Sequence[Step], *, before: Sequence[Request] = (), also: Sequence[Request] = ()
    ) -> Steps:
        """One round trip: the steps in order, the first only if the transaction is still open."""
        opening = [] if self._begun else [step(statement(sql)) for sql in self._opening]
        skipped = len(opening)
        guarded = list(opening)
        for each in steps:
            # The opening steps shift the index of the step that this one depends on.
            condition = each.get("condition")
            if skipped and condition is not None and condition["type"] == "ok":
                guarded.append({**each, "condition": after(condition["step"] + skipped)})
            else:
                guarded.append(each)
        answer = await self._send([*before, batch(guarded), *also], opening=bool(opening))
        done = _steps(answer.results[len(before)], len(guarded))
        for error in done.step_errors[:skipped]:
            if error is not None:
                self._broken = refusal(error.message, error.code)
                raise self._broken
        self._begun = True
        return Steps(step_results=done.step_results[skipped:], step_errors=done.step_errors[skipped:])

    async def commit(self) -> str | int | None:
        """Commit. Return the server's count of changes, if it keeps one."""
        if not self._begun and self._broken is None:
            return None
        answer = await self._send([batch([step(statement("COMMIT"), IN_TRANSACTION)]), CLOSE])
        done = _steps(answer.results[0], 1)
        results(done)
        return done.replication_index

    async def abandon(self) -> None:
        """Roll back. If the server cannot be reached, it does so itself soon."""
        sending, self._sending = self._sending, None
        # A cancelled sender left it under way.
        if sending is not None:
            with contextlib.suppress(sqlite3.Error):
                await sending
        if self._baton is None:
            return
        with contextlib.suppress(sqlite3.Error):
            await self._send([batch([step(statement("ROLLBACK"), IN_TRANSACTION)]), CLOSE], mending=True)
        self._baton = None

    async def _send(
        self, requests: Sequence[Request], *, opening: bool = False, mending: bool = False
    ) -> PipelineAnswer:
        """A request continues when its sender is cancelled, because the rollback needs its baton."""
        if self._broken is not None and not mending:
            raise self._broken
        if self._baton is None and not opening:
            raise StreamLost("the server gave our stream up")
        self._sending = asyncio.create_task(self._exchange(requests))
        answer = await asyncio.shield(self._sending)
        self._sending = None
        return answer

    async def _exchange(self, requests: Sequence[Request]) -> PipelineAnswer:
        baton, self._baton = self._baton, None
        try:
            answer = await self._server.send(requests, baton=baton, base_url=self._base_url)
            self._base_url = self._server.following(answer.base_url, self._base_url)
        except sqlite3.Error as error:
            self._broken = error
            raise
        except UnicodeError:  # raised while encoding the request: nothing was sent, and the baton is still valid
            self._baton = baton
            raise
        self._baton = answer.baton
        return answer


def results(done: Steps) -> list[Result]:
    """All results, or raise the first error. A skipped step means that the transaction is over."""
    found = []
    for result, error in zip(done.step_results, done.step_errors, strict=True):
        if error is not None:
            raise refusal(error.message, error.code)
        if result is None:
            raise TransactionLost
        found.append(result)
    return found


def outcome_of(outcome: RequestOutcome) -> msgspec.Raw:
    if outcome.error is not None:
        raise refusal(outcome.error.message, outcome.error.code)
    if outcome.response is None or not outcome.response.result:
        raise ServerGone("the server's answer lacks its result")
    return outcome.response.result


def _steps(outcome: RequestOutcome, asked: int) -> Steps:
    done = decoded(_STEPS, outcome_of(outcome))
    if not len(done.step_results) == len(done.step_errors) == asked:
        raise ServerGone(f"the server's answer is not about the {asked} steps it was asked for")
    return done


# Statements that can be run again without changing anything.
_ONLY_READS: Final = re.compile(r"\s*(SELECT|VALUES)\b", re.IGNORECASE)
# What may be sent to a database that is opened for reading: statements that begin so and never name a write.
_READS: Final = re.compile(r"(\s|--.*\n)*(SELECT|VALUES|WITH|EXPLAIN|PRAGMA)\b", re.IGNORECASE)
_WRITES: Final = re.compile(
    r"\b(INSERT|UPDATE|DELETE|REPLACE)\s+(INTO|FROM|OR|SET|\w+\s+SET)\b|PRAGMA[^=]*=", re.IGNORECASE
)


_TEXT_ID: Final = 1
_RESULT: Final = msgspec.json.Decoder(Result)
# How many rows one request has. A larger one is no faster, and keeps the server's only writer busy for longer.
_MOST_ROWS: Final = 1_000


class Connection:
    """Commits each statement until `begin` is called. Opening one sends nothing: the first statement does."""

    def __init__(self, server: LibsqlServer, *, read_only: bool = False) -> None:
        self._server = server
        self._read_only = read_only
        self._stream: Stream | None = None
        self.changes: str | int | None = None
        """The server's count of changes in its last answer, if it keeps one."""

    def begin(self) -> None:
        """Begin a transaction. BEGIN is sent with the first statement, so it needs no round trip of its own."""
        if self._stream is not None:
            raise sqlite3.OperationalError("cannot start a transaction within a transaction")
        self._stream = Stream(self._server, _OPENING_TO_READ if self._read_only else _OPENING)

    def cursor(self) -> Cursor:
        return Cursor(self)

    async def run(self, sql: str, values: Sequence[object] = ()) -> Result:
        self._refuse_writes(sql)
        if self._stream is None:
            try:
                answer = await self._server.send([{"type": "execute", "stmt": statement(sql, values)}, CLOSE])
                result = decoded(_RESULT, outcome_of(answer.results[0]))
            except AnswerTooLarge:
                if not _ONLY_READS.match(sql):
                    raise
                return await read_large(self._server, sql, values)
            self.changes = result.replication_index
            return result
        done = await self._stream.run([step(statement(sql, values), IN_TRANSACTION)])
        return results(done)[0]

    async def run_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """Send many rows per request, and the text of the statement once per request. Return how many rows changed.

        Outside a transaction, this opens its own: all rows are written or none.
        """
        self._refuse_writes(sql)
        touched = 0
        if self._stream is None:
            self.begin()
            try:
                touched = await self.run_many(sql, rows)
                await self.commit()
            finally:
                await self.rollback()
            return touched
        for start in range(0, len(rows), _MOST_ROWS):
            part = [stored(_TEXT_ID, row) for row in rows[start : start + _MOST_ROWS]]
            steps = [step(each, after(place - 1) if place else IN_TRANSACTION) for place, each in enumerate(part)]
            store: Request = {"type": "store_sql", "sql_id": _TEXT_ID, "sql": sql}
            forget: Request = {"type": "close_sql", "sql_id": _TEXT_ID}
            done = await self._stream.run(steps, before=[store], also=[forget])
            touched += sum(result.affected_row_count for result in results(done))
        return touched

    def _refuse_writes(self, sql: str) -> None:
        # The server knows neither `PRAGMA query_only` nor read-only transactions, so a token that may write would.
        if self._read_only and (_WRITES.search(sql) or not _READS.match(sql)):
            raise sqlite3.OperationalError("attempt to write a readonly database")

    async def commit(self) -> None:
        """Commit and close the stream. A commit that fails has undone everything."""
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
        """Drop the stream where nothing can be awaited. The server rolls back a stream that sends nothing more."""
        self._stream = None


class Cursor:
    """A cursor as PEP 249 describes it, with coroutines."""

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

    async def fetchone(self) -> tuple[Plain, ...] | None:
        return self._rows.pop(0) if self._rows else None

    async def close(self) -> None:
        self._rows = []


async def ask_libsql(server: LibsqlServer, question: Prepared, binds: Mapping[str, Any]) -> list[Any]:
    """Run it in one request, without a stream."""
    found = await Connection(server).run(question.sql, question.values(binds))
    return question.rows([column.name or "" for column in found.cols], rows_of(found.rows))


DRIVER: Final = "libsql"
# Every libSQL server with Hrana 3 has at least this SQLite. `mistnet doctor` reads the actual version.
_OLDEST_SQLITE: Final = (3, 45, 1)


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
        super().__init__(sys.modules[__name__], dbapi_module=sqlite3)

    def __getattr__(self, key: str) -> Any:
        """Errors and constructors, by their names in sqlite3."""
        return getattr(sqlite3, key)

    def connect(self, *, server: LibsqlServer, read_only: bool = False) -> LibsqlConnection:
        opened = Connection(server, read_only=read_only)
        return LibsqlConnection(self, opened)  # type: ignore[arg-type]  # ours lacks methods that SQLAlchemy does not call


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
