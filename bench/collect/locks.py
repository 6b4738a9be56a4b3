"""How long the connections to a PostgreSQL database wait for each other's locks, seen by looking often."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

_LOOK_SECONDS = 0.01
_WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


class LockWaits:
    """Seconds of waiting, summed over all connections."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._over = threading.Event()
        self.seconds = 0.0

    def watch(self) -> None:
        asyncio.run(self._watch())

    def end(self) -> None:
        self._over.set()

    async def _watch(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            before = time.monotonic()
            while not self._over.is_set():
                await asyncio.sleep(_LOOK_SECONDS)
                waiting, now = await connection.fetchval(_WAITING), time.monotonic()
                self.seconds += waiting * (now - before)
                before = now
        finally:
            await connection.close()


@contextmanager
def watching_locks(dsn: str) -> Iterator[LockWaits]:
    """Look from a thread of its own. A SQLite file has one writer at a time and shows nothing."""
    waits = LockWaits(dsn)
    thread = threading.Thread(target=waits.watch) if "://" in dsn else None
    if thread:
        thread.start()
    try:
        yield waits
    finally:
        waits.end()
        if thread:
            thread.join()
