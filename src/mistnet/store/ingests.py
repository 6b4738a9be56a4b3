"""Ingest events: begun, ended, looked up. They name users by plain ids, so that a failure needs nobody to exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, delete, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.errors import DatabaseBusy, DatabaseError, MistnetError, WorkError
from mistnet.domain.ingests import Exchange, Ingest, IngestId, IngestKind, IngestStatus
from mistnet.domain.redaction import redact
from mistnet.domain.social import Platform
from mistnet.store.database import Database
from mistnet.store.ingest_steps import LOST, add_ids, desert, deserted, step_of
from mistnet.store.tables import ingest_events, ingest_ids
from mistnet.store.tables.graph import OPEN_INGEST

INTERRUPTED: Final = "it was interrupted"
_LARGEST_ID: Final = 2**63 - 1
_PASSING: Final = (IngestKind.USERS_BY_IDS, IngestKind.POSTS_BY_IDS, IngestKind.WEBHOOK)
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.2


@dataclass(slots=True)
class Tab:
    """What an ingest has cost so far."""

    calls: int = 0


class Ingests:
    """The book of ingests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(
        self,
        kind: IngestKind,
        *,
        asked_by: str,
        ids: Sequence[int] = (),
        subject_id: int | None = None,
        mode: str | None = None,
        platform: Platform = Platform.X,
    ) -> IngestId:
        """For ingests that no job does. Whoever begins one ends it, whatever happens."""
        row = {
            "platform": platform,
            "kind": kind,
            "status": IngestStatus.IN_PROGRESS,
            "subject_id": subject_id,
            "mode": mode,
            "asked_by": asked_by,
            "started_at": self._database.clock.now(),
        }
        async with self._database.write() as connection:
            added = await connection.execute(insert(ingest_events).values(row).returning(ingest_events.c.id))
            ingest_id = IngestId(added.scalar_one())
            await add_ids(connection, ingest_id, ids)
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
        """In a transaction of its own, or in that of what was ingested. False: it had ended already.

        One that was given up too early is not lost after all.
        """
        step = step_of(calls, items, problem, exchange)
        change = (
            update(ingest_events)
            .where(ingest_events.c.id == ingest_id, or_(text(OPEN_INGEST), ingest_events.c.problem == LOST))
            .values(status=status, finished_at=self._database.clock.now(), **step)
        )
        if connection is not None:
            return (await connection.execute(change)).rowcount == 1
        async with self._database.write() as own:
            return (await own.execute(change)).rowcount == 1

    @asynccontextmanager
    async def ending(self, ingest_id: IngestId, *, secrets: Sequence[str] = ()) -> AsyncIterator[Tab]:
        """What goes wrong inside is kept with the event. That all went well is told with what came of it."""
        tab = Tab()
        try:
            yield tab
        except MistnetError as error:
            error.ingest_id = ingest_id
            exchange = error.exchange if isinstance(error, WorkError) else None
            tab.calls += exchange is not None
            await self._end_badly(ingest_id, IngestStatus.ERROR, tab, redact(str(error), secrets), exchange)
            raise
        except asyncio.CancelledError:
            await self._end_badly(ingest_id, IngestStatus.CANCELLED, tab, INTERRUPTED)
            raise

    async def _end_badly(
        self,
        ingest_id: IngestId,
        status: IngestStatus,
        tab: Tab,
        problem: str,
        exchange: Exchange | None = None,
    ) -> None:
        """A database that does not answer either is no news beside what went wrong; the event is given up later."""
        with suppress(DatabaseError):
            for tries_left in reversed(range(_TRIES)):
                try:
                    await self.end(ingest_id, status, calls=tab.calls, problem=problem, exchange=exchange)
                except DatabaseBusy:
                    if not tries_left:
                        raise
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    return

    async def get(self, ingest_id: int) -> Ingest | None:
        return await self._first(_INGESTS.where(ingest_events.c.id == ingest_id))

    async def latest(
        self, kind: IngestKind, subject_id: int | None, *, platform: Platform = Platform.X
    ) -> Ingest | None:
        """The last one begun, whatever became of it."""
        return await self._first(_about(platform, kind, subject_id))

    async def latest_success(
        self, platform: Platform, kind: IngestKind, subject_id: int | None, since: datetime | None = None
    ) -> Ingest | None:
        """The last one that succeeded and began no earlier than `since`. A failure after it takes nothing from it."""
        asked = _about(platform, kind, subject_id).where(ingest_events.c.status == IngestStatus.SUCCESS)
        return await self._first(asked if since is None else asked.where(ingest_events.c.started_at >= since))

    async def list(
        self,
        *,
        kind: IngestKind | None = None,
        status: IngestStatus | None = None,
        subject_id: int | None = None,
        before: int = _LARGEST_ID,
        limit: int = 50,
    ) -> Sequence[Ingest]:
        """The newest first. The last id of one page is where the next begins."""
        asked = _INGESTS.where(ingest_events.c.id < before).order_by(ingest_events.c.id.desc()).limit(limit)
        given = {"kind": kind, "status": status, "subject_id": subject_id}
        for name, value in given.items():
            asked = asked if value is None else asked.where(ingest_events.c[name] == value)
        async with self._database.read() as connection:
            return [_ingest(row) for row in (await connection.execute(asked)).mappings()]

    async def ids(self, ingest_id: int, *, after: int = -1, limit: int = 5_000) -> Sequence[int]:
        """What it asked for, in order."""
        asked = select(ingest_ids.c.id).where(ingest_ids.c.ingest_id == ingest_id, ingest_ids.c.id > after)
        async with self._database.read() as connection:
            return list((await connection.execute(asked.order_by(ingest_ids.c.id).limit(limit))).scalars())

    async def settle(self, now: datetime, *, lost_before: datetime) -> int:
        """Ends ingests whose job, or whose process, ended without telling. Returns how many."""
        async with self._database.read() as connection:
            if not (await connection.execute(deserted(lost_before).limit(1))).first():
                return 0
        async with self._database.write() as connection:
            rows = (await connection.execute(deserted(lost_before).with_for_update(of=ingest_events))).mappings()
            return sum([await desert(connection, row, now) for row in rows.all()])

    async def prune(self, before: datetime, *, limit: int = 500) -> int:
        """Forgets hydrations and pushes that ended before then. Syncs stay: segments and edges refer to them."""
        own = ingest_events.c
        old = select(own.id).where(own.started_at < before, own.finished_at.is_not(None), own.kind.in_(_PASSING))
        async with self._database.read() as connection:
            ids = (await connection.execute(old.limit(limit))).scalars().all()
        if not ids:
            return 0
        async with self._database.write() as connection:
            return (await connection.execute(delete(ingest_events).where(own.id.in_(ids)))).rowcount

    async def _first(self, asked: Select[Any]) -> Ingest | None:
        async with self._database.read() as connection:
            row = (await connection.execute(asked.limit(1))).mappings().first()
        return _ingest(row) if row else None


def _about(platform: Platform, kind: IngestKind, subject_id: int | None) -> Select[Any]:
    return _INGESTS.where(
        ingest_events.c.platform == platform,
        ingest_events.c.kind == kind,
        ingest_events.c.subject_id.is_(None) if subject_id is None else ingest_events.c.subject_id == subject_id,
    ).order_by(ingest_events.c.id.desc())


def _ingest(row: Mapping[Any, Any]) -> Ingest:
    kept = row["exchange"]
    words = {
        "platform": Platform(row["platform"]),
        "kind": IngestKind(row["kind"]),
        "status": IngestStatus(row["status"]),
        "exchange": msgspec.json.decode(kept, type=Exchange) if kept is not None else None,
    }
    return Ingest(**{**row, **words})


_INGESTS: Final = select(*(ingest_events.c[name] for name in Ingest.__struct_fields__))
