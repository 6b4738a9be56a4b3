"""Payloads that could not be decoded: the list, and another try with the current decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import func, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Store
from mistnet.kit.errors import WriteRefused
from mistnet.kit.statements import run
from mistnet.kit.view import ListPage, View, columns_of
from mistnet.queue.model import JobState, Write
from mistnet.queue.store.writes import PreparedWrites, Writers
from mistnet.queue.tables import GAP, jobs
from mistnet.social.jobs.args import HYDRATE_POST, key_of, platform_and_key
from mistnet.social.model import PartOfPost, Platform, Post, User, UserId
from mistnet.social.store.accounts import slices
from mistnet.social.tables import posts, quarantine, users

_SLICE: Final = 200


class KeptPayload(msgspec.Struct, frozen=True, kw_only=True):
    """One payload to decode again."""

    id: int
    platform: Platform
    endpoint: str
    problem: str
    payload: bytes
    last_seen_at: datetime


class QuarantineLine(msgspec.Struct, frozen=True, kw_only=True):
    """A payload that could not be read, without the payload."""

    id: int
    platform: str
    endpoint: str
    problem: str
    first_seen_at: datetime
    last_seen_at: datetime
    times_seen: int
    resolved_at: datetime | None


class ReparseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a payload, or why it still cannot be decoded."""

    writes: Sequence[Write] = ()
    problem: str | None = None


class Reparsed(msgspec.Struct, frozen=True, kw_only=True):
    """How many payloads could be decoded now, by their former problem, and how many still cannot."""

    resolved: Mapping[str, int]
    left: Mapping[str, int]


class Quarantine(Store):
    """Quarantined payloads. One that can be decoded is marked as resolved, and pruned later."""

    async def count(self) -> int:
        unresolved = quarantine.c.resolved_at.is_(None)
        return int(await self._database.fetch_value(select(func.count()).select_from(quarantine).where(unresolved)))

    async def naming(self, user_id: UserId) -> int:
        """How many payloads contain a user's id, as their author or otherwise."""
        async with self._database.read() as connection:
            return int((await run(connection, "quarantined_of", {"named": f'"{user_id}"'})).scalar_one())

    async def list(self, *, unresolved_only: bool, before: int | None = None, limit: int) -> ListPage[QuarantineLine]:
        """The latest first."""
        conditions = [quarantine.c.resolved_at.is_(None)] if unresolved_only else []
        return await _PAYLOADS.page(self._database, *conditions, after=before, limit=limit)

    async def get(self, payload_id: int) -> tuple[QuarantineLine, bytes] | None:
        """One entry with its payload."""
        line = await _PAYLOADS.first(self._database, quarantine.c.id == payload_id)
        if line is None:
            return None
        query = select(quarantine.c.payload).where(quarantine.c.id == payload_id)
        return line, bytes(await self._database.fetch_value(query))

    async def reparse(
        self, read: Callable[[KeptPayload], ReparseResult], writers: Writers, *, now: datetime
    ) -> Reparsed:
        """Decode every payload again. The transaction that writes its content marks it as resolved."""
        resolved: Counter[str] = Counter()
        left: Counter[str] = Counter()
        unresolved = quarantine.c.resolved_at.is_(None)
        async for kept in _KEPT.pages(self._database, unresolved, size=_SLICE):
            readings = {each.id: read(each) for each in kept}
            left.update(found.problem for found in readings.values() if found.problem is not None)
            legible = [each for each in kept if readings[each.id].problem is None]
            try:
                done = await self._resolve(legible, readings, writers, now)
                resolved.update(each.problem for each in legible if each.id in done)
            except WriteRefused:
                # The database refuses one of them: write them one by one, so that it does not hold up the others.
                for each in legible:
                    try:
                        if await self._resolve([each], readings, writers, now):
                            resolved[each.problem] += 1
                    except WriteRefused as error:
                        left[str(error)] += 1
        return Reparsed(resolved=dict(resolved.most_common()), left=dict(left.most_common()))

    async def _resolve(
        self, kept: Sequence[KeptPayload], readings: Mapping[int, ReparseResult], writers: Writers, now: datetime
    ) -> set[int]:
        """The ids that this call resolved; another process may have resolved some before."""
        if not kept:
            return set()
        # Marked in the transaction that writes: of two processes that decode the same payload, one finds it taken.
        marked = (
            update(quarantine)
            .where(quarantine.c.id.in_([each.id for each in kept]), quarantine.c.resolved_at.is_(None))
            .values(resolved_at=now)
            .returning(quarantine.c.id)
        )
        prepared = {each.id: writers.prepare(readings[each.id].writes).writes for each in kept}
        async with self._database.transaction() as connection:
            won = set((await connection.execute(marked)).scalars())
            found = [(write, each.last_seen_at) for each in kept if each.id in won for write in prepared[each.id]]
            places = {place for write, _ in found if (place := _place_of(write))}
            updated_at: dict[object, datetime] = {}
            for record, table in ((User, users), (Post, posts)):
                if ids := sorted((platform, own) for kind, platform, own in places if kind is record):
                    stored = select(table.c.platform, table.c.id, table.c.last_updated_at)
                    rows = await connection.execute(stored.where(tuple_(table.c.platform, table.c.id).in_(ids)))
                    updated_at |= {(record, row.platform, row.id): row.last_updated_at for row in rows}
            # An old payload must not reset a count or bring back an old handle.
            news = [write for write, at in found if not (known := updated_at.get(_place_of(write))) or known < at]
            await writers.write(connection, PreparedWrites(news), now)
        return won


def _place_of(write: Write) -> tuple[type[Write], Platform, int] | None:
    """The stored row that a write changes, or to which it belongs."""
    if isinstance(write, PartOfPost):
        return Post, write.platform, write.post_id
    return (type(write), write.platform, write.id) if isinstance(write, User | Post) else None


_PAYLOADS: Final = View(QuarantineLine, select(*columns_of(QuarantineLine, quarantine)), quarantine.c.id)
_KEPT: Final = View(KeptPayload, select(*columns_of(KeptPayload, quarantine)), quarantine.c.id, descending=False)

LEAST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=7)


async def take_up_unreadable(connection: AsyncConnection, now: datetime) -> int:
    """Retry failed hydrations: those whose post was stored since, which this ends, and those that are due.

    A due one gets a single attempt, so that an unreadable post is paid for once each time.
    """
    columns = (jobs.c.id, jobs.c.key, jobs.c.state, jobs.c.created_at, jobs.c.started_at)
    query = select(*columns).where(jobs.c.kind == HYDRATE_POST, text(GAP)).order_by(jobs.c.id)
    found = (await connection.execute(query)).all()
    ids: dict[Platform, list[int]] = {}
    for platform, post_id in (platform_and_key(row.key) for row in found):
        if post_id.isdecimal():
            ids.setdefault(platform, []).append(int(post_id))
    stored: dict[str, datetime] = {}
    for platform, some in ((platform, some) for platform, own in ids.items() for some in slices(own)):
        asked = select(posts.c.id, posts.c.first_seen_at).where(posts.c.platform == platform, posts.c.id.in_(some))
        stored |= {key_of(platform, row.id): row.first_seen_at for row in await connection.execute(asked)}
    # Posts that were stored after the last try. A later try that fails again waits for its time.
    readable = {
        row.id
        for row in found
        if (at := stored.get(row.key)) is not None and (row.started_at is None or at > row.started_at)
    }
    tried = [(row, row.started_at or row.created_at) for row in found if row.state == JobState.DEAD]
    # As long after the last try as that was after the first: the wait doubles.
    due = {row.id for row, at in tried if now - at >= min(max(at - row.created_at, LEAST_WAIT), LONGEST_WAIT)}
    due -= readable
    if not readable and not due:
        return 0
    revived = (await run(connection, "revive", {"ids": sorted(readable | due), "now": now})).scalars()
    once = [each for each in revived if each in due]
    await connection.execute(update(jobs).where(jobs.c.id.in_(once)).values(attempts=jobs.c.max_attempts - 1))
    return len(revived)
