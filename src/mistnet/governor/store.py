"""The shared rows of the sources, and the ledger of calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Text, bindparam, case, func, or_, select, type_coerce, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import CallRecord, KeyLabel, KeyState, PausedBy, SourceName, SourceState
from mistnet.governor.tables import calls, source_keys, sources
from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of, insert_rows, run
from mistnet.kit.types import moment, storable
from mistnet.kit.view import columns_of, record_of
from mistnet.queue.events import Channel, EventKind, NewEvent
from mistnet.queue.outbox import write_events
from mistnet.queue.store.enqueue import CHANNEL

T = TypeVar("T")
_SOURCE_FIELDS: Final = SourceState.__struct_fields__
_KEY_FIELDS: Final = KeyState.__struct_fields__
_CALL_COLUMNS: Final = (
    *("source", "key_label", "endpoint", "at", "seconds", "status", "items", "credits"),
    *("job_id", "account_id", "error"),
)

_TO_THE_SECOND: Final = timedelta(seconds=1)
_CLOSED: Final[Mapping[str, Any]] = {"failure_streak": 0, "opened_until": None, "probe_until": None}
"""A closed circuit breaker."""

# Both rows in one statement, the source's first. All writers lock in this order; any other would deadlock with them.
_LOCKING: Final = (
    select(*(sources.c[name] for name in _SOURCE_FIELDS), *(source_keys.c[name] for name in _KEY_FIELDS))
    .join_from(sources, source_keys, sources.c.name == source_keys.c.source)
    .where(sources.c.name == bindparam("of"), source_keys.c.label == bindparam("by"))
    .with_for_update()
)


class DatabaseSourceStore:
    """Implements `SourceStore` on the database, and the changes that operators make."""

    def __init__(self, database: Database) -> None:
        self.clock = database.clock
        self._database = database
        self._known: set[tuple[SourceName, KeyLabel]] = set()
        self._answered: dict[SourceName, datetime] = {}

    async def change(
        self,
        source: SourceName,
        label: KeyLabel,
        decide: Callable[[SourceState, KeyState], tuple[SourceState, KeyState, T]],
    ) -> T:
        async with self._database.transaction() as connection:
            # The rows are created once per process, not before each call: most calls change nothing here.
            if (source, label) not in self._known:
                await ensure_key(connection, source, label)
            row = (await connection.execute(_LOCKING, {"of": source, "by": label})).one()
            width = len(_SOURCE_FIELDS)
            state = record_of(SourceState, dict(zip(_SOURCE_FIELDS, row[:width], strict=True)))
            key = KeyState(**dict(zip(_KEY_FIELDS, row[width:], strict=True)))
            new_state, new_key, decided = decide(state, key)
            if new_state != state:
                await _set(connection, source, **_changes_between(state, new_state))
                if state.paused_by is PausedBy.SOURCE and not new_state.paused_at:
                    # Another key works, so the refused ones need no attention. Their fingerprints keep them refused.
                    refused = source_keys.c.paused_at.is_not(None), source_keys.c.fingerprint.is_not(None)
                    await _set_keys(connection, source, *refused, paused_at=None, pause_reason=None)
                    await self._wake(connection, source, now=self._database.clock.now(), about=f"{source}%")
                # Operators get an event when a source refuses us. A pause by an operator needs none.
                if not state.paused_at and new_state.paused_at and new_state.paused_by is PausedBy.SOURCE:
                    payload = {"source": source, "reason": new_state.pause_reason, "paused_at": new_state.paused_at}
                    event = NewEvent(
                        kind=EventKind.SOURCE_PAUSED, subject=source, channel=Channel.ALERTS, payload=payload
                    )
                    await write_events(connection, [event], new_state.paused_at)
            if new_key != key:
                await _set_keys(connection, source, source_keys.c.label == label, **_changes_between(key, new_key))
        self._known.add((source, label))
        return decided

    async def record(self, records: Sequence[CallRecord]) -> None:
        """Add calls to the ledger, and store to the second when each source answered last."""
        answered: dict[SourceName, datetime] = {}
        for record in records:
            if record.error is None:
                answered[record.source] = max(record.at, answered.get(record.source, record.at))
        async with self._database.transaction() as connection:
            await write_calls(connection, records)
            stored_at = sources.c.last_success_at
            for source, at in answered.items():
                # All processes want this row: for each call, or as often as they write calls, is too often.
                if source in self._answered and at - self._answered[source] < _TO_THE_SECOND:
                    continue
                older = or_(stored_at.is_(None), stored_at <= at - _TO_THE_SECOND)
                await _set(connection, source, older, last_success_at=at)
                self._answered[source] = at

    async def another_works(self, source: SourceName, labels: Collection[KeyLabel], *, since: datetime) -> bool:
        own = source_keys.c
        used = select(own.label).where(
            own.source == source, own.label.not_in(labels), own.paused_at.is_(None), own.next_at >= since
        )
        return await self._database.fetch_row(used.limit(1)) is not None

    async def states(self) -> Sequence[SourceState]:
        query = select(*columns_of(SourceState, sources)).order_by(sources.c.name)
        return [record_of(SourceState, row) for row in await self._database.fetch_rows(query)]

    async def keys(self) -> Sequence[KeyState]:
        query = select(*columns_of(KeyState, source_keys)).order_by(source_keys.c.source, source_keys.c.label)
        return [record_of(KeyState, row) for row in await self._database.fetch_rows(query)]

    async def pause(self, source: SourceName, reason: str, *, now: datetime) -> None:
        await self._change(source, paused_at=now, paused_by=PausedBy.OPERATOR, pause_reason=reason)

    async def resume(self, source: SourceName, *, now: datetime) -> int:
        """End every pause and close the breaker; work that waited for the source is due at once. Return how much."""
        async with self._database.transaction() as connection:
            await _set(connection, source, paused_at=None, paused_by=None, pause_reason=None, **_CLOSED)
            await _set_keys(connection, source, paused_at=None, pause_reason=None, fingerprint=None)
            return await self._wake(connection, source, now=now, about=f"{source}%")

    async def open_breaker(self, source: SourceName, reason: str, *, until: datetime) -> None:
        """Stop all calls until then; then one call tests the source. A pause stays, with its own reason."""
        why = case((sources.c.paused_at.is_(None), reason), else_=sources.c.pause_reason)
        await self._change(source, opened_until=until, probe_until=None, pause_reason=why)

    async def close_breaker(self, source: SourceName, *, now: datetime) -> int:
        """Close the breaker and reset its count of failures; work that waited is due. Return how much."""
        async with self._database.transaction() as connection:
            why = case((sources.c.paused_at.is_(None), None), else_=sources.c.pause_reason)
            await _set(connection, source, pause_reason=why, **_CLOSED)
            return await self._wake(connection, source, now=now, about=f"{source}: %")

    async def set_caps(self, source: SourceName, *, day: int | None, month: int | None) -> None:
        """None does not change a cap."""
        caps = {name: cap for name, cap in (("day_cap", day), ("month_cap", month)) if cap is not None}
        if caps:
            await self._change(source, **caps)

    async def lift_caps(self, source: SourceName, *, day: bool, month: bool) -> None:
        """Remove a cap from the shared row, so that each machine's settings apply again."""
        caps = {name: None for name, lifted in (("day_cap", day), ("month_cap", month)) if lifted}
        if caps:
            await self._change(source, **caps)

    async def wake_for_budget(self, source: SourceName, *, now: datetime) -> int:
        """Make work due that waits for the next day or month. Work that a cap still forbids waits again."""
        async with self._database.transaction() as connection:
            return await self._wake(connection, source, now=now, about=f"{source}: the %'s budget of %")

    async def set_rate(self, source: SourceName, per_minute: float, labels: Collection[KeyLabel] = ()) -> int:
        """Set the rate of every key of the source that was used, and of these; return how many."""
        async with self._database.transaction() as connection:
            for label in sorted(labels):
                await ensure_key(connection, source, label)
            return await _set_keys(
                connection, source, rate_per_minute=per_minute, slowdown=1.0, slowed_at=None, next_at=None
            )

    async def _wake(self, connection: AsyncConnection, source: SourceName, *, now: datetime, about: str) -> int:
        woken = await run(connection, "wake_lane", {"lane": source, "now": now, "about": about})
        if self._database.dialect == "postgresql":
            await connection.exec_driver_sql(f"NOTIFY {CHANNEL}")
        return woken.rowcount

    async def _change(self, source: SourceName, **values: Any) -> None:
        async with self._database.transaction() as connection:
            await _ensure_source(connection, source)
            await _set(connection, source, **values)


async def _set(
    connection: AsyncConnection, source: SourceName, /, *conditions: ColumnElement[bool], **values: Any
) -> None:
    await connection.execute(update(sources).where(sources.c.name == source, *conditions).values(**values))


async def _set_keys(
    connection: AsyncConnection, source: SourceName, /, *conditions: ColumnElement[bool], **values: Any
) -> int:
    """Change the rows of a source's keys, and return how many."""
    changed = update(source_keys).where(source_keys.c.source == source, *conditions).values(**values)
    return (await connection.execute(changed)).rowcount


async def ensure_key(connection: AsyncConnection, source: SourceName, label: KeyLabel) -> None:
    await _ensure_source(connection, source)
    adding = insert_of(connection.dialect.name)(source_keys)
    await connection.execute(adding.on_conflict_do_nothing(), {"source": source, "label": label})


async def _ensure_source(connection: AsyncConnection, source: SourceName) -> None:
    adding = insert_of(connection.dialect.name)(sources)
    await connection.execute(adding.on_conflict_do_nothing(), {"name": source})


def _changes_between(old: msgspec.Struct, new: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ. Texts of a source may contain characters that databases refuse."""
    fields = {name: getattr(new, name) for name in new.__struct_fields__}
    return {name: storable(value) for name, value in fields.items() if value != getattr(old, name)}


async def write_calls(connection: AsyncConnection, records: Sequence[CallRecord]) -> None:
    dialect = connection.dialect.name
    when = partial(moment, dialect)
    # In the order of the columns. Texts of a source may contain characters that databases refuse.
    rows: list[tuple[Any, ...]] = [
        (
            each.source,
            each.key_label,
            storable(each.endpoint),
            when(each.at),
            each.seconds,
            each.status,
            each.items,
            each.credits,
            each.job_id,
            each.account_id,
            storable(each.error),
        )
        for each in records
    ]
    await insert_rows(connection, calls, rows, "", names=_CALL_COLUMNS)


def day_of_call(dialect: str) -> ColumnElement[Any]:
    """The day (UTC) on which a call was made, as text."""
    if dialect == "postgresql":
        return func.to_char(func.timezone("UTC", calls.c.at), "YYYY-MM-DD", type_=Text())
    return func.substr(type_coerce(calls.c.at, Text()), 1, 10, type_=Text())
