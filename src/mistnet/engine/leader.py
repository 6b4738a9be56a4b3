"""Leads while it holds the lease, and stops in time when it cannot say so any more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from loguru import logger

from mistnet.domain.errors import DatabaseError
from mistnet.domain.leading import Leaders, Term
from mistnet.domain.ports import Clock
from mistnet.engine.outage import OutageLog

_TRIES_PER_LEASE: Final = 3
_SAFE_PART: Final = 5 / 6
"""Of a lease: after so much of it without a renewal one stops, before anybody else may begin."""

_FAREWELL_SECONDS: Final = 2.0
_MOMENT: Final = 0.001
_SOON_SECONDS: Final = 0.05
_ASKING: Final = "asking who leads"
_RENEWING: Final = "renewing the lead"
_GLANCE_SECONDS: Final = 2.0
"""How often others look whether the leader resigned."""


class Leadership:
    """One process's part in an election without end. What a leader does runs while it leads and is cancelled after."""

    def __init__(
        self,
        leaders: Leaders,
        *,
        name: str,
        holder: str,
        lease: timedelta,
        clock: Clock,
        lead: Callable[[Term], Coroutine[Any, Any, None]],
        outage: OutageLog | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leaders = leaders
        self._name = name
        self._holder = holder
        self._lease = lease
        self._clock = clock
        self._lead = lead
        self._outage = outage or OutageLog()
        self._monotonic = monotonic
        self._term: Term | None = None
        self._safe_until = 0.0
        self._acts: asyncio.Task[None] | None = None

    @property
    def term(self) -> Term | None:
        """The present term; None as soon as its lease may have run out."""
        return self._term if self._monotonic() < self._safe_until else None

    async def run(self) -> None:
        """Until cancelled. Then it resigns, so that another takes over at once."""
        try:
            while True:
                begun = self._monotonic()
                pause = await (self._keep(self._term) if self._term else self._try_to_lead())
                await self._rest(begun + pause)
        finally:
            await self._resign()

    async def _try_to_lead(self) -> float:
        """Takes the lead if nobody has it. Returns how long to wait: for a renewal, or for another's lease to end."""
        try:
            async with asyncio.timeout(self._safe_seconds):
                leader = await self._leaders.present(self._name)
                self._outage.answered(_ASKING)
                now = self._clock.now()
                if leader and leader.holder != self._holder and leader.leads_at(now):
                    left = (leader.lease_until - now).total_seconds()
                    return min(max(left, _SOON_SECONDS), self._pause, _GLANCE_SECONDS)
                await self._take()
        except (DatabaseError, TimeoutError) as error:
            self._outage.failed(_ASKING, error)
        return self._pause

    async def _take(self) -> None:
        begun = self._monotonic()
        term = await self._leaders.take(self._name, self._holder, lease=self._lease, now=self._clock.now())
        if term:
            self._term, self._safe_until = term, begun + self._safe_seconds
            logger.info("leads the {name} now (fence {fence})", name=self._name, fence=term.fence, holder=self._holder)
            self._acts = asyncio.create_task(self._lead(term), name=f"leading {self._name}")

    async def _keep(self, term: Term) -> float:
        """Renews. One that cannot be told in time ends the term first and is given up after."""
        begun = self._monotonic()
        renewing = asyncio.ensure_future(self._leaders.renew(term, lease=self._lease, now=self._clock.now()))
        try:
            await asyncio.wait({renewing}, timeout=max(self._safe_until - begun, 0.0))
            if not renewing.done():
                await self._stand_down("the database does not answer")
            elif error := renewing.exception():
                self._put_up_with(error)
            elif renewing.result():
                self._outage.answered(_RENEWING)
                self._safe_until = begun + self._safe_seconds
            else:
                await self._stand_down("another process took over")
        finally:
            renewing.add_done_callback(_forget)
            renewing.cancel()
        return self._pause

    def _put_up_with(self, error: BaseException) -> None:
        """A renewal that failed is tried again while the lease lasts."""
        if not isinstance(error, DatabaseError):
            raise error
        self._outage.failed(_RENEWING, error)

    async def _rest(self, until: float) -> None:
        """Waits for the next try; ends the term when it stops being safe, and with whatever broke its acts."""
        acts = {self._acts} if self._acts else set()
        end = min(until, self._safe_until) if acts else until
        if acts:
            await asyncio.wait(acts, timeout=max(end - self._monotonic(), 0.0))
        else:
            await asyncio.sleep(max(end - self._monotonic(), 0.0))
        if self._acts and self._acts.done():
            self._acts.result()
        if self._term and self._monotonic() >= self._safe_until - _MOMENT:
            await self._stand_down("its lease could not be renewed in time")

    async def _stand_down(self, why: str) -> None:
        logger.warning("leads the {name} no more: {why}", name=self._name, why=why, holder=self._holder)
        await self._stop_acting()

    async def _stop_acting(self) -> None:
        self._term, acts, self._acts = None, self._acts, None
        if acts:
            acts.cancel()
            await asyncio.wait({acts})
            if not acts.cancelled():
                acts.result()

    async def _resign(self) -> None:
        """Acts end first: whoever comes next must be the only one."""
        term = self._term
        await self._stop_acting()
        if term:
            with contextlib.suppress(DatabaseError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await self._leaders.resign(term, now=self._clock.now())
                logger.info("gave up the lead of the {name}", name=self._name, holder=self._holder)

    @property
    def _pause(self) -> float:
        return self._lease.total_seconds() / _TRIES_PER_LEASE

    @property
    def _safe_seconds(self) -> float:
        return self._lease.total_seconds() * _SAFE_PART


def _forget(renewing: asyncio.Future[bool]) -> None:
    """What became of a renewal that nobody waits for is nobody's fault."""
    if not renewing.cancelled():
        renewing.exception()
