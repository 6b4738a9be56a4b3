"""What operators watch: recent and stuck jobs, the health of sources, and what waits and went through on each lane."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import func, select, text

from mistnet.governor.model import SourceName
from mistnet.kit.database import Database
from mistnet.kit.statements import statement
from mistnet.kit.view import ListPage, View, columns_of, record_of, view_table
from mistnet.prices.tables import odd_listings
from mistnet.queue.model import GAP_STATES, JobId, JobState, KindName, Lane, WorkerName
from mistnet.queue.tables import GAP, job_history, jobs
from mistnet.shops.model import LinkId
from mistnet.shops.tables import links

# The number of latest crawls whose waits are measured.
_WAITS: Final = 5_000


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


# The migrations create these views.
recent_jobs: Final = view_table("recent_jobs", RecentJob)
stuck_jobs: Final = view_table("stuck_jobs", StuckJob)
source_health: Final = view_table("source_health", SourceHealth)
_RECENT_JOBS: Final = View(RecentJob, select(recent_jobs), recent_jobs.c.created_at, recent_jobs.c.id)
_STUCK_JOBS: Final = View(StuckJob, select(stuck_jobs), stuck_jobs.c.lease_until, stuck_jobs.c.id, descending=False)
_SOURCES: Final = View(SourceHealth, select(source_health), source_health.c.name, descending=False)


class Monitor:
    """Reads the views for monitoring. Each query is quick with a million jobs in the tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def recent_jobs(self, *, before: JobId | None = None, limit: int = 20) -> ListPage[RecentJob]:
        """The newest first. `before` is the last job of the page before."""
        after = None
        if before is not None:
            query = select(recent_jobs.c.created_at).where(recent_jobs.c.id == before).limit(1)
            created_at = await self._database.fetch_value(query)
            if created_at is None:
                return ListPage(items=[], next=None)
            after = (created_at, before)
        page = await _RECENT_JOBS.page(self._database, after=after, limit=limit)
        return ListPage(items=page.items, next=page.next and page.next[1])

    async def recent_failures(self, *, limit: int = 10) -> Sequence[RecentJob]:
        """Jobs that failed or are dead, the last added first."""
        # `+ 0` keeps the planner from walking all jobs by their ids: the index of gaps is far smaller.
        newest = select(jobs.c.id).where(text(GAP)).order_by((jobs.c.id + 0).desc()).limit(limit)
        ids = [row["id"] for row in await self._database.fetch_rows(newest)]
        query = select(recent_jobs).where(recent_jobs.c.id.in_(ids)).order_by(recent_jobs.c.id.desc())
        return [record_of(RecentJob, row) for row in await self._database.fetch_rows(query)]

    async def source_health(self) -> Sequence[SourceHealth]:
        return await _SOURCES.rows(self._database)

    async def stuck_jobs(self, *, limit: int = 100) -> Sequence[StuckJob]:
        """Those whose lease ran out first come first."""
        return await _STUCK_JOBS.rows(self._database, limit=limit)

    async def odd_listings(self) -> Sequence[OddListings]:
        own = odd_listings.c
        query = select(own.source, func.count().label("listings")).group_by(own.source).order_by(own.source)
        return [record_of(OddListings, row) for row in await self._database.fetch_rows(query)]


class LaneCount(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one lane in one state."""

    lane: Lane
    state: JobState
    jobs: int
    parked: int
    due: int
    oldest_due_at: datetime | None


class LaneGap(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed or is dead, and the link that it is about, if any."""

    id: JobId
    kind: KindName
    key: str | None
    lane: Lane
    state: JobState
    attempts: int
    max_attempts: int
    created_at: datetime
    ended_at: datetime
    last_error: str | None
    link_id: LinkId | None
    url: str | None


_GAP_ROWS: Final = jobs.alias("gaps")
_GAPS: Final = View(
    LaneGap,
    select(
        *columns_of(LaneGap, jobs),
        jobs.c.run_at.label("ended_at"),
        links.c.id.label("link_id"),
        links.c.url,
    )
    .select_from(jobs.outerjoin(links, links.c.url_norm == jobs.c.key))
    # Named by their ids, they are found by the small index of gaps, whatever the order.
    .where(jobs.c.id.in_(select(_GAP_ROWS.c.id).where(text(GAP)))),
    jobs.c.id,
)


class LaneStore:
    """Reads about lanes. What counts all live jobs is for background tasks, not for a request."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def counts(self, *, now: datetime) -> Sequence[LaneCount]:
        """Jobs by lane and state. Counts all of them."""
        rows = await self._database.fetch_rows(statement("lane_counts", self._database.dialect), {"now": now})
        return [record_of(LaneCount, row) for row in rows]

    async def finished(self, *, since: datetime) -> Mapping[Lane, int]:
        """How many jobs of each lane have succeeded since then."""
        own = job_history.c
        query = (
            select(own.lane, func.count().label("jobs"))
            .where(own.finished_at >= since, own.state == JobState.SUCCEEDED)
            .group_by(own.lane)
        )
        return {Lane(row["lane"]): row["jobs"] for row in await self._database.fetch_rows(query)}

    async def failures(self, *, since: datetime) -> Mapping[Lane, int]:
        """How many attempts at jobs of each lane have failed since then, whatever happened to the jobs later."""
        rows = await self._database.fetch_rows(statement("lane_failures", self._database.dialect), {"since": since})
        return {Lane(row["lane"]): row["attempts"] for row in rows}

    async def ended(self, *, since: datetime) -> Mapping[tuple[Lane, JobState], int]:
        """How many jobs of each lane have failed or died since then, and are still there."""
        own = jobs.c
        query = (
            select(own.lane, own.state, func.count().label("jobs"))
            .where(text(GAP), own.run_at >= since)
            .group_by(own.lane, own.state)
        )
        rows = await self._database.fetch_rows(query)
        return {(Lane(row["lane"]), JobState(row["state"])): row["jobs"] for row in rows}

    async def waits(self, *, since: datetime) -> Mapping[Lane, Sequence[timedelta]]:
        """How long links waited for their first crawl, among the latest crawls since then, shortest first."""
        binds = {"since": since, "limit": _WAITS}
        waits: dict[Lane, list[timedelta]] = {}
        for row in await self._database.fetch_rows(statement("first_crawls", self._database.dialect), binds):
            waits.setdefault(Lane(row["lane"]), []).append(max(row["at"] - row["seen_at"], timedelta()))
        return {lane: sorted(each) for lane, each in waits.items()}

    async def dead_letters(
        self,
        *,
        lane: str | None = None,
        states: Collection[JobState] = GAP_STATES,
        before: int | None = None,
        limit: int,
    ) -> ListPage[LaneGap]:
        """The newest first."""
        conditions = [jobs.c.state.in_(states), *([jobs.c.lane == lane] if lane is not None else [])]
        return await _GAPS.page(self._database, *conditions, after=before, limit=limit)
