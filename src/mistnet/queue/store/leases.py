"""Who holds leases, until when, and when that worker was last seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.queue.model import JobState, WorkerName
from mistnet.queue.ports import HeldLeases
from mistnet.queue.tables import jobs, workers


async def held_leases(
    connection: AsyncConnection, *, kinds: Collection[str] | None = None, lanes: Collection[str] | None = None
) -> Sequence[HeldLeases]:
    """By worker. One that has signed out, or was forgotten, has no time at which it was seen."""
    own = jobs.c
    asked = (
        select(
            own.worker, func.count().label("jobs"), workers.c.seen_at, func.max(own.lease_until).label("lease_until")
        )
        .select_from(jobs.outerjoin(workers, workers.c.name == own.worker))
        .where(own.state == JobState.RUNNING)
        .group_by(own.worker, workers.c.seen_at)
        .order_by(own.worker)
    )
    if kinds is not None:
        asked = asked.where(own.kind.in_(kinds))
    if lanes is not None:
        asked = asked.where(own.lane.in_(lanes))
    rows = (await connection.execute(asked)).mappings()
    return [HeldLeases(**{**row, "worker": WorkerName(row["worker"])}) for row in rows]
