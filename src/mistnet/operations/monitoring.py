"""What the views for monitoring show: recent jobs, the health of sources, stuck jobs. Also counts odd listings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import func, select, text, tuple_

from mistnet.governor.model import SourceName
from mistnet.kit.database import Database
from mistnet.operations.tables import recent_jobs, source_health, stuck_jobs
from mistnet.prices.tables import odd_listings
from mistnet.queue.model import JobId, JobState, KindName, Lane, WorkerName
from mistnet.queue.tables import GAP
from mistnet.queue.tables import jobs as live_jobs


class RecentJob(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the view `recent_jobs`."""

    id: JobId
    kind: KindName
    key: str | None
    lane: Lane
    status: JobState
    locked_by: WorkerName | None
    heartbeat_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    next_retry_at: datetime | None
    attempts: int
    error_message: str | None


class SourceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the view `source_health`."""

    name: SourceName
    enabled: bool
    failure_streak: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    last_failure: str | None
    paused_until: datetime | None
    pause_reason: str | None
    state: str


class StuckJob(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the view `stuck_jobs`."""

    id: JobId
    kind: KindName
    lane: Lane
    status: JobState
    locked_by: WorkerName
    heartbeat_at: datetime
    lease_until: datetime
    seconds_since_heartbeat: float


class OddListings(msgspec.Struct, frozen=True, kw_only=True):
    """How many listings of one source could not be read."""

    source: SourceName
    listings: int


class Monitor:
    """Reads. Each question is quick with a million jobs behind it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def recent_jobs(self, *, before: JobId | None = None, limit: int = 20) -> Sequence[RecentJob]:
        """The newest first; from one job on to older ones, if its id is given."""
        own = recent_jobs.c
        asked = select(recent_jobs).order_by(own.created_at.desc(), own.id.desc()).limit(limit)
        if before is not None:
            since = select(own.created_at).where(own.id == before).limit(1)
            async with self._database.read() as connection:
                created_at = (await connection.execute(since)).scalar()
            if created_at is None:
                return []
            asked = asked.where(tuple_(own.created_at, own.id) < tuple_(created_at, before))
        async with self._database.read() as connection:
            return [_job(dict(row)) for row in (await connection.execute(asked)).mappings()]

    async def recent_failures(self, *, limit: int = 10) -> Sequence[RecentJob]:
        """Jobs that ended without their result, those added last first."""
        own = recent_jobs.c
        newest = select(live_jobs.c.id).where(text(GAP)).order_by((live_jobs.c.id + 0).desc())
        async with self._database.read() as connection:
            ids = list((await connection.execute(newest.limit(limit))).scalars())
            rows = await connection.execute(select(recent_jobs).where(own.id.in_(ids)).order_by(own.id.desc()))
            return [_job(dict(row)) for row in rows.mappings()]

    async def source_health(self) -> Sequence[SourceHealth]:
        async with self._database.read() as connection:
            rows = await connection.execute(select(source_health).order_by(source_health.c.name))
            return [SourceHealth(**row) for row in rows.mappings()]

    async def stuck_jobs(self, *, limit: int = 100) -> Sequence[StuckJob]:
        """Those longest without a sign of life first."""
        asked = select(stuck_jobs).order_by(stuck_jobs.c.lease_until).limit(limit)
        async with self._database.read() as connection:
            rows = (await connection.execute(asked)).mappings()
            return [StuckJob(**{**row, "status": JobState(row["status"])}) for row in rows]

    async def odd_listings(self) -> Sequence[OddListings]:
        own = odd_listings.c
        counted = select(own.source, func.count().label("listings")).group_by(own.source).order_by(own.source)
        async with self._database.read() as connection:
            return [OddListings(**row) for row in (await connection.execute(counted)).mappings()]


def _job(row: dict[str, object]) -> RecentJob:
    return RecentJob(**{**row, "status": JobState(str(row["status"]))})  # type: ignore[arg-type]
