"""Claim, settle, extend and release jobs, and find out when the next one is due."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.merged import Part, part_of, write_at_once
from mistnet.kit.statements import run
from mistnet.queue.model import (
    GAP_STATES,
    Awaited,
    Claim,
    Enqueued,
    JobState,
    KindName,
    Lease,
    NewJob,
    Outlook,
    Settlement,
    Target,
    WorkerName,
    Write,
)
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import GivenUp, PreparedWrites, Writers, ignore_given_up

LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
# An arbitrary number that all mistnet workers share.
_CAP_LOCK = 0x6D697374


@asynccontextmanager
async def claiming(database: Database, targets: Sequence[Target]) -> AsyncIterator[AsyncConnection]:
    """Yield a connection for one claim. SQLite: in a transaction, which holds the one write lock."""
    capped = any(target.kind_cap is not None or target.lane_cap is not None for target in targets)
    async with database.transaction() if capped else database.autocommit() as connection:
        if capped and database.dialect == "postgresql":
            # Claims under a cap take turns: two at once would both count the room that is left, and exceed the cap.
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_CAP_LOCK})"))
        yield connection


class JobQueue:
    """The durable queue. Each call is one transaction; each change of a job is guarded by its fence."""

    def __init__(
        self, database: Database, job_writer: JobWriter, writers: Writers, *, given_up: GivenUp = ignore_given_up
    ) -> None:
        self._database = database
        self._job_writer = job_writer
        self._writers = writers
        self._given_up = given_up
        self._dialect = database.dialect
        self._flowing = False

    async def enqueue(self, jobs: Sequence[NewJob], *, now: datetime) -> Enqueued:
        async with self._database.transaction() as connection:
            return await self._job_writer.write(connection, jobs, now)

    async def claim(
        self,
        *,
        worker: WorkerName,
        targets: Sequence[Target],
        room: int,
        lease: timedelta,
        now: datetime,
        aged_before: datetime | None,
        lost_before: datetime | None = None,
    ) -> Sequence[Lease]:
        """Lease due jobs of the most urgent target, or jobs whose lease expired before `lost_before`, to one worker."""
        if not targets or room <= 0:
            return []
        binds = {
            "worker": worker,
            "room": room,
            "now": now,
            "lost_before": lost_before or now,
            "lease_until": now + lease,
            "aged_before": aged_before or LONG_AGO,
            "targets": target_rows(targets),
        }
        # Look first, without SQLite's only write lock, unless the last claim was full: then more is likely due.
        if self._dialect == "sqlite" and not self._flowing:
            next_due_at = (await self.outlook(targets, now=now)).next_due_at
            if next_due_at is None or next_due_at > now:
                return []
        async with claiming(self._database, targets) as connection:
            if self._dialect == "postgresql":
                leases: Sequence[Lease] = [Lease(*row) for row in await run(connection, "claim", binds)]
            else:
                leases = await self._claim_on_sqlite(connection, binds)
        # RETURNING promises no order, and handlers should start in the order in which jobs fell due.
        return sorted(leases, key=lambda lease: (lease.run_at, lease.id))

    async def _claim_on_sqlite(self, connection: AsyncConnection, binds: Mapping[str, Any]) -> Sequence[Lease]:
        self._flowing = False
        lost_by = {row.job_id: row.worker for row in await run(connection, "expired", binds)}
        if lost_by:
            rows = await run(connection, "claim_expired", {**binds, "ids": list(lost_by)})
            return [msgspec.structs.replace(Lease(*row), lost_by=lost_by[row.id]) for row in rows]
        head = (await run(connection, "urgent", binds)).first()
        if head is None:
            return []
        rows = await run(connection, "claim", {**binds, "kind": head.kind, "lane": head.lane, "take": head.take})
        leases = [Lease(*row) for row in rows]
        self._flowing = len(leases) >= head.take
        return leases

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime) -> Collection[Claim]:
        """Apply outcomes in one transaction. Return the claims that still held; the others are void."""
        done = [s.lease for s in settlements if s.state is JobState.SUCCEEDED]
        back = [s for s in settlements if s.state is not JobState.SUCCEEDED]
        # One statement alone needs no BEGIN and COMMIT, which would be two more round trips to PostgreSQL.
        plain = not back and not any(s.writes for s in settlements)
        # Before the transaction: deriving the links of posts takes a while, and others wait to write.
        prepared = {s.lease.claim: self._writers.prepare(s.writes) for s in settlements if s.writes}
        if self._dialect == "postgresql" and not plain:
            writes = [write for each in prepared.values() for write in each.writes]
            if await self._settle_at_once(settlements, writes, now):
                return {s.lease.claim for s in settlements}
        async with self._database.autocommit() if plain else self._database.transaction() as connection:
            won: set[Claim] = set()
            if done and self._dialect == "postgresql":
                won = _claims(await run(connection, "finish", {"held": _held(done), "now": now}))
            elif done:
                won = _claims(await run(connection, "still_held", {"held": _held(done)}))
                ids = sorted(job_id for job_id, _fence in won)
                await run(connection, "history", {"ids": ids, "now": now, "state": JobState.SUCCEEDED})
                await run(connection, "forget", {"ids": ids})
            back = await self._without_ended_waits(connection, back, now)
            won |= await self._put_back(connection, back, now) if back else set()
            writes = [write for claim, each in prepared.items() if claim in won for write in each.writes]
            if writes:
                await self._writers.write(connection, PreparedWrites(writes), now)
            over = [s.lease.id for s in back if s.state in GAP_STATES and s.lease.claim in won]
            # After the writes: what depends on these jobs may have ended with them.
            if over:
                await self._given_up(connection, over, now)
        return won

    async def _settle_at_once(self, settlements: Sequence[Settlement], writes: Sequence[Write], now: datetime) -> bool:
        """Settle in one statement of PostgreSQL if all leases are held and all writes can be made so."""
        done = [s.lease for s in settlements if s.state is JobState.SUCCEEDED]
        back = [s for s in settlements if s.state is not JobState.SUCCEEDED]
        freed = {(lease.kind, lease.key) for lease in done if lease.key is not None}
        if any(s.state is not JobState.PENDING or s.awaits for s in back) or any(
            # The statement would take it for a duplicate of the job that it ends.
            isinstance(write, NewJob) and (write.kind, write.key) in freed
            for write in writes
        ):
            return False
        async with self._database.autocommit() as connection:
            more = await self._writers.parts(connection, writes, now)
            if more is None:
                return False
            parts: list[Part] = []
            if done:
                parts.append(part_of(connection, "finish", {"held": _held(done), "now": now}, rows=len(done)))
            if back:
                parts.append(part_of(connection, "put_back", {"settled": _settled(back)}, rows=len(back)))
            return await write_at_once(connection, [*parts, *more])

    async def _without_ended_waits(
        self, connection: AsyncConnection, settlements: Sequence[Settlement], now: datetime
    ) -> list[Settlement]:
        """Make jobs due now whose awaited job has ended since they looked: no wake-up will come any more."""
        awaited: dict[KindName, set[str]] = {}
        for each in settlements:
            if each.awaits:
                awaited.setdefault(each.awaits.kind, set()).add(each.awaits.key)
        alive: set[Awaited] = set()
        for kind, keys in sorted(awaited.items()):
            rows = await run(connection, "awaited", {"kind": kind, "keys": sorted(keys)})
            alive |= {Awaited(kind, row.key) for row in rows}
        return [
            each
            if each.awaits is None or each.awaits in alive
            else msgspec.structs.replace(each, run_at=now, reason=None)
            for each in settlements
        ]

    async def _put_back(
        self, connection: AsyncConnection, settlements: Sequence[Settlement], now: datetime
    ) -> set[Claim]:
        won = _claims(await run(connection, "put_back", {"settled": _settled(settlements)}))
        notes = [(s.lease.id, s.lease.fence, s.error) for s in settlements if s.error and s.lease.claim in won]
        if notes:
            binds = {"notes": notes, "now": now, "worker": settlements[0].lease.worker}
            await run(connection, "note_errors", binds)
        return won

    async def extend(self, leases: Sequence[Lease], *, until: datetime) -> Collection[Claim]:
        """Extend leases. Return the claims that are still held, also those whose locked row was skipped this time."""
        held = _held(leases)
        # PostgreSQL: one statement each, so that no lock is held between the two. SQLite: one lock for both.
        shared = self._database.autocommit() if self._dialect == "postgresql" else self._database.transaction()
        async with shared as connection:
            await run(connection, "extend", {"held": held, "until": until})
            return _claims(await run(connection, "still_held", {"held": held}))

    async def release(self, leases: Sequence[Lease]) -> None:
        """Release leases: the jobs are due again at once, and no attempt is spent."""
        if not leases:
            return
        async with self._database.transaction() as connection:
            await run(connection, "release", {"held": _held(leases)})
            if self._dialect == "postgresql":
                await connection.execute(text("NOTIFY mistnet_jobs"))

    async def outlook(self, targets: Sequence[Target], *, now: datetime) -> Outlook:
        async with self._database.read_cached_plan() as connection:
            row = (await run(connection, "outlook", {"targets": target_rows(targets), "now": now})).one()
        return Outlook(next_due_at=row.next_due_at, capped=bool(row.capped))


def _claims(rows: Iterable[Any]) -> set[Claim]:
    return {(row.id, row.fence) for row in rows}


def _settled(settlements: Sequence[Settlement]) -> list[tuple[object, ...]]:
    """As `put_back` takes them."""
    return [
        (s.lease.id, s.lease.fence, s.state, s.run_at, s.attempts, s.args, s.alone, s.reason, s.error)
        for s in settlements
    ]


def _held(leases: Sequence[Lease]) -> list[Claim]:
    return [lease.claim for lease in leases]


def target_rows(targets: Sequence[Target]) -> list[tuple[object, ...]]:
    """Targets as statements take them. Statements that need less name only the leading columns."""
    return [(each.kind, each.lane, each.kind_cap, each.lane_cap, each.job_class, each.take) for each in targets]
