"""The address and token of a libSQL server, read from one URL."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from sqlalchemy.engine import URL

from mistnet.kit.errors import SettingsError

SCHEMES: Final = {"libsql": "https", "libsql+http": "http", "libsql+https": "https", "http": "http", "https": "https"}
"""The HTTP scheme for each scheme of a database URL."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_SWITCHES: Final = {"tls", "authToken"}


class LibsqlAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server. Its repr leaves out the token, so that no log shows it."""

    base_url: str
    token: str | None

    def __repr__(self) -> str:
        return f"Address({self.base_url})"


def is_libsql(scheme: str) -> bool:
    return scheme in SCHEMES


def address_of(url: URL) -> LibsqlAddress:
    """Read `libsql://HOST?authToken=…`. A token may also be given as the password. `tls=0` means plain HTTP."""
    if not url.host or url.database:
        raise _wrong("a libSQL URL is libsql://HOST?authToken=TOKEN, or libsql+http://HOST:PORT for a local server")
    if unknown := sorted(set(url.query) - _SWITCHES):
        raise _wrong(f"a libSQL URL knows no {unknown[0]!r}; it takes authToken and tls")
    token = token_of(url) or None
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


def token_of(url: URL) -> str:
    """The token, so that callers can mask it in texts. Empty if there is none."""
    given = url.query.get("authToken") or url.password or ""
    return given if isinstance(given, str) else given[-1]


def _wrong(problem: str) -> SettingsError:
    return SettingsError("database_url", "settings", problem)
