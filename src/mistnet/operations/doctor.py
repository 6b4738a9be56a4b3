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
from mistnet.operations import checks
from mistnet.operations.alerts.store import AlertStore
from mistnet.operations.checks import SKEW, HealthFinding, fail, ok, shown_time, warn
from mistnet.operations.events import silence_of
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
_SILENT: Final = timedelta(days=1)
_SLICE: Final = 1_000
_LEASES: Final = select(func.count().label("jobs"), func.min(tables.jobs.c.lease_until).label("since")).where(
    tables.jobs.c.state == JobState.RUNNING
)


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
            state = await schema_state(self._database)
            match state.verdict:
                case "current":
                    schema = ok("tables", f"at revision {state.found}")
                case "too new":
                    problem = f"at revision {state.found}, which this version does not know"
                    schema = fail("tables", problem, "upgrade mistnet on this machine")
                case "too old":
                    problem = f"at revision {state.found}, whose migrations this version no longer includes"
                    advice = "run `mistnet db migrate` with an earlier mistnet that includes them"
                    schema = fail("tables", problem, advice)
                case "empty" | "behind":
                    problem = f"at revision {state.found or 'none'}, this version needs {state.wanted}"
                    schema = fail("tables", problem, "run `mistnet db migrate`")
            found = [*await self._server(), schema]
            if any(finding.level == "fail" for finding in found):
                return found
            await self._database.correct_clock()
            health = await DatabaseProbe(self._database).check()
            found += [checks.check_writes(health), *checks.check_connections(health)]
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
            return [*found, ok("clock", apart) if skew <= SKEW else warn("clock", apart, advice)]

    async def _queue(self, now: datetime, health: DatabaseHealth) -> Sequence[HealthFinding]:
        inspector, monitor = Inspector(self._database), Monitor(self._database)
        counts = await inspector.counts(now=now)
        paused = {each.kind for each in await inspector.paused()}
        due = [each.oldest_due_at for each in counts if each.oldest_due_at and each.kind not in paused]
        silent_since = now - 3 * self._expected.heartbeat
        gone = [each for each in await inspector.leases() if each.is_gone(seen_before=silent_since)]
        silent = select(func.count()).select_from(tables.workers).where(tables.workers.c.seen_at < now - _SILENT)
        workers = await self._database.fetch_value(silent)
        errors = await self._database.fetch_value(statement("orphaned_errors", self._dialect), {"limit": 10_000})
        (lost,) = await self._database.fetch_rows(_LEASES.where(tables.jobs.c.lease_until <= now))
        leases = ok("leases", "none has run out")
        if lost["jobs"]:
            leased = f"{counted(lost['jobs'], 'job')} {are(lost['jobs'])} leased to silent workers"
            level = fail if now - lost["since"] > 2 * self._expected.reclaim else warn
            advice = "start a worker, which takes them over, or use --fix"
            leases = level("leases", f"{leased}, the first since {shown_time(lost['since'])}", advice, fixable=True)
        return [
            leases,
            checks.check_running_jobs([each for each in gone if each.lease_until > now]),
            checks.check_leftovers(
                "workers", workers, "worker", "not seen for a day", none="none has been silent for a day"
            ),
            checks.check_leftovers(
                "errors", errors, "error", "of jobs that were deleted", none="each belongs to a job"
            ),
            checks.check_kinds(counts, self._expected.kinds),
            checks.check_paused_kinds(counts, paused),
            checks.check_parked_jobs(counts),
            checks.check_gaps(counts),
            checks.check_due_work(counts, paused, now),
            checks.check_progress(min(due, default=None), health, now),
            checks.check_quarantine(await Quarantine(self._database).count()),
            checks.check_odd_listings(await monitor.odd_listings()),
            *checks.check_sources(await monitor.source_health()),
            *checks.check_alerts(await AlertStore(self._database).list_open(), now),
        ]


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
            found.append(checks.check_key(source.name, source.setup, used=used, configured=bool(source.keys)))
    found.append(checks.check_worker(due=due, there=len(seen)))
    for source in app.sources.values():
        if source.costs:
            caps = [cap for cap, _ in source.limits.caps(await app.sources.state(source.name))]
            found.append(checks.check_budget(source.name, caps, configured=bool(source.keys)))
    database, token = app.database.file, app.feeds.token
    if database is not None:
        found.append(checks.check_disk(database.parent, free=shutil.disk_usage(database.parent).free))
    private = [each for each in (database, settings_file(), app.settings.threads_token_file) if each is not None]
    found.append(checks.check_files(list(filter(is_readable_by_others, private))))
    if app.database.product == "sqlite":
        found.append(checks.check_clock(await app.inspector.latest_at(), now))
    if token.state.configured:
        found.append(checks.check_token(token.state.expires_at, now, refreshed=token.file is not None))
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
