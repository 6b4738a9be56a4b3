"""An event loop whose time is a number, and databases that wait for nothing but their turn."""

from __future__ import annotations

import asyncio
import os
import random
import selectors
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import aiosqlite
import asyncpg

T = TypeVar("T")

ORDER = os.environ.get("MISTNET_TEST_ORDER")
BLOCKED_SECONDS = 0.1
"""A statement a real server has not answered by then waits for a lock somebody here holds."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when nothing is left to do at the present instant."""

    def __init__(self) -> None:
        self.virtual_now = 0.0
        self.flights: Counter[str] = Counter()
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.virtual_now

    @property
    def in_flight(self) -> int:
        """Statements on their way to a real server, of machines that still live."""
        return self.flights.total()


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._chance = random.Random(ORDER)
        self._blocked = 0  # so many statements wait for a lock: nobody waits for them again until one comes back

    def select(self, timeout: float | None = None) -> Any:
        """With an order of chance, some of the answers that are there together come first and the others later."""
        events = self._waited(timeout)
        return self._chance.sample(events, self._chance.randint(1, len(events))) if events and ORDER else events

    def _waited(self, timeout: float | None) -> Any:
        if timeout is not None and timeout <= 0 and len(self.get_map()) == 1:
            return []  # no server takes part: only the loop's own bell is listened to, and there is work to do
        self._blocked = min(self._blocked, self._loop.in_flight)
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._loop.in_flight > self._blocked:
            events = super().select(BLOCKED_SECONDS if timeout is not None else 10)
            if events:
                return events
            self._blocked = self._loop.in_flight
        if timeout is None:
            events = super().select(10 if self._loop.in_flight else 0.001)
            if self._loop.in_flight and not events:
                raise RuntimeError("a database server does not answer, and nobody here waits for anything")
            return events
        self._loop.virtual_now += timeout
        return []


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Runs in a thread of its own: greenlets that die unfinished spoil the recursion count of theirs."""

    def run() -> T:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


class _Inline:
    """Stands in for aiosqlite's queue to its thread: the call is made at once, in turn, by the caller."""

    def put_nowait(self, item: tuple[asyncio.Future[Any] | Future[Any] | None, Callable[[], Any]]) -> None:
        future, function = item
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 (handed on to whoever waits)
            if future is not None:
                future.set_exception(error)
        else:
            if future is not None and not future.done():
                future.set_result(result)


class _NoThread:
    daemon = True

    def start(self) -> None:
        pass


def inline_sqlite(opened: list[Callable[[], None]]) -> Callable[..., aiosqlite.Connection]:
    """Connections that run in the loop's own thread, so that a seed decides every order of events."""

    def connect(database: str, **about: Any) -> aiosqlite.Connection:
        connector = partial(sqlite3.connect, database, **{**about, "timeout": 0, "check_same_thread": False})
        connection = aiosqlite.Connection(connector, 64)
        connection._tx = _Inline()  # type: ignore[assignment]
        connection._thread = _NoThread()  # type: ignore[assignment]
        opened.append(lambda: _abandon_sqlite(connection))
        return connection

    return connect


def _abandon_sqlite(connection: aiosqlite.Connection) -> None:
    if connection._connection is not None:
        connection._connection.rollback()  # a statement that is still open would keep the dead one's lock
        connection._connection.close()
        connection._connection = None


def counted_asyncpg(owner: str, opened: list[Callable[[], None]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Real connections to a real server; virtual time stands still while one is being made."""

    async def connect(*args: Any, **about: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.flights[owner] += 1
        try:
            connection = await asyncpg.connect(*args, **{**about, "timeout": None})  # a busy server is not a dead one
        finally:
            loop.flights[owner] -= 1
        opened.append(connection.terminate)
        return connection

    return connect
