"""The order of tests, cheap ones that fail often first, and which of them need servers."""

import pytest

FOLDERS = ("unit", "contract", "simulation", "e2e", "browser")
SERVICES = {"postgres_dsn", "sqld", "rabbit", "browser"}
"""Fixtures that start a server or a browser."""

DATABASES = ("sqlite", "postgresql", "libsql")


def order_of(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


def needs_services(item: pytest.Item) -> bool:
    """Whether a test uses a server or a browser, be it by a fixture or by a parameter."""
    return bool(SERVICES.intersection(getattr(item, "fixturenames", ()))) or database_of(item) in DATABASES[1:]


def database_of(item: pytest.Item) -> str | None:
    parameters = item.nodeid.partition("[")[2].rstrip("]").split("-")
    return next((name for name in DATABASES if name in parameters), None)
