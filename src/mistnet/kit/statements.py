"""Load the SQL files of every feature for a dialect, run them, and build inserts.

A file holds one statement, for all databases (`sql/common`) or for one dialect. Its first line says why it exists.
Binds are text, unless a comment line that begins with a bind declares them: `-- :now time, :limit integer`. Result
columns named `at`, or like `run_at` and `lease_until`, are times.

A bind may be a list, and is then declared where it stands. Lists become arrays on PostgreSQL and JSON on SQLite:

    WHERE u.id IN each(:ids bigint)                       -- a list of values
    FROM each(:held) AS held (id bigint, fence bigint)    -- a list of rows; of values if there is one column

RowsParameter may have more columns than the statement names: it takes the first ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Integer,
    SmallInteger,
    Table,
    Text,
    TextClause,
    bindparam,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.selectable import TextualSelect
from sqlalchemy.types import TypeEngine

from mistnet.kit.database_errors import faults_of, translate
from mistnet.kit.prepared import Found, Prepared, run_on_driver
from mistnet.kit.types import RowsParameter, UtcTime, Values

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_TYPES: Final[Mapping[str, TypeEngine[Any]]] = {
    "text": Text(),
    "json": Text(),
    "boolean": Boolean(),
    "smallint": SmallInteger(),
    "integer": Integer(),
    "bigint": BigInteger(),
    "time": UtcTime(),
}
# asyncpg takes an array's times as they are.
_ITEMS: Final = {**_TYPES, "time": DateTime(timezone=True)}
_CASTS: Final = {"time": "timestamptz"}

_COMMENT: Final = re.compile(r"--[^\n]*")
_DECLARATION: Final = re.compile(r"^-- (:.*)$", re.MULTILINE)
_BIND: Final = re.compile(r"(?<![:\w]):([a-z_]+)")
_ONE_OF: Final = re.compile(r"\b(NOT )?IN each\(:(\w+) (\w+)\)")
_EACH: Final = re.compile(r"\beach\(:(\w+)\) AS (\w+) \(([^)]*)\)")
_TIME_COLUMN: Final = re.compile(r"(?<![:\w])(?:\w+_)?(?:at|until)\b")
_WRITES: Final = re.compile(r"\b(INSERT INTO|SET|DELETE FROM)\b")


class BadStatement(Exception):
    """A SQL file of ours is wrong."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A statement for one dialect, with its binds and results typed."""

    clause: TextClause | TextualSelect
    columns: Mapping[str, Sequence[str]]
    """Where PostgreSQL has a bind for each column of a list of rows: their names, by the name of the list."""

    compiled: dict[type[Dialect], Prepared] = {}

    def prepared(self, dialect: Dialect) -> Prepared:
        known = self.compiled.get(type(dialect))
        if known is None:
            known = self.compiled[type(dialect)] = Prepared(self.clause, dialect)
        return known

    def values(self, binds: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(binds)
        for name, columns in self.columns.items():
            rows = values.pop(name)
            values |= {column: [row[place] for row in rows] for place, column in enumerate(columns)}
        return values


async def run(
    connection: AsyncConnection, name: str, binds: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
) -> Found:
    """Execute the statement of that name; with several mappings of binds, once for each."""
    dialect = connection.dialect
    found = load(name, dialect.name)
    given = binds or {}
    if not isinstance(given, Mapping):
        changed = await connection.execute(found.clause, [found.values(each) for each in given])
        return Found((), changed.rowcount)
    return await found.prepared(dialect).run(connection, found.values(given))


@cache
def load(name: str, dialect: str) -> Statement:
    written = _read(name, dialect)
    types: dict[str, TypeEngine[Any]] = {}
    declared = [part for line in _DECLARATION.findall(written) for part in line.rstrip(",").split(",")]
    for part in declared:
        bind, _, kind = part.strip().removeprefix(":").partition(" ")
        item = kind.removesuffix("[]")
        if item not in _TYPES:
            raise BadStatement(f"{name}.sql declares :{bind} with the unknown type {kind!r}")
        # `bigint[]` is a list for a cast of one's own.
        types[bind] = Values(_ITEMS[item]) if kind.endswith("[]") else _TYPES[item]
    columns: dict[str, Sequence[str]] = {}
    sql = _expand(_COMMENT.sub("", written).strip(), dialect, types, columns)
    used = set(_BIND.findall(sql))
    if unused := types.keys() - used:
        raise BadStatement(f"{name}.sql declares {', '.join(sorted(unused))} and does not use it")
    binds = (bindparam(bind, type_=types.get(bind, _TYPES["text"])) for bind in sorted(used))
    clause = text(sql).bindparams(*binds)
    if _WRITES.search(sql) and "RETURNING" not in sql:
        return Statement(clause=clause, columns=columns)
    times = {column: UtcTime() for column in _TIME_COLUMN.findall(sql)}
    return Statement(clause=clause.columns(**times), columns=columns)


def _read(name: str, dialect: str) -> str:
    known = _files()
    return (known.get((dialect, name)) or known["common", name]).read_text(encoding="utf-8")


def statement(name: str, dialect: str) -> TextualSelect:
    """A statement that returns rows, to run it by `Database.fetch_rows` or `fetch_prepared`."""
    found = load(name, dialect)
    if found.columns or not isinstance(found.clause, TextualSelect):
        raise BadStatement(f"{name}.sql needs `run`: it returns no rows, or takes a list of rows")
    return found.clause


def _expand(sql: str, dialect: str, types: dict[str, TypeEngine[Any]], columns: dict[str, Sequence[str]]) -> str:
    """Write lists as the dialect has them; adds the types of their binds."""

    def one_of(found: re.Match[str]) -> str:
        negated, bind, kind = found.groups()
        types[bind] = Values(_ITEMS[kind])
        if dialect == "postgresql":
            return f"{'<> ALL' if negated else '= ANY'} ({_array(bind, kind)})"
        return f"{negated or ''}IN (SELECT value FROM json_each(:{bind}))"

    def each(found: re.Match[str]) -> str:
        bind, alias, listed = found.groups()
        kinds = dict(part.split() for part in listed.split(","))
        if dialect == "postgresql":
            binds = [bind] if len(kinds) == 1 else [f"{bind}_{column}" for column in kinds]
            if len(kinds) > 1:
                columns[bind] = binds
            types.update({own: Values(_ITEMS[kind]) for own, kind in zip(binds, kinds.values(), strict=True)})
            arrays = ", ".join(_array(own, kind) for own, kind in zip(binds, kinds.values(), strict=True))
            return f"unnest({arrays}) AS {alias} ({', '.join(kinds)})"
        if len(kinds) == 1:
            types[bind] = Values(_ITEMS[next(iter(kinds.values()))])
            return f"(SELECT value AS {next(iter(kinds))} FROM json_each(:{bind})) AS {alias}"
        types[bind] = RowsParameter()
        parts = (f"json_extract(value, '$[{place}]') AS {column}" for place, column in enumerate(kinds))
        return f"(SELECT {', '.join(parts)} FROM json_each(:{bind})) AS {alias}"

    return _EACH.sub(each, _ONE_OF.sub(one_of, sql))


def _array(bind: str, kind: str) -> str:
    return f"CAST(:{bind} AS {_CASTS.get(kind, kind)}[])"


@cache
def _files() -> Mapping[tuple[str, str], Traversable]:
    """Every statement by dialect and name. Each feature keeps its own under `sql`; no name is used twice."""
    return {
        (folder.name, file.name.removesuffix(".sql")): file
        for feature in files("mistnet").iterdir()
        if (feature / "sql").is_dir()
        for folder in (feature / "sql").iterdir()
        for file in folder.iterdir()
    }


# Few sizes, so that SQLite keeps the statement of each; most pages have 20 posts.
_ROWS_AT_ONCE: Final = (64, 16, 4, 1)

Insert: TypeAlias = Union["postgresql.Insert", sqlite.Insert]


def insert_of(dialect: str) -> Callable[[Table], Insert]:
    if dialect != "postgresql":
        return sqlite.insert
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 (other databases need not wait for it)

    return postgresql.insert


async def insert_rows(
    connection: AsyncConnection,
    table: Table,
    rows: Sequence[Sequence[Any]],
    ending: str,
    *,
    names: Sequence[str] = (),
) -> list[Any]:
    """Insert rows as the driver takes them, in few statements. Return the rows of `ending`, if it has a RETURNING.

    Their values stand in the order of `names`, or of the table's columns. An `ending` that updates the row in conflict
    needs rows with different keys.
    """
    columns = tuple(names) or tuple(column.name for column in table.columns)
    dialect = connection.dialect
    returned: list[Any] = []
    if dialect.name == "postgresql":
        return list((await run_on_driver(connection, *insert_of_lists(dialect, table, rows, ending, names=columns)))[1])
    begin = 0
    for size in _ROWS_AT_ONCE:
        while len(rows) - begin >= size:
            values = tuple(chain.from_iterable(rows[begin : begin + size]))
            returned += (await run_on_driver(connection, _insert_sql(table, columns, ending, rows=size), values))[1]
            begin += size
    return returned


def insert_of_lists(
    dialect: Dialect, table: Table, rows: Sequence[Sequence[Any]], ending: str, *, names: Sequence[str] = ()
) -> tuple[str, list[list[Any]]]:
    """PostgreSQL's INSERT of rows, and the lists of its columns that it takes."""
    columns = tuple(names) or tuple(column.name for column in table.columns)
    return _insert_sql(table, columns, ending, lists_of=dialect), list(map(list, zip(*rows, strict=True)))


@cache
def _insert_sql(
    table: Table, columns: Sequence[str], ending: str, *, rows: int = 0, lists_of: Dialect | None = None
) -> str:
    """An INSERT of so many rows of values, or of the lists of columns that PostgreSQL's dialect takes."""
    named = ", ".join(columns)
    if lists_of is None:
        row = f"({', '.join('?' * len(columns))})"
        return f"INSERT INTO {table.name} ({named}) VALUES {', '.join([row] * rows)} {ending}"
    kinds = (table.c[name].type.dialect_impl(lists_of).compile(lists_of) for name in columns)
    lists = ", ".join(f"CAST(${place} AS {kind}[])" for place, kind in enumerate(kinds, start=1))
    return f"INSERT INTO {table.name} ({named}) SELECT {named} FROM unnest({lists}) AS new ({named}) {ending}"


async def run_directly(connection: AsyncConnection, name: str, binds: Mapping[str, Any]) -> Sequence[Any]:
    """Like `run`, but its rows have their values in order, as the driver gives them."""
    found = load(name, connection.dialect.name)
    prepared = found.prepared(connection.dialect)
    return (await run_on_driver(connection, prepared.sql, prepared.values(found.values(binds))))[1]


async def copy_rows(
    connection: AsyncConnection, table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> int:
    """Add rows by PostgreSQL's COPY. Return how many."""
    # SQLAlchemy begins the transaction with its first statement, and does not see a COPY.
    await connection.exec_driver_sql("SELECT 1")
    driver: Any = (await connection.get_raw_connection()).driver_connection
    try:
        copied: str = await driver.copy_records_to_table(table.name, records=rows, columns=columns)
    except faults_of("postgresql") as error:
        raise translate(error, str(connection.engine.url)) from error
    return int(copied.removeprefix("COPY "))
