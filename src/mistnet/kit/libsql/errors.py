"""What a libSQL server refuses or fails to answer, as the SQLite errors that SQLAlchemy and the store know.

sqlite3.Error
├── sqlite3.IntegrityError
└── sqlite3.OperationalError
    ├── ServerGone            no answer, or none that can be read: what became of the request is not known
    │   ├── TokenRefused      the server does not know the token
    │   └── StreamLost        the server knows our stream no more: it was started anew, or gave it up
    ├── ServerBusy            nothing of the transaction was kept; trying again is safe
    │   └── TransactionLost   it took too long, and the server gave its place to another
    └── AnswerTooLarge        more than the server sends at once
"""

from __future__ import annotations

import sqlite3
from typing import Final

_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "TOO_MANY_REQUESTS", "HRANA_TOO_MANY", "QUEUE_FULL")
_TIMED_OUT: Final = ("TRANSACTION_TIMEOUT", "STREAM_EXPIRED", "TRANSACTION_BUSY")
_FORBIDDEN: Final = 403
_OWN_WORDS: Final = "SQLite error: "


class ServerGone(sqlite3.OperationalError):
    """The server does not answer, or not in a way that can be read."""


class TokenRefused(ServerGone):
    """The server does not let us in."""

    def __init__(self, status: int) -> None:
        wanted = "one that may read and write" if status == _FORBIDDEN else "a valid one"
        super().__init__(f"the server refuses the token (HTTP {status}); give {wanted} as ?authToken=…")


class StreamLost(ServerGone):
    """The server knows our stream no more. What was not committed by it is undone."""


class ServerBusy(sqlite3.OperationalError):
    """Somebody else writes. Nothing of ours was kept."""


class TransactionLost(ServerBusy):
    """The transaction took too long and was undone by the server."""

    def __init__(self, said: str = "Transaction timed out") -> None:
        super().__init__(f"{said}: the transaction was undone because others waited for it")


class AnswerTooLarge(sqlite3.OperationalError):
    """More than the server sends at once."""

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}; ask for fewer rows at once, or raise the server's --max-response-size")


def refusal(message: str, code: str | None) -> sqlite3.Error:
    """What the server said of one statement, as SQLite itself would have said it."""
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
