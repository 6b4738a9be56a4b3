"""Jobs of accounts and suggestions: find them by key, cancel them, revive them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from sqlalchemy import or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.statements import run
from mistnet.queue.model import LIVE_STATES, JobId, JobState, KindName, NewJob
from mistnet.queue.tables import GAP, LIVE_KEY, jobs
from mistnet.social.jobs.args import (
    BACKFILL,
    CATCH_UP,
    HYDRATE_USER,
    RELOOK,
    REPOSTS,
    SUGGESTION,
    key_of,
)
from mistnet.social.model import Platform, UserId

T = TypeVar("T")

SWEEPS: Final = (BACKFILL, CATCH_UP, REPOSTS, RELOOK)
"""Kinds whose jobs belong to one account. Their key is its key, or begins with it and a colon."""

# Both databases take about 32,000 parameters, and a row may need several.
_MANY: Final = 5_000


class SubjectJob(msgspec.Struct, frozen=True, kw_only=True):
    """The live or failed job of one subject, such as the poll of a feed."""

    id: JobId
    state: JobState
    wait_reason: str | None
    last_error: str | None

    @property
    def alive(self) -> bool:
        return self.state in LIVE_STATES


def slices(given: Sequence[T]) -> Iterator[Sequence[T]]:
    """Slices that fit into the parameters of one statement."""
    return (given[start : start + _MANY] for start in range(0, len(given), _MANY))


async def live_sweeps(connection: AsyncConnection, platform: Platform, user_id: UserId) -> list[JobId]:
    key = key_of(platform, user_id)
    own = or_(jobs.c.key == key, jobs.c.key.startswith(f"{key}:", autoescape=True))
    asked = select(jobs.c.id).where(jobs.c.kind.in_(SWEEPS), own, text(LIVE_KEY))
    return [JobId(each) for each in (await connection.execute(asked)).scalars()]


async def live_suggestions(connection: AsyncConnection, platform: Platform, handle: str) -> list[JobId]:
    asked = select(jobs.c.id).where(
        jobs.c.kind == SUGGESTION, jobs.c.key == key_of(platform, handle.lower()), text(LIVE_KEY)
    )
    return [JobId(each) for each in (await connection.execute(asked)).scalars()]


async def live_hydrations(
    connection: AsyncConnection, platform: Platform, user_ids: Collection[UserId], *, tracking: bool
) -> list[JobId]:
    """Live hydrations that also track the user, or those that do not."""
    found: list[JobId] = []
    for each in slices([key_of(platform, user_id) for user_id in sorted(user_ids)]):
        asked = select(jobs.c.id, jobs.c.args).where(jobs.c.kind == HYDRATE_USER, jobs.c.key.in_(each), text(LIVE_KEY))
        rows = await connection.execute(asked)
        found += [JobId(row.id) for row in rows if bool(row.args.get("tracked")) is tracking]
    return found


async def cancel(connection: AsyncConnection, ids: Sequence[JobId], now: datetime) -> Sequence[JobId]:
    """Cancel jobs; return those that existed. A worker on one of them loses its lease."""
    if not ids:
        return []
    if connection.dialect.name == "postgresql":
        return list((await run(connection, "cancel", {"ids": ids, "now": now})).scalars())
    # SQLite has no statement that deletes and inserts at once; its transaction holds the only write lock.
    await run(connection, "history", {"ids": ids, "now": now, "state": JobState.CANCELLED})
    await run(connection, "forget", {"ids": ids})
    return ids


async def cancel_gaps(connection: AsyncConnection, kind: KindName, ids: Sequence[int], now: datetime) -> None:
    """Move the failed jobs of these subjects to the history, because new ones are about to replace them."""
    own = (jobs.c.kind == kind) & jobs.c.key.in_([str(each) for each in ids])
    failed = select(jobs.c.id).where(own, text(GAP)).order_by(jobs.c.id)
    await cancel(connection, [JobId(each) for each in (await connection.execute(failed)).scalars()], now)


async def revive_gaps(connection: AsyncConnection, wanted: Sequence[NewJob], now: datetime) -> int:
    """Revive failed jobs with these kinds and keys; return how many."""
    keys = {(job.kind, job.key) for job in wanted}
    gaps: list[JobId] = []
    for kind in sorted({job.kind for job in wanted}):
        asked = select(jobs.c.id, jobs.c.key).where(jobs.c.kind == kind, text(GAP))
        gaps += [JobId(row.id) for row in await connection.execute(asked) if (kind, row.key) in keys]
    if not gaps:
        return 0
    return len((await run(connection, "revive", {"ids": gaps, "now": now})).all())
