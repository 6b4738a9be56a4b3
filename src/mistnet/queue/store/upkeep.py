"""Upkeep on the database: reclaim, unpark, prune, and the list of workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, func, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of, run
from mistnet.kit.text import last_line
from mistnet.queue import tables
from mistnet.queue.model import HeldLeases, JobState, KindName, LostLease, RemainingWork, WorkerCard, WorkerName
from mistnet.queue.store.writes import GivenUp, ignore_given_up


class StoreUpkeep:
    """Keeps the queue's tables in order. Any process may run each of these, any number of times."""

    def __init__(self, database: Database, *, given_up: GivenUp = ignore_given_up) -> None:
        self._database = database
        self._given_up = given_up
        self._dialect = database.dialect

    async def correct_clock(self) -> timedelta:
        return await self._database.correct_clock()

    async def reclaim(self, *, now: datetime, limit: int, lost_before: datetime | None = None) -> Sequence[LostLease]:
        """Take jobs back whose lease expired. One without an attempt left is dead."""
        binds = {"now": now, "limit": limit, "lost_before": lost_before or now}
        async with self._database.transaction() as connection:
            lost_by = {}
            if self._dialect == "sqlite":
                # Its RETURNING shows the new row only, and that names no worker: read the workers before.
                noted = await run(connection, "note_reclaimed", binds)
                lost_by = {row.job_id: {"lost_by": WorkerName(row.worker)} for row in noted}
                binds = {"now": now, "ids": list(lost_by)}
            rows = (await run(connection, "reclaim", binds)).mappings()
            lost = [LostLease(**{**row, "state": JobState(row["state"]), **lost_by.get(row["id"], {})}) for row in rows]
            dead = [each.id for each in lost if each.state is JobState.DEAD]
            if dead:
                await self._given_up(connection, dead, now)
        return lost

    async def unpark(self, caps: Mapping[KindName, int]) -> int:
        """Let parked jobs in, oldest first, as far as the caps on live jobs have room."""
        let_in = 0
        for kind, cap in caps.items():
            async with self._database.transaction() as connection:
                live = (await run(connection, "live_count", {"kind": kind, "limit": cap})).scalar_one()
                if live < cap:
                    binds = {"kind": kind, "limit": cap - live}
                    rows = await run(connection, "unpark", binds)
                    let_in += len(rows.all())
        return let_in

    async def work_left(self, kinds: Collection[KindName], lanes: Collection[str], *, now: datetime) -> bool:
        """Whether workers of these kinds and lanes have work left, now or after a wait."""
        async with self._database.read() as connection:
            binds = {"kinds": sorted(kinds), "lanes": sorted(lanes), "now": now}
            return bool((await run(connection, "work_left", binds)).scalar_one())

    async def awaited(self, kinds: Collection[KindName], lanes: Collection[str], *, now: datetime) -> RemainingWork:
        """What keeps `work_left` true while nothing can be claimed."""
        own = tables.jobs.c
        later = (
            own.state.in_([JobState.PENDING, JobState.RETRYABLE]),
            own.run_at > now,
            or_(own.wait_reason.is_not(None), own.state == JobState.RETRYABLE),
            own.kind.in_(kinds),
            own.lane.in_(lanes),
        )
        first = select(own.run_at, func.coalesce(own.wait_reason, own.last_error).label("reason")).where(*later)
        async with self._database.read() as connection:
            count = (await connection.execute(select(func.count()).select_from(tables.jobs).where(*later))).scalar_one()
            row = (await connection.execute(first.order_by(own.run_at, own.id).limit(1))).first()
            leases = await held_leases(connection, kinds=kinds, lanes=lanes)
        reason = last_line(row.reason)[:200] or None if row else None
        return RemainingWork(leases=leases, jobs=count, next_due_at=row.run_at if row else None, reason=reason)

    async def prune(self, *, before: datetime, limit: int) -> int:
        """Delete what finished before then, a slice per call, so that no lock is held for long."""
        binds = {"before": before, "limit": limit}
        async with self._database.transaction() as connection:
            forgotten = await run(connection, "prune_history", binds)
            await run(connection, "prune_errors", binds)
            await connection.execute(delete(tables.workers).where(tables.workers.c.seen_at < before))
            return forgotten.rowcount

    async def vacuum(self) -> None:
        """Remove dead rows sooner than autovacuum would, so that claims stay fast."""
        if self._dialect == "postgresql":
            async with self._database.read() as connection:
                await connection.execute(text("VACUUM (SKIP_LOCKED, TRUNCATE FALSE, PARALLEL 0) jobs"))

    async def sign_in(self, card: WorkerCard, *, now: datetime) -> None:
        """Write a worker's row: that it runs, and how busy it is."""
        row = {
            "name": card.name,
            "host": card.host,
            "pid": card.pid,
            "version": card.version,
            "lanes": ", ".join(card.lanes),
            "concurrency": card.concurrency,
            "running": card.running,
            "draining": card.draining,
            "started_at": now,
            "seen_at": now,
        }
        insert = insert_of(self._dialect)
        changes = {name: value for name, value in row.items() if name not in ("name", "started_at")}
        upsert = insert(tables.workers).values(row).on_conflict_do_update(index_elements=["name"], set_=changes)
        async with self._database.autocommit() as connection:
            await connection.execute(upsert)

    async def sign_out(self, worker: WorkerName) -> None:
        async with self._database.autocommit() as connection:
            await connection.execute(delete(tables.workers).where(tables.workers.c.name == worker))


async def held_leases(
    connection: AsyncConnection, *, kinds: Collection[str] | None = None, lanes: Collection[str] | None = None
) -> Sequence[HeldLeases]:
    """Held leases by worker, with the time of its last heartbeat if it is still listed."""
    own = tables.jobs.c
    asked = (
        select(
            own.worker,
            func.count().label("jobs"),
            tables.workers.c.seen_at,
            func.max(own.lease_until).label("lease_until"),
        )
        .select_from(tables.jobs.outerjoin(tables.workers, tables.workers.c.name == own.worker))
        .where(own.state == JobState.RUNNING)
        .group_by(own.worker, tables.workers.c.seen_at)
        .order_by(own.worker)
    )
    if kinds is not None:
        asked = asked.where(own.kind.in_(kinds))
    if lanes is not None:
        asked = asked.where(own.lane.in_(lanes))
    rows = (await connection.execute(asked)).mappings()
    return [HeldLeases(**{**row, "worker": WorkerName(row["worker"])}) for row in rows]
