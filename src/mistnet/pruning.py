"""Prunes what grows with time alone, as the settings say. What was collected is never pruned."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from mistnet.domain.retention import kept_since
from mistnet.settings import Settings
from mistnet.store.database import Database
from mistnet.store.pruning import StorePruning

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
