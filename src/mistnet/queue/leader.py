"""Leader election by lease: a process leads while it holds the lease, and stops before the lease can expire."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec
from loguru import logger
from sqlalchemy import ColumnElement, and_, case, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.clock import Clock
from mistnet.kit.database import Store
from mistnet.kit.errors import DatabaseError
from mistnet.kit.outage import OutageLog
from mistnet.kit.statements import insert_of
from mistnet.queue.tables import leaders


class LeaderTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One holder's time as leader."""

    name: str
    holder: str
    fence: int


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a leadership, or held it last."""

    name: str
    holder: str
    fence: int
    since: datetime
    lease_until: datetime

    def leads_at(self, now: datetime) -> bool:
        return self.lease_until > now


class Leaders(Protocol):
    """The leased rows. Each call is one guarded statement. Each process has a holder name of its own."""

    async def take(self, name: str, holder: str, *, lease: timedelta, now: datetime) -> LeaderTerm | None:
        """Lead from now on unless another process does. The fence grows when the holder changes."""
        ...

    async def present(self, name: str) -> Leader | None:
        """Who leads, or led last. A plain read, so it does not delay the leader."""
        ...

    async def renew(self, term: LeaderTerm, *, lease: timedelta, now: datetime) -> bool:
        """Extend the lease, unless another process took over."""
        ...

    async def resign(self, term: LeaderTerm, *, now: datetime) -> None:
        """End the term, so that another process can lead at once."""
        ...


# One renewal may fail, and the next one still comes before the leader must stop.
_TRIES_PER_LEASE: Final = 3
# The part of a lease after which a leader without renewal stops: before another process may begin.
_SAFE_PART: Final = 5 / 6
# A process that ends does not wait for a database that hangs: without its farewell, the lease expires.
_FAREWELL_SECONDS: Final = 2.0
_MOMENT: Final = 0.001
# A lease that ends in a moment: without a least pause, the loop would ask again and again until then.
_SOON_SECONDS: Final = 0.05
_ASKING: Final = "asking who leads"
_RENEWING: Final = "renewing the lead"
# How often the other processes check whether the leader resigned.
_GLANCE_SECONDS: Final = 2.0


class Leadership:
    """One process in the election. `lead` runs while it leads and is cancelled afterwards."""

    def __init__(
        self,
        leaders: Leaders,
        *,
        name: str,
        holder: str,
        lease: timedelta,
        clock: Clock,
        lead: Callable[[LeaderTerm], Coroutine[Any, Any, None]],
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
        self._term: LeaderTerm | None = None
        self._safe_until = 0.0
        self._acts: asyncio.Task[None] | None = None

    @property
    def term(self) -> LeaderTerm | None:
        """The current term. None as soon as its lease may have expired."""
        return self._term if self._monotonic() < self._safe_until else None

    async def run(self) -> None:
        """Run until cancelled, then resign, so that another process takes over at once."""
        try:
            while True:
                begun = self._monotonic()
                pause = await (self._keep(self._term) if self._term else self._try_to_lead())
                # Wait for the next try.
                acts = {self._acts} if self._acts else set()
                until = min(begun + pause, self._safe_until) if acts else begun + pause
                left = max(until - self._monotonic(), 0.0)
                await (asyncio.wait(acts, timeout=left) if acts else asyncio.sleep(left))
                if self._acts and self._acts.done():
                    # Raises what ended `lead`.
                    self._acts.result()
                if self._term and self._monotonic() >= self._safe_until - _MOMENT:
                    await self._stand_down("its lease could not be renewed in time")
        finally:
            # Stop leading first: the next leader must be the only one.
            last = self._term
            await self._stop_acting()
            if last:
                with contextlib.suppress(DatabaseError, TimeoutError):
                    async with asyncio.timeout(_FAREWELL_SECONDS):
                        await self._leaders.resign(last, now=self._clock.now())
                    logger.info("gave up the lead of the {name}", name=self._name, holder=self._holder)

    async def _try_to_lead(self) -> float:
        """Lead if no process does. Return how many seconds to wait for a renewal or for the end of another's lease."""
        try:
            async with asyncio.timeout(self._safe_seconds):
                leader = await self._leaders.present(self._name)
                self._outage.answered(_ASKING)
                now = self._clock.now()
                if leader and leader.holder != self._holder and leader.leads_at(now):
                    left = (leader.lease_until - now).total_seconds()
                    return min(max(left, _SOON_SECONDS), self._pause, _GLANCE_SECONDS)
                begun, now = self._monotonic(), self._clock.now()
                if term := await self._leaders.take(self._name, self._holder, lease=self._lease, now=now):
                    # Counted from before the request: the lease runs from then on, however late the answer comes.
                    self._term, self._safe_until = term, begun + self._safe_seconds
                    logger.info(
                        "leads the {name} now (fence {fence})", name=self._name, fence=term.fence, holder=self._holder
                    )
                    self._acts = asyncio.create_task(self._lead(term), name=f"leading {self._name}")
        except (DatabaseError, TimeoutError) as error:
            self._outage.failed(_ASKING, error)
        return self._pause

    async def _keep(self, term: LeaderTerm) -> float:
        """Renew the lease. If the answer is late, the term ends first and the renewal is cancelled after."""
        begun = self._monotonic()
        renewing = asyncio.ensure_future(self._leaders.renew(term, lease=self._lease, now=self._clock.now()))
        try:
            await asyncio.wait({renewing}, timeout=max(self._safe_until - begun, 0.0))
            if not renewing.done():
                await self._stand_down("the database does not answer")
            elif error := renewing.exception():
                if not isinstance(error, DatabaseError):
                    raise error
                self._outage.failed(_RENEWING, error)  # it is tried again while the lease lasts
            elif renewing.result():
                self._outage.answered(_RENEWING)
                self._safe_until = begun + self._safe_seconds
            else:
                await self._stand_down("another process took over")
        finally:
            renewing.add_done_callback(_forget)
            renewing.cancel()
        return self._pause

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

    @property
    def _pause(self) -> float:
        return self._lease.total_seconds() / _TRIES_PER_LEASE

    @property
    def _safe_seconds(self) -> float:
        return self._lease.total_seconds() * _SAFE_PART


def _forget(renewing: asyncio.Future[bool]) -> None:
    """Retrieve the error of a renewal that is not awaited any more, so that asyncio does not report it."""
    if not renewing.cancelled():
        renewing.exception()


class Duty(msgspec.Struct, frozen=True, kw_only=True):
    """A periodic task of the leading process. Its runs do not overlap; after a failure it runs at its next time."""

    name: str
    every: timedelta
    run: Callable[[], Awaitable[object]]


class StoreLeaders(Store):
    """The table `leaders`. Rows are never deleted, because a fence must only grow."""

    async def take(self, name: str, holder: str, *, lease: timedelta, now: datetime) -> LeaderTerm | None:
        insert = insert_of(self._database.dialect)
        row = {"name": name, "holder": holder, "fence": 1, "since": now, "lease_until": now + lease}
        own = leaders.c.holder == holder
        taking = (
            insert(leaders)
            .values(row)
            .on_conflict_do_update(
                index_elements=["name"],
                set_={
                    "holder": holder,
                    "fence": leaders.c.fence + case((own, 0), else_=1),
                    "since": case((own, leaders.c.since), else_=now),
                    "lease_until": now + lease,
                },
                where=or_(own, leaders.c.lease_until <= now),
            )
            .returning(leaders.c.fence)
        )
        async with self._database.autocommit() as connection:
            fence = (await connection.execute(taking)).scalar()
        return None if fence is None else LeaderTerm(name=name, holder=holder, fence=fence)

    async def present(self, name: str) -> Leader | None:
        return next((leader for leader in await self.all() if leader.name == name), None)

    async def renew(self, term: LeaderTerm, *, lease: timedelta, now: datetime) -> bool:
        """An expired lease can be renewed too, as long as no other process took it."""
        async with self._database.autocommit() as connection:
            kept = await connection.execute(update(leaders).where(_of(term)).values(lease_until=now + lease))
            return bool(kept.rowcount)

    async def resign(self, term: LeaderTerm, *, now: datetime) -> None:
        async with self._database.autocommit() as connection:
            await connection.execute(
                update(leaders).where(_of(term), leaders.c.lease_until > now).values(lease_until=now)
            )

    async def all(self) -> Sequence[Leader]:
        """Who leads, or led last, ordered by name."""
        asked = select(*(leaders.c[field] for field in Leader.__struct_fields__)).order_by(leaders.c.name)
        async with self._database.read() as connection:
            return [Leader(**row) for row in (await connection.execute(asked)).mappings()]


async def still_leads(connection: AsyncConnection, term: LeaderTerm, *, now: datetime) -> bool:
    """Whether a term still holds. The row lock keeps others from taking over until the transaction ends.

    The server cuts off a leader that stalls inside the transaction: otherwise no other process could take over.
    """
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '5s'"))
    asked = select(leaders.c.fence).where(_of(term), leaders.c.lease_until > now).with_for_update()
    return (await connection.execute(asked)).scalar() is not None


def _of(term: LeaderTerm) -> ColumnElement[bool]:
    return and_(leaders.c.name == term.name, leaders.c.holder == term.holder, leaders.c.fence == term.fence)
