"""What the alert rules look at, read from the database. Only questions that stay cheap as tables grow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from sqlalchemy import func, select, text

from mistnet.governor.tables import calls
from mistnet.kit.database import Database
from mistnet.operations.alerts.model import (
    QUIET_DAY,
    DeadJobs,
    DueWork,
    LateDeliveries,
    QuietAccount,
    SuspectAccount,
    WorkerReading,
)
from mistnet.queue.model import JobState, KindName, Lane
from mistnet.queue.tables import LIVE_KEY, WAITING, deliveries, jobs, paused_kinds, workers
from mistnet.social.accounts import AccountState
from mistnet.social.model import X
from mistnet.social.tables import accounts, posts, users

_TOO_MANY: Final = 429
_LIMITED: Final = timedelta(days=1)
_LATELY: Final = timedelta(minutes=15)
_COUNTED: Final = 10_000
_REMEMBERED: Final = timedelta(days=90)
_RECENT_POSTS: Final = 200


class StoreReadings:
    """Reads; decides nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def failing_since(self, source: str, after: datetime | None) -> datetime | None:
        """When the first call failed after the last one that did not."""
        wanted = select(func.min(calls.c.at)).where(calls.c.source == source, calls.c.error.is_not(None))
        if after is not None:
            wanted = wanted.where(calls.c.at > after)
        async with self._database.read() as connection:
            first: datetime | None = (await connection.execute(wanted)).scalar_one()
        return first

    async def limited_since(self, source: str, after: datetime | None, *, now: datetime) -> datetime | None:
        """When the first 429 came after the last success. None if none came lately: then no call is made any more."""
        begun = max(after, now - _LIMITED) if after else now - _LIMITED
        wanted = select(func.min(calls.c.at).label("first"), func.max(calls.c.at).label("last")).where(
            calls.c.source == source, calls.c.status == _TOO_MANY, calls.c.at > begun
        )
        (row,) = await self._rows(wanted)
        return row["first"] if row["last"] and now - row["last"] <= _LATELY else None

    async def dead(self) -> Sequence[DeadJobs]:
        last = func.max(jobs.c.id).label("last")
        dead = select(jobs.c.kind, func.count().label("jobs"), func.min(jobs.c.run_at).label("since"), last)
        counted = dead.where(jobs.c.state == JobState.DEAD).group_by(jobs.c.kind).subquery()
        wanted = (
            select(counted.c.kind, counted.c.jobs, counted.c.since, jobs.c.last_error.label("error"))
            .join(jobs, jobs.c.id == counted.c.last)
            .order_by(counted.c.kind)
        )
        return [DeadJobs(**row) for row in await self._rows(wanted)]

    async def due(self, targets: Collection[tuple[KindName, Lane]], *, now: datetime) -> Sequence[DueWork]:
        """By lane, counted no further than makes sense to say."""
        found: dict[Lane, DueWork] = {}
        paused = select(paused_kinds.c.kind)
        for kind, lane in sorted(targets):
            waiting = (
                select(jobs.c.run_at)
                .where(jobs.c.kind == kind, jobs.c.lane == lane, text(WAITING), jobs.c.run_at <= now)
                .where(jobs.c.kind.not_in(paused))
                .order_by(jobs.c.run_at)
                .limit(_COUNTED)
                .subquery()
            )
            (row,) = await self._rows(select(func.count().label("jobs"), func.min(waiting.c.run_at).label("since")))
            if row["jobs"]:
                before = found.get(lane)
                found[lane] = DueWork(
                    lane=lane,
                    jobs=row["jobs"] + (before.jobs if before else 0),
                    since=min(row["since"], before.since) if before else row["since"],
                )
        return list(found.values())

    async def workers(self, *, seen_after: datetime) -> Sequence[WorkerReading]:
        names = ("name", "lanes", "running", "concurrency", "draining")
        wanted = select(*(workers.c[name] for name in names)).where(workers.c.seen_at >= seen_after)
        return [WorkerReading(**{**row, "lanes": row["lanes"].split(", ")}) for row in await self._rows(wanted)]

    async def undelivered(self, known: Collection[str], *, kind: KindName) -> Sequence[LateDeliveries]:
        """What waits for each subscriber, and what its job says of the last try."""
        counted = (
            select(
                deliveries.c.subscriber,
                func.count().label("events"),
                func.min(deliveries.c.created_at).label("since"),
            )
            .group_by(deliveries.c.subscriber)
            .order_by(deliveries.c.subscriber)
        )
        tries = select(jobs.c.key, jobs.c.last_error).where(jobs.c.kind == kind, text(LIVE_KEY))
        errors = {row["key"]: row["last_error"] for row in await self._rows(tries)}
        return [
            LateDeliveries(**row, known=row["subscriber"] in known, error=errors.get(row["subscriber"]))
            for row in await self._rows(counted)
        ]

    async def quiet_accounts(self, *, now: datetime) -> Sequence[QuietAccount]:
        """Those a look found quiet for a day and more. Who wrote nothing for months does not usually write."""
        newest = (posts.c.platform == accounts.c.platform) & (posts.c.id == accounts.c.newest_post_id)
        person = (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)
        wanted = (
            select(accounts.c.user_id, users.c.handle, accounts.c.tracked_at, accounts.c.last_fetched_at)
            .join(posts, newest)
            .join(users, person)
            .where(accounts.c.state == AccountState.ACTIVE, accounts.c.backfilled_at.is_not(None))
            .where(posts.c.created_at > now - _REMEMBERED, posts.c.created_at < now - QUIET_DAY)
            .where(accounts.c.last_fetched_at.is_not(None))
            .order_by(accounts.c.user_id)
        )
        return [await self._quiet(row) for row in await self._rows(wanted)]

    async def suspect_accounts(self) -> Sequence[SuspectAccount]:
        """Accounts that are collected and whose stored posts are implausibly few."""
        person = (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)
        own = (posts.c.platform == accounts.c.platform) & (posts.c.author_id == accounts.c.user_id)
        stored = select(func.count()).select_from(posts).where(own).correlate(accounts).scalar_subquery()
        wanted = (
            select(
                accounts.c.user_id,
                users.c.handle,
                stored.label("stored"),
                func.coalesce(users.c.posts_count, 0).label("counted"),
                accounts.c.suspect_since.label("since"),
                accounts.c.next_look_at,
            )
            .join(users, person)
            .where(accounts.c.state == AccountState.ACTIVE, accounts.c.suspect_since.is_not(None))
            .order_by(accounts.c.user_id)
        )
        return [
            SuspectAccount(**{**row, "handle": row["handle"] or str(row["user_id"])})
            for row in await self._rows(wanted)
        ]

    async def _quiet(self, row: Mapping[str, Any]) -> QuietAccount:
        recent = (
            select(posts.c.created_at)
            .where(posts.c.platform == X, posts.c.author_id == row["user_id"], posts.c.reposted_id.is_(None))
            .order_by(posts.c.id.desc())
            .limit(_RECENT_POSTS)
        )
        times: list[datetime] = sorted((each["created_at"] for each in await self._rows(recent)), reverse=True)
        return QuietAccount(
            user_id=row["user_id"],
            handle=row["handle"] or str(row["user_id"]),
            tracked_at=row["tracked_at"],
            looked_at=row["last_fetched_at"],
            newest_at=times[0],
            gaps=[later - earlier for later, earlier in pairwise(times)],
        )

    async def _rows(self, wanted: Any) -> Sequence[Any]:
        async with self._database.read() as connection:
            return (await connection.execute(wanted)).mappings().all()
