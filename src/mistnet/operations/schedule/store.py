"""Ticks: each creates a group's catch-ups, once, by whoever leads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import Select, delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.operations.tables import ticks
from mistnet.queue.leader import LeaderTerm, still_leads
from mistnet.queue.model import KindName, NewJob
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import LIVE_KEY, jobs
from mistnet.social.accounts import AccountState
from mistnet.social.fetch_sizes import FetchStats
from mistnet.social.model import Platform, PostId, UserId, X
from mistnet.social.store.account_jobs import revive_gaps, slices
from mistnet.social.store.fetch_sizes import STATISTICS, stats_of
from mistnet.social.tables import accounts, users

CATCH_UP: Final = KindName("catch_up")


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """Which accounts a tick is for: those with these handles, all but those, or these ids of them."""

    handles: frozenset[str] = frozenset()
    all_others: bool = False
    only: frozenset[UserId] | None = None


class NewTick(msgspec.Struct, frozen=True, kw_only=True):
    """A slot of a group whose time has come. It stands for `missed` earlier ones too."""

    group: str
    at: datetime
    missed: int
    members: Members


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a slot: how many accounts were looked at, and how many of them had no catch-up alive."""

    group: str
    tick_at: datetime
    made_at: datetime
    holder: str
    fence: int
    accounts: int
    jobs: int
    missed: int


class TickRefusal(StrEnum):
    """Why nothing was made of a slot."""

    NOT_LEADING = "another process leads"
    ALREADY_MADE = "it is made already"


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """An account that could be caught up with, as far as it is now. Without a newest post, no post was ever found."""

    user_id: UserId
    newest_post_id: PostId | None
    fetch: FetchStats


class StoreSchedule:
    """The table `ticks`, and the jobs that land with its rows."""

    def __init__(self, database: Database, job_writer: JobWriter, platform: Platform = X) -> None:
        self._database = database
        self._job_writer = job_writer
        self._platform = platform

    async def tick(
        self, wanted: NewTick, term: LeaderTerm, *, job: Callable[[Idle], NewJob], now: datetime
    ) -> Tick | TickRefusal:
        """One transaction in which nobody else can begin to lead. It only creates jobs."""
        async with self._database.transaction() as connection:
            if not await still_leads(connection, term, now=now):
                return TickRefusal.NOT_LEADING
            last = await _last(connection, wanted.group)
            if last is not None and last >= wanted.at:
                return TickRefusal.ALREADY_MADE
            found, idle = await self._members(connection, wanted.members)
            created = await self._create(connection, [job(each) for each in idle], now)
            made = Tick(
                group=wanted.group,
                tick_at=wanted.at,
                made_at=now,
                holder=term.holder,
                fence=term.fence,
                accounts=found,
                jobs=created,
                missed=wanted.missed,
            )
            await connection.execute(insert(ticks).values(_row(made)))
        return made

    async def last_tick(self, group: str) -> datetime | None:
        """The slot of a group's latest tick, whoever made it."""
        async with self._database.read() as connection:
            return await _last(connection, group)

    async def last_ticks(self) -> Mapping[str, Tick]:
        """The latest tick of each group that ever had one."""
        latest = select(ticks.c.group_name, func.max(ticks.c.tick_at).label("at")).group_by(ticks.c.group_name)
        newest = latest.subquery()
        asked = select(*_TICK).join(
            newest, (newest.c.group_name == ticks.c.group_name) & (newest.c.at == ticks.c.tick_at)
        )
        async with self._database.read() as connection:
            return {row["group"]: Tick(**row) for row in (await connection.execute(asked)).mappings()}

    async def ticks(self, group: str, *, limit: int, before: datetime | None = None) -> Sequence[Tick]:
        """A group's ticks, the newest first."""
        asked = select(*_TICK).where(ticks.c.group_name == group).order_by(ticks.c.tick_at.desc()).limit(limit)
        if before is not None:
            asked = asked.where(ticks.c.tick_at < before)
        async with self._database.read() as connection:
            return [Tick(**row) for row in (await connection.execute(asked)).mappings()]

    async def prune(self, *, before: datetime) -> int:
        """Forgets ticks made before then, but of each group the latest: it says from where to count."""
        later = ticks.alias("later")
        outlived = (
            select(later.c.tick_at)
            .where(later.c.group_name == ticks.c.group_name, later.c.tick_at > ticks.c.tick_at)
            .exists()
        )
        async with self._database.transaction() as connection:
            return (await connection.execute(delete(ticks).where(ticks.c.made_at < before, outlived))).rowcount

    async def tracked(self, handles: Collection[str]) -> frozenset[str]:
        """Those of the handles (in lower case) that tracked accounts go by now."""
        found: set[str] = set()
        async with self._database.read() as connection:
            for each in slices(sorted(handles)):
                asked = _HANDLES.where(accounts.c.platform == self._platform, users.c.handle_key.in_(each))
                found.update((await connection.execute(asked)).scalars())
        return frozenset(found)

    async def _members(self, connection: AsyncConnection, members: Members) -> tuple[int, list[Idle]]:
        """How many there are, and those without a catch-up alive.

        Which catch-ups live is asked first: one that ends in between has moved its account's newest post by then.
        """
        live = await self._caught_up_with(connection)
        rows = [
            row
            for asked in self._questions(members)
            for row in (await connection.execute(asked)).mappings()
            if not (members.all_others and row["handle_key"] in members.handles)
            and (members.only is None or row["user_id"] in members.only)
        ]
        idle = [row for row in rows if str(row["user_id"]) not in live]
        return len(rows), [
            Idle(user_id=row["user_id"], newest_post_id=row["newest_post_id"], fetch=stats_of(row)) for row in idle
        ]

    async def _caught_up_with(self, connection: AsyncConnection) -> set[str]:
        asked = select(jobs.c.key).where(jobs.c.kind == CATCH_UP, text(LIVE_KEY))
        return set((await connection.execute(asked)).scalars())

    def _questions(self, members: Members) -> Sequence[Select[Any]]:
        asked = _CATCHABLE.where(accounts.c.platform == self._platform)
        if members.all_others:
            return [asked]
        return [asked.where(users.c.handle_key.in_(each)) for each in slices(sorted(members.handles))]

    async def _create(self, connection: AsyncConnection, wanted: Sequence[NewJob], now: datetime) -> int:
        """A catch-up that ended as a gap goes on where it stood, in place of a new one beside it."""
        if not wanted:
            return 0
        revived = await revive_gaps(connection, wanted, now)
        return revived + (await self._job_writer.write(connection, wanted, now)).created


async def _last(connection: AsyncConnection, group: str) -> datetime | None:
    asked = select(ticks.c.tick_at).where(ticks.c.group_name == group).order_by(ticks.c.tick_at.desc()).limit(1)
    return (await connection.execute(asked)).scalar()


def _row(tick: Tick) -> dict[str, Any]:
    row = msgspec.structs.asdict(tick)
    return {"group_name": row.pop("group"), **row}


_TICK: Final = (
    ticks.c.group_name.label("group"),
    *(ticks.c[name] for name in Tick.__struct_fields__ if name != "group"),
)
_OWNERS: Final = (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)
_HANDLES: Final = (
    select(users.c.handle_key)
    .select_from(accounts)
    .join(users, _OWNERS)
    .where(accounts.c.state != AccountState.UNTRACKED)
)
CAN_BE_CAUGHT_UP_WITH: Final = (accounts.c.state == AccountState.ACTIVE) & (
    accounts.c.newest_post_id.is_not(None) | accounts.c.backfilled_at.is_not(None)
)
"""An account that had no posts when its backfill ended may write its first one any day."""

_CATCHABLE: Final = (
    select(accounts.c.user_id, accounts.c.newest_post_id, users.c.handle_key, *STATISTICS)
    .join(users, _OWNERS)
    .where(CAN_BE_CAUGHT_UP_WITH)
)
