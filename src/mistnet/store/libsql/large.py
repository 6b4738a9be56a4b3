"""Answers larger than a server sends at once: read row by row through its cursor."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from mistnet.store.libsql.errors import ServerGone, refusal
from mistnet.store.libsql.protocol import CLOSE, Column, Refused, Result, batch, statement, step
from mistnet.store.libsql.server import Server
from mistnet.store.libsql.values import Value

_ONLY_READS: Final = re.compile(r"\s*(SELECT|VALUES)\b", re.IGNORECASE)


class Entry(msgspec.Struct):
    """One line of a cursor: where the stream goes on, the columns, a row, an error, or the end."""

    type: str = ""
    baton: str | None = None
    cols: list[Column] = []
    row: list[Value] = []
    error: Refused | None = None


_ENTRIES: Final = msgspec.json.Decoder(Entry)


def only_reads(sql: str) -> bool:
    """Whether asking a second time changes nothing."""
    return _ONLY_READS.match(sql) is not None


async def read_large(server: Server, sql: str, values: Sequence[object]) -> Result:
    found = Result(cols=[], rows=[])
    baton, ended = None, False
    asked = {"batch": batch([step(statement(sql, values))])["batch"]}
    async with aclosing(server.lines(asked)) as lines:
        async for line in lines:
            entry = _entry(line)
            baton = entry.baton or baton
            match entry.type:
                case "step_begin":
                    found.cols = entry.cols
                case "row":
                    found.rows.append(entry.row)
                case "step_error" | "error":
                    told = entry.error or Refused()
                    raise refusal(told.message, told.code)
                case "step_end":
                    ended = True
    await _close(server, baton)
    if not ended:
        raise ServerGone("the server's answer broke off")
    return found


def _entry(line: bytes) -> Entry:
    try:
        return _ENTRIES.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServerGone(f"the server's answer cannot be read: {error}") from None


async def _close(server: Server, baton: str | None) -> None:
    """A stream that cannot be closed ends by itself."""
    if baton is not None:
        with contextlib.suppress(sqlite3.Error):
            await server.send([CLOSE], baton=baton)
