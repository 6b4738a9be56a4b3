"""libSQL servers (sqld, Turso) over Hrana on HTTP: a client, a driver on it, a dialect for SQLAlchemy."""

from typing import TYPE_CHECKING

from mistnet.kit import lazy_names

if TYPE_CHECKING:
    from mistnet.kit.libsql.client import LibsqlServer
    from mistnet.kit.libsql.driver import ask_libsql, known_to_sqlalchemy
else:  # its HTTP client takes long to load, and other databases do without
    __getattr__ = lazy_names(
        __name__,
        {
            "LibsqlServer": "client",
            "ask_libsql": "driver",
            "known_to_sqlalchemy": "driver",
        },
    )

__all__ = [
    "LibsqlServer",
    "ask_libsql",
    "known_to_sqlalchemy",
]
