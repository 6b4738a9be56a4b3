"""The order of tests, cheap ones that fail often first, and which of them need servers."""

import hashlib
import os

import pytest

from tests.seeds import ROTATION, TURNS

FOLDERS = ("unit", "contract", "simulation", "e2e", "browser")
SERVICES = {"postgres_dsn", "sqld", "rabbit", "browser"}
"""Fixtures that start a server or a browser."""

DATABASES = ("sqlite", "postgresql", "libsql")


def order_of(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


LIBSQL_SHARE = 8
"""One in so many tests that run the same statements on SQLite and libSQL also runs on libSQL."""


def is_left_to_another_run(item: pytest.Item) -> bool:
    """Whether SQLite stands for libSQL in this run, or a test is not due. Both change with the commit."""
    if any("empty parameter set" in mark.kwargs.get("reason", "") for mark in item.iter_markers("skip")):
        return True
    if any(map(os.environ.get, ("MISTNET_TEST_ALL", "MISTNET_TEST_SEED", "MISTNET_TEST_SEEDS"))):
        return False
    if (turn := item.get_closest_marker("in_turn")) is not None and turn.args[0] != ROTATION % TURNS:
        return True
    if item.get_closest_marker("common_sql") is None or database_of(item) != "libsql":
        return False
    place = int.from_bytes(hashlib.sha256(item.nodeid.encode()).digest()[:4])
    return (place + ROTATION) % LIBSQL_SHARE != 0


def needs_services(item: pytest.Item) -> bool:
    """Whether a test uses a server or a browser, be it by a fixture, by a parameter or because it says so."""
    named = bool(SERVICES.intersection(getattr(item, "fixturenames", ()))) or database_of(item) in DATABASES[1:]
    return named or item.get_closest_marker("starts_servers") is not None


def database_of(item: pytest.Item) -> str | None:
    parameters = item.nodeid.partition("[")[2].rstrip("]").split("-")
    return next((name for name in DATABASES if name in parameters), None)
