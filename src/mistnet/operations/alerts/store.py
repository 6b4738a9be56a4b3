"""Alerts as rows: opened once, refreshed while they last, closed when over. And the readings they are made from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, case, delete, func, literal, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.tables import calls
from mistnet.kit.database import Store
from mistnet.kit.errors import AlertNotFound
from mistnet.kit.statements import insert_of
from mistnet.kit.types import UtcTime, storable
from mistnet.kit.view import ListPage, View, columns_of, record_of
from mistnet.operations.alerts.model import (
    QUIET_DAY,
    Alert,
    AlertRule,
    DeadJobs,
    DueWork,
    LateDeliveries,
    QuietAccount,
    Severity,
    SuspectAccount,
    WorkerReading,
)
from mistnet.operations.tables import OPEN, alerts
from mistnet.queue.events import Channel, EventKind, NewEvent
from mistnet.queue.model import JobState, KindName, Lane
from mistnet.queue.outbox import write_events
from mistnet.queue.tables import LIVE_KEY, WAITING, deliveries, jobs, paused_kinds, workers
from mistnet.social.accounts import AccountState
from mistnet.social.model import X
from mistnet.social.tables import accounts, posts, users

_TOO_MANY_REQUESTS: Final = 429
_LIMITED: Final = timedelta(days=1)
_RECENTLY: Final = timedelta(minutes=15)
_COUNTED: Final = 10_000
_REMEMBERED: Final = timedelta(days=90)
_RECENT_POSTS: Final = 200


class AlertRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored alert. An accepted one is still true, and needs no operator until its severity rises."""

    id: int
    rule: AlertRule
    subject: str
    severity: Severity
    message: str
    opened_at: datetime
    last_seen_at: datetime
    closed_at: datetime | None
    accepted_at: datetime | None = None
    accepted_by: str | None = None


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts that a check has opened and closed."""

    opened: Sequence[AlertRow] = ()
    closed: Sequence[AlertRow] = ()


_COLUMNS: Final = columns_of(AlertRow, alerts)
_ALERTS: Final = View(AlertRow, select(*_COLUMNS), alerts.c.id)
_WORST_FIRST: Final = case((alerts.c.severity == Severity.CRITICAL, 0), else_=1)


class AlertStore(Store):
    """Keeps at most one open alert per rule and subject, however many processes check."""

    async def list_open(self) -> Sequence[AlertRow]:
        """The worst first; among equals, the oldest first."""
        query = select(*_COLUMNS).where(text(OPEN)).order_by(_WORST_FIRST, alerts.c.opened_at, alerts.c.id)
        return [record_of(AlertRow, row) for row in await self._database.fetch_rows(query)]

    async def page(
        self, *, is_open: bool | None = None, after: int | None = None, limit: int = 100
    ) -> ListPage[AlertRow]:
        """The newest first: all, those that are open, or those that are over."""
        closed_at = alerts.c.closed_at
        conditions = [] if is_open is None else [closed_at.is_(None) if is_open else closed_at.is_not(None)]
        return await _ALERTS.page(self._database, *conditions, after=after, limit=limit)

    async def settle(self, found: Sequence[Alert], rules: Collection[AlertRule], *, now: datetime) -> Changes:
        """Make the open alerts of these rules equal to the found ones, and write an event for each change."""
        current = {(alert.rule, alert.subject): alert for alert in found}
        of_rules = select(*_COLUMNS).where(text(OPEN), alerts.c.rule.in_(rules))
        # Mostly there is nothing to do, and then no transaction is opened: on SQLite it would make writers wait.
        if not current and await self._database.fetch_row(of_rules.limit(1)) is None:
            return Changes()
        async with self._database.transaction() as connection:
            known = {(row.rule, row.subject): row for row in await _fetch(connection, of_rules)}
            opened: list[AlertRow] = []
            for key in sorted(current.keys() - known.keys()):
                adding = insert_of(connection.dialect.name)(alerts).values(
                    **msgspec.structs.asdict(current[key]), opened_at=now, last_seen_at=now
                )
                # Another process may have opened it a moment ago. Then it has written the event, too.
                once = adding.on_conflict_do_nothing(index_elements=["rule", "subject"], index_where=text(OPEN))
                opened += await _fetch(connection, once.returning(*_COLUMNS))
            both = sorted(current.keys() & known.keys(), key=lambda key: known[key].id)
            # In the order of ids, so that two processes lock the rows in the same order and cannot deadlock.
            if both:
                pairs = [(known[key], current[key]) for key in both]
                values = [
                    {"known_id": row.id, "new_message": alert.message, "new_severity": alert.severity, "now": now}
                    for row, alert in pairs
                ]
                await connection.execute(_REFRESH, values)
            over = sorted(row.id for key, row in known.items() if key not in current)
            closing = update(alerts).where(alerts.c.id.in_(over), text(OPEN)).values(closed_at=now)
            closed = await _fetch(connection, closing.returning(*_COLUMNS)) if over else []
            closed.sort(key=lambda row: row.id)
            events = [_event(EventKind.ALERT_OPENED, row) for row in opened]
            events += [_event(EventKind.ALERT_CLOSED, row) for row in closed]
            await write_events(connection, events, now)
        return Changes(opened=opened, closed=closed)

    async def accept(self, alert_id: int, *, by: str, now: datetime) -> AlertRow:
        """The first one to accept it stays on record. Raises AlertNotFound if no open alert has this id."""
        accepting = (
            update(alerts)
            .where(alerts.c.id == alert_id, text(OPEN))
            .values(
                accepted_at=func.coalesce(alerts.c.accepted_at, literal(now, UtcTime)),
                accepted_by=func.coalesce(alerts.c.accepted_by, storable(by)),
            )
        )
        async with self._database.transaction() as connection:
            for row in await _fetch(connection, accepting.returning(*_COLUMNS)):
                return row
        raise AlertNotFound(alert_id)

    async def prune(self, *, before: datetime) -> int:
        # One that closed before then was also opened before then, and only `opened_at` has an index.
        old = (alerts.c.opened_at < before) & (alerts.c.closed_at < before)
        async with self._database.transaction() as connection:
            return (await connection.execute(delete(alerts).where(old))).rowcount


async def _fetch(connection: AsyncConnection, statement: Any) -> list[AlertRow]:
    return [record_of(AlertRow, row) for row in (await connection.execute(statement)).mappings()]


_SAME_SEVERITY: Final = alerts.c.severity == bindparam("new_severity")
_REFRESH: Final = (
    update(alerts)
    .where(alerts.c.id == bindparam("known_id"), text(OPEN))
    .values(
        message=bindparam("new_message"),
        severity=bindparam("new_severity"),
        last_seen_at=bindparam("now"),
        # An alert was accepted with its severity. When that changes, an operator must see it again.
        accepted_at=case((_SAME_SEVERITY, alerts.c.accepted_at), else_=None),
        accepted_by=case((_SAME_SEVERITY, alerts.c.accepted_by), else_=None),
    )
)


def _event(kind: EventKind, row: AlertRow) -> NewEvent:
    facts = {name: getattr(row, name) for name in ("rule", "subject", "severity", "message", "opened_at", "closed_at")}
    return NewEvent(kind=kind, subject=row.subject, channel=Channel.ALERTS, payload={"alert_id": str(row.id), **facts})


class AlertReader(Store):
    """Reads what the rules are checked against. Every query stays cheap as tables grow."""

    async def failing_since(self, source: str, after: datetime | None) -> datetime | None:
        """When the first call failed after the last success."""
        query = select(func.min(calls.c.at)).where(calls.c.source == source, calls.c.error.is_not(None))
        if after is not None:
            query = query.where(calls.c.at > after)
        first: datetime | None = await self._database.fetch_value(query)
        return first

    async def limited_since(self, source: str, after: datetime | None, *, now: datetime) -> datetime | None:
        """When the first 429 came after the last success. None if there was none recently: no call is made then."""
        begin = max(after, now - _LIMITED) if after else now - _LIMITED
        query = select(func.min(calls.c.at).label("first"), func.max(calls.c.at).label("last")).where(
            calls.c.source == source, calls.c.status == _TOO_MANY_REQUESTS, calls.c.at > begin
        )
        row = await self._database.fetch_row(query)
        return row["first"] if row and row["last"] and now - row["last"] <= _RECENTLY else None

    async def dead(self) -> Sequence[DeadJobs]:
        last = func.max(jobs.c.id).label("last")
        dead = select(jobs.c.kind, func.count().label("jobs"), func.min(jobs.c.run_at).label("since"), last)
        by_kind = dead.where(jobs.c.state == JobState.DEAD).group_by(jobs.c.kind).subquery()
        query = (
            select(by_kind.c.kind, by_kind.c.jobs, by_kind.c.since, jobs.c.last_error.label("error"))
            .join(jobs, jobs.c.id == by_kind.c.last)
            .order_by(by_kind.c.kind)
        )
        return [DeadJobs(**row) for row in await self._database.fetch_rows(query)]

    async def due(self, targets: Collection[tuple[KindName, Lane]], *, now: datetime) -> Sequence[DueWork]:
        """By lane. Each kind is counted up to a limit, so that a long queue does not make this slow."""
        by_lane: dict[Lane, DueWork] = {}
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
            query = select(func.count().label("jobs"), func.min(waiting.c.run_at).label("since"))
            row = await self._database.fetch_row(query)
            if row and row["jobs"]:
                before = by_lane.get(lane)
                by_lane[lane] = DueWork(
                    lane=lane,
                    jobs=row["jobs"] + (before.jobs if before else 0),
                    since=min(row["since"], before.since) if before else row["since"],
                )
        return list(by_lane.values())

    async def workers(self, *, seen_after: datetime) -> Sequence[WorkerReading]:
        query = select(*columns_of(WorkerReading, workers)).where(workers.c.seen_at >= seen_after)
        rows = await self._database.fetch_rows(query)
        return [WorkerReading(**{**row, "lanes": row["lanes"].split(", ")}) for row in rows]

    async def undelivered(self, known: Collection[str], *, kind: KindName) -> Sequence[LateDeliveries]:
        """The events that wait for each subscriber, and the last error of its job."""
        own = deliveries.c
        waiting = select(own.subscriber, func.count().label("events"), func.min(own.created_at).label("since"))
        by_subscriber = waiting.group_by(own.subscriber).order_by(own.subscriber)
        attempts = select(jobs.c.key, jobs.c.last_error).where(jobs.c.kind == kind, text(LIVE_KEY))
        errors = {row["key"]: row["last_error"] for row in await self._database.fetch_rows(attempts)}
        return [
            LateDeliveries(**row, known=row["subscriber"] in known, error=errors.get(row["subscriber"]))
            for row in await self._database.fetch_rows(by_subscriber)
        ]

    async def quiet_accounts(self, *, now: datetime) -> Sequence[QuietAccount]:
        """Accounts whose newest post is more than a day old. Those without a post for months are left out."""
        newest = (posts.c.platform == accounts.c.platform) & (posts.c.id == accounts.c.newest_post_id)
        query = (
            select(accounts.c.user_id, users.c.handle, accounts.c.tracked_at, accounts.c.last_fetched_at)
            .join(posts, newest)
            .join(users, _OWN_USER)
            .where(accounts.c.state == AccountState.ACTIVE, accounts.c.backfilled_at.is_not(None))
            .where(posts.c.created_at > now - _REMEMBERED, posts.c.created_at < now - QUIET_DAY)
            .where(accounts.c.last_fetched_at.is_not(None))
            .order_by(accounts.c.user_id)
        )
        quiet = []
        for row in await self._database.fetch_rows(query):
            recent = (
                select(posts.c.created_at)
                .where(posts.c.platform == X, posts.c.author_id == row["user_id"], posts.c.reposted_id.is_(None))
                .order_by(posts.c.id.desc())
                .limit(_RECENT_POSTS)
            )
            times = sorted((each["created_at"] for each in await self._database.fetch_rows(recent)), reverse=True)
            account = QuietAccount(
                user_id=row["user_id"],
                handle=row["handle"] or str(row["user_id"]),
                tracked_at=row["tracked_at"],
                looked_at=row["last_fetched_at"],
                newest_at=times[0],
                gaps=[later - earlier for later, earlier in pairwise(times)],
            )
            quiet.append(account)
        return quiet

    async def suspect_accounts(self) -> Sequence[SuspectAccount]:
        """Collected accounts with implausibly few stored posts."""
        own = (posts.c.platform == accounts.c.platform) & (posts.c.author_id == accounts.c.user_id)
        stored = select(func.count()).select_from(posts).where(own).correlate(accounts).scalar_subquery()
        query = (
            select(
                accounts.c.user_id,
                users.c.handle,
                stored.label("stored"),
                func.coalesce(users.c.posts_count, 0).label("counted"),
                accounts.c.suspect_since.label("since"),
                accounts.c.next_look_at,
            )
            .join(users, _OWN_USER)
            .where(accounts.c.state == AccountState.ACTIVE, accounts.c.suspect_since.is_not(None))
            .order_by(accounts.c.user_id)
        )
        rows = await self._database.fetch_rows(query)
        return [SuspectAccount(**{**row, "handle": row["handle"] or str(row["user_id"])}) for row in rows]


_OWN_USER: Final = (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)
