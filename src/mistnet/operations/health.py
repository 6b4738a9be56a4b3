"""Whether this installation is well: asked often, so answers are kept for seconds, and given within a deadline."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from loguru import logger

from mistnet.kit.errors import DatabaseError
from mistnet.operations.health_checks import STALLED, DatabaseHealth, DatabaseProbe, stalled
from mistnet.operations.installation import NO_SPACE
from mistnet.queue.leader import StoreLeaders

if TYPE_CHECKING:
    from mistnet.app import App


_SEEN_WITHIN: Final = 3
"""A worker that missed so many heartbeats has gone."""

_FRESH_SECONDS: Final = 5.0
_DEADLINE_SECONDS: Final = 3.0


class QueueHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Who works, and how long work has waited."""

    workers: int
    oldest_due_seconds: float | None
    stalled_seconds: float
    """How long jobs were due while none was begun or settled; 0 while none is due."""

    leader: str | None
    paused: bool

    @property
    def is_served(self) -> bool:
        waits = self.oldest_due_seconds is not None and not self.workers
        return not (self.paused or waits or self.stalled_seconds > STALLED.total_seconds())


class HealthCheck:
    """Looks at the database for all who ask at the same time, and never waits for longer than its deadline.

    A look at a database that hangs goes on, and who asks next waits for the same one, instead of adding another.
    """

    def __init__(
        self, app: App, *, fresh_seconds: float = _FRESH_SECONDS, deadline_seconds: float = _DEADLINE_SECONDS
    ) -> None:
        self._app = app
        self._probe = DatabaseProbe(app.database)
        self._fresh = fresh_seconds
        self._deadline = deadline_seconds
        self._looking: asyncio.Task[DatabaseHealth] | None = None
        self._kept: DatabaseHealth | None = None
        self._kept_until = 0.0

    async def database(self) -> DatabaseHealth:
        if self._kept is not None and time.monotonic() < self._kept_until:
            return self._kept
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="health")
        looking = self._looking
        await asyncio.wait([looking], timeout=self._deadline)
        return looking.result() if looking.done() else self._late()

    async def queue(self) -> QueueHealth | None:
        """None where the database does not tell in time."""
        found = await self.database()
        if found.state in ("unreachable", "wrong tables"):
            return None
        asking = asyncio.create_task(self._ask_queue(found.last_progress_at), name="health of the queue")
        await asyncio.wait([asking], timeout=self._deadline)
        if asking.done():
            return asking.result()
        asking.cancel()  # not awaited: a connection that hangs takes its time to close
        return None

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking], timeout=self._deadline)

    async def _look(self) -> DatabaseHealth:
        try:
            before, self._kept = self._kept, await self._probe.look()
            self._kept_until = time.monotonic() + self._fresh
            _log_change(before, self._kept)
            return self._kept
        finally:
            self._looking = None

    def _late(self) -> DatabaseHealth:
        return DatabaseHealth(state="unreachable", problem=f"the database did not answer within {self._deadline:g} s")

    async def _ask_queue(self, progress_at: datetime | None) -> QueueHealth | None:
        app, now = self._app, self._app.database.clock.now()
        try:
            seen_after = now - _SEEN_WITHIN * app.settings.heartbeat
            workers = [each for each in await app.inspector.workers() if each.seen_at >= seen_after]
            first = (await app.queue.outlook(app.kinds.targets(slots=1, lanes=None, lane_caps={}), now=now)).next_due_at
            leaders = [each.holder for each in await StoreLeaders(app.database).all() if each.leads_at(now)]
            states = await app.sources.states()
            paid = [states[name] for name, source in app.sources.items() if source.costs and name in states]
        except DatabaseError:
            return None
        due_since = first if first and first <= now else None
        return QueueHealth(
            workers=len(workers),
            oldest_due_seconds=(now - due_since).total_seconds() if due_since else None,
            stalled_seconds=stalled(due_since, progress_at, now),
            leader=leaders[0] if leaders else None,
            paused=any(state.paused_at for state in paid),
        )


def _log_change(before: DatabaseHealth | None, now: DatabaseHealth) -> None:
    """Once for each change: the look is repeated every few seconds."""
    if now.problem and (before is None or before.state != now.state):
        logger.error("the database is not well ({state}): {problem}", state=now.state, problem=now.problem)
    elif before is not None and before.problem and not now.problem:
        logger.info("the database is well again")


def is_roomy(database: DatabaseHealth) -> bool:
    """Whether neither disk nor connections are about to run out."""
    return not database.few_connections and (database.free_bytes is None or database.free_bytes >= NO_SPACE)
