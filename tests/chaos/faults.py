"""Faults of a database, a machine or a process. Each is played for a while and then taken back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg

from tests.services.postgres import PostgresCluster

OURS: Final = "application_name = 'mistnet' AND pid <> pg_backend_pid()"
HOLD_SECONDS: Final = 3.0
"""Longer than the leases of the processes it is played against."""


@dataclass
class Target:
    """What faults are played against: a server of PostgreSQL, or a file; and the processes that work on it."""

    processes: Callable[[], Sequence[int]]
    chance: random.Random
    cluster: PostgresCluster | None = None
    database: str = "postgres"
    held: list[str] = field(default_factory=list)

    def execute(self, *statements: str) -> None:
        asyncio.run(self._execute(statements))

    async def _execute(self, statements: Sequence[str]) -> None:
        async with self.connection() as connection:
            for statement in statements:
                await connection.execute(statement)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        assert self.cluster is not None
        settings = {"default_transaction_read_only": "off", "statement_timeout": "0", "lock_timeout": "0"}
        connection = await asyncpg.connect(self.cluster.dsn(self.database), server_settings=settings)
        try:
            yield connection
        finally:
            await connection.close()

    @contextlib.contextmanager
    def set_to(self, name: str, value: str) -> Iterator[None]:
        """A setting of the whole server, for every session."""
        self.execute(f"ALTER SYSTEM SET {name} = {value}", "SELECT pg_reload_conf()")
        try:
            yield
        finally:
            self.execute(f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")


def cancel_statements(target: Target) -> None:
    _again_and_again(target, f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {OURS}")


def end_connections(target: Target) -> None:
    _again_and_again(target, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")


def _again_and_again(target: Target, statement: str) -> None:
    async def play() -> None:
        until = time.monotonic() + HOLD_SECONDS
        async with target.connection() as connection:
            while time.monotonic() < until:
                await connection.execute(statement)
                await asyncio.sleep(target.chance.uniform(0.01, 0.1))

    asyncio.run(play())


def read_only(target: Target) -> None:
    with target.set_to("default_transaction_read_only", "on"):
        time.sleep(HOLD_SECONDS)


def short_statements(target: Target) -> None:
    with target.set_to("statement_timeout", "'1ms'"):
        time.sleep(HOLD_SECONDS)


def short_transactions(target: Target) -> None:
    with target.set_to("idle_in_transaction_session_timeout", "'1ms'"):
        time.sleep(HOLD_SECONDS)


def locked_jobs(target: Target) -> None:
    """Another session holds the table of jobs, and no one waits for it for long."""

    async def play() -> None:
        async with target.connection() as connection, connection.transaction():
            await connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(HOLD_SECONDS)

    with target.set_to("lock_timeout", "'50ms'"):
        asyncio.run(play())


def no_connection_left(target: Target) -> None:
    """All of the server's connections but those for superusers are taken, and ours are cut: they must come back."""

    async def play() -> None:
        assert target.cluster is not None
        async with target.connection() as connection, contextlib.AsyncExitStack() as hoard:
            await connection.execute("DROP ROLE IF EXISTS hoarder")
            await connection.execute("CREATE ROLE hoarder LOGIN")
            dsn = target.cluster.dsn(target.database).replace("mistnet@", "hoarder@")
            await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
            with contextlib.suppress(asyncpg.TooManyConnectionsError):
                while True:
                    taken = await asyncpg.connect(dsn)
                    hoard.push_async_callback(taken.close)
            await asyncio.sleep(HOLD_SECONDS)

    asyncio.run(play())


def restart(target: Target) -> None:
    assert target.cluster is not None
    target.cluster.restart()


def power_cut(target: Target) -> None:
    assert target.cluster is not None
    target.cluster.restart(immediate=True)


def full_disk(target: Target) -> None:
    """No process can make a file longer: to SQLite it is a full disk."""
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in target.processes()}
    for pid, (_soft, hard) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    time.sleep(HOLD_SECONDS)
    for pid, limits in before.items():
        if Path(f"/proc/{pid}").exists():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def freeze(target: Target) -> None:
    """A machine that stands still for longer than its leases."""
    pid = target.chance.choice(list(target.processes()))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2 * HOLD_SECONDS)
    os.kill(pid, signal.SIGCONT)


def kill(target: Target) -> None:
    os.kill(target.chance.choice(list(target.processes())), signal.SIGKILL)


@dataclass(frozen=True)
class Fault:
    """One kind of trouble. `costs_leases` says that jobs may honestly lose their worker by it."""

    name: str
    play: Callable[[Target], None]
    costs_leases: bool = False


OF_SERVERS: Final = (
    Fault("statements cancelled", cancel_statements),
    Fault("connections ended", end_connections),
    Fault("read-only", read_only),
    Fault("statement_timeout of 1 ms", short_statements),
    Fault("idle_in_transaction_session_timeout of 1 ms", short_transactions),
    Fault("table locked, lock_timeout of 50 ms", locked_jobs),
    Fault("no connection left", no_connection_left),
    Fault("restart", restart),
    Fault("power cut", power_cut),
)
OF_FILES: Final = (Fault("disk full", full_disk),)
OF_PROCESSES: Final = (Fault("frozen for longer than its lease", freeze, True), Fault("killed", kill, True))
