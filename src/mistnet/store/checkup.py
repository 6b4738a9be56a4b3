"""Looks a database over and says what is wrong, what to do, and what it can mend by itself."""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec
from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.errors import DatabaseError
from mistnet.domain.jobs import GAP_STATES, KindName
from mistnet.store import tables
from mistnet.store.database import Database
from mistnet.store.inspect import Inspector, StateCount
from mistnet.store.schema import schema_state
from mistnet.store.statements import command, statement
from mistnet.store.upkeep import StoreUpkeep

Level = Literal["ok", "warn", "fail"]

OLDEST_SQLITE: Final = (3, 38)
OLDEST_POSTGRESQL: Final = (13,)
_SLOW_SECONDS: Final = 0.25
_SKEW: Final = timedelta(seconds=5)
_OVERDUE: Final = timedelta(hours=1)
_SILENT: Final = timedelta(days=1)
_SLICE: Final = 1_000


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked at: how it stands, and what to do about it."""

    name: str
    level: Level
    found: str
    advice: str | None = None
    fixable: bool = False


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

    async def run(self) -> Sequence[Finding]:
        try:
            findings = [*await self._server(), await self._schema()]
            if any(finding.level == "fail" for finding in findings):
                return findings
            await self._database.correct_clock()
            return [*findings, *await self._queue(self._database.clock.now())]
        except DatabaseError as error:
            return [Finding(name="database", level="fail", found=str(error), advice="see the message")]

    async def repair(self) -> Sequence[str]:
        """Mends what is safe to mend; says what was done. Never removes a job."""
        now = self._database.clock.now()
        upkeep = StoreUpkeep(self._database)
        reclaimed = 0
        while lost := await upkeep.reclaim(now=now, limit=_SLICE):
            reclaimed += len(lost)
        let_in = await upkeep.unpark(self._expected.live_caps, now=now)
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
        async with self._database.write() as connection:
            prune = command("prune_errors", self._dialect)
            while gone := (await connection.execute(prune, {"before": now, "limit": _SLICE})).rowcount:
                errors += gone
            silent = delete(tables.workers).where(tables.workers.c.seen_at < now - _SILENT)
            return errors, (await connection.execute(silent)).rowcount

    async def _server(self) -> Sequence[Finding]:
        async with self._database.read() as connection:
            await connection.execute(text("SELECT 1"))  # connecting takes longer and says little
            asked = time.perf_counter()
            await connection.execute(text("SELECT 1"))
            seconds = time.perf_counter() - asked
            latency = f"{self._database.shown_url} answers in {seconds * 1000:.1f} ms"
            slow = seconds > _SLOW_SECONDS
            return [
                Finding(
                    name="database",
                    level="warn" if slow else "ok",
                    found=latency,
                    advice="run the workers nearer to the database" if slow else None,
                ),
                await self._version(connection),
                *([await _skew(connection)] if self._dialect == "postgresql" else []),
            ]

    async def _version(self, connection: AsyncConnection) -> Finding:
        postgresql = self._dialect == "postgresql"
        asked = "SHOW server_version" if postgresql else "SELECT sqlite_version()"
        version = str((await connection.execute(text(asked))).scalar_one())
        name, oldest = ("PostgreSQL", OLDEST_POSTGRESQL) if postgresql else ("SQLite", OLDEST_SQLITE)
        wanted = ".".join(map(str, oldest))
        if version_tuple(version) >= oldest:
            return Finding(name="version", level="ok", found=f"{name} {version}")
        advice = f"upgrade to {name} {wanted} or newer"
        return Finding(name="version", level="fail", found=f"{name} {version}", advice=advice)

    async def _schema(self) -> Finding:
        state = await schema_state(self._database)
        match state.verdict:
            case "current":
                return Finding(name="tables", level="ok", found=f"at revision {state.found}")
            case "too new":
                found = f"at revision {state.found}, which this version does not know"
                return Finding(name="tables", level="fail", found=found, advice="upgrade mistnet on this machine")
            case "empty" | "behind":
                found = f"at revision {state.found or 'none'}, this version needs {state.wanted}"
                return Finding(name="tables", level="fail", found=found, advice="run `mistnet db migrate`")

    async def _queue(self, now: datetime) -> Sequence[Finding]:
        inspector = Inspector(self._database)
        counts = await inspector.counts(now=now)
        paused = {each.kind for each in await inspector.paused()}
        return [
            await self._stuck(now),
            await self._orphaned_jobs(now),
            await self._silent_workers(now),
            await self._orphaned_errors(),
            unknown_kinds(counts, self._expected.kinds),
            waiting_while_paused(counts, paused),
            parked(counts),
            gaps(counts),
            overdue(counts, paused, now),
        ]

    async def _stuck(self, now: datetime) -> Finding:
        jobs = tables.jobs.c
        expired = select(func.count(), func.min(jobs.lease_until)).where(
            jobs.state == "running", jobs.lease_until <= now
        )
        async with self._database.read() as connection:
            count, oldest = (await connection.execute(expired)).one()
        if not count:
            return Finding(name="leases", level="ok", found="none ran out")
        late = now - oldest > 2 * self._expected.reclaim
        return Finding(
            name="leases",
            level="fail" if late else "warn",
            found=f"{count} jobs are leased to workers that went silent, the first since {oldest:%Y-%m-%d %H:%M:%S} UTC",
            advice="start a worker, which takes them over, or use --fix",
            fixable=True,
        )

    async def _orphaned_jobs(self, now: datetime) -> Finding:
        binds = {"now": now, "before": now - 3 * self._expected.heartbeat}
        async with self._database.read() as connection:
            row = (await connection.execute(statement("orphaned_jobs", self._dialect), binds)).one()
        if not row.jobs:
            return Finding(name="running jobs", level="ok", found="each has a worker that is there")
        found = f"{row.jobs} jobs are leased to {row.workers} workers that are gone or silent"
        advice = f"nothing: the last of these leases runs out at {row.lease_until:%Y-%m-%d %H:%M:%S} UTC"
        return Finding(name="running jobs", level="warn", found=found, advice=advice)

    async def _silent_workers(self, now: datetime) -> Finding:
        silent = select(func.count()).select_from(tables.workers).where(tables.workers.c.seen_at < now - _SILENT)
        async with self._database.read() as connection:
            count = (await connection.execute(silent)).scalar_one()
        if not count:
            return Finding(name="workers", level="ok", found="none has been silent for a day")
        found = f"{count} workers have not been seen for a day"
        return Finding(name="workers", level="warn", found=found, advice="use --fix to forget them", fixable=True)

    async def _orphaned_errors(self) -> Finding:
        async with self._database.read() as connection:
            counted = statement("orphaned_errors", self._dialect)
            count = (await connection.execute(counted, {"limit": 10_000})).scalar_one()
        if not count:
            return Finding(name="errors", level="ok", found="each belongs to a job")
        found = f"{count} errors belong to jobs that are gone"
        return Finding(name="errors", level="warn", found=found, advice="use --fix to delete them", fixable=True)


async def _skew(connection: AsyncConnection) -> Finding:
    before = datetime.now(UTC)
    server_time: datetime = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
    skew = abs(server_time - (before + (datetime.now(UTC) - before) / 2))
    found = f"this machine's clock and the database's are {skew.total_seconds():.1f} s apart"
    if skew <= _SKEW:
        return Finding(name="clock", level="ok", found=found)
    advice = "set this machine's clock; leases are safe meanwhile, for only the database's clock counts there"
    return Finding(name="clock", level="warn", found=found, advice=advice)


def version_tuple(version: str) -> tuple[int, ...]:
    numbers = version.split()[0].split(".")
    return tuple(int(number) for number in numbers if number.isdigit())


def unknown_kinds(counts: Sequence[StateCount], known: Collection[KindName]) -> Finding:
    unknown = _per_kind([count for count in counts if count.kind not in known and count.state not in GAP_STATES])
    if not unknown:
        return Finding(name="kinds", level="ok", found="every live job is of a kind known here")
    advice = "name the plugin that brings them in the setting 'plugins', or `mistnet jobs cancel` them"
    return Finding(name="kinds", level="warn", found=f"not known here: {_listed(unknown)}", advice=advice)


def waiting_while_paused(counts: Sequence[StateCount], paused: Collection[KindName]) -> Finding:
    waiting = _per_kind([count for count in counts if count.kind in paused and count.state not in GAP_STATES])
    if not waiting:
        return Finding(name="paused kinds", level="ok", found="nothing waits for a paused kind")
    advice = "`mistnet jobs resume KIND` lets them go on"
    return Finding(name="paused kinds", level="warn", found=f"these wait: {_listed(waiting)}", advice=advice)


def parked(counts: Sequence[StateCount]) -> Finding:
    held: dict[KindName, int] = {count.kind: count.parked for count in counts if count.parked}
    if not held:
        return Finding(name="parked jobs", level="ok", found="none")
    advice = "workers let them in as there is room; raise the kind's live_cap for more, or use --fix"
    found = f"held back by their cap on live jobs: {_listed(held)}"
    return Finding(name="parked jobs", level="warn", found=found, advice=advice, fixable=True)


def gaps(counts: Sequence[StateCount]) -> Finding:
    found = _per_kind([count for count in counts if count.state in GAP_STATES])
    if not found:
        return Finding(name="gaps", level="ok", found="no job has failed for good")
    advice = "`mistnet jobs dead` shows why, `mistnet jobs requeue` tries them anew"
    return Finding(name="gaps", level="warn", found=f"dead or failed: {_listed(found)}", advice=advice)


def overdue(counts: Sequence[StateCount], paused: Collection[KindName], now: datetime) -> Finding:
    late = [
        count
        for count in counts
        if count.oldest_due_at and now - count.oldest_due_at > _OVERDUE and count.kind not in paused
    ]
    if not late:
        return Finding(name="due work", level="ok", found="none has waited for more than an hour")
    oldest = min(count.oldest_due_at for count in late if count.oldest_due_at)
    found = f"due since {oldest:%Y-%m-%d %H:%M:%S} UTC and not begun: {_listed({c.kind: c.due for c in late})}"
    return Finding(name="due work", level="warn", found=found, advice="start more workers with `mistnet work`")


def _per_kind(counts: Sequence[StateCount]) -> dict[KindName, int]:
    total: dict[KindName, int] = {}
    for count in counts:
        total[count.kind] = total.get(count.kind, 0) + count.jobs
    return total


def _listed(jobs: Mapping[KindName, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(jobs.items()))
