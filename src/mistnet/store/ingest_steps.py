"""The steps of ingests that jobs do: written with what was ingested, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.ingests import Exchange, IngestAdvanced, IngestBegun, IngestEnded, IngestId, IngestStatus
from mistnet.domain.jobs import LIVE_STATES, JobId
from mistnet.store.account_jobs import slices
from mistnet.store.inserts import insert_of
from mistnet.store.tables import ingest_events, ingest_ids, jobs
from mistnet.store.tables.engine import GAP
from mistnet.store.tables.graph import OPEN_INGEST

LOST: Final = "the process that did it ended before it did"
CANCELLED: Final = "its job was cancelled"
_PROBLEM_LENGTH: Final = 2_000
_JUST_ENDED: Final = 1_000
"""Among so many of the newest ingests one is looked for that ended a moment ago."""

_encode = msgspec.json.Encoder().encode


async def write_begun(connection: AsyncConnection, given: Sequence[IngestBegun], now: datetime) -> None:
    """Inside the job's transaction, before what it ingests."""
    for each in given:
        adding = _insert(connection).on_conflict_do_nothing(index_elements=["job_id"], index_where=text(OPEN_INGEST))
        row = {
            "platform": each.platform,
            "kind": each.kind,
            "status": IngestStatus.IN_PROGRESS,
            "subject_id": each.subject_id,
            "mode": each.mode,
            "asked_by": each.asked_by,
            "job_id": each.job_id,
            "started_at": now,
        }
        added = (await connection.execute(adding.values(row).returning(ingest_events.c.id))).scalar()
        if added is not None:
            await add_ids(connection, IngestId(added), each.ids)


async def write_advanced(connection: AsyncConnection, given: Sequence[IngestAdvanced], _now: datetime) -> None:
    for each in given:
        step = step_of(each.calls, each.items, each.problem, each.exchange)
        await connection.execute(update(ingest_events).where(_open(each.job_id)).values(**step))


async def write_ended(connection: AsyncConnection, given: Sequence[IngestEnded], now: datetime) -> None:
    """Inside the job's transaction, after what it ingested. A success does not carry the stumbles before it."""
    for each in given:
        values = step_of(each.calls, each.items, each.problem, each.exchange)
        if each.status is IngestStatus.SUCCESS:
            values |= {"problem": storable(each.problem), "endpoint": None, "http_status": None, "exchange": None}
        values |= {"status": each.status, "finished_at": now}
        if each.plausible is not None:
            values["plausible"] = each.plausible
        await connection.execute(update(ingest_events).where(_open(each.job_id)).values(**values))


async def open_ingests(connection: AsyncConnection, job_ids: Sequence[JobId]) -> Mapping[JobId, IngestId]:
    """The ingests these jobs are at, for writers of what refers to them."""
    asked = select(ingest_events.c.job_id, ingest_events.c.id).where(
        ingest_events.c.job_id.in_(sorted(set(job_ids))), text(OPEN_INGEST)
    )
    return {JobId(row.job_id): IngestId(row.id) for row in await connection.execute(asked)}


async def ingests_of_jobs(connection: AsyncConnection, job_ids: Sequence[JobId]) -> Mapping[JobId, IngestId]:
    """Those these jobs are at. One that just ended counts: jobs of one call may be settled one after the other."""
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


async def add_ids(connection: AsyncConnection, ingest_id: IngestId, ids: Sequence[int]) -> None:
    for some in slices(sorted(set(ids))):
        await connection.execute(insert(ingest_ids), [{"ingest_id": ingest_id, "id": each} for each in some])


def _open(job_id: JobId) -> ColumnElement[bool]:
    return (ingest_events.c.job_id == job_id) & text(OPEN_INGEST)


def step_of(calls: int, items: int, problem: str | None, exchange: Exchange | None) -> dict[str, Any]:
    """What a step adds. What it does not say stays."""
    own = ingest_events.c
    step: dict[str, Any] = {"calls": own.calls + calls, "items": own["items"] + items}
    if problem is not None:
        step["problem"] = storable(problem)
    if exchange is not None:
        step |= {"endpoint": exchange.endpoint, "http_status": exchange.status, "exchange": _encode(exchange)}
    return step


def storable(problem: str | None) -> str | None:
    """Databases refuse NUL and broken surrogates in text."""
    if problem is None:
        return None
    plain = problem.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
    return plain[:_PROBLEM_LENGTH]


def _insert(connection: AsyncConnection) -> Any:
    return insert_of(connection.dialect.name)(ingest_events)


def deserted(lost_before: datetime) -> Select[Any]:
    """Open ones that no live job works on, or that no job ever did and that nobody ended for long."""
    alive = select(jobs.c.id).where(jobs.c.id == ingest_events.c.job_id, jobs.c.state.in_(LIVE_STATES)).exists()
    own = ingest_events.c.job_id.is_not(None) & ~alive
    processes = ingest_events.c.job_id.is_(None) & (ingest_events.c.started_at < lost_before)
    return select(ingest_events.c.id, ingest_events.c.job_id).where(text(OPEN_INGEST), own | processes)


async def end_with_jobs(connection: AsyncConnection, job_ids: Sequence[JobId], now: datetime) -> None:
    """Ends the ingests of jobs that just ended without their result, in the same transaction."""
    for job_id, ingest_id in (await open_ingests(connection, job_ids)).items():
        await desert(connection, {"id": ingest_id, "job_id": job_id}, now)


async def desert(connection: AsyncConnection, row: Mapping[str, Any], now: datetime) -> int:
    ended = await _how_it_ended(connection, row["job_id"])
    change = (
        update(ingest_events).where(ingest_events.c.id == row["id"], text(OPEN_INGEST)).values(finished_at=now, **ended)
    )
    return (await connection.execute(change)).rowcount


async def _how_it_ended(connection: AsyncConnection, job_id: int | None) -> Mapping[str, Any]:
    """A job that failed says why; one that is gone was cancelled."""
    failed = select(jobs.c.last_error).where(jobs.c.id == job_id, text(GAP))
    row = (await connection.execute(failed)).first() if job_id is not None else None
    if row is not None:
        said = func.coalesce(ingest_events.c.problem, storable(_last_line(row.last_error)))
        return {"status": IngestStatus.ERROR, "problem": said}
    why = LOST if job_id is None else CANCELLED
    return {"status": IngestStatus.CANCELLED, "problem": func.coalesce(ingest_events.c.problem, why)}


def _last_line(error: str | None) -> str:
    lines = (error or "").strip().splitlines()
    return lines[-1].strip() if lines else "its job failed without saying why"
