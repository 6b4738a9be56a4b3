"""Alerts as they stand: opened once, refreshed while they last, closed when over, each told of as it happens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, case, delete, func, literal, select, text, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.errors import AlertNotFound
from mistnet.kit.statements import insert_of
from mistnet.kit.types import UtcTime, storable
from mistnet.operations.alerts.model import Alert, AlertRule, Severity
from mistnet.operations.tables import OPEN, alerts
from mistnet.queue.events import Channel, EventKind, NewEvent
from mistnet.queue.outbox import write_events


class AlertRow(msgspec.Struct, frozen=True, kw_only=True):
    """One alert as it is kept. An accepted one is true still, and asks for nobody until it gets worse."""

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
    """What a look at the readings changed."""

    opened: Sequence[AlertRow] = ()
    closed: Sequence[AlertRow] = ()


_COLUMNS: Final = [alerts.c[name] for name in AlertRow.__struct_fields__]
_WORST_FIRST: Final = case((alerts.c.severity == Severity.CRITICAL, 0), else_=1)


class AlertStore:
    """Keeps at most one open alert per rule and subject, whoever looks and however often."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_ones(self) -> Sequence[AlertRow]:
        """The worst first, and the oldest of these."""
        wanted = select(*_COLUMNS).where(text(OPEN)).order_by(_WORST_FIRST, alerts.c.opened_at, alerts.c.id)
        async with self._database.read() as connection:
            return await _rows(connection, wanted)

    async def recent(
        self, *, limit: int = 100, before_id: int | None = None, open_only: bool = False
    ) -> Sequence[AlertRow]:
        """The newest first."""
        wanted = select(*_COLUMNS).where(text(OPEN) if open_only else true()).order_by(alerts.c.id.desc()).limit(limit)
        if before_id is not None:
            wanted = wanted.where(alerts.c.id < before_id)
        async with self._database.read() as connection:
            return await _rows(connection, wanted)

    async def settle(self, found: Sequence[Alert], rules: Collection[AlertRule], *, now: datetime) -> Changes:
        """Makes the open alerts of these rules be exactly the found ones, and writes an event for each change."""
        wanted = {(alert.rule, alert.subject): alert for alert in found}
        if not wanted and not await self._any_open(rules):
            return Changes()
        async with self._database.transaction() as connection:
            standing = await _rows(connection, select(*_COLUMNS).where(text(OPEN), alerts.c.rule.in_(rules)))
            known = {(row.rule, row.subject): row for row in standing}
            opened = await _open(connection, [wanted[place] for place in sorted(wanted.keys() - known.keys())], now)
            await _refresh(connection, [(known[place], wanted[place]) for place in wanted.keys() & known.keys()], now)
            over = [row.id for place, row in known.items() if place not in wanted]
            closed = await _close(connection, over, now)
            await write_events(connection, [*map(_opened, opened), *map(_closed, closed)], now)
        return Changes(opened=opened, closed=closed)

    async def accept(self, alert_id: int, *, by: str, now: datetime) -> AlertRow:
        """Who accepted it first stays on record. Raises AlertNotFound if none is open that has this id."""
        accepting = (
            update(alerts)
            .where(alerts.c.id == alert_id, text(OPEN))
            .values(
                accepted_at=func.coalesce(alerts.c.accepted_at, literal(now, UtcTime)),
                accepted_by=func.coalesce(alerts.c.accepted_by, storable(by)),
            )
        )
        async with self._database.transaction() as connection:
            for row in await _rows(connection, accepting.returning(*_COLUMNS)):
                return row
        raise AlertNotFound(alert_id)

    async def _any_open(self, rules: Collection[AlertRule]) -> bool:
        wanted = select(alerts.c.id).where(text(OPEN), alerts.c.rule.in_(rules)).limit(1)
        async with self._database.read() as connection:
            return (await connection.execute(wanted)).first() is not None

    async def prune(self, *, before: datetime) -> int:
        async with self._database.transaction() as connection:
            # One that closed before then was opened before then: there is an index on the one, not on the other.
            over = (alerts.c.opened_at < before) & (alerts.c.closed_at < before)
            return (await connection.execute(delete(alerts).where(over))).rowcount


async def _rows(connection: AsyncConnection, wanted: Any) -> list[AlertRow]:
    return [_row(row) for row in (await connection.execute(wanted)).mappings()]


def _row(row: Any) -> AlertRow:
    return AlertRow(**{**row, "rule": AlertRule(row["rule"]), "severity": Severity(row["severity"])})


async def _open(connection: AsyncConnection, new: Sequence[Alert], now: datetime) -> list[AlertRow]:
    """One that somebody else opened a moment ago is left to them."""
    insert = insert_of(connection.dialect.name)
    opened: list[AlertRow] = []
    for alert in new:
        adding = insert(alerts).values(**msgspec.structs.asdict(alert), opened_at=now, last_seen_at=now)
        once = adding.on_conflict_do_nothing(index_elements=["rule", "subject"], index_where=text(OPEN))
        opened += await _rows(connection, once.returning(*_COLUMNS))
    return opened


async def _refresh(connection: AsyncConnection, pairs: Sequence[tuple[AlertRow, Alert]], now: datetime) -> None:
    told = [
        {"known_id": row.id, "told": alert.message, "grave": alert.severity, "now": now}
        for row, alert in _in_order(pairs)
    ]
    if told:
        await connection.execute(_REFRESH, told)


def _in_order(pairs: Sequence[tuple[AlertRow, Alert]]) -> list[tuple[AlertRow, Alert]]:
    return sorted(pairs, key=lambda pair: pair[0].id)


async def _close(connection: AsyncConnection, ids: Sequence[int], now: datetime) -> list[AlertRow]:
    if not ids:
        return []
    over = update(alerts).where(alerts.c.id.in_(sorted(ids)), text(OPEN)).values(closed_at=now)
    return sorted(await _rows(connection, over.returning(*_COLUMNS)), key=lambda row: row.id)


_REFRESH: Final = (
    update(alerts)
    .where(alerts.c.id == bindparam("known_id"), text(OPEN))
    .values(
        message=bindparam("told"),
        severity=bindparam("grave"),
        last_seen_at=bindparam("now"),
        # What was accepted was less grave than this.
        accepted_at=case((alerts.c.severity == bindparam("grave"), alerts.c.accepted_at), else_=None),
        accepted_by=case((alerts.c.severity == bindparam("grave"), alerts.c.accepted_by), else_=None),
    )
)


def _opened(row: AlertRow) -> NewEvent:
    return _event(EventKind.ALERT_OPENED, row)


def _closed(row: AlertRow) -> NewEvent:
    return _event(EventKind.ALERT_CLOSED, row)


def _event(kind: EventKind, row: AlertRow) -> NewEvent:
    about = {name: getattr(row, name) for name in ("rule", "subject", "severity", "message", "opened_at", "closed_at")}
    return NewEvent(kind=kind, subject=row.subject, channel=Channel.ALERTS, payload={"alert_id": str(row.id), **about})
