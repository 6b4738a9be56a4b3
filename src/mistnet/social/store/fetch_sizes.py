"""Reads and writes what catch-ups have fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.social.fetch_sizes import Fetched, FetchStats, after
from mistnet.social.model import Platform, UserId, X
from mistnet.social.tables import accounts

STATISTICS: Final = (
    accounts.c.last_fetched_at,
    accounts.c.last_fetched_count,
    accounts.c.last_new_count,
    accounts.c.fetches,
    accounts.c.new_rate,
    accounts.c.empty_fetches,
    accounts.c.fetch_limit,
)
"""The columns that `stats_of` reads."""


def stats_of(row: Mapping[Any, Any]) -> FetchStats:
    """The statistics in a row that has the columns of STATISTICS."""
    return FetchStats(
        # A sweep of the past moves the column as well. Only fetches that are counted have a time here.
        last_fetch_at=row["last_fetched_at"] if row["fetches"] else None,
        last_fetched_count=row["last_fetched_count"] or 0,
        last_new_count=row["last_new_count"] or 0,
        total_fetches=row["fetches"],
        avg_new_rate=row["new_rate"],
        consecutive_empty_fetches=row["empty_fetches"],
        last_limit=row["fetch_limit"],
    )


async def fetch_stats(database: Database, platform: Platform = X) -> Mapping[UserId, FetchStats]:
    """Of every account."""
    asked = select(accounts.c.user_id, *STATISTICS).where(accounts.c.platform == platform)
    async with database.read() as connection:
        return {UserId(row["user_id"]): stats_of(row) for row in (await connection.execute(asked)).mappings()}


async def write_fetched(connection: AsyncConnection, given: Sequence[Fetched], now: datetime) -> None:
    """Each on top of what was known, in the order all writers share."""
    for each in sorted(given, key=lambda each: (each.platform, each.user_id)):
        row = (await connection.execute(_OWN, {"of_platform": each.platform, "of_user": each.user_id})).mappings()
        if (known := row.first()) is not None:
            stats = after(stats_of(known), fetched=each.fetched, new=each.new, limit=each.limit, at=now)
            await connection.execute(_KEEP, _values(each, stats))


_OWN: Final[Select[Any]] = (
    select(*STATISTICS)
    .where(accounts.c.platform == bindparam("of_platform"), accounts.c.user_id == bindparam("of_user"))
    .with_for_update()
)
_KEEP: Final = (
    update(accounts)
    .where(accounts.c.platform == bindparam("of_platform"), accounts.c.user_id == bindparam("of_user"))
    .values({column.name: bindparam(f"new_{column.name}") for column in STATISTICS})
)


def _values(fetched: Fetched, stats: FetchStats) -> dict[str, Any]:
    return {
        "of_platform": fetched.platform,
        "of_user": fetched.user_id,
        "new_last_fetched_at": stats.last_fetch_at,
        "new_last_fetched_count": stats.last_fetched_count,
        "new_last_new_count": stats.last_new_count,
        "new_fetches": stats.total_fetches,
        "new_new_rate": stats.avg_new_rate,
        "new_empty_fetches": stats.consecutive_empty_fetches,
        "new_fetch_limit": stats.last_limit,
    }
