"""Ticks, each of which creates the catch-ups of a group once; and how often accounts write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, and_, case, delete, func, insert, literal_column, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.tables import calls
from mistnet.kit.database import Database, Store
from mistnet.operations.tables import ticks
from mistnet.queue.leader import LeaderTerm, still_leads
from mistnet.queue.model import KindName, NewJob
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import LIVE_KEY, job_history, jobs
from mistnet.social.accounts import AccountState, FetchStats
from mistnet.social.model import Platform, PostId, UserId, X
from mistnet.social.store.accounts import STATISTICS, revive_gaps, slices, stats_of
from mistnet.social.tables import accounts, posts, users

CATCH_UP: Final = KindName("catch_up")
HOURS: Final = 24
WINDOW: Final = timedelta(days=28)
"""The posts of this time tell how often an account writes."""

# Ids of X count milliseconds from this time, 2010-11-04 01:42:54 UTC, in the bits above the lowest 22.
_FIRST_ID_AT_MS: Final = 1_288_834_974_657
_BITS_BELOW_TIME: Final = 22
_HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts of a tick: those with these handles, or all others; and of them only these ids, if given."""

    handles: frozenset[str] = frozenset()
    all_others: bool = False
    only: frozenset[UserId] | None = None


class NewTick(msgspec.Struct, frozen=True, kw_only=True):
    """A slot of a group whose time has come. It also stands for `missed` earlier ones."""

    group: str
    at: datetime
    missed: int
    members: Members


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that was acted on: how many accounts it covered, and how many catch-ups it created."""

    group: str
    tick_at: datetime
    made_at: datetime
    holder: str
    fence: int
    accounts: int
    jobs: int
    missed: int


class TickRefusal(StrEnum):
    """Why no tick was made."""

    NOT_LEADING = "another process leads"
    ALREADY_MADE = "it was made already"


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """An account without a live catch-up. Without a newest post, no post of it was ever found."""

    user_id: UserId
    newest_post_id: PostId | None
    fetch: FetchStats


class StoreSchedule(Store):
    """The table `ticks`, and the jobs that land with its rows."""

    def __init__(self, database: Database, job_writer: JobWriter) -> None:
        super().__init__(database)
        self._job_writer = job_writer

    async def tick(
        self, new: NewTick, term: LeaderTerm, *, job: Callable[[Idle], NewJob], now: datetime
    ) -> Tick | TickRefusal:
        """Create the catch-ups of a slot and its row in one transaction."""
        async with self._database.transaction() as connection:
            # This locks the leader's row, so no other process can become the leader before the transaction ends.
            if not await still_leads(connection, term, now=now):
                return TickRefusal.NOT_LEADING
            last = (await connection.execute(_last(new.group))).scalar()
            if last is not None and last >= new.at:
                return TickRefusal.ALREADY_MADE
            total, idle = await self._members(connection, new.members)
            created = 0
            if catch_ups := [job(each) for each in idle]:
                # A catch-up that failed is revived and continues where it was, instead of a new one beside it.
                created = await revive_gaps(connection, catch_ups, now)
                created += (await self._job_writer.write(connection, catch_ups, now)).created
            made = Tick(
                group=new.group,
                tick_at=new.at,
                made_at=now,
                holder=term.holder,
                fence=term.fence,
                accounts=total,
                jobs=created,
                missed=new.missed,
            )
            row = msgspec.structs.asdict(made)
            await connection.execute(insert(ticks).values(group_name=row.pop("group"), **row))
        return made

    async def last_tick(self, group: str) -> datetime | None:
        """The slot of a group's latest tick, made by any process."""
        return await self._database.fetch_value(_last(group))  # type: ignore[no-any-return]

    async def last_ticks(self) -> Mapping[str, Tick]:
        """The latest tick of each group that has had one."""
        latest = select(ticks.c.group_name, func.max(ticks.c.tick_at).label("at")).group_by(ticks.c.group_name)
        newest = latest.subquery()
        query = select(*_TICK).join(
            newest, (newest.c.group_name == ticks.c.group_name) & (newest.c.at == ticks.c.tick_at)
        )
        return {row["group"]: Tick(**row) for row in await self._database.fetch_rows(query)}

    async def ticks(self, group: str, *, limit: int) -> Sequence[Tick]:
        """A group's ticks, the newest first."""
        query = select(*_TICK).where(ticks.c.group_name == group).order_by(ticks.c.tick_at.desc()).limit(limit)
        return [Tick(**row) for row in await self._database.fetch_rows(query)]

    async def prune(self, *, before: datetime) -> int:
        """Delete ticks made before then, except the latest of each group: the next slot is counted from it."""
        later = ticks.alias("later")
        outlived = (
            select(later.c.tick_at)
            .where(later.c.group_name == ticks.c.group_name, later.c.tick_at > ticks.c.tick_at)
            .exists()
        )
        async with self._database.transaction() as connection:
            return (await connection.execute(delete(ticks).where(ticks.c.made_at < before, outlived))).rowcount

    async def tracked(self, handles: Collection[str]) -> frozenset[str]:
        """Those of the handles (in lower case) that tracked accounts have now."""
        tracked: set[str] = set()
        for some in slices(sorted(handles)):
            query = (
                select(users.c.handle_key)
                .select_from(accounts)
                .join(users, _OWNERS)
                .where(accounts.c.state != AccountState.UNTRACKED)
                .where(accounts.c.platform == X, users.c.handle_key.in_(some))
            )
            tracked.update(row["handle_key"] for row in await self._database.fetch_rows(query))
        return frozenset(tracked)

    async def _members(self, connection: AsyncConnection, members: Members) -> tuple[int, list[Idle]]:
        """How many there are, and those without a live catch-up."""
        # Live catch-ups are read first. One that ends between the two reads has already moved its account's newest
        # post; in the other order, a catch-up could be created for posts that were just fetched.
        live = set((await connection.execute(_LIVE_CATCH_UPS)).scalars())
        every = _CATCHABLE.where(accounts.c.platform == X)
        by_handle = [every.where(users.c.handle_key.in_(some)) for some in slices(sorted(members.handles))]
        rows = [
            row
            for query in ([every] if members.all_others else by_handle)
            for row in (await connection.execute(query)).mappings()
            if not (members.all_others and row["handle_key"] in members.handles)
            and (members.only is None or row["user_id"] in members.only)
        ]
        idle = [row for row in rows if str(row["user_id"]) not in live]
        return len(rows), [
            Idle(user_id=row["user_id"], newest_post_id=row["newest_post_id"], fetch=stats_of(row)) for row in idle
        ]


def _last(group: str) -> Select[Any]:
    return select(ticks.c.tick_at).where(ticks.c.group_name == group).order_by(ticks.c.tick_at.desc()).limit(1)


_TICK: Final = (
    ticks.c.group_name.label("group"),
    *(ticks.c[name] for name in Tick.__struct_fields__ if name != "group"),
)
_OWNERS: Final = (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)
_LIVE_CATCH_UPS: Final = select(jobs.c.key).where(jobs.c.kind == CATCH_UP, text(LIVE_KEY))
CAN_BE_CAUGHT_UP_WITH: Final = (accounts.c.state == AccountState.ACTIVE) & (
    accounts.c.newest_post_id.is_not(None) | accounts.c.backfilled_at.is_not(None)
)
"""An account that had no posts when its backfill ended may write its first one at any time."""

_CATCHABLE: Final = (
    select(accounts.c.user_id, accounts.c.newest_post_id, users.c.handle_key, *STATISTICS)
    .join(users, _OWNERS)
    .where(CAN_BE_CAUGHT_UP_WITH)
)


class Habit(msgspec.Struct, frozen=True, kw_only=True):
    """How many posts an account wrote in each hour of the day, over this many days."""

    counts: tuple[int, ...]
    days: float


class LastLook(msgspec.Struct, frozen=True, kw_only=True):
    """When an account was last caught up with, and whether a catch-up is under way."""

    looked_at: datetime
    alive: bool


class PostingRateStore(Store):
    """Reads for groups with a budget. Ids of X carry their time, so an index of ids is enough to count by hour."""

    async def last_looks(self, members: Members) -> Mapping[UserId, LastLook]:
        """All accounts of a group that can be caught up with."""
        query = (
            select(accounts.c.user_id, users.c.handle_key, _LOOKED_AT)
            .join(users, _OWNERS)
            .where(accounts.c.platform == X, CAN_BE_CAUGHT_UP_WITH)
        )
        async with self._database.read() as connection:
            alive = set((await connection.execute(_LIVE_CATCH_UPS)).scalars())
            rows = (await connection.execute(query)).mappings().all()
        return {
            row["user_id"]: LastLook(looked_at=row["looked_at"], alive=str(row["user_id"]) in alive)
            for row in rows
            if (row["handle_key"] in members.handles) is not members.all_others
        }

    async def habits(self, user_ids: Collection[UserId], *, now: datetime) -> Mapping[UserId, Habit]:
        """The last four weeks of each account, or the time since its first post if that is shorter."""
        counts = {user_id: [0] * HOURS for user_id in user_ids}
        spans = dict.fromkeys(user_ids, WINDOW)
        async with self._database.read() as connection:
            for some in slices(sorted(user_ids)):
                by_hour = await connection.execute(counting(X, some, now - WINDOW))
                for author, hour, written in by_hour:
                    counts[author][hour] = written
                first = select(accounts.c.user_id, accounts.c.oldest_post_id).where(
                    accounts.c.platform == X,
                    accounts.c.user_id.in_(some),
                    accounts.c.oldest_post_id.is_not(None),
                )
                for row in await connection.execute(first):
                    written_ms = (row.oldest_post_id >> _BITS_BELOW_TIME) + _FIRST_ID_AT_MS
                    begun = _EPOCH + timedelta(milliseconds=written_ms)
                    spans[row.user_id] = min(max(now - begun, _DAY), WINDOW)
        return {user_id: Habit(counts=tuple(each), days=spans[user_id] / _DAY) for user_id, each in counts.items()}

    async def spent(self, user_ids: Collection[UserId], *, since: datetime) -> int:
        """What catch-ups of these accounts have cost since then, including native retweets.

        The first sweep of an account's native retweets belongs to its history and does not count.
        """
        query = (
            select(calls.c.account_id, func.sum(calls.c.credits).label("credits"))
            .join(accounts, accounts.c.user_id == calls.c.account_id)
            .where(
                calls.c.at >= since,
                accounts.c.platform == X,
                or_(_KIND == CATCH_UP, and_(_KIND == "reposts", calls.c.at > accounts.c.reposts_backfilled_at)),
            )
            .group_by(calls.c.account_id)
        )
        chosen = set(user_ids)
        rows = await self._database.fetch_rows(query)
        return sum(row["credits"] for row in rows if row["account_id"] in chosen)


# The pages of a backfill count as fetches, but they do not look for new posts.
_LOOKED_AT: Final = case(
    ((accounts.c.fetches > 0) & accounts.c.backfilled_at.is_not(None), accounts.c.last_fetched_at),
    else_=accounts.c.tracked_at,
).label("looked_at")
# The kind of the job that made a call. Read for each call of the day, as the history of jobs is far longer.
_KIND: Final = func.coalesce(
    *(select(each.c.kind).where(each.c.id == calls.c.job_id).scalar_subquery() for each in (jobs, job_history))
)


_HOUR_OF_DAY: Final[ColumnElement[int]] = literal_column(
    f"((posts.id >> {_BITS_BELOW_TIME}) + {_FIRST_ID_AT_MS}) / {_HOUR_MS} % {HOURS}"
).label("hour")


def counting(platform: Platform, some: Collection[UserId], since: datetime) -> Select[Any]:
    """How many posts each author wrote in each hour of the day."""
    return (
        select(posts.c.author_id, _HOUR_OF_DAY, func.count())
        .where(posts.c.platform == platform, posts.c.author_id.in_(some), posts.c.id >= first_id_at(since))
        .group_by(posts.c.author_id, _HOUR_OF_DAY)
    )


def first_id_at(at: datetime) -> int:
    """The lowest id that a post of X written at this time can have."""
    return max((at - _EPOCH) // timedelta(milliseconds=1) - _FIRST_ID_AT_MS, 0) << _BITS_BELOW_TIME
