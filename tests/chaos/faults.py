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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from tests.services.postgres import PostgresCluster
from tests.services.small_disk import SmallDisk

if TYPE_CHECKING:  # they name the faults of theirs, and so import this module
    from tests.chaos.broker import Broker
    from tests.chaos.upstream import Upstream

OURS: Final = "application_name = 'mistnet' AND pid <> pg_backend_pid()"
HOLD_SECONDS: Final = 7.0
"""Longer than the leases of the processes it is played against."""
NOTICE_SECONDS: Final = 60.0


@dataclass
class Target:
    """What faults are played against: the processes, their database, and the servers around them that there are."""

    processes: Callable[[], Sequence[int]]
    chance: random.Random
    url: str = ""
    cluster: PostgresCluster | None = None
    database: str = "postgres"
    disk: SmallDisk | None = None
    broker: Broker | None = None
    upstream: Upstream | None = None
    outages: Callable[[], int] = lambda: 0
    """How often a process has said that its database fails."""
    links: int = 0
    """How often links to hostile pages were written."""

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


def cancel_statements(target: Target) -> int:
    busy = f"{OURS} AND state = 'active'"
    return _again_and_again(target, f"SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE {busy}")


def end_connections(target: Target) -> int:
    return _again_and_again(target, f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {OURS}")


def _again_and_again(target: Target, statement: str) -> int:
    async def play() -> int:
        until, done = time.monotonic() + HOLD_SECONDS, 0
        async with target.connection() as connection:
            while time.monotonic() < until:
                done += await connection.fetchval(statement)
                await asyncio.sleep(target.chance.uniform(0.01, 0.1))
        return done

    return asyncio.run(play())


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


def full_server_disk(target: Target) -> None:
    """Not a byte is left for PostgreSQL until its clients have noticed, and for longer than their leases."""
    assert target.disk is not None
    assert target.cluster is not None
    said, deadline = target.outages(), time.monotonic() + NOTICE_SECONDS
    target.disk.fill()
    while target.outages() == said and time.monotonic() < deadline:
        target.disk.fill()  # the server recycles its log, and so makes room
        time.sleep(0.1)
    until = time.monotonic() + HOLD_SECONDS
    while time.monotonic() < until:
        target.disk.fill()
        time.sleep(0.1)
    target.disk.free()
    target.cluster.ensure_running()  # one that cannot write its log ends


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
    """One kind of trouble. `play` may return how often it struck, counted in `unit`."""

    name: str
    play: Callable[[Target], int | None]
    unit: str = ""
    costs_attempts: bool = False
    """Whether attempts are rightly counted because of it: jobs lose their worker, or upstream does not answer."""
    of_database: bool = False
    """Whether the database fails by it, which processes must notice and say."""


def _of_database(name: str, play: Callable[[Target], int | None], unit: str = "") -> Fault:
    return Fault(name, play, unit, of_database=True)


OF_SERVERS: Final = (
    _of_database("statements cancelled", cancel_statements, "statement"),
    _of_database("connections ended", end_connections, "connection"),
    _of_database("read-only", read_only),
    _of_database("statement_timeout of 1 ms", short_statements),
    _of_database("idle_in_transaction_session_timeout of 1 ms", short_transactions),
    _of_database("table locked, lock_timeout of 50 ms", locked_jobs),
    _of_database("no connection left", no_connection_left),
    _of_database("database restarted", restart),
    _of_database("power cut", power_cut),
)
OF_FILES: Final = (_of_database("disk of the file full", full_disk),)
OF_SERVER_DISKS: Final = (_of_database("disk of the server full", full_server_disk),)
OF_PROCESSES: Final = (
    Fault("process frozen for longer than its lease", freeze, costs_attempts=True),
    Fault("process killed with -9", kill, costs_attempts=True),
)
