"""Several writes in one statement of PostgreSQL: one round trip, no BEGIN and COMMIT, no lock held between them.

The statement is a WITH of all parts. All of them see what was committed before it began, and none sees the others'
rows, so a part must not depend on what another one writes. Foreign keys are checked at its end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from sqlalchemy import Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.prepared import run_on_driver
from mistnet.kit.statements import insert_of_lists, load

_PLACE: Final = re.compile(r"\$(\d+)")
_DIVISION_BY_ZERO: Final = "22012"


class Part(msgspec.Struct, frozen=True):
    """A statement that writes, its values, and how many rows it has to return, if its work counts only then."""

    sql: str
    values: Sequence[Any]
    rows: int | None = None


def part_of(connection: AsyncConnection, name: str, binds: Mapping[str, Any], *, rows: int | None = None) -> Part:
    """The statement of that name as a part."""
    found = load(name, "postgresql")
    prepared = found.prepared(connection.dialect)
    return Part(prepared.sql, prepared.values(found.values(binds)), rows)


def insert_part(
    connection: AsyncConnection,
    table: Table,
    rows: Sequence[Sequence[Any]],
    ending: str,
    *,
    names: Sequence[str] = (),
    all_new: bool = False,
) -> Part:
    """What `insert_rows` does, as a part. `all_new` needs a RETURNING: each row has to be inserted."""
    sql, lists = insert_of_lists(connection.dialect, table, rows, ending, names=names)
    return Part(sql, lists, len(rows) if all_new else None)


async def write_at_once(connection: AsyncConnection, parts: Sequence[Part]) -> bool:
    """Write all parts, or nothing if one did not return the rows it had to. Return whether they are written."""
    shape = tuple((part.sql, len(part.values), part.rows is not None) for part in parts)
    values = [value for part in parts for value in part.values]
    values += [part.rows for part in parts if part.rows is not None]
    try:
        await run_on_driver(connection, _merged(shape), values)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _DIVISION_BY_ZERO:
            return False
        raise
    return True


@cache
def _merged(shape: Sequence[tuple[str, int, bool]]) -> str:
    """PostgreSQL runs first what the last line counts, in that order, then the other parts, the last one first.

    All writers lock rows in the same order, so that two of them cannot deadlock.
    """
    counted: list[str] = []
    others: list[str] = []
    checks = ["1"]
    offset, guard = 0, sum(values for _sql, values, _is_counted in shape)
    for number, (sql, values, is_counted) in enumerate(shape, start=1):
        before, last = _split(_moved(sql, offset))
        offset += values
        ctes = [*before, f"part_{number} AS ({last})"]
        if is_counted:
            counted += ctes
            guard += 1
            # Nothing but an error undoes what a part has written.
            checks.append(f"(CASE WHEN (SELECT count(*) FROM part_{number}) = ${guard} THEN 1 ELSE 0 END)")
        else:
            others[:0] = ctes
    return f"WITH {', '.join([*counted, *others])}\nSELECT {' / '.join(checks)}"


def _moved(sql: str, offset: int) -> str:
    """The statement with its binds counted from there on."""
    return _PLACE.sub(lambda place: f"${int(place[1]) + offset}", sql)


def _split(sql: str) -> tuple[list[str], str]:
    """A statement's own WITH, which is only allowed at the top, and the rest of it."""
    if not sql.startswith("WITH "):
        return [], sql
    depth = 0
    for place, letter in enumerate(sql):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and not depth and not sql[place + 1 :].lstrip().startswith((",", "AS")):
            return [sql[len("WITH ") : place + 1]], sql[place + 1 :].strip()
    raise ValueError(f"a statement without an end: {sql}")
