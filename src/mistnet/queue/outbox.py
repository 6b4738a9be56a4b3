"""The outbox: events are written in the transaction of what they report, and fanned out to subscribers in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ScalarSelect, Select, delete, exists, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database, Store
from mistnet.kit.types import storable
from mistnet.kit.view import ListPage
from mistnet.queue.events import (
    Channel,
    Delivered,
    DeliveryId,
    Event,
    EventDelivery,
    NewEvent,
    Subscriber,
    SubscriberName,
)
from mistnet.queue.model import JobState, KindName, Lane, NewJob
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import LIVE_KEY, deliveries, events, jobs

_SLICE: Final = 500


async def write_events(connection: AsyncConnection, given: Sequence[NewEvent], now: datetime) -> None:
    """Write events in the caller's transaction: they are stored with what they report, or not at all."""
    rows = []
    for event in given:
        # JSON that every database stores and every receiver reads, whatever characters the text has.
        try:
            payload = msgspec.json.encode(event.payload)
        except UnicodeEncodeError:
            plain = msgspec.to_builtins(event.payload)
            payload = json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")
        about = {"channel": event.channel, "kind": event.kind, "subject": storable(event.subject)}
        rows.append({**about, "payload": payload, "created_at": now})
    if rows:
        await connection.execute(insert(events), rows)


async def write_delivered(connection: AsyncConnection, given: Sequence[Delivered], _now: datetime) -> None:
    """Delete deliveries in the transaction of the step that sent them: until then they count as not sent."""
    ids = sorted({each.id for each in given})
    await connection.execute(delete(deliveries).where(deliveries.c.id.in_(ids)))


class StoreOutbox(Store):
    """The outbox on a database."""

    async def next_for(self, subscriber: SubscriberName) -> EventDelivery | None:
        wanted = (
            select(deliveries.c.id.label("delivery_id"), *_EVENT)
            .join(events, events.c.id == deliveries.c.event_id)
            .where(deliveries.c.id == _first_for(subscriber))
        )
        async with self._database.read_quickly() as connection:
            row = (await connection.execute(wanted)).mappings().first()
        return EventDelivery(id=DeliveryId(row["delivery_id"]), event=_event(row)) if row else None

    async def stuck_lanes(self, kind: KindName) -> set[Lane]:
        """Lanes whose last delivery failed and waits for another try."""
        wanted = select(jobs.c.lane).where(jobs.c.kind == kind, jobs.c.state == JobState.RETRYABLE)
        async with self._database.read() as connection:
            return set((await connection.execute(wanted)).scalars())

    async def recent(self, *, limit: int = 100, before_id: int | None = None) -> ListPage[Event]:
        """The newest events first."""
        wanted = select(*_EVENT).order_by(events.c.id.desc()).limit(limit + 1)
        if before_id is not None:
            wanted = wanted.where(events.c.id < before_id)
        rows = await self._database.fetch_rows(wanted)
        return ListPage.cut([_event(row) for row in rows], limit, lambda event: event.id)

    async def prune(self, known: Sequence[SubscriberName], *, before: datetime) -> Mapping[str, int]:
        """Delete old events that were delivered. Return how many undelivered ones were dropped, by subscriber."""
        lost: Counter[str] = Counter()
        left = (deliveries.c.subscriber.not_in(known), deliveries.c.created_at < before)
        undelivered = delete(deliveries).where(deliveries.c.id.in_(select(deliveries.c.id).where(*left).limit(_SLICE)))
        is_delivered = events.c.fanned_out_at.is_not(None) & ~exists().where(deliveries.c.event_id == events.c.id)
        old = select(events.c.id).where(events.c.created_at < before, is_delivered).limit(_SLICE)
        # A slice per transaction, so that writers never wait for long.
        dropped = pruned = _SLICE
        while dropped == _SLICE:
            async with self._database.transaction() as connection:
                names = (await connection.execute(undelivered.returning(deliveries.c.subscriber))).scalars().all()
            dropped = len(names)
            lost.update(names)
        while pruned == _SLICE:
            async with self._database.transaction() as connection:
                pruned = (await connection.execute(delete(events).where(events.c.id.in_(old)))).rowcount
        return lost


class FanOut:
    """Fans new events out to subscribers. Its order is the order of delivery to each subscriber.

    Ids are given before transactions commit, so a lower id may appear after a higher one. Each event is therefore
    marked by itself, and the order is made here, by the one process that leads.
    """

    def __init__(self, database: Database, job_writer: JobWriter, job_for: Callable[[Subscriber], NewJob]) -> None:
        self._database = database
        self._job_writer = job_writer
        self._job_for = job_for

    async def fan_out(self, subscribers: Sequence[Subscriber], *, now: datetime, limit: int = _SLICE) -> int:
        """Fan out up to `limit` events and return their number. Subscribers with deliveries and no job get one."""
        async with self._database.read() as connection:
            waiting = (await connection.execute(select(exists(_waiting(1))))).scalar_one()
            if not waiting and not await self._idle(connection, subscribers):
                return 0
        async with self._database.transaction() as connection:
            taken = await _taken(connection, now, limit)
            rows = [
                {"subscriber": subscriber.name, "event_id": event_id, "created_at": now}
                for event_id, channel, kind in taken
                for subscriber in subscribers
                if subscriber.wants(channel, kind)
            ]
            if rows:
                await connection.execute(insert(deliveries), rows)
            idle = await self._idle(connection, subscribers)
            await self._job_writer.write(connection, [self._job_for(each) for each in idle], now)
        return len(taken)

    async def _idle(self, connection: AsyncConnection, subscribers: Sequence[Subscriber]) -> list[Subscriber]:
        """Those whose job ended just as something new came for them, or was cancelled, count as well."""
        idle = []
        for subscriber in subscribers:
            job = self._job_for(subscriber)
            has_job = exists().where(jobs.c.kind == job.kind, jobs.c.key == job.key, text(LIVE_KEY))
            if (await connection.execute(select(_first_for(subscriber.name).is_not(None) & ~has_job))).scalar_one():
                idle.append(subscriber)
        return idle


_EVENT: Final = [events.c[name] for name in Event.__struct_fields__]


def _event(row: Any) -> Event:
    about = {name: row[name] for name in Event.__struct_fields__}
    return Event(**{**about, "channel": Channel(row["channel"]), "payload": msgspec.Raw(row["payload"])})


def _first_for(subscriber: SubscriberName) -> ScalarSelect[Any]:
    """Per subscriber, so that the backlog of one does not slow the others."""
    return select(func.min(deliveries.c.id)).where(deliveries.c.subscriber == subscriber).scalar_subquery()


def _waiting(limit: int) -> Select[Any]:
    return select(events.c.id).where(events.c.fanned_out_at.is_(None)).order_by(events.c.id).limit(limit)


async def _taken(connection: AsyncConnection, now: datetime, limit: int) -> list[tuple[int, str, str]]:
    """Mark events as fanned out. Another process that does so at the same moment gets none of these."""
    marked = await connection.execute(
        update(events)
        .where(events.c.id.in_(_waiting(limit).scalar_subquery()), events.c.fanned_out_at.is_(None))
        .values(fanned_out_at=now)
        .returning(events.c.id, events.c.channel, events.c.kind)
    )
    return sorted((row.id, row.channel, row.kind) for row in marked)
