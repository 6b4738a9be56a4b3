"""Write calls to the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Text, func, type_coerce
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import CallRecord
from mistnet.governor.tables import calls
from mistnet.kit.types import moment, storable

_COLUMNS: Final = {
    "source": "text",
    "key_label": "text",
    "endpoint": "text",
    "at": "timestamptz",
    "seconds": "float8",
    "status": "smallint",
    "items": "integer",
    "credits": "integer",
    "job_id": "bigint",
    "account_id": "bigint",
    "error": "text",
}


async def write_calls(connection: AsyncConnection, records: Sequence[CallRecord]) -> None:
    dialect = connection.dialect.name
    when = partial(moment, dialect)
    # In the order of the columns. Texts of a source may contain characters that databases refuse.
    rows: list[tuple[Any, ...]] = [
        (
            each.source,
            each.key_label,
            storable(each.endpoint),
            when(each.at),
            each.seconds,
            each.status,
            each.items,
            each.credits,
            each.job_id,
            each.account_id,
            storable(each.error),
        )
        for each in records
    ]
    if dialect == "postgresql":
        await connection.exec_driver_sql(_insert_sql(dialect), tuple(map(list, zip(*rows, strict=True))))
    else:
        await connection.exec_driver_sql(_insert_sql(dialect), rows)


@cache
def _insert_sql(dialect: str) -> str:
    names = ", ".join(_COLUMNS)
    if dialect == "postgresql":
        lists = ", ".join(f"CAST(${place} AS {kind}[])" for place, kind in enumerate(_COLUMNS.values(), start=1))
        return f"INSERT INTO calls ({names}) SELECT {names} FROM unnest({lists}) AS new ({names})"
    return f"INSERT INTO calls ({names}) VALUES ({', '.join('?' * len(_COLUMNS))})"


def day_of_call(dialect: str) -> ColumnElement[Any]:
    """The day (UTC) on which a call was made, as text."""
    if dialect == "postgresql":
        return func.to_char(func.timezone("UTC", calls.c.at), "YYYY-MM-DD", type_=Text())
    return func.substr(type_coerce(calls.c.at, Text()), 1, 10, type_=Text())
