"""Whether the database and the queue are healthy. Checked often, so answers are cached for seconds, with a deadline."""

from __future__ import annotations

import asyncio
import math
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from loguru import logger
from prometheus_client import Gauge
from sqlalchemy import delete, insert, text

from mistnet.governor.model import SourceState, is_open, on_day
from mistnet.kit.database import Database
from mistnet.kit.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseFails,
    DatabaseForeign,
    DatabaseMissing,
    DatabaseNotMigrated,
    DatabaseTooNew,
    DatabaseUnreachable,
)
from mistnet.kit.migrate import require_current
from mistnet.kit.statements import run, statement
from mistnet.operations.alerts.model import Severity
from mistnet.operations.alerts.store import AlertStore
from mistnet.operations.monitoring import LaneStore
from mistnet.queue import tables
from mistnet.queue.leader import StoreLeaders
from mistnet.queue.model import GAP_STATES, LIVE_STATES

if TYPE_CHECKING:
    from mistnet.app import App


NO_SPACE: Final = 100_000_000
"""In bytes. With less, a database cannot write for long, and its journal needs room, too."""

DatabaseState = Literal["ok", "unreachable", "busy", "wrong tables", "read-only", "full", "refused"]
FEW_CONNECTIONS: Final = 0.1
"""The share of connections that should stay free: one more process takes several at once."""

STALLED: Final = timedelta(minutes=15)
"""Jobs that are due this long without any progress: no worker takes them, or every attempt hangs."""

_FILE_SIZE: Final = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
_TIMEOUTS: Final = ("SET LOCAL lock_timeout = '2s'", "SET LOCAL statement_timeout = '3s'")
# Words in the errors of drivers, and their meaning. Their codes differ more from each other than their words.
_STATES: Final[Mapping[str, DatabaseState]] = {
    "read-only": "read-only",
    "readonly": "read-only",
    "recovery is in progress": "read-only",
    "disk is full": "full",
    "no space left": "full",
    "could not extend file": "full",
    "disk quota": "full",
    "statement timeout": "busy",
}


class DatabaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check of a database. A value that this kind of database does not offer is None."""

    state: DatabaseState
    problem: str | None = None
    """The error of the driver. It may name the server, so it is for the log and for operators only."""

    write_seconds: float | None = None
    read_only: bool | None = None
    """Whether the server is a standby, or configured to refuse writes."""

    free_bytes: int | None = None
    """On the disk of a file. Unknown for a server."""

    size_bytes: int | None = None
    connections: int | None = None
    most_connections: int | None = None
    last_progress_at: datetime | None = None
    """When a job was last started or settled."""

    @property
    def few_connections(self) -> bool:
        if self.connections is None or self.most_connections is None:
            return False
        return self.most_connections - self.connections < FEW_CONNECTIONS * self.most_connections


class DatabaseProbe:
    """Checks a database. It raises no DatabaseError, and the row that it writes is never visible to others."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def check(self) -> DatabaseHealth:
        facts: dict[str, Any] = {}
        file = self._database.file
        # The folder is gone: the check of the tables reports that.
        with suppress(OSError):
            facts |= {} if file is None else {"free_bytes": shutil.disk_usage(file.parent).free}
        try:
            await require_current(self._database)
            async with self._database.read_cached_plan() as connection:
                last_progress = await connection.execute(statement("last_progress", self._database.dialect))
                facts["last_progress_at"] = last_progress.scalar()
                # libSQL reports neither its size nor its connections.
                if self._database.product == "sqlite":
                    facts["size_bytes"] = (await connection.execute(text(_FILE_SIZE))).scalar_one()
                elif self._database.product == "postgresql":
                    server = (await run(connection, "server_facts")).one()
                    facts |= {
                        "read_only": server.in_recovery or server.read_only,
                        "connections": server.connections,
                        "most_connections": server.most_connections,
                        "size_bytes": server.size,
                    }
            facts["write_seconds"] = await self._write()
        except DatabaseError as error:
            return DatabaseHealth(state=state_of(error), problem=str(error), **facts)
        return DatabaseHealth(state="ok", **facts)

    async def _write(self) -> float:
        """Insert and delete a row in one transaction, and commit it. Return the seconds that took.

        A write that is rolled back proves little: SQLite keeps it in memory, and a server need not write it to disk.
        """
        started = time.perf_counter()
        now = self._database.clock.now()
        probe = {
            **dict.fromkeys(("host", "version", "lanes"), ""),
            **dict.fromkeys(("pid", "concurrency", "running"), 0),
            **dict.fromkeys(("started_at", "seen_at"), now),
            "name": f"write test {secrets.token_hex(8)}",
            "draining": True,
        }
        async with self._database.transaction() as connection:
            # A lock on the table must not delay the answer.
            if self._database.dialect == "postgresql":
                for limit in _TIMEOUTS:
                    await connection.exec_driver_sql(limit)
            await connection.execute(insert(tables.workers).values(probe))
            await connection.execute(delete(tables.workers).where(tables.workers.c.name == probe["name"]))
        return time.perf_counter() - started


def stalled(due_since: datetime | None, progress_at: datetime | None, now: datetime) -> float:
    """For how many seconds jobs have been due while none was started or settled."""
    if due_since is None:
        return 0.0
    since = max(due_since, progress_at) if progress_at else due_since
    return max((now - since).total_seconds(), 0.0)


def state_of(error: DatabaseError) -> DatabaseState:
    # The whole message may contain a host name that misleads.
    problem = str(getattr(error, "problem", "")).lower()
    for words, state in _STATES.items():
        if words in problem:
            return state
    match error:
        case DatabaseUnreachable() | DatabaseMissing():
            return "unreachable"
        case DatabaseFails():
            return "refused"
        case DatabaseBusy():
            return "busy"
        case DatabaseNotMigrated() | DatabaseTooNew() | DatabaseForeign():
            return "wrong tables"
        case _:
            return "refused"


# A worker that missed this many heartbeats is gone.
_SEEN_WITHIN: Final = 3
_FRESH_SECONDS: Final = 5.0
_DEADLINE_SECONDS: Final = 3.0
_REFRESH_SECONDS: Final = 15.0


class QueueHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The workers and the leader, and how long work has waited."""

    workers: int
    oldest_due_seconds: float | None
    stalled_seconds: float
    """How long jobs were due while none was started or settled; 0 while none is due."""

    leader: str | None
    paused: bool

    @property
    def is_served(self) -> bool:
        waits = self.oldest_due_seconds is not None and not self.workers
        return not (self.paused or waits or self.stalled_seconds > STALLED.total_seconds())


class HealthCheck:
    """Checks the database once for all callers at the same time, and answers within a deadline.

    A check of a database that hangs continues after the deadline. The next caller waits for it, instead of starting
    another one: otherwise every probe would hold one more connection.
    """

    def __init__(
        self, app: App, *, fresh_seconds: float = _FRESH_SECONDS, deadline_seconds: float = _DEADLINE_SECONDS
    ) -> None:
        self._app = app
        self._probe = DatabaseProbe(app.database)
        self._fresh = fresh_seconds
        self._deadline = deadline_seconds
        self._check: asyncio.Task[DatabaseHealth] | None = None
        self._kept: DatabaseHealth | None = None
        self._kept_until = 0.0

    async def database(self) -> DatabaseHealth:
        if self._kept is not None and time.monotonic() < self._kept_until:
            return self._kept
        if self._check is None:
            self._check = asyncio.create_task(self._run(), name="health")
        check = self._check
        await asyncio.wait([check], timeout=self._deadline)
        if check.done():
            return check.result()
        problem = f"the database did not answer within {self._deadline:g} s"
        return DatabaseHealth(state="unreachable", problem=problem)

    async def queue(self) -> QueueHealth | None:
        """None if the database does not answer in time."""
        health = await self.database()
        if health.state in ("unreachable", "wrong tables"):
            return None
        query = asyncio.create_task(self._read_queue(health.last_progress_at), name="health of the queue")
        await asyncio.wait([query], timeout=self._deadline)
        if query.done():
            return query.result()
        # Not awaited: a connection that hangs takes its time to close.
        query.cancel()
        return None

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.wait([self._check], timeout=self._deadline)

    async def _run(self) -> DatabaseHealth:
        try:
            before = self._kept
            now = self._kept = await self._probe.check()
            self._kept_until = time.monotonic() + self._fresh
            # One line per change, as the check is repeated every few seconds.
            if now.problem and (before is None or before.state != now.state):
                logger.error("the database is not ok ({state}): {problem}", state=now.state, problem=now.problem)
            elif before is not None and before.problem and not now.problem:
                logger.info("the database is ok again")
            return now
        finally:
            self._check = None

    async def _read_queue(self, progress_at: datetime | None) -> QueueHealth | None:
        app, now = self._app, self._app.database.clock.now()
        try:
            seen_after = now - _SEEN_WITHIN * app.settings.heartbeat
            workers = [each for each in await app.inspector.workers() if each.seen_at >= seen_after]
            first = (await app.queue.outlook(app.kinds.targets(slots=1, lanes=None, lane_caps={}), now=now)).next_due_at
            leaders = [each.holder for each in await StoreLeaders(app.database).all() if each.leads_at(now)]
            states = await app.sources.states()
            paid = [states[name] for name, source in app.sources.items() if source.costs and name in states]
        except DatabaseError:
            return None
        due_since = first if first and first <= now else None
        return QueueHealth(
            workers=len(workers),
            oldest_due_seconds=(now - due_since).total_seconds() if due_since else None,
            stalled_seconds=stalled(due_since, progress_at, now),
            leader=leaders[0] if leaders else None,
            paused=any(state.paused_at for state in paid),
        )


def is_roomy(database: DatabaseHealth) -> bool:
    """Whether there is enough disk space and enough free connections."""
    return not database.few_connections and (database.free_bytes is None or database.free_bytes >= NO_SPACE)


class QueueGauges:
    """Sets gauges from what is in the database, and from its health."""

    def __init__(self, app: App, health: HealthCheck) -> None:
        self._app = app
        self._health = health
        self._set_labels: dict[Gauge, set[tuple[str, ...]]] = {}

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(_REFRESH_SECONDS)

    async def refresh(self) -> None:
        """Set all gauges. Those of the queue keep their values while the database does not answer."""
        database = await self._health.database()
        queue = await self._health.queue()
        meters = self._app.metrics.database
        values = {
            meters.up: database.state not in ("unreachable", "wrong tables"),
            meters.checked_at: time.time(),
            meters.writable: database.state == "ok",
            meters.read_only: database.read_only,
            meters.write_seconds: database.write_seconds,
            meters.size: database.size_bytes,
            meters.free: database.free_bytes,
            meters.connections: database.connections,
            meters.most_connections: database.most_connections,
            meters.stalled: queue.stalled_seconds if queue else None,
        }
        for gauge, value in values.items():
            gauge.set(math.nan if value is None else value)
        if queue is None:
            return
        now, metrics = self._app.database.clock.now(), self._app.metrics
        try:
            counts = await self._app.inspector.counts(now=now)
            lanes = await LaneStore(self._app.database).counts(now=now)
            await self._refresh_shared(now)
        except DatabaseError:
            # The values of the last time are better than none.
            return
        parked: dict[tuple[str, ...], float] = {}
        for count in counts:
            parked[(count.kind,)] = parked.get((count.kind,), 0) + count.parked
        depth: dict[tuple[str, ...], float] = {(each.kind, each.state): each.jobs for each in counts}
        oldest: dict[tuple[str, ...], float] = {
            (each.kind, each.state): (now - each.oldest_at).total_seconds() for each in counts
        }
        self._set(metrics.depth, depth)
        self._set(metrics.oldest, oldest)
        self._set(metrics.parked, parked)
        self._set(
            metrics.lanes.depth, {(each.lane, each.state): each.jobs for each in lanes if each.state in LIVE_STATES}
        )
        gaps: dict[tuple[str, ...], float] = {
            (lane, state): 0 for lane in self._app.kinds.lanes for state in GAP_STATES
        }
        gaps |= {(each.lane, each.state): each.jobs for each in lanes if each.state in GAP_STATES}
        self._set(metrics.lanes.dead_letters, gaps)

    async def _refresh_shared(self, now: datetime) -> None:
        meters, states = self._app.metrics.shared, await self._app.sources.states()
        self._set(meters.paused, {(name,): state.paused_at is not None for name, state in states.items()})
        self._set(meters.breaker, {(name,): is_open(state, now) for name, state in states.items()})
        successes = {name: state.last_success_at for name, state in states.items()}
        self._set(meters.last_success, {(name,): at.timestamp() for name, at in successes.items() if at})
        left: dict[tuple[str, ...], float] = {}
        for name, source in self._app.sources.items():
            caps = source.limits.caps(on_day(states.get(name) or SourceState(name=name), now))
            for span, (cap, spent) in zip(("day", "month"), caps, strict=True):
                if cap is not None:
                    left[name, span] = max(cap - spent, 0)
        self._set(meters.credits_left, left)
        alerts = await AlertStore(self._app.database).list_open()
        unaccepted = Counter(each.severity for each in alerts if each.accepted_at is None)
        # A severity without alerts is 0 and not absent: an alerting rule on an absent series never fires.
        self._set(meters.alerts, {(severity,): unaccepted[severity] for severity in Severity})

    def _set(self, gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        for labels, value in values.items():
            gauge.labels(*labels).set(value)
        for labels in self._set_labels.get(gauge, set()) - set(values):
            gauge.remove(*labels)
        self._set_labels[gauge] = set(values)
