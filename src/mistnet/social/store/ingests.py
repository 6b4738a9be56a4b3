"""Reads and writes ingest events. They refer to users by plain ids, because requested users may not exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, Select, delete, func, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Store
from mistnet.kit.errors import DatabaseError, MistnetError
from mistnet.kit.outage import retry_while_busy
from mistnet.kit.statements import insert_of
from mistnet.kit.text import redact
from mistnet.kit.transport import Exchange
from mistnet.kit.types import storable
from mistnet.kit.view import ListPage, View, columns_of
from mistnet.queue.errors import WorkError
from mistnet.queue.model import LIVE_STATES, JobId
from mistnet.queue.tables import GAP, jobs
from mistnet.social.ingests import (
    Ingest,
    IngestAdvanced,
    IngestBegun,
    IngestEnded,
    IngestId,
    IngestKind,
    IngestStatus,
)
from mistnet.social.model import Platform, X
from mistnet.social.store.accounts import slices
from mistnet.social.tables import OPEN_INGEST, ingest_events, ingest_ids

LOST: Final = "the process that did it ended before it did"
CANCELLED: Final = "its job was cancelled"
_PROBLEM_LENGTH: Final = 2_000
_JUST_ENDED: Final = 1_000
"""Among so many of the newest ingests one is looked for that ended a moment ago."""

_encode = msgspec.json.Encoder().encode


async def write_begun(connection: AsyncConnection, given: Sequence[IngestBegun], now: datetime) -> None:
    """Inside the job's transaction, before what it ingests."""
    # Beginning again at every step needs no memory: a job whose ingest was given up meanwhile gets a new one.
    adding = insert_of(connection.dialect.name)(ingest_events).on_conflict_do_nothing(
        index_elements=["job_id"], index_where=text(OPEN_INGEST)
    )
    for each in given:
        own = {name: value for name, value in asdict(each).items() if name != "ids"}
        row = {**own, "status": IngestStatus.IN_PROGRESS, "started_at": now}
        added = (await connection.execute(adding.values(row).returning(ingest_events.c.id))).scalar()
        if added is not None:
            await _add_ids(connection, IngestId(added), each.ids)


async def write_advanced(connection: AsyncConnection, given: Sequence[IngestAdvanced], _now: datetime) -> None:
    for each in given:
        step = _step(each.calls, each.items, each.problem, each.exchange)
        await connection.execute(update(ingest_events).where(_open(each.job_id)).values(**step))


async def write_ended(connection: AsyncConnection, given: Sequence[IngestEnded], now: datetime) -> None:
    """Inside the job's transaction, after the ingested rows. A success clears earlier problems."""
    for each in given:
        values = _step(each.calls, each.items, each.problem, each.exchange)
        if each.status is IngestStatus.SUCCESS:
            values |= {"problem": _shorten(each.problem), "endpoint": None, "http_status": None, "exchange": None}
        values |= {"status": each.status, "finished_at": now}
        if each.plausible is not None:
            values["plausible"] = each.plausible
        await connection.execute(update(ingest_events).where(_open(each.job_id)).values(**values))


async def open_ingests(connection: AsyncConnection, job_ids: Sequence[JobId]) -> Mapping[JobId, IngestId]:
    """The open ingests of these jobs."""
    asked = select(ingest_events.c.job_id, ingest_events.c.id).where(
        ingest_events.c.job_id.in_(sorted(set(job_ids))), text(OPEN_INGEST)
    )
    return {JobId(row.job_id): IngestId(row.id) for row in await connection.execute(asked)}


async def ingests_of_jobs(connection: AsyncConnection, job_ids: Sequence[JobId]) -> Mapping[JobId, IngestId]:
    """The ingests of these jobs, open or just ended: jobs of one call may be settled one after the other."""
    found = dict(await open_ingests(connection, job_ids))
    rest = [each for each in job_ids if each not in found]
    if rest:
        newest = select(func.coalesce(func.max(ingest_events.c.id), 0) - _JUST_ENDED).scalar_subquery()
        asked = select(ingest_events.c.job_id, func.max(ingest_events.c.id).label("id")).where(
            ingest_events.c.id > newest, ingest_events.c.job_id.in_(rest)
        )
        rows = await connection.execute(asked.group_by(ingest_events.c.job_id))
        found |= {JobId(row.job_id): IngestId(row.id) for row in rows}
    return found


async def _add_ids(connection: AsyncConnection, ingest_id: IngestId, ids: Sequence[int]) -> None:
    for some in slices(sorted(set(ids))):
        await connection.execute(insert(ingest_ids), [{"ingest_id": ingest_id, "id": each} for each in some])


def _open(job_id: JobId) -> ColumnElement[bool]:
    return (ingest_events.c.job_id == job_id) & text(OPEN_INGEST)


def _step(calls: int, items: int, problem: str | None, exchange: Exchange | None) -> dict[str, Any]:
    """The values that a step changes."""
    own = ingest_events.c
    step: dict[str, Any] = {"calls": own.calls + calls, "items": own["items"] + items}
    if problem is not None:
        step["problem"] = _shorten(problem)
    if exchange is not None:
        step |= {"endpoint": exchange.endpoint, "http_status": exchange.status, "exchange": _encode(exchange)}
    return step


def _shorten(problem: str | None) -> str | None:
    return None if problem is None else storable(problem)[:_PROBLEM_LENGTH]


def _select_abandoned(lost_before: datetime) -> Select[Any]:
    """Open ingests without a live job, or of a process that has not ended them for a long time."""
    alive = select(jobs.c.id).where(jobs.c.id == ingest_events.c.job_id, jobs.c.state.in_(LIVE_STATES)).exists()
    own = ingest_events.c.job_id.is_not(None) & ~alive
    processes = ingest_events.c.job_id.is_(None) & (ingest_events.c.started_at < lost_before)
    return select(ingest_events.c.id, ingest_events.c.job_id).where(text(OPEN_INGEST), own | processes)


async def end_with_jobs(connection: AsyncConnection, job_ids: Sequence[JobId], now: datetime) -> None:
    """End the ingests of jobs that just failed or were cancelled, in the same transaction."""
    for job_id, ingest_id in (await open_ingests(connection, job_ids)).items():
        await _end_abandoned(connection, ingest_id, job_id, now)


async def _end_abandoned(connection: AsyncConnection, ingest_id: IngestId, job_id: JobId | None, now: datetime) -> int:
    """End an ingest without a live job. A failed job has an error; a job without a row was cancelled."""
    failed = select(jobs.c.last_error).where(jobs.c.id == job_id, text(GAP))
    job = (await connection.execute(failed)).first() if job_id is not None else None
    if job is not None:
        lines = (job.last_error or "").strip().splitlines() or ["its job failed without saying why"]
        status, why = IngestStatus.ERROR, _shorten(lines[-1].strip())
    else:
        status, why = IngestStatus.CANCELLED, LOST if job_id is None else CANCELLED
    ended = {"status": status, "problem": func.coalesce(ingest_events.c.problem, why), "finished_at": now}
    own = (ingest_events.c.id == ingest_id) & text(OPEN_INGEST)
    return (await connection.execute(update(ingest_events).where(own).values(**ended))).rowcount


INTERRUPTED: Final = "it was interrupted"
_PASSING: Final = (IngestKind.USERS_BY_IDS, IngestKind.POSTS_BY_IDS, IngestKind.WEBHOOK)
_PAUSE_SECONDS: Final = 0.2


@dataclass(slots=True)
class CallsMade:
    """The calls of an ingest so far."""

    calls: int = 0


class Ingests(Store):
    """Ingests of a database."""

    async def begin(
        self,
        kind: IngestKind,
        *,
        asked_by: str,
        ids: Sequence[int] = (),
        subject_id: int | None = None,
        mode: str | None = None,
        platform: Platform = X,
    ) -> IngestId:
        """Start an ingest that no job does. The caller must end it."""
        row = {
            "platform": platform,
            "kind": kind,
            "status": IngestStatus.IN_PROGRESS,
            "subject_id": subject_id,
            "mode": mode,
            "asked_by": asked_by,
            "started_at": self._database.clock.now(),
        }
        async with self._database.transaction() as connection:
            added = await connection.execute(insert(ingest_events).values(row).returning(ingest_events.c.id))
            ingest_id = IngestId(added.scalar_one())
            await _add_ids(connection, ingest_id, ids)
        return ingest_id

    async def end(
        self,
        ingest_id: IngestId,
        status: IngestStatus,
        *,
        calls: int = 0,
        items: int = 0,
        problem: str | None = None,
        exchange: Exchange | None = None,
        connection: AsyncConnection | None = None,
    ) -> bool:
        """End an ingest, in its own transaction or in the given one. False: it had ended before.

        An ingest that was given up too early can still end.
        """
        step = _step(calls, items, problem, exchange)
        change = (
            update(ingest_events)
            .where(ingest_events.c.id == ingest_id, or_(text(OPEN_INGEST), ingest_events.c.problem == LOST))
            .values(status=status, finished_at=self._database.clock.now(), **step)
        )
        if connection is not None:
            return (await connection.execute(change)).rowcount == 1
        async with self._database.transaction() as own:
            return (await own.execute(change)).rowcount == 1

    @asynccontextmanager
    async def ending(self, ingest_id: IngestId, *, secrets: Sequence[str] = ()) -> AsyncIterator[CallsMade]:
        """Record an error or cancellation inside the block with the ingest. The caller records success."""
        made = CallsMade()
        try:
            yield made
        except MistnetError as error:
            error.ingest_id = ingest_id
            exchange = error.exchange if isinstance(error, WorkError) else None
            made.calls += exchange is not None
            await self._end_badly(ingest_id, IngestStatus.ERROR, made, redact(str(error), secrets), exchange)
            raise
        except asyncio.CancelledError:
            await self._end_badly(ingest_id, IngestStatus.CANCELLED, made, INTERRUPTED)
            raise

    async def _end_badly(
        self,
        ingest_id: IngestId,
        status: IngestStatus,
        made: CallsMade,
        problem: str,
        exchange: Exchange | None = None,
    ) -> None:
        """A database error here must not hide the first error. The ingest is given up later."""
        end = partial(self.end, ingest_id, status, calls=made.calls, problem=problem, exchange=exchange)
        with suppress(DatabaseError):
            await retry_while_busy(end, pause_seconds=_PAUSE_SECONDS)

    async def get(self, ingest_id: int) -> Ingest | None:
        return await _INGESTS.first(self._database, ingest_events.c.id == ingest_id)

    async def list(
        self,
        *,
        kind: IngestKind | None = None,
        status: IngestStatus | None = None,
        platform: Platform | None = None,
        subject_id: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> ListPage[Ingest]:
        """The newest first. A subject is found by an index if its platform is given."""
        given = {"kind": kind, "status": status, "platform": platform, "subject_id": subject_id}
        conditions = [ingest_events.c[name] == value for name, value in given.items() if value is not None]
        return await _INGESTS.page(self._database, *conditions, after=before, limit=limit)

    async def ids(self, ingest_id: int, *, after: int = -1, limit: int = 5_000) -> Sequence[int]:
        """The requested ids, in order."""
        asked = select(ingest_ids.c.id).where(ingest_ids.c.ingest_id == ingest_id, ingest_ids.c.id > after)
        return [row["id"] for row in await self._database.fetch_rows(asked.order_by(ingest_ids.c.id).limit(limit))]

    async def settle(self, now: datetime, *, lost_before: datetime) -> int:
        """End ingests whose job or process is gone; return how many."""
        # Usually there is none. A transaction would take SQLite's only write lock to find that out.
        if await self._database.fetch_row(_select_abandoned(lost_before).limit(1)) is None:
            return 0
        async with self._database.transaction() as connection:
            abandoned = _select_abandoned(lost_before).with_for_update(of=ingest_events)
            rows = (await connection.execute(abandoned)).all()
            return sum([await _end_abandoned(connection, row.id, row.job_id, now) for row in rows])

    async def prune(self, before: datetime, *, limit: int = 500) -> int:
        """Delete hydrations and pushes that ended before then. Syncs stay: segments and edges refer to them."""
        own = ingest_events.c
        old = select(own.id).where(own.started_at < before, own.finished_at.is_not(None), own.kind.in_(_PASSING))
        ids = [row["id"] for row in await self._database.fetch_rows(old.limit(limit))]
        if not ids:
            return 0
        async with self._database.transaction() as connection:
            return (await connection.execute(delete(ingest_events).where(own.id.in_(ids)))).rowcount


_INGESTS: Final = View(Ingest, select(*columns_of(Ingest, ingest_events)), ingest_events.c.id)
