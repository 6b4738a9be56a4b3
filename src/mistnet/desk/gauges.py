"""Keeps the meters of the queue fresh."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

from prometheus_client import Gauge

from mistnet.app import App
from mistnet.domain.errors import DatabaseError
from mistnet.domain.jobs import GAP_STATES, LIVE_STATES
from mistnet.store.lane_pages import LanePages

_REFRESH_SECONDS: Final = 15.0


class QueueGauges:
    """Depth, age and parked jobs as the database has them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._shown: dict[Gauge, set[tuple[str, ...]]] = {}

    async def run(self) -> None:
        while True:
            with suppress(DatabaseError):  # the meters stand still until it answers again
                await self.refresh()
            await asyncio.sleep(_REFRESH_SECONDS)

    async def refresh(self) -> None:
        now = self._app.database.clock.now()
        counts = await self._app.inspector.counts(now=now)
        metrics = self._app.metrics
        parked: dict[tuple[str, ...], float] = {}
        for count in counts:
            parked[(count.kind,)] = parked.get((count.kind,), 0) + count.parked
        depth: dict[tuple[str, ...], float] = {(each.kind, each.state): each.jobs for each in counts}
        oldest: dict[tuple[str, ...], float] = {
            (each.kind, each.state): (now - each.oldest_at).total_seconds() for each in counts
        }
        self._set(metrics.depth, depth)
        self._set(metrics.oldest, oldest)
        self._set(metrics.parked, parked)
        await self._refresh_lanes(now)

    async def _refresh_lanes(self, now: datetime) -> None:
        lanes = await LanePages(self._app.database).counts(now=now)
        meters = self._app.metrics.lanes
        self._set(meters.depth, {(each.lane, each.state): each.jobs for each in lanes if each.state in LIVE_STATES})
        gaps: dict[tuple[str, ...], float] = {
            (lane, state): 0 for lane in self._app.kinds.lanes for state in GAP_STATES
        }
        gaps |= {(each.lane, each.state): each.jobs for each in lanes if each.state in GAP_STATES}
        self._set(meters.dead_letters, gaps)

    def _set(self, gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        for labels, value in values.items():
            gauge.labels(*labels).set(value)
        for labels in self._shown.get(gauge, set()) - set(values):
            gauge.remove(*labels)
        self._shown[gauge] = set(values)
