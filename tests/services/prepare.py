"""Fetches and starts what later tests need, in a process beside the first tests, which need none of it.

A service that cannot be had is not reported here: the tests that need it say so.
"""

import os
from contextlib import suppress

from tests.services import rabbitmq, shared_postgres
from tests.services.browser import BrowserMissing, find_chromium
from tests.services.sqld import SqldMissing, find_sqld


def main() -> None:
    if not os.environ.get("MISTNET_TEST_POSTGRES_DSN"):
        shared_postgres.SHARED.address()
    with suppress(SqldMissing):
        find_sqld()
    rabbitmq.SHARED.address()
    with suppress(BrowserMissing):
        find_chromium()


if __name__ == "__main__":
    main()
