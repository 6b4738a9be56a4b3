"""Deletes old rows of tables that would grow without end, in small transactions, so that no lock is held for long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, and_, delete, exists, false, literal, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.bills import RECONCILIATION
from mistnet.governor.model import day_start
from mistnet.governor.tables import CALL_AMOUNTS, call_days, call_hours, call_sums, calls, source_keys
from mistnet.graph.tables import segment_snapshots, segments
from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of
from mistnet.kit.types import BigId, UtcTime
from mistnet.settings import Settings
from mistnet.shops.tables import crawls
from mistnet.social.tables import quarantine

_SLICE: Final = 500
_MOST: Final = 20_000
SUMMED: Final = ("calls", "items", "credits", "failures")
"""The columns of `call_sums` that are added up."""

_DAYS_CALLS: Final = ("day", "source", "key_label", "endpoint", "account_id")
NO_ACCOUNT: Final = 0
"""The account id in `call_sums` of calls that served no single account. No platform uses this id."""


def kept_since(now: datetime, days: float) -> datetime | None:
    """Rows that are older are deleted. None with 0 days, which means that rows are kept forever."""
    return now - timedelta(days=days) if days else None


class StorePruning:
    """Each method may run in several processes at once, and returns how many rows it deleted.

    A call ends after `most` rows, even if there are more, so that the worker can do other work in between.
    """

    def __init__(self, database: Database, *, slice_rows: int = _SLICE, most: int = _MOST) -> None:
        self._database = database
        self._slice = slice_rows
        self.most = most

    async def fold_calls(self, *, before: datetime) -> int:
        """Replace old calls by sums per day, both in one transaction, so that none is lost or counted twice.

        Triggers take them from the sums by hour. Those that come to nothing are deleted.
        """
        keys = await self._database.fetch_rows(select(source_keys).where(source_keys.c.reconciled_at.is_not(None)))
        # Calls around the time from which a key's bill is compared stay, as the sum of a day cannot be split.
        compared = [
            and_(
                calls.c.source == key["source"],
                calls.c.key_label == key["label"],
                calls.c.at >= day_start(key["reconciled_at"]) - timedelta(days=1),
                calls.c.at < day_start(key["reconciled_at"]) + timedelta(days=1),
            )
            for key in keys
        ]
        old = (
            select(calls.c.id)
            .where(calls.c.at < before, ~or_(false(), *compared))
            .order_by(calls.c.at)
            .limit(self._slice)
        )
        folded = 0
        while True:
            ids = [row["id"] for row in await self._database.fetch_rows(old)]
            if ids:
                async with self._database.transaction() as connection:
                    # Only what this statement has deleted is added: another process may prune at the same time.
                    taken = await connection.execute(delete(calls).where(calls.c.id.in_(ids)).returning(*_CALL))
                    folded += await _add_sums(connection, taken.all())
            if len(ids) < self._slice or folded >= self.most:
                break
        async with self._database.transaction() as connection:
            for sums in (call_hours, call_days):
                await connection.execute(delete(sums).where(*(sums.c[name] == 0 for name in CALL_AMOUNTS)))
        return folded

    async def prune_crawls(self, *, before: datetime | None, pages_before: datetime | None) -> int:
        """Delete old pages, then visits, except the latest of each link and those that still have a page.

        One pass over old visits by their time: those that stay are not read again with the next slice.
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
        pruned, query = 0, visits
        while True:
            async with self._database.read() as connection:
                rows = (await connection.execute(query)).all()
            pages = [row.id for row in rows if row.page and pages_before and row.at < pages_before]
            without_page = {*pages, *(row.id for row in rows if not row.page)}
            over = [row.id for row in rows if before and row.at < before and row.superseded and row.id in without_page]
            if pages or over:
                async with self._database.transaction() as connection:
                    await connection.execute(update(crawls).where(crawls.c.id.in_(pages)).values(body=None))
                    pruned += (await connection.execute(delete(crawls).where(crawls.c.id.in_(over)))).rowcount
            if len(rows) < self._slice or pruned >= self.most:
                return pruned
            last = tuple_(literal(rows[-1].at, UtcTime), literal(rows[-1].id, BigId))
            query = visits.where(tuple_(crawls.c.at, crawls.c.id) > last)

    async def prune_snapshots(self, *, before: datetime) -> int:
        """Delete snapshots without a change, except the first and the latest of each segment."""
        known = await self._database.fetch_rows(select(segments.c.id).order_by(segments.c.id))
        own, other = segment_snapshots.c, segment_snapshots.alias("other")
        same = other.c.segment_id == own.segment_id
        between = (exists().where(and_(same, other.c.at < own.at)), exists().where(and_(same, other.c.at > own.at)))
        idle = select(own.id).where(own.at < before, own.entered == 0, own.departed == 0, *between).limit(self._slice)
        deleted = 0
        for row in known:
            deleted += await self._delete_by_id(segment_snapshots, idle.where(own.segment_id == row["id"]))
        return deleted

    async def prune_quarantine(self, *, before: datetime) -> int:
        """Delete payloads that were read later. Those that are still unreadable stay."""
        old = select(quarantine.c.id).where(quarantine.c.resolved_at < before).limit(self._slice)
        return await self._delete_by_id(quarantine, old)

    async def _delete_by_id(self, table: Any, old: Any) -> int:
        pruned = 0
        while True:
            ids = [row["id"] for row in await self._database.fetch_rows(old)]
            if ids:
                async with self._database.transaction() as connection:
                    pruned += (await connection.execute(delete(table).where(table.c.id.in_(ids)))).rowcount
            if len(ids) < self._slice or pruned >= self.most:
                return pruned


# With the error itself: SQLite 3.40 returns true for `error IS NOT NULL` of any row that it deletes.
_CALL: Final = [
    calls.c[name] for name in ("at", "source", "key_label", "endpoint", "account_id", "items", "credits", "error")
]


async def _add_sums(connection: AsyncConnection, taken: Sequence[Row[Any]]) -> int:
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(SUMMED))
    for row in taken:
        day = row.at.astimezone(UTC).date().isoformat()
        total = sums[day, row.source, row.key_label, row.endpoint, row.account_id or NO_ACCOUNT]
        is_call = int(row.endpoint != RECONCILIATION)
        for place, amount in enumerate((is_call, row.items, row.credits, int(row.error is not None))):
            total[place] += amount
    if sums:
        insert = insert_of(connection.dialect.name)(call_sums)
        added = {name: call_sums.c[name] + insert.excluded[name] for name in SUMMED}
        upsert = insert.on_conflict_do_update(index_elements=list(_DAYS_CALLS), set_=added)
        # In the order of their key, so that two processes lock the same sums in the same order and cannot deadlock.
        rows = [dict(zip((*_DAYS_CALLS, *SUMMED), (*key, *sums[key]), strict=True)) for key in sorted(sums)]
        await connection.execute(upsert.values(rows))
    return len(taken)


_PRUNE_EVERY: Final = timedelta(hours=1)


class Pruning:
    """One per process. Every worker prunes, because some deployments run only workers."""

    def __init__(self, settings: Settings, database: Database, *, store: StorePruning | None = None) -> None:
        self._settings = settings
        self._database = database
        self._store = store or StorePruning(database)
        self._pruned_at: datetime | None = None

    async def look_after(self) -> int:
        """Prune once an hour, and continue at the next call if there is more. Return 0: no job becomes due."""
        now = self._database.clock.now()
        if (self._pruned_at is None or now - self._pruned_at >= _PRUNE_EVERY) and await self.prune(now):
            self._pruned_at = now
        return 0

    async def prune(self, now: datetime) -> bool:
        """Return whether everything that is too old was deleted."""
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
