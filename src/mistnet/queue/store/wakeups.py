"""Wake idle workers when new work may be due."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.queue.store.enqueue import CHANNEL

_LOOK_SECONDS: Final = 0.1
# Each query is a round trip, and some providers charge for it.
_ASK_SECONDS: Final = 1.0
_LAST_JOB: Final = text("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'")


class LocalWakeups:
    """Wake-ups within one process."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


class DatabaseWakeups(LocalWakeups):
    """Wake-ups from all processes: LISTEN on PostgreSQL, a change counter on SQLite and libSQL.

    They may be missed while the database cannot be reached, so workers poll as well.
    """

    def __init__(self, database: Database, *, reconnect_seconds: float = 5.0) -> None:
        super().__init__()
        self._database = database
        self._reconnect_seconds = reconnect_seconds
        self._listener: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        ways = {"postgresql": self._listen, "sqlite": self._watch, "libsql": self._ask}
        self._listener = asyncio.create_task(self._keep(ways[self._database.product]), name="wakeups")
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._listener:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener

    async def _keep(self, listen: Callable[[], Awaitable[None]]) -> None:
        while True:
            with contextlib.suppress(DatabaseError, SQLAlchemyError, OSError):
                await listen()
            await asyncio.sleep(self._reconnect_seconds)
            # Changes may have been missed meanwhile.
            self.ring()

    async def _listen(self) -> None:
        async with self._database.read() as connection:
            raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection
            gone = asyncio.Event()
            driver.add_termination_listener(lambda _connection: gone.set())
            await driver.add_listener(CHANNEL, lambda *_said: self.ring())
            self.ring()
            try:
                await gone.wait()
            finally:
                # A connection that listens must not go back to the pool.
                await connection.invalidate()

    async def _watch(self) -> None:
        """Another process's commit changes data_version; reading it costs microseconds and takes no lock."""
        async with self._database.read() as connection:
            seen = None
            while True:
                version = (await connection.execute(text("PRAGMA data_version"))).scalar_one()
                if seen is not None and version != seen:
                    self.ring()
                seen = version
                await asyncio.sleep(_LOOK_SECONDS)

    async def _ask(self) -> None:
        """A libSQL server sends no notifications: compare its count of changes and the last job id.

        One row is read, and no connection is kept between two queries.
        """
        seen = None
        while True:
            async with self._database.read() as connection:
                last_job = (await connection.execute(_LAST_JOB)).scalar()
                driver: Any = (await connection.get_raw_connection()).driver_connection
                found = (last_job, driver.changes)
            if seen is not None and found != seen:
                self.ring()
            seen = found
            await asyncio.sleep(_ASK_SECONDS)
