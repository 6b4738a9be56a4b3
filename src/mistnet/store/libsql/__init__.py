"""libSQL servers (sqld, Turso) over Hrana on HTTP: a client, a driver on it, a dialect for SQLAlchemy."""

from typing import TYPE_CHECKING

from mistnet.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.store.libsql.asking import ask_libsql
    from mistnet.store.libsql.dialect import known_to_sqlalchemy
    from mistnet.store.libsql.server import Server
else:  # its HTTP client takes long to load, and other databases do without
    __getattr__ = lazy_names(
        __name__,
        {
            "Server": "server",
            "ask_libsql": "asking",
            "known_to_sqlalchemy": "dialect",
        },
    )

__all__ = [
    "Server",
    "ask_libsql",
    "known_to_sqlalchemy",
]
