"""Looks a database over and says what is wrong, what to do, and what it can mend by itself."""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.kit.migrate import schema_state
from mistnet.kit.statements import command, statement
from mistnet.operations import findings
from mistnet.operations.alerts.store import AlertStore
from mistnet.operations.findings import HealthFinding, fail, ok, shown_time, warn
from mistnet.operations.health_checks import DatabaseHealth, DatabaseProbe
from mistnet.operations.monitoring import Monitor
from mistnet.queue import tables
from mistnet.queue.model import JobState, KindName
from mistnet.queue.store.inspect import Inspector
from mistnet.queue.store.upkeep import StoreUpkeep
from mistnet.social.ingests.store import end_with_jobs
from mistnet.social.store.quarantine import Quarantine

OLDEST_SQLITE: Final = (3, 38)
OLDEST_POSTGRESQL: Final = (13,)
OLDEST_LIBSQL: Final = (3, 45)
_VERSIONS: Final = {
    "postgresql": ("SHOW server_version", "PostgreSQL", OLDEST_POSTGRESQL),
    "sqlite": ("SELECT sqlite_version()", "SQLite", OLDEST_SQLITE),
    "libsql": ("SELECT sqlite_version()", "libSQL on SQLite", OLDEST_LIBSQL),
}
_SLOW_SECONDS: Final = 0.25
_SKEW: Final = timedelta(seconds=5)
_SILENT: Final = timedelta(days=1)
_SLICE: Final = 1_000


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """What this installation knows and how patient it is."""

    kinds: Collection[KindName]
    live_caps: Mapping[KindName, int]
    heartbeat: timedelta
    reclaim: timedelta


class Checkup:
    """Looks at everything once. A database that does not answer, or lacks its tables, ends the look early."""

    def __init__(self, database: Database, expected: Expectations) -> None:
        self._database = database
        self._expected = expected
        self._dialect = database.dialect

    async def run(self) -> Sequence[HealthFinding]:
        try:
            tables_there = await self._schema()  # first: it refuses a file that is not there instead of making it
            found = [*await self._server(), tables_there]
            if any(finding.level == "fail" for finding in found):
                return found
            await self._database.correct_clock()
            health = await DatabaseProbe(self._database).look()
            found += [findings.writes(health), *findings.connections(health)]
            return [*found, *await self._queue(self._database.clock.now(), health)]
        except DatabaseError as error:
            return [fail("database", str(error), "mend this first; the rest was not looked at")]

    async def repair(self) -> Sequence[str]:
        """Mends what is safe to mend; says what was done. Never removes a job."""
        now = self._database.clock.now()
        upkeep = StoreUpkeep(self._database, given_up=end_with_jobs)
        reclaimed = 0
        while lost := await upkeep.reclaim(now=now, limit=_SLICE):
            reclaimed += len(lost)
        let_in = await upkeep.unpark(self._expected.live_caps)
        errors, workers = await self._forget(now)
        done = (
            (reclaimed, "expired leases taken back"),
            (let_in, "parked jobs let in"),
            (errors, "errors without a job deleted"),
            (workers, "silent workers forgotten"),
        )
        return [f"{count} {what}" for count, what in done if count]

    async def _forget(self, now: datetime) -> tuple[int, int]:
        errors = 0
        async with self._database.transaction() as connection:
            prune = command("prune_errors", self._dialect)
            while gone := (await connection.execute(prune, {"before": now, "limit": _SLICE})).rowcount:
                errors += gone
            silent = delete(tables.workers).where(tables.workers.c.seen_at < now - _SILENT)
            return errors, (await connection.execute(silent)).rowcount

    async def _server(self) -> Sequence[HealthFinding]:
        async with self._database.read() as connection:
            await connection.execute(text("SELECT 1"))  # connecting takes longer and says little
            asked = time.perf_counter()
            await connection.execute(text("SELECT 1"))
            seconds = time.perf_counter() - asked
            latency = f"{self._database.shown_url} answers in {seconds * 1000:.1f} ms"
            slow = seconds > _SLOW_SECONDS
            reached = warn("database", latency, "run it nearer to the workers") if slow else ok("database", latency)
            found = [reached, await self._version(connection)]
            if self._database.product == "sqlite":
                return found
            if self._database.product == "libsql":
                found.append(await _references(connection))
            return [*found, await self._skew(connection)]

    async def _version(self, connection: AsyncConnection) -> HealthFinding:
        asked, name, oldest = _VERSIONS[self._database.product]
        version = str((await connection.execute(text(asked))).scalar_one())
        if version_tuple(version) >= oldest:
            return ok("version", f"{name} {version}")
        wanted = ".".join(map(str, oldest))
        return fail("version", f"{name} {version}", f"upgrade to {name} {wanted} or newer")

    async def _skew(self, connection: AsyncConnection) -> HealthFinding:
        before = datetime.now(UTC)
        server_time = await self._database.time_there(connection)
        skew = abs(server_time - (before + (datetime.now(UTC) - before) / 2))
        found = f"this machine's clock and the database's are {skew.total_seconds():.1f} s apart"
        if skew <= _SKEW:
            return ok("clock", found)
        advice = "set this machine's clock; leases are safe meanwhile, for only the database's clock counts there"
        return warn("clock", found, advice)

    async def _schema(self) -> HealthFinding:
        state = await schema_state(self._database)
        match state.verdict:
            case "current":
                return ok("tables", f"at revision {state.found}")
            case "too new":
                found = f"at revision {state.found}, which this version does not know"
                return fail("tables", found, "upgrade mistnet on this machine")
            case "too old":
                found = f"at revision {state.found}, whose migrations this version no longer includes"
                return fail("tables", found, "run `mistnet db migrate` with an earlier mistnet that includes them")
            case "empty" | "behind":
                found = f"at revision {state.found or 'none'}, this version needs {state.wanted}"
                return fail("tables", found, "run `mistnet db migrate`")

    async def _queue(self, now: datetime, health: DatabaseHealth) -> Sequence[HealthFinding]:
        inspector, monitor = Inspector(self._database), Monitor(self._database)
        counts = await inspector.counts(now=now)
        paused = {each.kind for each in await inspector.paused()}
        due = [each.oldest_due_at for each in counts if each.oldest_due_at and each.kind not in paused]
        return [
            await self._stuck_leases(now),
            await self._orphaned_jobs(now),
            await self._silent_workers(now),
            await self._orphaned_errors(),
            findings.unknown_kinds(counts, self._expected.kinds),
            findings.waiting_while_paused(counts, paused),
            findings.parked(counts),
            findings.gaps(counts),
            findings.overdue(counts, paused, now),
            findings.progress(min(due, default=None), health, now),
            findings.quarantined(await Quarantine(self._database).count()),
            findings.odd_listings(await monitor.odd_listings()),
            *findings.sources(await monitor.source_health()),
            *findings.open_alerts(await AlertStore(self._database).list_open(), now),
        ]

    async def _stuck_leases(self, now: datetime) -> HealthFinding:
        jobs = tables.jobs.c
        ran_out = (jobs.state == JobState.RUNNING, jobs.lease_until <= now)
        async with self._database.read() as connection:
            expired = select(func.count(), func.min(jobs.lease_until)).where(*ran_out)
            count, oldest = (await connection.execute(expired)).one()
        if not count:
            return ok("leases", "none ran out")
        late = now - oldest > 2 * self._expected.reclaim
        found = f"{count} jobs are leased to workers that went silent, the first since {shown_time(oldest)}"
        advice = "start a worker, which takes them over, or use --fix"
        return (fail if late else warn)("leases", found, advice, fixable=True)

    async def _orphaned_jobs(self, now: datetime) -> HealthFinding:
        before = now - 3 * self._expected.heartbeat
        held = await Inspector(self._database).leases()
        return findings.orphaned([each for each in held if each.is_gone(seen_before=before) and each.lease_until > now])

    async def _silent_workers(self, now: datetime) -> HealthFinding:
        workers = tables.workers
        silent = select(func.count()).select_from(workers).where(workers.c.seen_at < now - _SILENT)
        async with self._database.read() as connection:
            count = (await connection.execute(silent)).scalar_one()
        if not count:
            return ok("workers", "none has been silent for a day")
        found = f"{count} workers have not been seen for a day"
        return warn("workers", found, "use --fix to forget them", fixable=True)

    async def _orphaned_errors(self) -> HealthFinding:
        async with self._database.read() as connection:
            counted = statement("orphaned_errors", self._dialect)
            count = (await connection.execute(counted, {"limit": 10_000})).scalar_one()
        if not count:
            return ok("errors", "each belongs to a job")
        found = f"{count} errors belong to jobs that are gone"
        return warn("errors", found, "use --fix to delete them", fixable=True)


async def _references(connection: AsyncConnection) -> HealthFinding:
    """A libSQL server enforces them unless it was built not to; transactions ask for it, single statements cannot."""
    if (await connection.execute(text("PRAGMA foreign_keys"))).scalar_one():
        return ok("references", "the server enforces them")
    return warn("references", "this server enforces them only where asked", "use a server with foreign keys on")


def version_tuple(version: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers.group().split("."))) if numbers else ()
