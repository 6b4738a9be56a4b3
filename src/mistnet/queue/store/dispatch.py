"""The queue for dispatchers and consumers of a broker: what to publish, what was published, claims by id."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import select

from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of, run
from mistnet.queue import tables
from mistnet.queue.model import ClaimedById, DeadLetter, DueMessage, JobId, JobState, Lane, Lease, Target, WorkerName
from mistnet.queue.store.claims import LONG_AGO, claiming, target_rows

REPUBLISHED: Final = "its message seems lost: it is published again"
_WAITING: Final = (JobState.QUEUED, JobState.PENDING, JobState.RETRYABLE)
_SLICE: Final = 1_000
# The publisher's clock may be ahead of the consumer's. A message dropped for that is missed for long.
_CLOCKS_APART: Final = timedelta(seconds=5)


class StoreDispatch:
    """Each call is one transaction. Its guard has the fence: a job that changed since it was read is left alone."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dialect = database.dialect

    async def to_publish(
        self, targets: Sequence[Target], *, window: int, limit: int, now: datetime
    ) -> Sequence[DueMessage]:
        """Due jobs to publish, as many as the broker's queues and the caps have room for."""
        messages: list[DueMessage] = []
        async with self._database.read_cached_plan() as connection:
            for target in targets:
                rooms = [limit - len(messages)]
                if target.kind_cap is None and target.lane_cap is None:
                    asked = {"lane": target.lane, "before": LONG_AGO}
                    rooms.append(window - (await run(connection, "queued", asked)).one().jobs)
                else:
                    # Jobs under a cap are published as the cap has room: more would only wait at consumers.
                    counted = {"kind": target.kind, "lane": target.lane}
                    out = (await run(connection, "outstanding", counted)).one()
                    rooms.append(window - out.lane_queued)
                    if target.kind_cap is not None:
                        rooms.append(target.kind_cap - out.kind_queued - out.kind_running)
                    if target.lane_cap is not None:
                        rooms.append(target.lane_cap - out.lane_queued - out.lane_running)
                # A cap that was lowered while jobs ran leaves less than no room.
                room = max(int(min(rooms)), 0)
                if room:
                    binds = {"kind": target.kind, "lane": target.lane, "now": now, "limit": room}
                    rows = await run(connection, "to_publish", binds)
                    messages += [
                        DueMessage(job_id=row.id, fence=row.fence, lane=row.lane, again=row.wait_reason == REPUBLISHED)
                        for row in rows
                    ]
        return messages

    async def mark_queued(self, messages: Sequence[DueMessage], *, now: datetime) -> int:
        """Record what the broker confirmed. Return how many jobs had not changed meanwhile."""
        if not messages:
            return 0
        async with self._database.autocommit() as connection:
            binds = {"published": [(each.job_id, each.fence) for each in messages], "now": now}
            return len((await run(connection, "mark_queued", binds)).all())

    async def queued(self, lanes: Collection[Lane], *, before: datetime) -> Mapping[Lane, tuple[int, int]]:
        found: dict[Lane, tuple[int, int]] = {}
        async with self._database.read_cached_plan() as connection:
            for lane in lanes:
                binds = {"lane": lane, "before": before}
                row = (await run(connection, "queued", binds)).one()
                found[lane] = (row.jobs, row.overdue)
        return found

    async def queued_ids(self, lanes: Collection[Lane], *, limit: int) -> Sequence[JobId]:
        """Published jobs, those with the oldest message first."""
        binds = {"lanes": sorted(lanes), "limit": limit}
        async with self._database.read_cached_plan() as connection:
            return [JobId(row.id) for row in await run(connection, "queued_ids", binds)]

    async def unqueue(self, lane: Lane, *, before: datetime) -> int:
        """Take back jobs whose message seems lost."""
        binds = {"lane": lane, "before": before, "reason": REPUBLISHED, "limit": _SLICE}
        async with self._database.autocommit() as connection:
            return len((await run(connection, "unqueue", binds)).all())

    async def unqueue_others(self, lanes: Collection[Lane], *, before: datetime) -> int:
        """Take back jobs that were published on lanes that are not dispatched any more."""
        binds = {"lanes": sorted(lanes), "before": before}
        async with self._database.autocommit() as connection:
            return len((await run(connection, "unqueue_others", binds)).all())

    async def unpublished_dead_letters(self, targets: Sequence[Target], *, limit: int) -> Sequence[DeadLetter]:
        messages: list[DeadLetter] = []
        async with self._database.read_cached_plan() as connection:
            for target in targets:
                binds = {"kind": target.kind, "lane": target.lane, "limit": limit - len(messages)}
                rows = await run(connection, "unpublished_dead_letters", binds)
                messages += [
                    DeadLetter(
                        job_id=row.id,
                        fence=row.fence,
                        lane=row.lane,
                        kind=row.kind,
                        key=row.key,
                        state=JobState(row.state),
                        attempts=row.attempts,
                        error=row.last_error,
                    )
                    for row in rows
                ]
        return messages

    async def mark_dead_lettered(self, messages: Sequence[DeadLetter], *, now: datetime) -> None:
        if not messages:
            return
        dead = tables.dead_letters
        insert = insert_of(self._dialect)
        upsert = insert(dead).values([{"job_id": each.job_id, "fence": each.fence, "at": now} for each in messages])
        changes = {"fence": upsert.excluded.fence, "at": upsert.excluded.at}
        async with self._database.autocommit() as connection:
            await connection.execute(upsert.on_conflict_do_update(index_elements=["job_id"], set_=changes))

    async def delete_stale_dead_letters(self) -> None:
        async with self._database.autocommit() as connection:
            await run(connection, "delete_stale_dead_letters")

    async def claim_by_ids(
        self,
        ids: Sequence[JobId],
        *,
        worker: WorkerName,
        targets: Sequence[Target],
        lease: timedelta,
        now: datetime,
        lost_before: datetime | None = None,
    ) -> ClaimedById:
        """Lease these jobs as far as they are due, not leased, not paused and not over a cap."""
        binds = {
            "ids": list(ids),
            "worker": worker,
            "now": now,
            "lost_before": lost_before or now,
            "lease_until": now + lease,
            "targets": target_rows(targets),
        }
        async with claiming(self._database, targets) as connection:
            if self._dialect == "postgresql":
                leases: Sequence[Lease] = [Lease(*row) for row in await run(connection, "claim_by_id", binds)]
            else:
                lost_by = {row.id: row.lost_by for row in await run(connection, "claimable", binds)}
                if lost := [job_id for job_id, lost_worker in lost_by.items() if lost_worker]:
                    await run(connection, "note_lost", {"ids": lost, "now": now})
                rows = (await run(connection, "claim_by_id", {**binds, "ids": list(lost_by)})).all() if lost_by else []
                leases = [msgspec.structs.replace(Lease(*row), lost_by=lost_by[row.id]) for row in rows]
        taken = {each.id for each in leases}
        rest = [each for each in ids if each not in taken]
        if not rest:
            return ClaimedById(leases=leases)
        return msgspec.structs.replace(await self._left(rest, targets, now), leases=leases)

    async def _left(self, ids: Sequence[JobId], targets: Sequence[Target], now: datetime) -> ClaimedById:
        """Why these could not be leased. A paused job is taken back, to be published when its kind is resumed."""
        own, paused = tables.jobs.c, tables.paused_kinds.c
        asked = select(own.id, own.kind, own.lane).where(
            own.id.in_(ids), own.state.in_(_WAITING), own.run_at <= now + _CLOCKS_APART, ~own.parked
        )
        async with self._database.read() as connection:
            waiting = (await connection.execute(asked)).all()
            stopped = set((await connection.execute(select(paused.kind))).scalars())
        for row in waiting:
            if row.kind in stopped:
                async with self._database.autocommit() as connection:
                    await run(connection, "unqueue_paused", {"id": row.id})
        known = {(target.kind, target.lane) for target in targets}
        open_ = [row for row in waiting if row.kind not in stopped]
        return ClaimedById(
            capped={JobId(row.id) for row in open_ if (row.kind, row.lane) in known},
            foreign={JobId(row.id) for row in open_ if (row.kind, row.lane) not in known},
        )
