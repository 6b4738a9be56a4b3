"""Prunes what grows with time alone, in small transactions, so that no lock is held for long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, and_, delete, exists, false, literal, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.bills import RECONCILIATION, day_start
from mistnet.governor.tables import call_sums, calls, source_keys
from mistnet.graph.tables import segment_snapshots, segments
from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of
from mistnet.kit.types import BigId, UtcTime
from mistnet.operations.retention import kept_since
from mistnet.settings import Settings
from mistnet.shops.tables import crawls
from mistnet.social.tables import quarantine

_SLICE: Final = 500
_MOST: Final = 20_000
_SUMMED: Final = ("calls", "items", "credits", "failures")
_DAYS_CALLS: Final = ("day", "source", "key_label", "endpoint", "account_id")
NO_ACCOUNT: Final = 0
"""What `call_sums` has for calls that served no single account. No platform gives this id to anybody."""


class StorePruning:
    """Every method may run anywhere, any number of times, and returns how many rows it deleted.

    With `most` rows a call is over, though there may be more: whoever calls has other work to do in between.
    """

    def __init__(self, database: Database, *, slice_rows: int = _SLICE, most: int = _MOST) -> None:
        self._database = database
        self._slice = slice_rows
        self.most = most

    async def fold_calls(self, *, before: datetime) -> int:
        """Turns calls from before then into sums by day.

        A call and its sum are never both there, nor both gone: one transaction takes the one and writes the other.
        """
        async with self._database.read() as connection:
            is_compared = await _is_compared(connection)
        old = select(calls.c.id).where(calls.c.at < before, ~is_compared).order_by(calls.c.at).limit(self._slice)
        folded = 0
        while True:
            async with self._database.read() as connection:
                ids = (await connection.execute(old)).scalars().all()
            if ids:
                async with self._database.transaction() as connection:
                    # Only what this statement deleted is summed: another process may prune at the same time.
                    taken = await connection.execute(delete(calls).where(calls.c.id.in_(ids)).returning(*_CALL))
                    folded += await _add_sums(connection, taken.all())
            if len(ids) < self._slice or folded >= self.most:
                return folded

    async def prune_crawls(self, *, before: datetime | None, pages_before: datetime | None) -> int:
        """Deletes visits, but the latest of each link and those that still have their page; drops old pages first.

        It goes through old visits once by their time. Those that stay are passed, not met again with every slice.
        """
        bounds = [bound for bound in (before, pages_before) if bound]
        if not bounds:
            return 0
        later = crawls.alias("later")
        superseded = exists().where(later.c.link_id == crawls.c.link_id, later.c.id > crawls.c.id)
        visits = (
            select(crawls.c.id, crawls.c.at, crawls.c.body.is_not(None).label("page"), superseded.label("superseded"))
            .where(crawls.c.at < max(bounds))
            .order_by(crawls.c.at, crawls.c.id)
            .limit(self._slice)
        )
        pruned, asked = 0, visits
        while True:
            async with self._database.read() as connection:
                found = (await connection.execute(asked)).all()
            pages = [row.id for row in found if row.page and pages_before and row.at < pages_before]
            dropped = set(pages)
            over = [
                row.id
                for row in found
                if before and row.at < before and row.superseded and (not row.page or row.id in dropped)
            ]
            if pages or over:
                async with self._database.transaction() as connection:
                    await connection.execute(update(crawls).where(crawls.c.id.in_(pages)).values(body=None))
                    pruned += (await connection.execute(delete(crawls).where(crawls.c.id.in_(over)))).rowcount
            if len(found) < self._slice or pruned >= self.most:
                return pruned
            passed = tuple_(literal(found[-1].at, UtcTime), literal(found[-1].id, BigId))
            asked = visits.where(tuple_(crawls.c.at, crawls.c.id) > passed)

    async def prune_snapshots(self, *, before: datetime) -> int:
        """Deletes snapshots in which nobody came or went, but the first and the latest of each segment."""
        async with self._database.read() as connection:
            known = (await connection.execute(select(segments.c.id).order_by(segments.c.id))).scalars().all()
        return sum([await self._prune_snapshots_of(segment_id, before) for segment_id in known])

    async def _prune_snapshots_of(self, segment_id: int, before: datetime) -> int:
        own, other = segment_snapshots.c, segment_snapshots.alias("other")
        same = other.c.segment_id == own.segment_id
        old = (
            select(own.id)
            .where(own.segment_id == segment_id, own.at < before, own.entered == 0, own.departed == 0)
            .where(exists().where(and_(same, other.c.at < own.at)), exists().where(and_(same, other.c.at > own.at)))
            .limit(self._slice)
        )
        return await self._delete_by_id(segment_snapshots, old)

    async def prune_quarantine(self, *, before: datetime) -> int:
        """Deletes payloads that could be read after all. What still waits to be read stays."""
        return await self._delete_by_id(
            quarantine, select(quarantine.c.id).where(quarantine.c.resolved_at < before).limit(self._slice)
        )

    async def _delete_by_id(self, table: Any, old: Any) -> int:
        pruned = 0
        while True:
            async with self._database.read() as connection:
                ids = (await connection.execute(old)).scalars().all()
            if ids:
                async with self._database.transaction() as connection:
                    pruned += (await connection.execute(delete(table).where(table.c.id.in_(ids)))).rowcount
            if len(ids) < self._slice or pruned >= self.most:
                return pruned


async def _is_compared(connection: AsyncConnection) -> ColumnElement[bool]:
    """Calls around the balance from which on a key's bill is compared: the sum of a day cannot be cut at a moment."""
    found = await connection.execute(select(source_keys).where(source_keys.c.reconciled_at.is_not(None)))
    return or_(
        false(),
        *(
            and_(
                calls.c.source == key.source,
                calls.c.key_label == key.label,
                calls.c.at >= day_start(key.reconciled_at) - timedelta(days=1),
                calls.c.at < day_start(key.reconciled_at) + timedelta(days=1),
            )
            for key in found
        ),
    )


_CALL: Final = [
    calls.c[name] for name in ("at", "source", "key_label", "endpoint", "account_id", "items", "credits", "error")
]
"""The error as it is: SQLite 3.40 answers `error IS NOT NULL` of a row it deletes with true, whatever it held."""


async def _add_sums(connection: AsyncConnection, taken: Sequence[Row[Any]]) -> int:
    if taken:
        insert = insert_of(connection.dialect.name)(call_sums)
        added = {name: call_sums.c[name] + insert.excluded[name] for name in _SUMMED}
        upsert = insert.on_conflict_do_update(index_elements=list(_DAYS_CALLS), set_=added)
        await connection.execute(upsert.values(list(_sums_of(taken))))
    return len(taken)


def _sums_of(taken: Iterable[Row[Any]]) -> Iterable[Mapping[str, Any]]:
    """In the order of their key: whoever adds to the same sums meanwhile waits, and none waits for each other."""
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(_SUMMED))
    for row in taken:
        day = row.at.astimezone(UTC).date().isoformat()
        total = sums[day, row.source, row.key_label, row.endpoint, row.account_id or NO_ACCOUNT]
        is_call = int(row.endpoint != RECONCILIATION)
        for place, amount in enumerate((is_call, row.items, row.credits, int(row.error is not None))):
            total[place] += amount
    for key in sorted(sums):
        yield {**dict(zip(_DAYS_CALLS, key, strict=True)), **dict(zip(_SUMMED, sums[key], strict=True))}


PRUNE_EVERY: Final = timedelta(hours=1)


class Pruning:
    """One for each process. Every worker does it, because some deployments have nothing but workers."""

    def __init__(self, settings: Settings, database: Database, *, store: StorePruning | None = None) -> None:
        self._settings = settings
        self._database = database
        self._store = store or StorePruning(database)
        self._pruned_at: datetime | None = None

    async def look_after(self) -> int:
        """Prunes once an hour, and goes on at the next look if that was not all. Returns 0: it makes no job due."""
        now = self._database.clock.now()
        if (self._pruned_at is None or now - self._pruned_at >= PRUNE_EVERY) and await self.prune(now):
            self._pruned_at = now
        return 0

    async def prune(self, now: datetime) -> bool:
        """Whether nothing is left that is too old."""
        settings, store = self._settings, self._store
        pruned = [
            await store.prune_crawls(
                before=kept_since(now, settings.crawls_days), pages_before=kept_since(now, settings.crawl_pages_days)
            )
        ]
        if before := kept_since(now, settings.calls_days):
            pruned.append(await store.fold_calls(before=before))
        if before := kept_since(now, settings.history_days):
            pruned.append(await store.prune_snapshots(before=before))
            pruned.append(await store.prune_quarantine(before=before))
        return max(pruned) < store.most
