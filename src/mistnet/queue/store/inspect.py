"""Reads of the queue: counts, lists, one job, workers, and what waits for what."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, Table, Text, cast, false, func, null, select

from mistnet.kit.database import Store
from mistnet.kit.statements import statement
from mistnet.kit.view import ListPage, record_of
from mistnet.queue import tables
from mistnet.queue.model import GAP_STATES, HeldLeases, JobId, JobState, KindName, Lane, WorkerName
from mistnet.queue.store.operations import GapFilter, names_id
from mistnet.queue.store.upkeep import held_leases

FINISHED_STATES = (JobState.SUCCEEDED, JobState.CANCELLED)
_COMMON = ("id", "kind", "key", "lane", "state", "attempts", "fence", "worker")
_TIMES = ("run_at", "created_at", "started_at")
_EVERY_GAP = GapFilter()
_SEARCHED = 100_000
_LIVE_ONLY = ("max_attempts", "lease_until", "parked", "alone", "wait_reason", "last_error")


class StateCount(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one kind in one state."""

    kind: KindName
    state: JobState
    jobs: int
    parked: int
    due: int
    oldest_due_at: datetime | None
    next_due_at: datetime | None
    oldest_at: datetime


class WaitGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one kind on one lane that wait for the same reason."""

    kind: KindName
    lane: Lane
    reason: str
    jobs: int
    next_due_at: datetime


class PausedKind(msgspec.Struct, frozen=True, kw_only=True):
    kind: KindName
    reason: str
    paused_at: datetime


class SeenWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as of its last heartbeat."""

    name: WorkerName
    host: str
    pid: int
    version: str
    lanes: str
    concurrency: int
    running: int
    draining: bool
    started_at: datetime
    seen_at: datetime


class JobError(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong with one attempt."""

    fence: int
    at: datetime
    worker: WorkerName
    error: str


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, live or finished."""

    id: JobId
    kind: KindName
    key: str | None
    lane: Lane
    job_class: int
    state: JobState
    attempts: int
    max_attempts: int | None
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    worker: WorkerName | None
    fence: int
    parked: bool
    alone: bool
    wait_reason: str | None
    last_error: str | None
    args: msgspec.Raw
    errors: Sequence[JobError] = ()


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list. Without states: all that are not finished."""

    kind: str | None = None
    lane: str | None = None
    states: Collection[JobState] = ()
    key_prefix: str | None = None
    error: str | None = None
    """A part of the last error, whatever its case. Finished jobs have none."""

    about: int | None = None
    """An id that the key or the args name, such as that of an account."""

    above_id: int | None = None
    before_id: int | None = None
    limit: int = 50


def _columns(table: Table, more: Sequence[ColumnElement[Any]]) -> Select[Any]:
    raw_args = cast(table.c.args, Text).label("args")
    own = [table.c[name] for name in (*_COMMON, *_TIMES)]
    return select(*own, table.c["class"].label("job_class"), raw_args, *more)


_LIVE: Final = _columns(tables.jobs, [*(tables.jobs.c[name] for name in _LIVE_ONLY), null().label("finished_at")])
_HISTORY: Final = _columns(
    tables.job_history, [*(null().label(name) for name in _LIVE_ONLY), tables.job_history.c.finished_at]
)


class Inspector(Store):
    """Reads only. Each call sees the queue at that moment and takes no locks."""

    async def counts(self, *, now: datetime) -> Sequence[StateCount]:
        rows = await self._database.fetch_rows(statement("summary", self._database.dialect), {"now": now})
        return [record_of(StateCount, row) for row in rows]

    async def waits(self, *, now: datetime, limit: int = 20) -> Sequence[WaitGroup]:
        waits = statement("waits", self._database.dialect)
        return [WaitGroup(**row) for row in await self._database.fetch_rows(waits, {"now": now, "limit": limit})]

    async def paused(self) -> Sequence[PausedKind]:
        paused = select(tables.paused_kinds).order_by(tables.paused_kinds.c.kind)
        return [PausedKind(**row) for row in await self._database.fetch_rows(paused)]

    async def workers(self) -> Sequence[SeenWorker]:
        workers = select(tables.workers).order_by(tables.workers.c.name)
        return [SeenWorker(**row) for row in await self._database.fetch_rows(workers)]

    async def latest_at(self) -> datetime | None:
        """When something was last written, by the writer's clock."""
        jobs, workers = tables.jobs.c, tables.workers.c
        asked = (select(jobs.created_at).order_by(jobs.id.desc()).limit(1), select(func.max(workers.seen_at)))
        async with self._database.read() as connection:
            found = [(await connection.execute(each)).scalar() for each in asked]
        return max((each for each in found if each is not None), default=None)

    async def leases(self) -> Sequence[HeldLeases]:
        async with self._database.read() as connection:
            return await held_leases(connection)

    async def finished(self, *, since: datetime) -> Mapping[KindName, int]:
        """How many jobs of each kind have succeeded since then."""
        history = tables.job_history.c
        wanted = (
            select(history.kind, func.count().label("jobs"))
            .where(history.finished_at >= since, history.state == JobState.SUCCEEDED)
            .group_by(history.kind)
        )
        async with self._database.read() as connection:
            return {KindName(row.kind): row.jobs for row in await connection.execute(wanted)}

    async def gaps(self, wanted: GapFilter = _EVERY_GAP) -> int:
        """How many jobs failed."""
        counted = select(func.count()).select_from(tables.jobs).where(*wanted.conditions())
        return int(await self._database.fetch_value(counted))

    async def list_jobs(self, wanted: JobFilter) -> Sequence[JobView]:
        """A page of jobs, newest first; the last id of one page is the `before_id` of the next."""
        states = set(wanted.states) or set(JobState) - set(FINISHED_STATES)
        found: list[JobView] = []
        if states - set(FINISHED_STATES):
            found += await self._views(_filtered(_LIVE, tables.jobs.c, wanted))
        if states & set(FINISHED_STATES):
            found += await self._views(_filtered(_HISTORY, tables.job_history.c, wanted))
        return sorted(found, key=lambda job: job.id, reverse=True)[: wanted.limit]

    async def page(self, wanted: JobFilter) -> ListPage[JobView]:
        """A page with the place of the next. Where every job has to be looked at, a page may be short and have a next.

        Errors and ids of accounts have no index, so they are looked for among so many jobs at a time.
        """
        floor = None
        if (wanted.error or wanted.about) and not set(wanted.states) <= set(GAP_STATES):
            newest = (select(func.max(table.c.id)) for table in (tables.jobs, tables.job_history))
            top = wanted.before_id or max([await self._database.fetch_value(each) or 0 for each in newest]) + 1
            floor = top - _SEARCHED if top > _SEARCHED else None
        # One row too many shows whether another page follows.
        more = msgspec.structs.replace(wanted, limit=wanted.limit + 1, above_id=floor)
        found = ListPage.cut(await self.list_jobs(more), wanted.limit, lambda row: row.id)
        return ListPage(items=found.items, next=found.next or floor)

    async def job(self, job_id: JobId) -> JobView | None:
        """One job with the errors of its attempts."""
        for source, table in ((_LIVE, tables.jobs), (_HISTORY, tables.job_history)):
            found = await self._views(source.where(table.c.id == job_id))
            if found:
                noted = tables.job_errors.c
                wanted = select(noted.fence, noted.at, noted.worker, noted.error).where(noted.job_id == job_id)
                rows = await self._database.fetch_rows(wanted.order_by(noted.fence))
                return msgspec.structs.replace(found[0], errors=[JobError(**row) for row in rows])
        return None

    async def failed_at(self, ids: Collection[JobId]) -> Mapping[JobId, datetime]:
        """When each of these jobs last failed, of those whose errors are kept."""
        noted = tables.job_errors.c
        wanted = (
            select(noted.job_id, func.max(noted.at).label("at")).where(noted.job_id.in_(ids)).group_by(noted.job_id)
        )
        return {JobId(row["job_id"]): row["at"] for row in await self._database.fetch_rows(wanted)} if ids else {}

    async def _views(self, query: Select[Any]) -> list[JobView]:
        return [
            JobView(
                **{
                    **row,
                    "state": JobState(row["state"]),
                    "parked": bool(row["parked"]),
                    "alone": bool(row["alone"]),
                    "args": msgspec.Raw(str(row["args"]).encode()),
                }
            )
            for row in await self._database.fetch_rows(query)
        ]


def _filtered(query: Select[Any], columns: Any, wanted: JobFilter) -> Select[Any]:
    if wanted.kind is not None:
        query = query.where(columns.kind == wanted.kind)
    if wanted.lane is not None:
        query = query.where(columns.lane == wanted.lane)
    if wanted.states:
        query = query.where(columns.state.in_(wanted.states))
    if wanted.key_prefix:
        query = query.where(columns.key.startswith(wanted.key_prefix, autoescape=True))
    if wanted.error:
        query = query.where(
            func.lower(tables.jobs.c.last_error).contains(wanted.error.lower(), autoescape=True)
            if columns is tables.jobs.c
            else false()
        )
    if wanted.about is not None:
        query = query.where(names_id(columns, wanted.about))
    if wanted.above_id is not None:
        query = query.where(columns.id >= wanted.above_id)
    if wanted.before_id is not None:
        query = query.where(columns.id < wanted.before_id)
    return query.order_by(columns.id.desc()).limit(wanted.limit)
