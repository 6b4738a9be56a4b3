"""An event loop whose time is a number, and databases that wait for nothing but their turn."""

from __future__ import annotations

import asyncio
import os
import selectors
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any, TypeVar

import aiosqlite
import asyncpg
from sqlalchemy import Engine
from sqlalchemy.engine.default import DefaultDialect

from mistnet.kit.sqlite import QuickConnection
from tests.simulation.server import Exchange, connect_to

T = TypeVar("T")

ORDER = os.environ.get("MISTNET_TEST_ORDER")
"""Statements that several workers send at the same instant are run in an order of chance, by this number."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when nothing is left to do at the present instant, here or on a database server.

    What machines learn from their database is kept here for the next ones. It must not outlive the simulation: a life
    would depend on those before it, because a question that is left out changes who is served first.
    """

    def __init__(self) -> None:
        self.virtual_now = 0.0
        self.spare_files: defaultdict[str, list[sqlite3.Connection]] = defaultdict(list)
        self.known_dialects: defaultdict[type, dict[str, Any]] = defaultdict(dict)
        self.known_types: dict[frozenset[int], Any] = {}
        self.exchange = Exchange(ORDER)
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.virtual_now

    async def create_connection(self, protocol_factory: Any, host: str, port: int, **_: Any) -> Any:  # type: ignore[override]
        return await connect_to(self.exchange, protocol_factory, (host, port))

    async def create_unix_connection(self, protocol_factory: Any, path: str, **_: Any) -> Any:  # type: ignore[override]
        return await connect_to(self.exchange, protocol_factory, path)

    def run_in_executor(self, _executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """At once: a thread would take an amount of real time."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 (handed on to the caller)
            future.set_exception(error)
        return future

    def close(self) -> None:
        for connection in chain.from_iterable(self.spare_files.values()):
            connection.close()
        self.exchange.close()
        super().close()


class _Selector(selectors.SelectSelector):
    """Moves time instead of waiting for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if self._loop.exchange.has_work:
            self._loop.exchange.take_turn()
        elif timeout is None:
            raise RuntimeError(f"nothing is scheduled, and {self._loop.exchange.blocked} statements wait for locks")
        elif timeout > 0:
            self._loop.virtual_now += timeout
        return []


def _virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


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
        except BaseException as error:  # noqa: BLE001 (passed on to the waiting task)
            if future is not None:
                future.set_exception(error)
        else:
            if future is not None and not future.done():
                future.set_result(result)


class _InlineConnection(QuickConnection):
    """Its calls are made at once. One that was abandoned makes none."""

    async def _execute(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        if self._connection is None:
            raise ValueError("Connection closed")
        return fn(*args, **kwargs)


class _NoThread:
    daemon = True

    def start(self) -> None:
        pass


def inline_sqlite(opened: list[Callable[[], None]]) -> Callable[..., aiosqlite.Connection]:
    """Connections that run in the loop's own thread, so that a seed decides every order of events."""

    def connect(database: str, **about: Any) -> aiosqlite.Connection:
        spare = _virtual_loop().spare_files[database]
        connector = partial(sqlite3.connect, database, **{**about, "timeout": 0, "check_same_thread": False})
        connection = _InlineConnection(lambda: spare.pop() if spare else connector(), 64)
        connection._tx = _Inline()  # type: ignore[assignment]
        connection._thread = _NoThread()  # type: ignore[assignment]
        opened.append(lambda: _abandon_sqlite(connection, spare))
        return connection

    return connect


def _abandon_sqlite(connection: aiosqlite.Connection, spare: list[sqlite3.Connection]) -> None:
    """Another machine gets the open file: a new one would read the whole schema first."""
    if connection._connection is not None:
        connection._connection.rollback()  # a statement that is still open would keep the dead one's lock
        spare.append(connection._connection)
        connection._connection = None


class _KnowingConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """Asks for the description of a type once in a simulation, not once in each of a hundred connections."""

    async def _introspect_types(self, typeoids: Collection[int], timeout: float | None) -> Any:
        known, asked = _virtual_loop().known_types, frozenset(typeoids)
        if asked in known:
            return known[asked], SimpleNamespace(name="no statement was made")
        known[asked], statement = await super()._introspect_types(typeoids, timeout)
        return known[asked], statement


def simulated_asyncpg(opened: list[Callable[[], None]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Real connections to a real server, whose statements the loop sends in turn."""

    async def connect(*args: Any, **about: Any) -> Any:
        loop = _virtual_loop()
        about |= {"timeout": None, "ssl": False, "connection_class": _KnowingConnection}
        if loop.exchange.monitor is None:
            loop.exchange.monitor = await asyncpg.connect(*args, **about)
        connection = await asyncpg.connect(*args, **about)
        opened.append(connection.terminate)
        return connection

    return connect


def share_compiled(engine: Engine) -> None:
    """Engines of many short lives compile each statement once: they differ in nothing that SQL depends on."""
    dialect: Any = engine.dialect
    if type(dialect) not in _COMPILED:
        kind = type(dialect)
        own = {"supports_statement_cache": True}  # believed only of the class itself, not of those that it inherits
        dialect.__class__ = _ALIKE.setdefault(kind, type(kind.__name__, (_Alike, kind), own))
    engine._compiled_cache = _COMPILED.setdefault(type(dialect), {})


class _Alike(DefaultDialect):
    """Statements are cached by dialect, and two of these are the same. Only the first asks what its database can do."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def initialize(self, connection: Any) -> None:
        known = _virtual_loop().known_dialects[type(self)]
        if not known:
            before = {**vars(self)}
            super().initialize(connection)
            known |= {name: value for name, value in vars(self).items() if before.get(name) is not value}
        vars(self).update(known)


_ALIKE: dict[type, type] = {}
_COMPILED: dict[type, dict[Any, Any]] = {}
