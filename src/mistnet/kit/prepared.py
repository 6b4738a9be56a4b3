"""Statements compiled once, and run straight on the driver's connection inside SQLAlchemy's transaction.

SQLAlchemy compiles, describes and switches greenlets for each statement, which costs more than most of ours take.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import CursorResult, Float, TextClause
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.selectable import SelectBase

Processor: TypeAlias = Callable[[Any], Any] | None
Answer: TypeAlias = tuple[Sequence[str], Sequence[Any], int]
"""The names of the columns, the rows, and how many rows a statement changed."""


class Found:
    """The rows of an answer as named tuples, and how many rows its statement changed."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Sequence[Any], rowcount: int) -> None:
        self._rows, self.rowcount = rows, rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> Sequence[Any]:
        return self._rows

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one(self) -> Any:
        (row,) = self._rows
        return row

    def scalars(self) -> list[Any]:
        return [row[0] for row in self._rows]

    def scalar_one(self) -> Any:
        return self.one()[0]

    def mappings(self) -> list[Mapping[str, Any]]:
        return [row._asdict() for row in self._rows]


class Prepared:
    """A compiled statement with the converters of its binds and results."""

    def __init__(self, statement: SelectBase | TextClause, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self.sql = str(compiled)
        self._order: Sequence[str] = compiled.positiontup or ()
        self._binds = {name: bind.type.bind_processor(dialect) for name, bind in compiled.binds.items()}
        # No converter for floats: every driver returns them, and SQLAlchemy's needs to know the server's type.
        self._results: dict[str, Processor] = {
            column.name: None
            if isinstance(column.type, Float)
            else column.type.dialect_impl(dialect).result_processor(dialect, None)
            for column in (statement.selected_columns if isinstance(statement, SelectBase) else ())
        }
        self._row: Any = None

    def values(self, binds: Mapping[str, Any]) -> list[Any]:
        return [_through(self._binds[name], binds[name]) for name in self._order]

    def rows(self, names: Sequence[str], found: Iterable[Sequence[Any]]) -> list[Any]:
        if self._row is None:
            self._row = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024 (named by the answer)
        processors = [self._results.get(name) for name in names]
        make = self._row._make
        if not any(processors):
            return [make(row) for row in found]
        return [make(_through(each, value) for each, value in zip(processors, row, strict=True)) for row in found]

    async def run(self, connection: AsyncConnection, binds: Mapping[str, Any]) -> Found:
        names, rows, count = await run_on_driver(connection, self.sql, self.values(binds))
        return Found(self.rows(names, rows) if rows else [], count)


def _through(processor: Processor, value: Any) -> Any:
    return processor(value) if processor is not None else value


async def run_on_driver(connection: AsyncConnection, sql: str, values: Sequence[Any]) -> Answer:
    """Run a statement in the connection's transaction.

    Where something listens to statements or errors, they go through SQLAlchemy, as they do on drivers not known here.
    """
    sync = connection.sync_connection
    if sync is not None and not (sync.dispatch.before_cursor_execute or sync.dialect.dispatch.handle_error):
        adapted: Any = sync.connection.dbapi_connection
        ask = getattr(adapted.driver_connection, "ask", None)
        if ask is not None or sync.dialect.driver == "asyncpg":
            try:
                if ask is not None:
                    answer: Answer = await ask(sql, values)
                    return answer
                cursor = adapted.cursor()
                # What its `execute` calls in a greenlet. Begins the transaction if this is its first statement.
                await cursor._prepare_and_execute(sql, values)  # noqa: SLF001
                return [column[0] for column in cursor.description or ()], cursor._rows, cursor.rowcount  # noqa: SLF001
            except (sqlite3.Error, adapted.dbapi.Error) as error:
                raise DBAPIError(sql, None, error) from error
            except asyncio.CancelledError:
                # It may be in the middle of a response.
                await connection.invalidate()
                raise
    found: CursorResult[Any] = await connection.exec_driver_sql(sql, tuple(values))
    return (list(found.keys()), found.all(), found.rowcount) if found.returns_rows else ((), (), found.rowcount)
