"""What was collected in all, and what came last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec
from sqlalchemy import Column, ColumnElement, Select, Text, func, select, text, type_coerce, union_all

from mistnet.governor.tables import call_sums, calls
from mistnet.kit.database import Database
from mistnet.operations.pruning import NO_ACCOUNT
from mistnet.operations.tables import alerts
from mistnet.queue.model import JobId, JobState, KindName, WorkerName
from mistnet.queue.tables import GAP, LEASED, jobs
from mistnet.shops.tables import products
from mistnet.social.model import PostId, UserId, X
from mistnet.social.post_order import NEWEST_FIRST
from mistnet.social.tables import accounts, missing, posts, users


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """How much is stored. Gone is what upstream was asked for and does not have."""

    posts: int
    native_retweets: int
    users: int
    gone_posts: int
    gone_users: int
    products: int


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A post that came in, and whose it is."""

    id: PostId
    handle: str | None
    tracked: bool
    text: str
    created_at: datetime


class Overview:
    """Reads all rows of a table for a number: for databases that fit on a screen."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totals(self) -> Totals:
        gone = select(func.count()).select_from(missing)
        counts: dict[str, Select[Any]] = {
            "posts": select(func.count()).select_from(posts),
            "native_retweets": select(func.count()).select_from(posts).where(posts.c.reposted_id.is_not(None)),
            "users": select(func.count()).select_from(users),
            "gone_posts": gone.where(missing.c.what == "post"),
            "gone_users": gone.where(missing.c.what == "user"),
            "products": select(func.count()).select_from(products),
        }
        asked = select(*(count.scalar_subquery().label(name) for name, count in counts.items()))
        async with self._database.read() as connection:
            return Totals(**(await connection.execute(asked)).mappings().one())

    async def arrivals(self, limit: int) -> Sequence[Arrival]:
        """The posts that came last, the newest first."""
        asked = (
            select(
                posts.c.id,
                users.c.handle,
                accounts.c.user_id.is_not(None).label("tracked"),
                posts.c.text,
                posts.c.created_at,
            )
            .join(users, (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id))
            .outerjoin(accounts, (accounts.c.platform == users.c.platform) & (accounts.c.user_id == users.c.id))
            .order_by(posts.c.first_seen_at.desc(), *NEWEST_FIRST)
            .limit(limit)
        )
        async with self._database.read() as connection:
            return [Arrival(**row) for row in (await connection.execute(asked)).mappings()]


Unit: TypeAlias = Literal["second", "minute"]
_LETTERS: Mapping[Unit, int] = {"second": 19, "minute": 16}


class OpenAlert(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator was told of that is neither over nor accepted."""

    id: int
    rule: str
    subject: str
    severity: str
    message: str
    opened_at: datetime


class GapGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one kind that ended without their result for the same reason. `newest` is one of them."""

    kind: KindName
    state: JobState
    last_error: str | None
    jobs: int
    newest: JobId


class Board:
    """Reads. What looks at every post is for a background task, never for a page that somebody waits for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def posts_before(self, moment: datetime) -> int:
        """How many posts came in before this."""
        counted = select(func.count()).select_from(posts).where(posts.c.first_seen_at < moment)
        async with self._database.read() as connection:
            return (await connection.execute(counted)).scalar_one()

    async def posts_by(self, unit: Unit, since: datetime, until: datetime | None = None) -> Mapping[datetime, int]:
        """How many posts came in, in each second or minute that brought any."""
        return await self._sums(posts.c.first_seen_at, func.count(), unit, since, until)

    async def credits_by(self, unit: Unit, since: datetime, until: datetime | None = None) -> Mapping[datetime, int]:
        """What was spent, in each second or minute in which something was."""
        return await self._sums(calls.c.at, func.sum(calls.c.credits), unit, since, until)

    async def stored_posts(self) -> Mapping[UserId, int]:
        """How many posts of each account are stored. Looks at all of them."""
        counted = (
            select(accounts.c.user_id, func.count(posts.c.id).label("posts"))
            .join(posts, (posts.c.platform == accounts.c.platform) & (posts.c.author_id == accounts.c.user_id))
            .where(accounts.c.platform == X)
            .group_by(accounts.c.user_id)
        )
        async with self._database.read() as connection:
            return {UserId(row.user_id): row.posts for row in await connection.execute(counted)}

    async def spent_on(self) -> Mapping[UserId, int]:
        """What the calls for each account have cost. Looks at all of them."""
        single = select(calls.c.account_id, calls.c.credits).where(calls.c.account_id.is_not(None))
        pruned = select(call_sums.c.account_id, call_sums.c.credits).where(call_sums.c.account_id != NO_ACCOUNT)
        both = union_all(single, pruned).subquery()
        summed = select(both.c.account_id, func.sum(both.c.credits).label("credits")).group_by(both.c.account_id)
        async with self._database.read() as connection:
            return {UserId(row.account_id): int(row.credits) for row in await connection.execute(summed)}

    async def held_by(self) -> Mapping[WorkerName, int]:
        """How many jobs each worker has on lease now."""
        counted = select(jobs.c.worker, func.count().label("jobs")).where(text(LEASED)).group_by(jobs.c.worker)
        async with self._database.read() as connection:
            return {WorkerName(row.worker): row.jobs for row in await connection.execute(counted)}

    async def account_states(self) -> Mapping[str, int]:
        counted = select(accounts.c.state, func.count().label("accounts")).group_by(accounts.c.state)
        async with self._database.read() as connection:
            return {row.state: row.accounts for row in await connection.execute(counted)}

    async def alerts(self, limit: int = 20) -> Sequence[OpenAlert]:
        """The worst first, then the newest."""
        asked = (
            select(*(alerts.c[name] for name in OpenAlert.__struct_fields__))
            .where(alerts.c.closed_at.is_(None), alerts.c.accepted_at.is_(None))
            .order_by(alerts.c.severity, alerts.c.opened_at.desc(), alerts.c.id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            return [OpenAlert(**row) for row in (await connection.execute(asked)).mappings()]

    async def gaps(self, limit: int = 5) -> Sequence[GapGroup]:
        """What ended without its result, and why: dead jobs first, then by how many there are."""
        same = (jobs.c.kind, jobs.c.state, jobs.c.last_error)
        asked = (
            select(*same, func.count().label("jobs"), func.max(jobs.c.id).label("newest"))
            .where(text(GAP))
            .group_by(*same)
            .order_by(jobs.c.state, func.count().desc(), func.max(jobs.c.id).desc())
            .limit(limit)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(asked)).mappings()
            return [GapGroup(**{**row, "state": JobState(row["state"])}) for row in rows]

    async def _sums(
        self, at: Column[datetime], amount: ColumnElement[Any], unit: Unit, since: datetime, until: datetime | None
    ) -> Mapping[datetime, int]:
        moment = self._floor(at, unit)
        asked = select(moment.label("moment"), amount.label("amount")).where(at >= since).group_by(moment)
        if until is not None:
            asked = asked.where(at < until)
        async with self._database.read() as connection:
            return {_moment(row.moment): int(row.amount) for row in await connection.execute(asked)}

    def _floor(self, at: Column[datetime], unit: Unit) -> ColumnElement[Any]:
        if self._database.dialect == "postgresql":
            return func.to_char(func.timezone("UTC", at), "YYYY-MM-DD HH24:MI:SS"[: _LETTERS[unit] + 2], type_=Text())
        return func.substr(type_coerce(at, Text()), 1, _LETTERS[unit], type_=Text())


def _moment(shown: str) -> datetime:
    return datetime.fromisoformat(shown).replace(tzinfo=UTC)
