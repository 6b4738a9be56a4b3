"""What a rhythm is made of: how often each account writes, when it was looked at, and what looks have cost today."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, and_, case, func, literal_column, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.rhythm import HOURS, WINDOW
from mistnet.domain.social import Platform, UserId
from mistnet.store.account_jobs import slices
from mistnet.store.database import Database
from mistnet.store.schedule import CAN_BE_CAUGHT_UP_WITH, CATCH_UP, Members
from mistnet.store.tables import accounts, calls, job_history, jobs, posts, users
from mistnet.store.tables.engine import LIVE_KEY

_FIRST_ID_AT_MS: Final = 1_288_834_974_657
_BITS_BELOW_TIME: Final = 22
_HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Habit(msgspec.Struct, frozen=True, kw_only=True):
    """How many posts an account wrote in each hour of the day, over so many days."""

    counts: tuple[int, ...]
    days: float


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """When an account was looked at last, and whether somebody is at it now."""

    looked_at: datetime
    alive: bool


class StorePaces:
    """Reads for a rhythm by budget. Ids of X carry their time, so an index alone tells when posts were written."""

    def __init__(self, database: Database, platform: Platform = Platform.X) -> None:
        self._database = database
        self._platform = platform

    async def standings(self, members: Members) -> Mapping[UserId, Standing]:
        """All accounts of a group that can be caught up with."""
        live = select(jobs.c.key).where(jobs.c.kind == CATCH_UP, text(LIVE_KEY))
        asked = (
            select(
                accounts.c.user_id,
                users.c.handle_key,
                _LOOKED_AT,
            )
            .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
            .where(accounts.c.platform == self._platform, CAN_BE_CAUGHT_UP_WITH)
        )
        async with self._database.read() as connection:
            alive = set((await connection.execute(live)).scalars())
            rows = (await connection.execute(asked)).mappings().all()
        return {
            row["user_id"]: Standing(looked_at=row["looked_at"], alive=str(row["user_id"]) in alive)
            for row in rows
            if (row["handle_key"] in members.handles) is not members.all_others
        }

    async def habits(self, user_ids: Collection[UserId], *, now: datetime) -> Mapping[UserId, Habit]:
        """What the last four weeks tell of accounts; of one whose history begins later, the time since."""
        counts = {user_id: [0] * HOURS for user_id in user_ids}
        oldest: dict[UserId, int] = {}
        async with self._database.read() as connection:
            for some in slices(sorted(user_ids)):
                for author, hour, written in await self._counted(connection, some, now - WINDOW):
                    counts[author][hour] = written
                oldest |= await self._oldest(connection, some)
        return {
            user_id: Habit(counts=tuple(each), days=_days(oldest.get(user_id), now)) for user_id, each in counts.items()
        }

    async def _counted(self, connection: AsyncConnection, some: Collection[UserId], since: datetime) -> Any:
        asked = counting(self._platform, some, since)
        return (await connection.execute(asked)).all()

    async def _oldest(self, connection: AsyncConnection, some: Collection[UserId]) -> dict[UserId, int]:
        asked = select(accounts.c.user_id, accounts.c.oldest_post_id).where(
            accounts.c.platform == self._platform, accounts.c.user_id.in_(some), accounts.c.oldest_post_id.is_not(None)
        )
        return {row.user_id: row.oldest_post_id for row in await connection.execute(asked)}

    async def spent(self, user_ids: Collection[UserId], *, since: datetime) -> int:
        """What catch-ups of these accounts have cost since then, native retweets with them.

        The first pass over an account's native retweets belongs to its history, not to its looks.
        """
        asked = (
            select(calls.c.account_id, func.sum(calls.c.credits))
            .join(accounts, accounts.c.user_id == calls.c.account_id)
            .where(
                calls.c.at >= since,
                accounts.c.platform == self._platform,
                or_(_KIND == CATCH_UP, and_(_KIND == "reposts", calls.c.at > accounts.c.reposts_backfilled_at)),
            )
            .group_by(calls.c.account_id)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(asked)).all()
        wanted = set(user_ids)
        return sum(credits_ for user_id, credits_ in rows if user_id in wanted)


_LOOKED_AT: Final = case(
    ((accounts.c.fetches > 0) & accounts.c.backfilled_at.is_not(None), accounts.c.last_fetched_at),
    else_=accounts.c.tracked_at,
).label("looked_at")
"""The pages of a backfill are no looks for what is new, though they are fetches."""

_KIND: Final = func.coalesce(
    *(select(each.c.kind).where(each.c.id == calls.c.job_id).scalar_subquery() for each in (jobs, job_history))
)
"""What kind of job a call was made for; jobs are asked one by one, because history is long and a day is short."""


_HOUR_OF_DAY: Final[ColumnElement[int]] = literal_column(
    f"((posts.id >> {_BITS_BELOW_TIME}) + {_FIRST_ID_AT_MS}) / {_HOUR_MS} % {HOURS}"
).label("hour")


def counting(platform: Platform, some: Collection[UserId], since: datetime) -> Select[Any]:
    """How many posts of whom in which hour of the day."""
    return (
        select(posts.c.author_id, _HOUR_OF_DAY, func.count())
        .where(posts.c.platform == platform, posts.c.author_id.in_(some), posts.c.id >= first_id_at(since))
        .group_by(posts.c.author_id, _HOUR_OF_DAY)
    )


def first_id_at(at: datetime) -> int:
    """The lowest id a post of X written at this time can have."""
    return max((at - _EPOCH) // timedelta(milliseconds=1) - _FIRST_ID_AT_MS, 0) << _BITS_BELOW_TIME


def _days(oldest_id: int | None, now: datetime) -> float:
    if oldest_id is None:
        return WINDOW / timedelta(days=1)
    begun = _EPOCH + timedelta(milliseconds=(oldest_id >> _BITS_BELOW_TIME) + _FIRST_ID_AT_MS)
    return min(max(now - begun, timedelta(days=1)), WINDOW) / timedelta(days=1)
