"""The doctor: checks the database, the queue and the installation, and repairs what is safe to repair."""

from __future__ import annotations

import re
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import delete, func, select, text

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.kit.migrate import schema_state
from mistnet.kit.statements import run, statement
from mistnet.kit.text import are, counted
from mistnet.operations import findings
from mistnet.operations.alerts.store import AlertStore
from mistnet.operations.alerts.watch import silence_of
from mistnet.operations.findings import HealthFinding, fail, ok, shown_time, warn
from mistnet.operations.health import DatabaseHealth, DatabaseProbe
from mistnet.operations.monitoring import Monitor
from mistnet.operations.overview import DashboardStore
from mistnet.queue import tables
from mistnet.queue.model import GAP_STATES, JobState, KindName, Lane
from mistnet.queue.store.inspect import Inspector
from mistnet.queue.store.upkeep import StoreUpkeep
from mistnet.settings import settings_file
from mistnet.social.accounts import AccountState
from mistnet.social.store.ingests import end_with_jobs
from mistnet.social.store.quarantine import Quarantine

if TYPE_CHECKING:
    from mistnet.app import App

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
    """What this installation knows, and its intervals."""

    kinds: Collection[KindName]
    live_caps: Mapping[KindName, int]
    heartbeat: timedelta
    reclaim: timedelta


def expectations_of(app: App) -> Expectations:
    return Expectations(
        kinds=list(app.kinds),
        live_caps=app.kinds.live_caps,
        heartbeat=app.settings.heartbeat,
        reclaim=timedelta(seconds=app.settings.reclaim_seconds),
    )


class Checkup:
    """Checks a database and its queue. It stops early if the database does not answer or lacks its tables."""

    def __init__(self, database: Database, expected: Expectations) -> None:
        self._database = database
        self._expected = expected
        self._dialect = database.dialect

    async def run(self) -> Sequence[HealthFinding]:
        try:
            # First, because it refuses a missing file; connecting would create it.
            schema = await self._schema()
            found = [*await self._server(), schema]
            if any(finding.level == "fail" for finding in found):
                return found
            await self._database.correct_clock()
            health = await DatabaseProbe(self._database).check()
            found += [findings.check_writes(health), *findings.check_connections(health)]
            return [*found, *await self._queue(self._database.clock.now(), health)]
        except DatabaseError as error:
            return [fail("database", str(error), "fix this first; nothing else was checked")]

    async def repair(self) -> Sequence[str]:
        """Repair what is safe to repair. Return what was done. Never deletes a job."""
        now = self._database.clock.now()
        upkeep = StoreUpkeep(self._database, given_up=end_with_jobs)
        reclaimed = 0
        while lost := await upkeep.reclaim(now=now, limit=_SLICE):
            reclaimed += len(lost)
        admitted = await upkeep.unpark(self._expected.live_caps)
        errors = 0
        async with self._database.transaction() as connection:
            while gone := (await run(connection, "prune_errors", {"before": now, "limit": _SLICE})).rowcount:
                errors += gone
            silent = delete(tables.workers).where(tables.workers.c.seen_at < now - _SILENT)
            workers = (await connection.execute(silent)).rowcount
        done = (
            (reclaimed, "expired lease", "reclaimed"),
            (admitted, "parked job", "admitted"),
            (errors, "error", "without a job deleted"),
            (workers, "silent worker", "deleted"),
        )
        return [f"{counted(count, noun)} {verb}" for count, noun, verb in done if count]

    async def _server(self) -> Sequence[HealthFinding]:
        async with self._database.read() as connection:
            # Connecting takes longer and is not what is measured.
            await connection.execute(text("SELECT 1"))
            started = time.perf_counter()
            await connection.execute(text("SELECT 1"))
            seconds = time.perf_counter() - started
            latency = f"{self._database.shown_url} answers in {seconds * 1000:.1f} ms"
            slow = seconds > _SLOW_SECONDS
            reached = warn("database", latency, "run it closer to the workers") if slow else ok("database", latency)
            query, name, oldest = _VERSIONS[self._database.product]
            version = str((await connection.execute(text(query))).scalar_one())
            if version_tuple(version) >= oldest:
                found = [reached, ok("version", f"{name} {version}")]
            else:
                needed = ".".join(map(str, oldest))
                found = [reached, fail("version", f"{name} {version}", f"upgrade to {name} {needed} or newer")]
            if self._database.product == "sqlite":
                return found
            if self._database.product == "libsql":
                # Transactions can turn foreign keys on; single statements depend on the server's default.
                if (await connection.execute(text("PRAGMA foreign_keys"))).scalar_one():
                    found.append(ok("references", "the server enforces them"))
                else:
                    problem = "this server enforces them in transactions only"
                    found.append(warn("references", problem, "use a server with foreign keys on"))
            before = datetime.now(UTC)
            server_time = await self._database.time_there(connection)
            # The server read its clock somewhere on the way: most likely in the middle.
            skew = abs(server_time - (before + (datetime.now(UTC) - before) / 2))
            apart = f"this machine's clock and the database's are {skew.total_seconds():.1f} s apart"
            advice = "set this machine's clock; leases are safe meanwhile, as only the database's clock counts there"
            return [*found, ok("clock", apart) if skew <= _SKEW else warn("clock", apart, advice)]

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
        silent_since = now - 3 * self._expected.heartbeat
        held = await inspector.leases()
        orphaned = [each for each in held if each.is_gone(seen_before=silent_since) and each.lease_until > now]
        silent = select(func.count()).select_from(tables.workers).where(tables.workers.c.seen_at < now - _SILENT)
        orphaned_errors = statement("orphaned_errors", self._dialect)
        return [
            await self._stuck_leases(now),
            findings.check_running_jobs(orphaned),
            findings.check_leftovers(
                "workers",
                await self._database.fetch_value(silent),
                "worker",
                "not seen for a day",
                none="none has been silent for a day",
            ),
            findings.check_leftovers(
                "errors",
                await self._database.fetch_value(orphaned_errors, {"limit": 10_000}),
                "error",
                "of jobs that were deleted",
                none="each belongs to a job",
            ),
            findings.check_kinds(counts, self._expected.kinds),
            findings.check_paused_kinds(counts, paused),
            findings.check_parked_jobs(counts),
            findings.check_gaps(counts),
            findings.check_due_work(counts, paused, now),
            findings.check_progress(min(due, default=None), health, now),
            findings.check_quarantine(await Quarantine(self._database).count()),
            findings.check_odd_listings(await monitor.odd_listings()),
            *findings.check_sources(await monitor.source_health()),
            *findings.check_alerts(await AlertStore(self._database).list_open(), now),
        ]

    async def _stuck_leases(self, now: datetime) -> HealthFinding:
        jobs = tables.jobs.c
        ran_out = (jobs.state == JobState.RUNNING, jobs.lease_until <= now)
        expired = select(func.count().label("jobs"), func.min(jobs.lease_until).label("since")).where(*ran_out)
        (row,) = await self._database.fetch_rows(expired)
        count, oldest = row["jobs"], row["since"]
        if not count:
            return ok("leases", "none has run out")
        late = now - oldest > 2 * self._expected.reclaim
        found = f"{counted(count, 'job')} {are(count)} leased to silent workers, the first since {shown_time(oldest)}"
        advice = "start a worker, which takes them over, or use --fix"
        return (fail if late else warn)("leases", found, advice, fixable=True)


def version_tuple(version: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers.group().split("."))) if numbers else ()


async def check_installation(app: App) -> Sequence[HealthFinding]:
    """Check keys, workers, caps, disk, clock, files and tokens. Needs a database that answers and has its tables."""
    now = app.database.clock.now()
    counts = await app.inspector.counts(now=now)
    paused = {each.kind for each in await app.inspector.paused()}
    seen = [each for each in await app.inspector.workers() if now - each.seen_at < silence_of(app.settings)]
    due = sum(count.due for count in counts if count.kind not in paused)
    tracked = await DashboardStore(app.database).account_states()
    follows = any(number for state, number in tracked.items() if state != AccountState.UNTRACKED)
    found = []
    for source in app.sources.values():
        if source.platform:
            kinds = [name for name, rules in app.kinds.rules.items() if Lane(source.name) in rules.lanes]
            is_live = any(count.kind in kinds and count.state not in GAP_STATES for count in counts)
            used = is_live or (source.client is not None and follows)
            found.append(findings.check_key(source.name, source.setup, used=used, configured=bool(source.keys)))
    found += [
        findings.check_worker(due=due, there=len(seen)),
        *[
            findings.check_budget(
                source.name,
                [cap for cap, _ in source.limits.caps(await app.sources.state(source.name))],
                configured=bool(source.keys),
            )
            for source in app.sources.values()
            if source.costs
        ],
    ]
    database, token = app.database.file, app.feeds.token
    if database is not None:
        found.append(findings.check_disk(database.parent, free=shutil.disk_usage(database.parent).free))
    private = [each for each in (database, settings_file(), app.settings.threads_token_file) if each is not None]
    found.append(findings.check_files(list(filter(is_readable_by_others, private))))
    if app.database.product == "sqlite":
        found.append(findings.check_clock(await app.inspector.latest_at(), now))
    if token.state.configured:
        found.append(findings.check_token(token.state.expires_at, now, refreshed=token.file is not None))
    return found


def is_readable_by_others(file: Path) -> bool:
    try:
        folders = [folder.stat().st_mode for folder in file.absolute().parents]
        return is_open_to_others(file.stat().st_mode, folders)
    except OSError:
        # A missing file cannot be read.
        return False


def is_open_to_others(mode: int, folders: Iterable[int]) -> bool:
    """A readable file is still private if a folder above it is closed."""
    return bool(mode & (stat.S_IROTH | stat.S_IWOTH)) and all(folder & stat.S_IXOTH for folder in folders)
