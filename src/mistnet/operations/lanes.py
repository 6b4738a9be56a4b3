"""Lanes as people look at them: what waits on each, what went through it lately, and its dead letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import Select, func, select, text

from mistnet.kit.database import Database
from mistnet.kit.statements import statement
from mistnet.queue.model import GAP_STATES, JobId, JobState, KindName, Lane
from mistnet.queue.tables import GAP, job_history, jobs
from mistnet.shops.model import LinkId
from mistnet.shops.tables import links

LARGEST_ID: Final = 2**63 - 1
_TIMED: Final = 5_000
"""Of so many of the latest crawls it is known how long their links had waited."""


class LaneCount(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one lane in one state."""

    lane: Lane
    state: JobState
    jobs: int
    parked: int
    due: int
    oldest_due_at: datetime | None


class DeadLetterLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ended without its result, and the link it is about if it is about one."""

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


class LanePages:
    """Reads. What looks at every live job is for a background task, never for a page that somebody waits for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def counts(self, *, now: datetime) -> Sequence[LaneCount]:
        """Jobs by lane and state. Looks at all of them."""
        async with self._database.read() as connection:
            rows = await connection.execute(statement("lane_counts", self._database.dialect), {"now": now})
            return [LaneCount(**{**row, "state": JobState(row["state"])}) for row in rows.mappings()]

    async def finished(self, *, since: datetime) -> Mapping[Lane, int]:
        """How many jobs of each lane have succeeded since then."""
        own = job_history.c
        counted = (
            select(own.lane, func.count().label("jobs"))
            .where(own.finished_at >= since, own.state == JobState.SUCCEEDED)
            .group_by(own.lane)
        )
        return {Lane(row["lane"]): row["jobs"] for row in await self._rows(counted)}

    async def failures(self, *, since: datetime) -> Mapping[Lane, int]:
        """How many attempts at jobs of each lane have failed since then, whatever became of the jobs."""
        async with self._database.read() as connection:
            rows = await connection.execute(statement("lane_failures", self._database.dialect), {"since": since})
            return {Lane(row.lane): row.attempts for row in rows}

    async def ended(self, *, since: datetime) -> Mapping[tuple[Lane, JobState], int]:
        """How many jobs of each lane have ended without their result since then, and are still there."""
        own = jobs.c
        counted = (
            select(own.lane, own.state, func.count().label("jobs"))
            .where(text(GAP), own.run_at >= since)
            .group_by(own.lane, own.state)
        )
        return {(Lane(row["lane"]), JobState(row["state"])): row["jobs"] for row in await self._rows(counted)}

    async def waits(self, *, since: datetime) -> Mapping[Lane, Sequence[timedelta]]:
        """How long links waited for their first crawl, of the latest crawls since then; the shortest first."""
        binds = {"since": since, "limit": _TIMED}
        async with self._database.read() as connection:
            rows = await connection.execute(statement("first_crawls", self._database.dialect), binds)
            found: dict[Lane, list[timedelta]] = {}
            for row in rows:
                found.setdefault(Lane(row.lane), []).append(max(row.at - row.seen_at, timedelta()))
        return {lane: sorted(waits) for lane, waits in found.items()}

    async def dead(self, lane: str, *, most: int) -> int:
        """How many jobs of a lane have used up their attempts, counted no further than `most`."""
        own = jobs.c
        some = select(own.id).where(text(GAP), own.state == JobState.DEAD, own.lane == lane).limit(most).subquery()
        (row,) = await self._rows(select(func.count().label("jobs")).select_from(some))
        return int(row["jobs"])

    async def dead_letters(
        self,
        *,
        lane: str | None = None,
        states: Collection[JobState] = GAP_STATES,
        before: int | None = None,
        limit: int,
    ) -> Sequence[DeadLetterLine]:
        """The newest first."""
        own = jobs.c
        page = select(own.id).where(text(GAP), own.state.in_(states), own.id < (before or LARGEST_ID))
        if lane is not None:
            page = page.where(own.lane == lane)
        ids = page.order_by(own.id.desc()).limit(limit).subquery()
        joined = ids.join(jobs, own.id == ids.c.id).outerjoin(links, links.c.url_norm == own.key)
        rows = await self._rows(select(*_LETTER).select_from(joined).order_by(own.id.desc()))
        return [DeadLetterLine(**{**row, "state": JobState(row["state"])}) for row in rows]

    async def _rows(self, asked: Select[Any]) -> Sequence[Any]:
        async with self._database.read() as connection:
            return list((await connection.execute(asked)).mappings())


_LETTER: Final = (
    *(jobs.c[name] for name in ("id", "kind", "key", "lane", "state", "attempts", "max_attempts", "created_at")),
    jobs.c.run_at.label("ended_at"),
    jobs.c.last_error,
    links.c.id.label("link_id"),
    links.c.url,
)
