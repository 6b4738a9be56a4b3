"""The PostgreSQL server that all processes of a test run share."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.postgres import PostgresCluster, PostgresStartError, quick_folder
from tests.services.shared import Address, SharedServer, keep


class ServerAddress(Address, frozen=True, kw_only=True):
    """How to reach the server of this run."""

    dsn: str = ""


SHARED = SharedServer("tests.services.shared_postgres", ServerAddress)


@contextmanager
def _server() -> Iterator[ServerAddress]:
    with PostgresCluster(fast=True, parent=quick_folder()) as cluster:
        yield ServerAddress(dsn=cluster.dsn())


if __name__ == "__main__":
    keep(_server, (PostgresStartError, OSError))
