"""What a materialization asks the store before it may begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.follows import SyncMode
from mistnet.domain.ingests import IngestId, IngestStatus
from mistnet.domain.jobs import LIVE_STATES, JobId, JobState, NewJob
from mistnet.domain.segments import MATERIALIZE, Need, Segment, SegmentId, SegmentName, SyncStanding
from mistnet.store.account_jobs import cancel
from mistnet.store.database import Database
from mistnet.store.segment_rows import all_segments
from mistnet.store.tables import ingest_events, jobs
from mistnet.store.tables.engine import GAP, LIVE_KEY

UNTOLD: Final = "it ended without a complete list"


class StoreSegmentLook:
    """The port's look on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> Mapping[SegmentName, Segment]:
        async with self._database.read() as connection:
            return await all_segments(connection)

    async def standings(self, syncs: Mapping[Need, NewJob], *, since: datetime) -> Mapping[Need, SyncStanding]:
        async with self._database.read() as connection:
            return {need: await _standing(connection, need, job, since) for need, job in syncs.items()}

    async def complete_ingest(self, need: Need, *, since: datetime | None) -> IngestId | None:
        own = ingest_events.c
        asked = (
            select(own.id)
            .where(*_about(need), own.status == IngestStatus.SUCCESS, own.plausible, own.mode == SyncMode.FULL)
            .order_by(own.id.desc())
            .limit(1)
        )
        if since is not None:
            asked = asked.where(own.started_at >= since)
        async with self._database.read() as connection:
            found = (await connection.execute(asked)).scalar()
        return None if found is None else IngestId(found)


async def _standing(connection: AsyncConnection, need: Need, job: NewJob, since: datetime) -> SyncStanding:
    own = (jobs.c.kind == job.kind) & (jobs.c.key == job.key)
    alive = (await connection.execute(select(jobs.c.id).where(own, text(LIVE_KEY)).limit(1))).first()
    if alive is not None:
        return SyncStanding(alive=True)
    ended = await _last_ended(connection, need, since)
    gap = select(jobs.c.last_error).where(own, text(GAP), jobs.c.run_at >= since).order_by(jobs.c.id.desc()).limit(1)
    died = (await connection.execute(gap)).scalar()
    lesser = ended is not None and ended.mode != SyncMode.FULL
    bad = ended is not None and not lesser and not (ended.status == IngestStatus.SUCCESS and ended.plausible)
    problem = (ended.problem or UNTOLD) if ended and bad else _last_line(died)
    return SyncStanding(alive=False, problem=problem, lesser=lesser)


async def _last_ended(connection: AsyncConnection, need: Need, since: datetime) -> Any:
    own = ingest_events.c
    asked = select(own.mode, own.status, own.plausible, own.problem).where(*_about(need), own.finished_at >= since)
    return (await connection.execute(asked.order_by(own.id.desc()).limit(1))).first()


def _about(need: Need) -> tuple[ColumnElement[bool], ...]:
    own = ingest_events.c
    return own.platform == need.platform, own.kind == need.side.ingest_kind, own.subject_id == need.subject_id


def _last_line(error: str | None) -> str | None:
    lines = (error or "").strip().splitlines()
    return lines[-1].strip()[:300] if lines else None


class MaterializationJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job that works a segment out, or the one that could not."""

    id: JobId
    state: JobState
    wait_reason: str | None
    last_error: str | None

    @property
    def alive(self) -> bool:
        return self.state in LIVE_STATES


async def job_of(database: Database, segment_id: SegmentId) -> MaterializationJob | None:
    """The latest that is not over. None: nobody has asked, or it was done."""
    names = MaterializationJob.__struct_fields__
    asked = select(*(jobs.c[name] for name in names)).where(jobs.c.kind == MATERIALIZE, jobs.c.key == str(segment_id))
    async with database.read() as connection:
        row = (await connection.execute(asked.order_by(jobs.c.id.desc()).limit(1))).mappings().first()
    return MaterializationJob(**{**row, "state": JobState(row["state"])}) if row else None


async def put_away_gaps(connection: AsyncConnection, segment_ids: Sequence[SegmentId], now: datetime) -> None:
    """Those that could not be worked out are to be tried anew: what failed before goes to the history."""
    keys = [str(each) for each in segment_ids]
    failed = select(jobs.c.id).where(jobs.c.kind == MATERIALIZE, jobs.c.key.in_(keys), text(GAP)).order_by(jobs.c.id)
    await cancel(connection, [JobId(each) for each in (await connection.execute(failed)).scalars()], now)
