"""Small reads that run many times a second: compiled once, and run on the driver itself."""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Float
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.selectable import SelectBase

Processor: TypeAlias = Callable[[Any], Any] | None


class PreparedRead:
    """A compiled statement with the converters of its binds and results."""

    def __init__(self, statement: SelectBase, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        columns = statement.selected_columns
        self.sql = str(compiled)
        self._order: Sequence[str] = compiled.positiontup or ()
        self._binds = {name: bind.type.bind_processor(dialect) for name, bind in compiled.binds.items()}
        # No converter for floats: every driver returns them, and SQLAlchemy's needs to know the server's type.
        self._results: dict[str, Processor] = {
            column.name: None
            if isinstance(column.type, Float)
            else column.type.dialect_impl(dialect).result_processor(dialect, None)
            for column in columns
        }
        self._row: Any = None

    def values(self, binds: Mapping[str, Any]) -> list[Any]:
        return [_through(self._binds[name], binds[name]) for name in self._order]

    def rows(self, names: Sequence[str], found: Iterable[Sequence[Any]]) -> list[Any]:
        if self._row is None:
            self._row = namedtuple("Row", names)  # type: ignore[misc]  # noqa: PYI024 (named by the answer)
        processors = [self._results.get(name) for name in names]
        make = self._row._make
        if not any(processors):
            return [make(row) for row in found]
        return [make(_through(each, value) for each, value in zip(processors, row, strict=True)) for row in found]


class QuickReader:
    """One connection to a SQLite file, only for reading: no pool, no compiler, no other thread."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def ask(self, question: PreparedRead, binds: Mapping[str, Any]) -> list[Any]:
        if self._connection is None:
            self._connection = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA query_only = ON")
        cursor = self._connection.execute(question.sql, question.values(binds))
        return question.rows([about[0] for about in cursor.description], cursor.fetchall())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


async def ask_server(driver: Any, question: PreparedRead, binds: Mapping[str, Any]) -> list[Any]:
    """Run it on a connection of asyncpg."""
    found = await driver.fetch(question.sql, *question.values(binds))
    return question.rows(list(found[0].keys()), found) if found else []


def _through(processor: Processor, value: Any) -> Any:
    return processor(value) if processor is not None else value
