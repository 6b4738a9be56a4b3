"""What operators watch: jobs, the health of sources, the work of each lane, and log lines on accounts and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from loguru import logger
from sqlalchemy import func, select, text

from mistnet.governor.model import SourceName
from mistnet.kit.clock import Clock
from mistnet.kit.database import Store
from mistnet.kit.errors import DatabaseError
from mistnet.kit.statements import statement
from mistnet.kit.text import counted
from mistnet.kit.view import ListPage, View, columns_of, record_of, view_table
from mistnet.operations.runs.model import COUNTS, UNFINISHED, Run, RunId, RunStatus, RunStep
from mistnet.prices.tables import odd_listings
from mistnet.queue.model import GAP_STATES, JobId, JobState, KindName, Lane, Lease, Settlement, WorkerName
from mistnet.queue.tables import GAP, job_history, jobs
from mistnet.shops.model import LinkId
from mistnet.shops.tables import links
from mistnet.social.accounts import AccountStateChange, Fetched, SuggestionClosed, Swept
from mistnet.social.coverage import SweepKind
from mistnet.social.model import Post, User, UserId

# The number of latest crawls whose waits are measured.
_WAITS: Final = 5_000
# The shortest time between two lines about the same sweep.
_EVERY: Final = timedelta(seconds=10)
_NAMED: Final = 5


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


class Monitor(Store):
    """Reads the views for monitoring. Each query is quick with a million jobs in the tables."""

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


class LaneStore(Store):
    """Reads about lanes. What counts all live jobs is for background tasks, not for a request."""

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


class _Subject(msgspec.Struct, frozen=True):
    """The user that the args of a job name, if they name one."""

    user_id: UserId | None = None
    handle: str | None = None


class ProgressLog:
    """Logs the progress of accounts and runs by name, which the lines of single jobs do not show.

    One per process. Receives every settled job after its writes are stored.
    """

    def __init__(self, clock: Clock, *, read_run: Callable[[str], Awaitable[Run | None]] | None = None) -> None:
        self._clock = clock
        self._read_run = read_run
        self._handles: dict[UserId, str] = {}
        self._posts: dict[tuple[UserId, str], int] = {}
        self._logged_at: dict[tuple[UserId, str], datetime] = {}
        self._reported: set[RunId] = set()
        self._reports: set[asyncio.Task[None]] = set()

    def know(self, handles: Mapping[UserId, str]) -> None:
        self._handles.update(handles)

    def account_of(self, lease: Lease) -> str | None:
        """The account that a job is about, by its handle if that is known."""
        subject = _subject_of(lease)
        if subject.handle:
            return f"@{subject.handle}"
        return self._name(subject.user_id) if subject.user_id is not None else None

    def settled(self, settlement: Settlement) -> None:
        own = _subject_of(settlement.lease).user_id
        if own is not None:
            # First, as the lines below use the account's handle and the number of its own posts.
            users = [each for each in settlement.writes if isinstance(each, User) and each.id == own]
            self._handles |= {each.id: each.handle for each in users if each.handle is not None}
            posts = [each for each in settlement.writes if isinstance(each, Post) and each.author_id == own]
            if written := sum(not each.nested for each in posts):
                key = (own, str(settlement.lease.kind))
                self._posts[key] = self._posts.get(key, 0) + written
        for write in settlement.writes:
            match write:
                case Swept():
                    self._log_sweep(write, settlement)
                case SuggestionClosed(handle=handle, accepted=accepted, user_id=user_id, reason=reason):
                    if user_id is not None:
                        self._handles[user_id] = handle
                    result = "is tracked" if accepted else f"is refused: {reason or 'no reason given'}"
                    _log(f"@{handle} {result}", account=f"@{handle}")
                case AccountStateChange(user_id=user_id, state=state, reason=reason):
                    why = f": {reason}" if reason else ""
                    _log(f"{self._name(user_id)} is {state}{why}", account=self._name(user_id))
                case RunStep(run_id=run_id) if self._read_run and write.status not in UNFINISHED:
                    # Reading the run takes a query, and this method must not wait: it runs between settlements.
                    task = asyncio.get_running_loop().create_task(self._read_and_report(run_id, self._read_run))
                    self._reports.add(task)
                    task.add_done_callback(self._reports.discard)
                case _:
                    pass

    def report(self, run: Run) -> None:
        """Log the report of a finished run, once in this process."""
        if run.finished and run.id not in self._reported:
            self._reported.add(run.id)
            _log(run_report(run), run_id=run.id, status=str(run.status), **{name: run.report[name] for name in COUNTS})

    async def close(self) -> None:
        """Wait for reports that are being read."""
        await asyncio.gather(*self._reports)

    def _log_sweep(self, swept: Swept, settlement: Settlement) -> None:
        kind = str(settlement.lease.kind)
        key, now = (swept.user_id, kind), self._clock.now()
        if kind == SweepKind.CATCH_UP:
            self._take(key)
            new = next((each.new for each in settlement.writes if isinstance(each, Fetched)), swept.found or 0)
            if new:
                self._log_account(swept.user_id, counted(new, "new post"), new)
        elif swept.backfilled or swept.reposts_backfilled:
            posts = self._take(key)
            end = "its past is complete" if swept.backfilled else "its native retweets are complete"
            self._log_account(swept.user_id, f"{counted(posts, 'more post')}; {end}" if posts else end, posts)
        elif swept.oldest is not None and now - self._logged_at.get(key, now - _EVERY) >= _EVERY:
            posts = self._take(key)
            self._logged_at[key] = now
            reached = (each for each in settlement.writes if isinstance(each, Post) and each.id == swept.oldest)
            back = "".join(f", back to {each.created_at:%Y-%m-%d}" for each in reached)
            self._log_account(swept.user_id, counted(posts, "more post") + back, posts)

    def _take(self, key: tuple[UserId, str]) -> int:
        """The posts of a sweep since its last line. Counting begins again at zero."""
        self._logged_at.pop(key, None)
        return self._posts.pop(key, 0)

    def _log_account(self, user_id: UserId, progress: str, posts: int) -> None:
        name = self._name(user_id)
        _log(f"{name}: {progress}", account=name, posts=posts)

    def _name(self, user_id: UserId) -> str:
        handle = self._handles.get(user_id)
        return f"@{handle}" if handle else f"user {user_id}"

    async def _read_and_report(self, run_id: RunId, read: Callable[[str], Awaitable[Run | None]]) -> None:
        try:
            run = await read(run_id)
        except DatabaseError as error:
            logger.warning("the report of run {run_id} cannot be read: {problem}", run_id=run_id, problem=str(error))
            return
        if run:
            self.report(run)


def run_report(run: Run) -> str:
    """A finished run in one line."""
    report = run.report
    took = (run.finished_at or run.updated_at) - run.created_at
    counts = f"{report['new']:,} new, {report['skipped']:,} skipped, {report['failed']:,} unreadable"
    posts = f"{counted(report['total'], 'post')} of {counted(len(run.accounts), 'account')}"
    line = f"run {run.id} is {run.status} after {took.total_seconds():.0f} s: {posts}, {counts}"
    failed = [each for each in run.accounts if each.status is RunStatus.FAILED]
    if not failed:
        return line
    named = ", ".join(f"@{each.handle} ({each.reason or 'no reason given'})" for each in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED:,} more" if len(failed) > _NAMED else ""
    return f"{line}; {counted(len(failed), 'account')} failed: {named}{more}"


def _subject_of(lease: Lease) -> _Subject:
    try:
        return msgspec.json.decode(lease.args, type=_Subject)
    except msgspec.MsgspecError:  # a plugin's args may use these names for something else
        return _Subject()


def _log(line: str, **facts: object) -> None:
    logger.bind(**facts).info(line)
