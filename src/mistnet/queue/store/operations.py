"""What an operator may do to jobs and kinds. Each change is guarded, and returns whether it won."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Text, cast, delete, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseBusy, WriteRefused
from mistnet.kit.statements import insert_of, run
from mistnet.queue import tables
from mistnet.queue.model import GAP_STATES, JobId, JobState, KindName
from mistnet.queue.store.enqueue import CHANNEL
from mistnet.queue.tables import GAP, jobs


class GapFilter(msgspec.Struct, frozen=True, kw_only=True):
    """None does not filter. `error` is a part of the last error, whatever its case; `about` an id that a job names."""

    kind: str | None = None
    lanes: Collection[str] | None = None
    error: str | None = None
    about: int | None = None
    ids: Collection[JobId] | None = None
    states: Collection[JobState] = GAP_STATES

    def conditions(self) -> list[ColumnElement[bool]]:
        own: list[ColumnElement[bool]] = [text(GAP), jobs.c.state.in_(self.states)]  # type: ignore[list-item]
        if self.kind is not None:
            own.append(jobs.c.kind == self.kind)
        if self.lanes is not None:
            own.append(jobs.c.lane.in_(self.lanes))
        if self.error is not None:
            own.append(func.lower(jobs.c.last_error).contains(self.error.lower(), autoescape=True))
        if self.about is not None:
            own.append(names_id(jobs.c, self.about))
        if self.ids is not None:
            own.append(jobs.c.id.in_(self.ids))
        return own


def names_id(columns: Any, number: int) -> ColumnElement[bool]:
    """Whether the key of a job, or an id among its args, is this number."""
    args = cast(columns.args, Text)
    return or_(
        columns.key == str(number),
        columns.key.startswith(f"{number}:"),
        *(args.contains(f'_id":{number}{end}', autoescape=True) for end in ",}"),
    )


T = TypeVar("T")
_EVERY_GAP: Final = GapFilter()
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.1


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """Result of changing one job. State None: there is no such live job."""

    id: JobId
    changed: bool
    state: JobState | None
    why: str | None = None


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """Result of requeuing failed jobs. `held`: those whose key is live in another job."""

    requeued: Sequence[JobId]
    held: Sequence[JobId]


class Operations:
    """Changes by operators. A job that is taken from a worker voids the worker's lease, by its fence."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dialect = database.dialect

    async def retry(self, ids: Collection[JobId], *, now: datetime, gaps_only: bool = False) -> Sequence[JobChange]:
        """Make waiting and failed jobs due now. Failed ones start over."""

        async def change(connection: AsyncConnection) -> Sequence[JobChange]:
            before = await self._states(connection, ids)
            wanted = [each for each in ids if not gaps_only or before.get(each) in GAP_STATES]
            won = await self._revive(connection, wanted, now)
            states = await self._states(connection, ids)
            changes = []
            for each in ids:
                state = states.get(each)
                why: str | None = None
                if each in won:
                    state = JobState.PENDING
                elif state in GAP_STATES:
                    why = "another live job holds its key"
                elif state and gaps_only:
                    why = "only dead and failed jobs are"
                elif state is JobState.RUNNING:
                    why = "a worker is on it"
                elif state:
                    why = "it is due already, or held back by the cap on live jobs"
                changes.append(JobChange(id=each, changed=each in won, state=state, why=why))
            return changes

        return await self._retry(change)

    async def requeue(self, wanted: GapFilter = _EVERY_GAP, *, now: datetime) -> Requeued:
        """Requeue failed jobs: all, or some."""

        async def change(connection: AsyncConnection) -> Requeued:
            gaps = await _ids_of(connection, wanted)
            won = await self._revive(connection, gaps, now)
            return Requeued(requeued=sorted(won), held=[each for each in gaps if each not in won])

        return await self._retry(change)

    async def cancel(self, ids: Collection[JobId], *, now: datetime) -> Sequence[JobChange]:
        """Cancel live jobs, running ones too: their workers find their leases gone."""

        async def change(connection: AsyncConnection) -> Sequence[JobChange]:
            won = await self._cancel(connection, ids, now)
            return [
                JobChange(id=each, changed=True, state=JobState.CANCELLED)
                if each in won
                else JobChange(id=each, changed=False, state=None)
                for each in ids
            ]

        return await self._retry(change)

    async def gap_ids(self, wanted: GapFilter) -> Sequence[JobId]:
        async with self._database.read() as connection:
            return await _ids_of(connection, wanted)

    async def accept(self, wanted: GapFilter, *, now: datetime) -> Sequence[JobId]:
        """Close failed jobs without requeuing them. Live jobs are left alone."""

        async def change(connection: AsyncConnection) -> Sequence[JobId]:
            return sorted(await self._cancel(connection, await _ids_of(connection, wanted), now))

        return await self._retry(change)

    async def pause(self, kind: KindName, reason: str, *, now: datetime) -> bool:
        """Keep workers from claiming this kind until it is resumed. Return whether it was not paused before."""
        paused = tables.paused_kinds
        insert = insert_of(self._dialect)
        new = insert(paused).values(kind=kind, reason=reason, paused_at=now).on_conflict_do_nothing()
        async with self._database.transaction() as connection:
            won = (await connection.execute(new.returning(paused.c.kind))).first() is not None
            if not won:
                await connection.execute(update(paused).where(paused.c.kind == kind).values(reason=reason))
        return won

    async def resume(self, kind: KindName) -> bool:
        """Let workers claim this kind again. Return whether it was paused."""
        paused = tables.paused_kinds.c.kind
        resumed = delete(tables.paused_kinds).where(paused == kind).returning(paused)
        async with self._database.transaction() as connection:
            won = (await connection.execute(resumed)).first() is not None
            if won:
                await self._wake_workers(connection)
        return won

    async def _revive(self, connection: AsyncConnection, ids: Collection[JobId], now: datetime) -> set[JobId]:
        rows = await run(connection, "revive", {"ids": list(ids), "now": now})
        won = set(rows.scalars())
        if won:
            await self._wake_workers(connection)
        return won

    async def _cancel(self, connection: AsyncConnection, ids: Collection[JobId], now: datetime) -> set[JobId]:
        if self._dialect == "postgresql":
            binds = {"ids": list(ids), "now": now}
            return set((await run(connection, "cancel", binds)).scalars())
        present = list(await self._states(connection, ids))
        binds = {"ids": present, "now": now, "state": JobState.CANCELLED}
        await run(connection, "history", binds)
        await run(connection, "forget", {"ids": present})
        return set(present)

    async def _states(self, connection: AsyncConnection, ids: Collection[JobId]) -> dict[JobId, JobState]:
        jobs = tables.jobs.c
        rows = await connection.execute(select(jobs.id, jobs.state).where(jobs.id.in_(ids)))
        return {JobId(row.id): JobState(row.state) for row in rows}

    async def _wake_workers(self, connection: AsyncConnection) -> None:
        if self._dialect == "postgresql":
            await connection.execute(text(f"NOTIFY {CHANNEL}"))

    async def _retry(self, change: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Retry when workers interfered: with a lock, or with a key that they took at the same moment."""
        for _ in range(_TRIES - 1):
            try:
                async with self._database.transaction() as connection:
                    return await change(connection)
            except (DatabaseBusy, WriteRefused):
                await asyncio.sleep(_PAUSE_SECONDS)
        async with self._database.transaction() as connection:
            return await change(connection)


async def _ids_of(connection: AsyncConnection, wanted: GapFilter) -> list[JobId]:
    own = tables.jobs.c.id
    rows = await connection.execute(select(own).where(*wanted.conditions()).order_by(own))
    return [JobId(each) for each in rows.scalars()]
