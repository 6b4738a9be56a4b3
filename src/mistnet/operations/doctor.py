"""The doctor: checks the database, the queue and the installation, and repairs what is safe to repair."""

from __future__ import annotations

import re
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from sqlalchemy import delete, func, select, text

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.kit.migrate import schema_state
from mistnet.kit.statements import run, statement
from mistnet.kit.text import are, counted
from mistnet.operations.alerts.store import AlertRow, AlertStore
from mistnet.operations.events import silence_of
from mistnet.operations.health import NO_SPACE, STALLED, DatabaseHealth, DatabaseProbe, DatabaseState, stalled
from mistnet.operations.monitoring import Monitor, OddListings, SourceHealth
from mistnet.operations.overview import DashboardStore
from mistnet.queue import tables
from mistnet.queue.model import GAP_STATES, HeldLeases, JobState, KindName, Lane
from mistnet.queue.store.inspect import Inspector, StateCount
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
_LEASES: Final = select(func.count().label("jobs"), func.min(tables.jobs.c.lease_until).label("since")).where(
    tables.jobs.c.state == JobState.RUNNING
)
_WRITE_ADVICE: Final[Mapping[DatabaseState, str]] = {
    "read-only": "allow writes again: promote the standby, or end default_transaction_read_only",
    "full": "free disk space for the database: nothing can be collected until then",
    "busy": "another process holds a lock; if this persists, find and end it",
}
_OVERDUE: Final = timedelta(hours=1)
_NAMED: Final = 5
LITTLE_SPACE: Final = 1_000_000_000
_TOKEN_WARNING: Final = timedelta(days=7)
_RECENT: Final = timedelta(minutes=15)


Level = Literal["ok", "warn", "fail"]


class HealthFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked: its state, and what to do about it."""

    name: str
    level: Level
    found: str
    advice: str | None = None
    fixable: bool = False


def ok(name: str, found: str) -> HealthFinding:
    return HealthFinding(name=name, level="ok", found=found)


def warn(name: str, found: str, advice: str, *, fixable: bool = False) -> HealthFinding:
    return HealthFinding(name=name, level="warn", found=found, advice=advice, fixable=fixable)


def fail(name: str, found: str, advice: str, *, fixable: bool = False) -> HealthFinding:
    return HealthFinding(name=name, level="fail", found=found, advice=advice, fixable=fixable)


def shown_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


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
            found += [check_writes(health), *check_connections(health)]
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
            check_running_jobs([each for each in gone if each.lease_until > now]),
            check_leftovers("workers", workers, "worker", "not seen for a day", none="none has been silent for a day"),
            check_leftovers("errors", errors, "error", "of jobs that were deleted", none="each belongs to a job"),
            check_kinds(counts, self._expected.kinds),
            check_paused_kinds(counts, paused),
            check_parked_jobs(counts),
            check_gaps(counts),
            check_due_work(counts, paused, now),
            check_progress(min(due, default=None), health, now),
            check_quarantine(await Quarantine(self._database).count()),
            check_odd_listings(await monitor.odd_listings()),
            *check_sources(await monitor.source_health()),
            *check_alerts(await AlertStore(self._database).list_open(), now),
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
            found.append(check_key(source.name, source.setup, used=used, configured=bool(source.keys)))
    found.append(check_worker(due=due, there=len(seen)))
    for source in app.sources.values():
        if source.costs:
            caps = [cap for cap, _ in source.limits.caps(await app.sources.state(source.name))]
            found.append(check_budget(source.name, caps, configured=bool(source.keys)))
    database, token = app.database.file, app.feeds.token
    if database is not None:
        found.append(check_disk(database.parent, free=shutil.disk_usage(database.parent).free))
    private = [each for each in (database, settings_file(), app.settings.threads_token_file) if each is not None]
    found.append(check_files(list(filter(is_readable_by_others, private))))
    if app.database.product == "sqlite":
        found.append(check_clock(await app.inspector.latest_at(), now))
    if token.state.configured:
        found.append(check_token(token.state.expires_at, now, refreshed=token.file is not None))
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


# What facts about the database, queue and installation mean, and what to do. These functions are pure.


def check_writes(health: DatabaseHealth) -> HealthFinding:
    if health.state == "ok":
        return ok("writes", f"a test write took {(health.write_seconds or 0) * 1000:.1f} ms")
    return fail("writes", health.problem or health.state, _WRITE_ADVICE.get(health.state, "check the database's log"))


def check_connections(health: DatabaseHealth) -> list[HealthFinding]:
    """Only of a server that reports how many it allows."""
    if health.connections is None or health.most_connections is None:
        return []
    used = f"{health.connections} of {health.most_connections} are in use"
    if not health.few_connections:
        return [ok("connections", used)]
    advice = "raise max_connections, or run fewer processes: a process takes up to 48"
    return [warn("connections", used, advice)]


def check_progress(due_since: datetime | None, health: DatabaseHealth, now: datetime) -> HealthFinding:
    idle = timedelta(seconds=stalled(due_since, health.last_progress_at, now))
    if idle <= STALLED:
        return ok("progress", "due work is being done" if due_since else "nothing is due")
    since = shown_time(now - idle)
    return warn("progress", f"jobs are due, and none was started or settled since {since}", "check the workers' logs")


def check_kinds(counts: Sequence[StateCount], known: Collection[KindName]) -> HealthFinding:
    unknown = [count for count in counts if count.kind not in known and count.state not in GAP_STATES]
    if not unknown:
        return ok("kinds", "every live job has a kind that is known here")
    advice = "name the plugin that defines them in the setting 'plugins', or `mistnet jobs cancel` them"
    return warn("kinds", f"not known here: {_listed(unknown)}", advice)


def check_paused_kinds(counts: Sequence[StateCount], paused: Collection[KindName]) -> HealthFinding:
    waiting = [count for count in counts if count.kind in paused and count.state not in GAP_STATES]
    if not waiting:
        return ok("paused kinds", "no job waits for a paused kind")
    return warn("paused kinds", f"these wait: {_listed(waiting)}", "`mistnet jobs resume KIND` continues them")


def check_parked_jobs(counts: Sequence[StateCount]) -> HealthFinding:
    held = [msgspec.structs.replace(count, jobs=count.parked) for count in counts if count.parked]
    if not held:
        return ok("parked jobs", "none")
    advice = "workers admit them when there is room; raise the kind's live_cap for more, or use --fix"
    return warn("parked jobs", f"held back by the cap on live jobs: {_listed(held)}", advice, fixable=True)


def check_gaps(counts: Sequence[StateCount]) -> HealthFinding:
    found = [count for count in counts if count.state in GAP_STATES]
    if not found:
        return ok("gaps", "no job has failed permanently")
    advice = "`mistnet jobs dead` shows why, `mistnet jobs requeue` retries them, `mistnet jobs cancel` accepts them"
    return warn("gaps", f"dead or failed: {_listed(found)}", advice)


def check_due_work(counts: Sequence[StateCount], paused: Collection[KindName], now: datetime) -> HealthFinding:
    late = [
        msgspec.structs.replace(count, jobs=count.due)
        for count in counts
        if count.oldest_due_at and now - count.oldest_due_at > _OVERDUE and count.kind not in paused
    ]
    if not late:
        return ok("due work", "none has waited for more than an hour")
    oldest = min(count.oldest_due_at for count in late if count.oldest_due_at)
    found = f"due since {shown_time(oldest)} and not started: {_listed(late)}"
    return warn("due work", found, "start more workers with `mistnet work`")


def check_running_jobs(held: Sequence[HeldLeases]) -> HealthFinding:
    """Leases that have not run out, of workers that are gone."""
    if not held:
        return ok("running jobs", "each has a running worker")
    jobs = sum(each.jobs for each in held)
    named = ", ".join(each.worker for each in held[:_NAMED]) + (" and others" if len(held) > _NAMED else "")
    found = f"{jobs:,} {'job is' if jobs == 1 else 'jobs are'} leased to workers that are gone: {named}"
    until = max(each.lease_until for each in held)
    return warn("running jobs", found, f"wait: the last of these leases runs out at {shown_time(until)}")


def check_leftovers(name: str, rows: int, noun: str, problem: str, *, none: str) -> HealthFinding:
    """Rows that `--fix` deletes."""
    if not rows:
        return ok(name, none)
    return warn(name, f"{counted(rows, noun)} {problem}", "use --fix to delete them", fixable=True)


def check_quarantine(payloads: int) -> HealthFinding:
    if not payloads:
        return ok("quarantine", "every payload could be read")
    found = f"{counted(payloads, 'payload')} could not be read and {are(payloads)} kept"
    return warn("quarantine", found, "after an upgrade, `mistnet doctor --reparse` tries them again")


def check_sources(found: Sequence[SourceHealth]) -> list[HealthFinding]:
    """Sources that do not serve us, and what to do."""
    troubled = [each for each in found if each.state != "serving"]
    if not troubled:
        return [ok("sources", f"all {len(found)} that were called serve us" if found else "none was called yet")]
    findings = []
    for each in troubled:
        failures = f"{counted(each.failure_streak, 'failure')} in a row"
        advice = f"wait, or `mistnet sources close {each.name}`"
        match each.state:
            case "paused":
                problem = f"paused: {each.pause_reason or 'no reason given'}"
                advice = f"when that is fixed: `mistnet sources resume {each.name}`"
            case "breaker open":
                until = shown_time(each.paused_until) if each.paused_until else "a while"
                why = each.pause_reason or f"{failures}: {each.last_failure or 'unknown'}"
                problem = f"no calls until {until}: {why}"
            case _:
                problem = f"one call tests whether it works again after {failures}"
        findings.append(warn(f"source {each.name}", problem, advice))
    return findings


def check_odd_listings(found: Sequence[OddListings]) -> HealthFinding:
    if not found:
        return ok("listings", "every listing could be read")
    listed = ", ".join(f"{each.listings:,} of {each.source}" for each in found)
    return warn("listings", f"could not be read and are kept: {listed}", "see the table odd_listings")


def check_alerts(alerts: Sequence[AlertRow], now: datetime) -> list[HealthFinding]:
    """Alerts that are open and not accepted."""
    pending = [each for each in alerts if each.accepted_at is None]
    if not pending:
        return [ok("alerts", "all that are open are accepted" if alerts else "none is open")]
    findings = []
    for each in pending:
        advice = "see its message; it closes automatically when it is over"
        if now - each.last_seen_at >= _RECENT:
            checked = shown_time(each.last_seen_at)
            advice = f"last checked at {checked}: alerts are checked while `mistnet up` or `serve` runs"
        findings.append(warn(f"alert {each.rule}", each.message, advice))
    return findings


def check_key(source: str, setup: str, *, used: bool, configured: bool) -> HealthFinding:
    name = f"key for {source}"
    if configured:
        return ok(name, "configured here")
    if not used:
        return ok(name, "none, and none is needed")
    return warn(name, f"none is configured here, and {source} is used", f"{setup} where workers run")


def check_worker(*, due: int, there: int) -> HealthFinding:
    jobs = "1 job is due" if due == 1 else f"{due:,} jobs are due"
    if due and not there:
        return warn("worker", f"{jobs} and no worker is running", "start one: `mistnet work` or `mistnet up`")
    workers = "no worker" if not there else "1 worker" if there == 1 else f"{there} workers"
    return ok("worker", f"{workers} running, {jobs if due else 'nothing is due'}")


def check_budget(source: str, caps: Iterable[int | None], *, configured: bool) -> HealthFinding:
    if not configured:
        return ok("budget", f"without a key for {source}, nothing is spent")
    if any(cap is not None for cap in caps):
        return ok("budget", f"the credits of {source} are capped")
    advice = f"`mistnet sources set {source} --day-credits 200000` caps them at $2 a day, for all machines"
    return warn("budget", f"nothing limits what {source} may cost", advice)


def check_disk(folder: Path, *, free: int) -> HealthFinding:
    found = f"{free / 1_000_000:,.0f} MB are free in {folder}"
    if free >= LITTLE_SPACE:
        return ok("disk", found)
    advice = "free disk space, or move the database: nothing can be collected when the disk is full"
    return (fail if free < NO_SPACE else warn)("disk", found, advice)


def check_clock(latest: datetime | None, now: datetime) -> HealthFinding:
    """For a database on this machine. Only rows from the future show that the clock was set back."""
    if latest is None or latest - now <= _SKEW:
        return ok("clock", "nothing was written in the future")
    advice = "set this machine's clock; until then, due work and leases are late"
    return warn("clock", f"the clock says {shown_time(now)}, but a row was written at {shown_time(latest)}", advice)


def check_token(expires_at: datetime | None, now: datetime, *, refreshed: bool) -> HealthFinding:
    name, renew = "token for threads", "get a new one and set MISTNET_THREADS_TOKEN"
    if expires_at is None:
        return ok(name, "configured; `mistnet feeds token --check` shows when it expires")
    if expires_at <= now:
        return fail(name, f"expired at {shown_time(expires_at)}", renew)
    if expires_at - now < _TOKEN_WARNING and not refreshed:
        return warn(name, f"expires at {shown_time(expires_at)}", f"{renew}, or set threads_token_file to refresh it")
    return ok(name, f"valid until {shown_time(expires_at)}")


def check_files(readable: Sequence[Path]) -> HealthFinding:
    """Of these files, which other users can read."""
    if not readable:
        return ok("files", "other users of this machine cannot read them")
    names = " ".join(str(file) for file in readable)
    return warn("files", f"other users of this machine can read {names}", f"chmod o-rwx {names}")


def _listed(counts: Sequence[StateCount]) -> str:
    total: dict[KindName, int] = {}
    for count in counts:
        total[count.kind] = total.get(count.kind, 0) + count.jobs
    return ", ".join(f"{jobs} {kind}" for kind, jobs in sorted(total.items()))
