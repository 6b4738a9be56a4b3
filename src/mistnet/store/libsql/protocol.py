"""The words of Hrana 3 that we speak: requests as plain mappings, answers as typed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from mistnet.store.libsql.values import Value, to_server

Request: TypeAlias = Mapping[str, Any]
Step: TypeAlias = Mapping[str, Any]
Condition: TypeAlias = Mapping[str, Any]

CLOSE: Final[Request] = {"type": "close"}
IN_TRANSACTION: Final[Condition] = {"type": "not", "cond": {"type": "is_autocommit"}}
"""Guards each statement of a transaction: if the server has undone it, what follows must not be kept alone."""


class Refused(msgspec.Struct):
    """What the server has against a statement, or a request."""

    message: str = "no reason given"
    code: str | None = None


class Column(msgspec.Struct):
    """Of an answer."""

    name: str | None = None


class Result(msgspec.Struct):
    """What one statement brought."""

    cols: list[Column] = []
    rows: list[list[Value]] = []
    affected_row_count: int = 0
    last_insert_rowid: str | None = None
    replication_index: str | int | None = None


class Steps(msgspec.Struct):
    """What the steps of a batch brought: for each a result, an error, or neither if it was left out."""

    step_results: list[Result | None]
    step_errors: list[Refused | None]
    replication_index: str | int | None = None


class Response(msgspec.Struct):
    """The answer to one request; which type its result has follows from what was asked."""

    type: str
    result: msgspec.Raw = msgspec.Raw(b"")


class Outcome(msgspec.Struct):
    """Of one request of a pipeline."""

    type: str
    response: Response | None = None
    error: Refused | None = None


class Answer(msgspec.Struct):
    """To a whole pipeline. The baton is the right to go on with the stream; without one it is over."""

    results: list[Outcome]
    baton: str | None = None
    base_url: str | None = None


def statement(sql: str, values: Sequence[object] = ()) -> Mapping[str, Any]:
    return {"sql": sql, "args": [to_server(value) for value in values]}


def stored(sql_id: int, values: Sequence[object]) -> Mapping[str, Any]:
    """A statement whose text the stream already has; no rows are wanted back."""
    return {"sql_id": sql_id, "args": [to_server(value) for value in values], "want_rows": False}


def step(stmt: Mapping[str, Any], condition: Condition | None = None) -> Step:
    return {"stmt": stmt} if condition is None else {"stmt": stmt, "condition": condition}


def after(index: int) -> Condition:
    """Only if that step went well."""
    return {"type": "ok", "step": index}


def batch(steps: Sequence[Step]) -> Request:
    return {"type": "batch", "batch": {"steps": steps}}


def store_sql(sql_id: int, sql: str) -> Request:
    return {"type": "store_sql", "sql_id": sql_id, "sql": sql}


def close_sql(sql_id: int) -> Request:
    return {"type": "close_sql", "sql_id": sql_id}
