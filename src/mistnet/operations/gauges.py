"""Updates the gauges of the database, the queue and the lanes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from prometheus_client import Gauge

from mistnet.kit.errors import DatabaseError
from mistnet.operations.health import HealthCheck
from mistnet.operations.monitoring import LaneStore
from mistnet.queue.model import GAP_STATES, LIVE_STATES

if TYPE_CHECKING:
    from mistnet.app import App


_REFRESH_SECONDS: Final = 15.0


class QueueGauges:
    """Sets gauges from what is in the database, and from its health."""

    def __init__(self, app: App, health: HealthCheck) -> None:
        self._app = app
        self._health = health
        self._set_labels: dict[Gauge, set[tuple[str, ...]]] = {}

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(_REFRESH_SECONDS)

    async def refresh(self) -> None:
        """Set all gauges. Those of the queue keep their values while the database does not answer."""
        database = await self._health.database()
        queue = await self._health.queue()
        meters = self._app.metrics.database
        values = {
            meters.up: database.state not in ("unreachable", "wrong tables"),
            meters.checked_at: time.time(),
            meters.writable: database.state == "ok",
            meters.read_only: database.read_only,
            meters.write_seconds: database.write_seconds,
            meters.size: database.size_bytes,
            meters.free: database.free_bytes,
            meters.connections: database.connections,
            meters.most_connections: database.most_connections,
            meters.stalled: queue.stalled_seconds if queue else None,
        }
        for gauge, value in values.items():
            gauge.set(math.nan if value is None else value)
        if queue is not None:
            with suppress(DatabaseError):
                await self._refresh_queue()

    async def _refresh_queue(self) -> None:
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
        lanes = await LaneStore(self._app.database).counts(now=now)
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
        for labels in self._set_labels.get(gauge, set()) - set(values):
            gauge.remove(*labels)
        self._set_labels[gauge] = set(values)
