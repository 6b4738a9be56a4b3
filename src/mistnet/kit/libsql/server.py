"""What is known of a libSQL server without its HTTP client: its address, and its errors.

The errors are subclasses of the SQLite errors that SQLAlchemy and `kit.database` know:

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

import re
import sqlite3
from typing import Final

import msgspec
from sqlalchemy.engine import URL

from mistnet.kit.errors import SettingsError

SCHEMES: Final = {"libsql": "https", "libsql+http": "http", "libsql+https": "https", "http": "http", "https": "https"}
"""The HTTP scheme for each scheme of a database URL."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_SWITCHES: Final = {"tls", "authToken"}
_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "TOO_MANY_REQUESTS", "HRANA_TOO_MANY", "QUEUE_FULL")
_TIMED_OUT: Final = ("TRANSACTION_TIMEOUT", "STREAM_EXPIRED", "TRANSACTION_BUSY")
_FORBIDDEN: Final = 403
_OWN_WORDS: Final = "SQLite error: "


class LibsqlAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server. Its repr leaves out the token, so that no log shows it."""

    base_url: str
    token: str | None

    def __repr__(self) -> str:
        return f"Address({self.base_url})"


def address_of(url: URL) -> LibsqlAddress:
    """Read `libsql://HOST?authToken=…`. A token may also be given as the password. `tls=0` means plain HTTP."""
    if not url.host or url.database:
        raise _wrong("a libSQL URL is libsql://HOST?authToken=TOKEN, or libsql+http://HOST:PORT for a local server")
    if unknown := sorted(set(url.query) - _SWITCHES):
        raise _wrong(f"a libSQL URL knows no {unknown[0]!r}; it takes authToken and tls")
    given = url.query.get("authToken") or url.password or None
    # A name that a URL has twice gives a tuple.
    token = given[-1] if isinstance(given, tuple) else given
    if token and not _TOKEN.fullmatch(token):
        raise _wrong("its authToken has characters no token has; copy it again, whole and without line breaks")
    scheme = "http" if url.query.get("tls") == "0" else SCHEMES[url.drivername]
    host = f"[{url.host}]" if ":" in url.host else url.host
    port = f":{url.port}" if url.port else ""
    return LibsqlAddress(base_url=f"{scheme}://{host}{port}", token=token)


def shown(url: URL) -> str:
    """The URL without its secrets."""
    query = {name: "***" if name == "authToken" else value for name, value in url.query.items()}
    return url.set(query=query).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def _wrong(problem: str) -> SettingsError:
    return SettingsError("database_url", "settings", problem)


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
