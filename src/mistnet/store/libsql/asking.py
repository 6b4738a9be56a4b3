"""Asks a libSQL server one small question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistnet.store.libsql.connection import Connection
from mistnet.store.libsql.server import Server
from mistnet.store.libsql.values import rows_of
from mistnet.store.questions import Question


async def ask_libsql(server: Server, question: Question, binds: Mapping[str, Any]) -> list[Any]:
    """In one request, on no stream."""
    found = await Connection(server).run(question.sql, question.values(binds))
    return question.rows([column.name or "" for column in found.cols], rows_of(found.rows))
