"""Posts that could not be read: the gaps they left, and when each is worth another try."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.jobs import JobId, JobState, KindName
from mistnet.domain.social import Platform, PostId
from mistnet.store.account_jobs import slices
from mistnet.store.statements import statement
from mistnet.store.tables import jobs, posts
from mistnet.store.tables.engine import GAP

HYDRATE_POST: Final = KindName("hydrate_post")
LEAST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=7)


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A post that could not be had, and when it was last tried."""

    id: JobId
    key: str
    state: str
    created_at: datetime
    started_at: datetime | None


async def gaps_among(connection: AsyncConnection, ids: Collection[PostId]) -> set[PostId]:
    asked = select(jobs.c.key).where(
        jobs.c.kind == HYDRATE_POST, text(GAP), jobs.c.key.in_([str(each) for each in sorted(ids)])
    )
    return {PostId(int(key)) for key in (await connection.execute(asked)).scalars()}


async def take_up_unreadable(connection: AsyncConnection, now: datetime) -> int:
    """Gives gaps another try: those whose post was stored since, which this ends, and those that are due.

    One that is due has a single attempt, so that an unreadable post is paid for once each time.
    """
    found = await _gaps(connection)
    stored = await _stored(connection, [row for row in found if row.key.isdecimal()])
    readable = {row.id for row in found if _came_since(row, stored)}
    due = {row.id for row in found if row.state == JobState.DEAD and _is_due(row, now)} - readable
    if not readable and not due:
        return 0
    revive = statement("revive", connection.dialect.name)
    revived = (await connection.execute(revive, {"ids": sorted(readable | due), "now": now})).scalars().all()
    once = [each for each in revived if each in due]
    await connection.execute(update(jobs).where(jobs.c.id.in_(once)).values(attempts=jobs.c.max_attempts - 1))
    return len(revived)


async def _gaps(connection: AsyncConnection) -> list[Gap]:
    asked = select(*(jobs.c[name] for name in Gap.__struct_fields__)).where(jobs.c.kind == HYDRATE_POST, text(GAP))
    return [Gap(**row) for row in (await connection.execute(asked.order_by(jobs.c.id))).mappings()]


async def _stored(connection: AsyncConnection, gaps: Collection[Gap]) -> dict[str, datetime]:
    """When the posts of these gaps were stored, by their keys."""
    stored: dict[str, datetime] = {}
    for some in slices([int(row.key) for row in gaps]):
        asked = select(posts.c.id, posts.c.first_seen_at).where(posts.c.platform == Platform.X, posts.c.id.in_(some))
        stored |= {str(row.id): row.first_seen_at for row in await connection.execute(asked)}
    return stored


def _came_since(row: Gap, stored: dict[str, datetime]) -> bool:
    """Stored after the last try: a later try that fails again waits for its time."""
    at = stored.get(row.key)
    return at is not None and (row.started_at is None or at > row.started_at)


def _is_due(row: Gap, now: datetime) -> bool:
    """As long after the last try as that was after the gap began: the wait doubles."""
    tried_at = row.started_at or row.created_at
    return bool(now - tried_at >= min(max(tried_at - row.created_at, LEAST_WAIT), LONGEST_WAIT))
