"""Sums for the dashboard, the demo and `spend`: totals, the latest posts, counts of the queue, costs of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Select,
    Text,
    case,
    cast,
    func,
    select,
    text,
    type_coerce,
    union_all,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from mistnet.governor.bills import RECONCILIATION
from mistnet.governor.model import SourceName, day_of, day_start
from mistnet.governor.store import day_of_call
from mistnet.governor.tables import call_days, call_deltas, call_hours, call_sums, calls
from mistnet.kit.database import Store
from mistnet.kit.types import BigId
from mistnet.kit.view import columns_of, record_of
from mistnet.operations.pruning import NO_ACCOUNT, SUMMED
from mistnet.operations.tables import alerts
from mistnet.queue.model import JobId, JobState, KindName, WorkerName
from mistnet.queue.tables import GAP, LEASED, job_errors, job_history, jobs
from mistnet.shops.tables import products
from mistnet.social.accounts import AccountState
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.accounts import stored_posts_of
from mistnet.social.store.post_listing import NEWEST_FIRST
from mistnet.social.tables import accounts, missing, posts, users


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """How much is stored. `gone` counts what upstream does not have."""

    posts: int
    native_retweets: int
    users: int
    gone_posts: int
    gone_users: int
    products: int


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A new post and its author."""

    id: PostId
    handle: str | None
    tracked: bool
    text: str
    created_at: datetime


Unit: TypeAlias = Literal["second", "minute"]
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_LETTERS: Mapping[Unit, int] = {"second": 19, "minute": 16}


class OpenAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that is neither over nor accepted."""

    id: int
    rule: str
    subject: str
    severity: str
    message: str
    opened_at: datetime


class GapGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one kind that failed with the same error. `newest` is the id of the last one."""

    kind: KindName
    state: JobState
    last_error: str | None
    jobs: int
    newest: JobId


Charted: TypeAlias = Literal["posts", "credits", "jobs done", "failed attempts", "calls", "failed calls"]
_CHARTED: Final[Mapping[Charted, tuple[Column[datetime], ColumnElement[Any]]]] = {
    "posts": (posts.c.first_seen_at, func.count()),
    "credits": (calls.c.at, func.sum(calls.c.credits)),
    "jobs done": (job_history.c.finished_at, func.count(case((job_history.c.state == JobState.SUCCEEDED, 1)))),
    "failed attempts": (job_errors.c.at, func.count()),
    "calls": (calls.c.at, func.count()),
    "failed calls": (calls.c.at, func.count(calls.c.error)),
}
"""The time of each, and how much there is of it."""


class DashboardStore(Store):
    """Reads for the dashboard. What counts every post is for background tasks, not for a request."""

    async def totals(self) -> Totals:
        """Counts whole tables: for small databases, such as that of the demo."""
        gone = select(func.count()).select_from(missing)
        counts: dict[str, Select[Any]] = {
            "posts": select(func.count()).select_from(posts),
            "native_retweets": select(func.count()).select_from(posts).where(posts.c.reposted_id.is_not(None)),
            "users": select(func.count()).select_from(users),
            "gone_posts": gone.where(missing.c.what == "post"),
            "gone_users": gone.where(missing.c.what == "user"),
            "products": select(func.count()).select_from(products),
        }
        query = select(*(count.scalar_subquery().label(name) for name, count in counts.items()))
        (row,) = await self._database.fetch_rows(query)
        return Totals(**row)

    async def arrivals(self, limit: int) -> Sequence[Arrival]:
        """The posts that were stored last, the newest first."""
        query = (
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
        return [Arrival(**row) for row in await self._database.fetch_rows(query)]

    async def posts_before(self, moment: datetime) -> int:
        """How many posts were stored before this."""
        query = select(func.count()).select_from(posts).where(posts.c.first_seen_at < moment)
        return int(await self._database.fetch_value(query))

    async def stored_posts(self) -> Mapping[UserId, int]:
        """How many posts of each account are stored, without those that have none."""
        ids = await self._database.fetch_rows(select(accounts.c.user_id).where(accounts.c.platform == X))
        stored = await stored_posts_of(self._database, X, [row["user_id"] for row in ids])
        return {user_id: posts for user_id, posts in stored.items() if posts}

    async def spent_on(self) -> Mapping[UserId, int]:
        """What the calls for each account have cost."""
        sums = [
            select(each.c.account_id, each.c.credits).where(each.c.account_id != NO_ACCOUNT)
            for each in (call_days, call_deltas, call_sums)
        ]
        both = union_all(*sums).subquery()
        query = select(both.c.account_id, func.sum(both.c.credits).label("credits")).group_by(both.c.account_id)
        return {UserId(row["account_id"]): int(row["credits"]) for row in await self._database.fetch_rows(query)}

    async def held_by(self) -> Mapping[WorkerName, int]:
        """How many jobs each worker has leased."""
        query = select(jobs.c.worker, func.count().label("jobs")).where(text(LEASED)).group_by(jobs.c.worker)
        return {WorkerName(row["worker"]): row["jobs"] for row in await self._database.fetch_rows(query)}

    async def account_states(self) -> Mapping[str, int]:
        query = select(accounts.c.state, func.count().label("accounts")).group_by(accounts.c.state)
        return {row["state"]: row["accounts"] for row in await self._database.fetch_rows(query)}

    async def complete_accounts(self) -> int:
        """How many accounts were read to the end of their history, and are plausible."""
        done = accounts.c.backfilled_at.is_not(None) & accounts.c.suspect_since.is_(None)
        query = select(func.count()).select_from(accounts).where(accounts.c.state == AccountState.ACTIVE, done)
        return int(await self._database.fetch_value(query))

    async def alerts(self, limit: int = 20) -> Sequence[OpenAlert]:
        """The worst first, then the newest."""
        query = (
            select(*columns_of(OpenAlert, alerts))
            .where(alerts.c.closed_at.is_(None), alerts.c.accepted_at.is_(None))
            .order_by(alerts.c.severity, alerts.c.opened_at.desc(), alerts.c.id)
            .limit(limit)
        )
        return [OpenAlert(**row) for row in await self._database.fetch_rows(query)]

    async def gaps(self, limit: int = 5) -> Sequence[GapGroup]:
        """Failed and dead jobs by their error: dead ones first, then the largest groups."""
        same = (jobs.c.kind, jobs.c.state, jobs.c.last_error)
        query = (
            select(*same, func.count().label("jobs"), func.max(jobs.c.id).label("newest"))
            .where(text(GAP))
            .group_by(*same)
            .order_by(jobs.c.state, func.count().desc(), func.max(jobs.c.id).desc())
            .limit(limit)
        )
        return [record_of(GapGroup, row) for row in await self._database.fetch_rows(query)]

    async def amounts_by(
        self, unit: Unit, since: datetime, until: datetime | None = None, *, of: Charted
    ) -> Mapping[datetime, int]:
        """How much there was in each second or minute, without those that had none."""
        at, amount = _CHARTED[of]
        letters = _LETTERS[unit]
        if self._database.dialect == "postgresql":
            # Its format has two letters more, in `HH24`.
            form = "YYYY-MM-DD HH24:MI:SS"[: letters + 2]
            moment = func.to_char(func.timezone("UTC", at), form, type_=Text())
        else:
            moment = func.substr(type_coerce(at, Text()), 1, letters, type_=Text())
        query = select(moment.label("moment"), amount.label("amount")).where(at >= since).group_by(moment)
        if until is not None:
            query = query.where(at < until)
        rows = await self._database.fetch_rows(query)
        return {datetime.fromisoformat(row["moment"]).replace(tzinfo=UTC): int(row["amount"]) for row in rows}


class By(StrEnum):
    """What a sum is made for."""

    DAY = "day"
    ENDPOINT = "endpoint"
    ACCOUNT = "account"
    SOURCE = "source"


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one group. Without a name, the account is not known, or the calls served several accounts.

    Corrections by `spend --reconcile` are among the credits and are no calls.
    """

    name: str | None
    account_id: UserId | None = None
    calls: int
    items: int
    credits: int
    failures: int


class JobCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that was made for a job."""

    at: datetime
    endpoint: str
    seconds: float
    status: int | None
    items: int
    credits: int
    error: str | None


class CallLedger(Store):
    """Reads the ledger of calls."""

    async def spent(
        self, by: By = By.DAY, *, since: datetime | None = None, until: datetime | None = None
    ) -> Sequence[Spent]:
        """Sums from `since` on and before `until`: days in their order, all else with the most expensive first.

        Whole hours (of accounts: whole days) come from the sums kept of them, so that a long ledger takes no longer.
        Of calls that were pruned only whole days are known. Such a day counts if it begins within these bounds.
        """
        width, form = (_DAY, "%Y-%m-%d") if by is By.ACCOUNT else (_HOUR, "%Y-%m-%d %H")
        first, end = since and _next(since, width), until and _last(until, width)
        parts: list[Select[Any]] = []
        if since and until and first and end and first >= end:
            parts.append(self._single(by, since, until))
        else:
            if since and first and since < first:
                parts.append(self._single(by, since, first))
            if until and end and end < until:
                parts.append(self._single(by, end, until))
            # What PostgreSQL has not merged yet has the hours of the one and the accounts of the other.
            kept, begun = (call_days, call_days.c.day) if by is By.ACCOUNT else (call_hours, call_hours.c.hour)
            for table, at in ((kept, begun), (call_deltas, call_deltas.c.hour)):
                # As text, a day stands before its hours.
                bounds = [at >= f"{first:{form}}"] if first else []
                bounds += [at < f"{end:{form}}"] if end else []
                parts.append(_sums(by, table.c, at, func.sum(table.c.entries)).where(*bounds))
        pruned = _sums(by, call_sums.c, call_sums.c.day, func.count())
        if since:
            pruned = pruned.where(call_sums.c.day >= day_of(_next(since, _DAY)))
        if until:
            pruned = pruned.where(call_sums.c.day < day_of(_next(until, _DAY)))
        every = union_all(*parts, pruned).subquery()
        sums = [cast(func.sum(every.c[name]), BigInteger).label(name) for name in SUMMED]
        query = select(every.c.name, *sums).group_by(every.c.name).having(func.sum(every.c.entries) != 0)
        if by is By.ACCOUNT:
            summed = query.subquery()
            named = select(users.c.handle.label("name"), summed.c.name.label("account_id"))
            query = named.add_columns(*(summed.c[name] for name in SUMMED)).outerjoin_from(
                summed, users, (users.c.platform == X) & (users.c.id == summed.c.name)
            )
        spent = [Spent(**row) for row in await self._database.fetch_rows(query)]
        if by is By.DAY:
            return sorted(spent, key=lambda each: each.name or "")
        return sorted(spent, key=lambda each: (-each.credits, each.name or ""))

    def _single(self, by: By, since: datetime, until: datetime) -> Select[Any]:
        """Sums of the calls themselves."""
        groups: Mapping[By, ColumnElement[Any]] = {
            By.DAY: day_of_call(self._database.dialect),
            By.ENDPOINT: calls.c.endpoint,
            By.ACCOUNT: calls.c.account_id,
            By.SOURCE: calls.c.source,
        }
        query = select(
            groups[by].label("name"),
            func.count().label("entries"),
            func.sum(case((calls.c.endpoint == RECONCILIATION, 0), else_=1)).label("calls"),
            func.sum(calls.c["items"]).label("items"),
            func.sum(calls.c.credits).label("credits"),
            func.count(calls.c.error).label("failures"),
        )
        query = query.where(calls.c.at >= since, calls.c.at < until)
        return query.group_by(groups[by])

    async def of_job(self, job_id: JobId, *, since: datetime, until: datetime, limit: int = 20) -> Sequence[JobCall]:
        """The last calls for a job within a time, by the index of times: none begins with the job."""
        own = (calls.c.job_id == job_id, calls.c.at >= since, calls.c.at <= until)
        query = select(*columns_of(JobCall, calls)).where(*own).order_by(calls.c.at.desc()).limit(limit)
        return [record_of(JobCall, row) for row in await self._database.fetch_rows(query)]

    async def credits_on(self, day: datetime) -> Mapping[SourceName, int]:
        """What each source's calls of that day (UTC) have cost so far."""
        rows = await self.spent(By.SOURCE, since=day_start(day))
        return {SourceName(row.name): row.credits for row in rows if row.name}


def _last(bound: datetime, width: timedelta) -> datetime:
    """When the hour or day (UTC) of this time began."""
    return bound.astimezone(UTC).replace(minute=0, second=0, microsecond=0) if width == _HOUR else day_start(bound)


def _next(bound: datetime, width: timedelta) -> datetime:
    """When the first hour or day (UTC) begins at this time or later."""
    begun = _last(bound, width)
    return begun if begun == bound else begun + width


def _sums(
    by: By, own: ReadOnlyColumnCollection[str, Column[Any]], at: Column[Any], entries: ColumnElement[Any]
) -> Select[Any]:
    """Sums of rows that are sums themselves. Their time begins with its day."""
    group: ColumnElement[Any]
    match by:
        case By.DAY:
            group = func.substr(at, 1, 10, type_=Text())
        case By.ACCOUNT:
            group = func.nullif(own.account_id, NO_ACCOUNT, type_=BigId)
        case By.ENDPOINT | By.SOURCE:
            group = own[str(by)]
        case _:
            assert_never(by)
    amounts = (func.sum(own[name]).label(name) for name in SUMMED)
    return select(group.label("name"), entries.label("entries"), *amounts).group_by(group)
