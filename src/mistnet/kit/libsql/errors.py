"""Errors of libSQL servers, as subclasses of the SQLite errors that SQLAlchemy and `kit.database` know.

sqlite3.Error
├── sqlite3.IntegrityError
└── sqlite3.OperationalError
    ├── ServerGone            no answer, or an unreadable one: whether the request took effect is unknown
    │   ├── TokenRefused      the server does not know the token
    │   └── StreamLost        the server does not know our stream: it restarted, or closed the stream
    ├── ServerBusy            the transaction was undone; retrying is safe
    │   └── TransactionLost   it took too long, and the server ended it
    └── AnswerTooLarge        the answer exceeds the server's limit
"""

from __future__ import annotations

import sqlite3
from typing import Final

_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "TOO_MANY_REQUESTS", "HRANA_TOO_MANY", "QUEUE_FULL")
_TIMED_OUT: Final = ("TRANSACTION_TIMEOUT", "STREAM_EXPIRED", "TRANSACTION_BUSY")
_FORBIDDEN: Final = 403
_OWN_WORDS: Final = "SQLite error: "


class ServerGone(sqlite3.OperationalError):
    """The server does not answer, or its answer cannot be read."""


class TokenRefused(ServerGone):
    """The server refuses the token."""

    def __init__(self, status: int) -> None:
        wanted = "one that may read and write" if status == _FORBIDDEN else "a valid one"
        super().__init__(f"the server refuses the token (HTTP {status}); give {wanted} as ?authToken=…")


class StreamLost(ServerGone):
    """The server does not know our stream. Its uncommitted changes are undone."""


class ServerBusy(sqlite3.OperationalError):
    """Another client is writing. None of our changes were kept."""


class TransactionLost(ServerBusy):
    """The transaction took too long and was undone by the server."""

    def __init__(self, said: str = "Transaction timed out") -> None:
        super().__init__(f"{said}: the transaction was undone because others waited for it")


class AnswerTooLarge(sqlite3.OperationalError):
    """The answer exceeds the server's limit."""

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}; ask for fewer rows at once, or raise the server's --max-response-size")


def refusal(message: str, code: str | None) -> sqlite3.Error:
    """The server's error about one statement, as the error that SQLite would raise."""
    said, named = message.removeprefix(_OWN_WORDS), code or ""
    if named.startswith(_TIMED_OUT):
        return TransactionLost(said)
    if named.startswith(_BUSY) or "database is locked" in said:
        return ServerBusy(said)
    if named.startswith("SQLITE_CONSTRAINT"):
        return sqlite3.IntegrityError(said)
    if named == "RESPONSE_TOO_LARGE":
        return AnswerTooLarge(said)
    return sqlite3.OperationalError(said)
