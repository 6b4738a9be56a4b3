"""Lets calls to one source through: rate, breaker, money and pause, shared with all other workers.

A process takes time slots and credits from the shared rows a slice at a time, so that most calls cost no trip to
the database. Whatever is refused is refused with a reason and a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec
from loguru import logger

from mistnet.domain.errors import (
    BrokenAnswer,
    DatabaseError,
    NotNow,
    RateLimited,
    SourceDown,
    SourcePaused,
    SourceRefused,
)
from mistnet.domain.ports import Clock
from mistnet.domain.sources import (
    CallRecord,
    Errand,
    Halt,
    KeyLabel,
    KeyState,
    PausedBy,
    SourceBook,
    SourceName,
    SourceState,
)
from mistnet.engine.grants import PAUSED_LOOK, Grant, Grants, Limits, day_of, on_day
from mistnet.engine.metrics import SourceMetrics

T = TypeVar("T")

_LATE: Final = timedelta(seconds=0.25)
_FRESH_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 0.25
_FREE_KEY_PER_MINUTE: Final = 11.5
_SLOWER: Final = 0.8
_SLOWED_ONCE: Final = timedelta(seconds=1)
_UNSEEN_LIMIT: Final = 30
_ERROR_CHARACTERS: Final = 500


class Desk(msgspec.Struct):
    """What this process holds of one key."""

    label: KeyLabel
    secret: str
    slots: deque[datetime] = msgspec.field(default_factory=deque)
    looked_at: datetime | None = None
    free_at: datetime | None = None
    paused: bool = False
    unseen: int = 0


class Ticket(msgspec.Struct):
    """One call that was let through: the port's Call."""

    key: str
    label: KeyLabel
    reserved: int
    items: int = 0
    cost: int | None = None

    def settle(self, *, items: int, credits_due: int) -> None:
        self.items, self.cost = items, credits_due


class Governor:
    """One per source and process. Opened for as long as calls are made."""

    def __init__(
        self,
        source: SourceName,
        keys: Mapping[KeyLabel, str],
        *,
        book: SourceBook,
        clock: Clock,
        limits: Limits,
        metrics: SourceMetrics | None = None,
        on_call: Callable[[CallRecord], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._source = source
        self._desks = [Desk(label=label, secret=secret) for label, secret in keys.items()]
        self._book = book
        self._clock = clock
        self._limits = limits
        self._grants = Grants(source=source, limits=limits)
        self._metrics = metrics
        self._on_call = on_call
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._purse = 0
        self._purse_day = ""
        self._failing = False
        self._turned_away_until: datetime | None = None
        self._unwritten: list[CallRecord] = []
        self._halt: Halt | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Governor]:
        """Writes the ledger while calls are made; gives unspent credits back at the end."""
        over = asyncio.Event()
        writing = asyncio.create_task(self._write_down_until(over), name=f"ledger of {self._source}")
        try:
            yield self
        finally:
            over.set()  # a write that was cut off would be lost, or made twice
            await asyncio.gather(writing, return_exceptions=True)
            with suppress(DatabaseError):
                await self._give_back()
                await self.write_down()

    def halted(self, source: SourceState, *, a_page: int) -> Halt | None:
        """Whether and why the source will not serve us until somebody acts or the day is over."""
        if not self._desks:
            return Halt.REFUSED
        if source.paused_at:
            return Halt.REFUSED if source.paused_by is PausedBy.SOURCE else Halt.PAUSED
        today = on_day(source, self._clock.now())
        if any(cap is not None and cap - spent < a_page for cap, spent in self._grants.caps(today)):
            return Halt.BUDGET
        return self._halt

    @asynccontextmanager
    async def call(self, endpoint: str, *, most: int, errand: Errand) -> AsyncIterator[Ticket]:
        ticket = await self._admitted(most)
        at, begun = self._clock.now(), time.perf_counter()
        error: BaseException | None = None
        try:
            yield ticket
            await self._went_well(ticket)
        except SourceRefused as refused:
            error = refused
            await self._refused(ticket, refused)
            raise
        except RateLimited as limited:
            error = limited
            await self._slow_down(ticket, limited)
            raise
        except (SourceDown, BrokenAnswer) as failed:
            error = failed
            await self._went_wrong(str(failed))
            raise
        except BaseException as other:
            error = other
            raise
        finally:
            self._note(ticket, endpoint, errand, at, time.perf_counter() - begun, error)

    async def _admitted(self, most: int) -> Ticket:
        """A slot and the credits for one call. Waits a moment for its slot, never long."""
        desk = await self._ready_desk(most)
        slot = desk.slots.popleft()
        self._purse -= most
        wait = (slot - self._clock.now()).total_seconds()
        if wait > 0:
            await self._sleep(wait)
        return Ticket(key=desk.secret, label=desk.label, reserved=most)

    async def _ready_desk(self, most: int) -> Desk:
        """A key that may be used now: the one that is free first, or the next if it is not after all."""
        async with self._lock:
            now = self._clock.now()
            refusals: list[NotNow] = []
            for desk in self._by_turn(now):
                while desk.slots and desk.slots[0] < now - _LATE:
                    desk.slots.popleft()  # left lying too long, these would make a crowd
                stale = desk.looked_at is None or (now - desk.looked_at).total_seconds() > _FRESH_SECONDS
                if not stale and desk.slots and self._purse >= most and self._purse_day == day_of(now):
                    return desk
                grant = await self._withdraw(desk, most, now)
                if grant.refusal is None:
                    return desk
                refusals.append(self._staggered(grant.refusal, grant))
                if not grant.key_paused and grant.free_at is None:
                    break  # the source itself is closed; no other key would help
            raise min(refusals, key=lambda refusal: refusal.until)

    def _by_turn(self, now: datetime) -> list[Desk]:
        if not self._desks:
            raise SourcePaused(self._source, now + PAUSED_LOOK, "no key is configured")
        open_ones = [desk for desk in self._desks if not desk.paused] or self._desks
        return sorted(open_ones, key=lambda desk: (desk.slots[0] if desk.slots else desk.free_at) or now)

    async def _withdraw(self, desk: Desk, most: int, now: datetime) -> Grant:
        if self._purse_day != day_of(now):
            self._purse, self._purse_day = 0, day_of(now)  # yesterday's credits were counted yesterday
        need = max(most - self._purse, 0)
        wanted = 0 if desk.slots else 1
        grant = await self._book.change(
            self._source,
            desk.label,
            lambda source, key: self._grants.grant(source, key, need=need, wanted=wanted, now=now),
        )
        desk.looked_at, desk.paused, desk.free_at = now, grant.key_paused, grant.free_at
        if grant.probing or grant.refusal:
            for other in self._desks if grant.probing else [desk]:
                other.slots.clear()
        if grant.refusal is None:
            self._failing = grant.failing
        desk.slots.extend(grant.slots)
        self._purse += grant.credits
        self._halt = grant.halt
        return grant

    def _staggered(self, refusal: NotNow, grant: Grant) -> NotNow:
        """Those whom the rate turns away come back one after the other."""
        if grant.free_at is None:
            return refusal
        after = self._turned_away_until
        late = after is not None and after >= grant.free_at
        self._turned_away_until = after + timedelta(seconds=1 / grant.rate) if after and late else grant.free_at
        return NotNow(self._turned_away_until, refusal.reason)

    async def _went_well(self, ticket: Ticket) -> None:
        self._desk(ticket).unseen = 0
        if not self._failing:
            return
        self._failing = False
        await self._change_source(
            lambda source: msgspec.structs.replace(source, failure_streak=0, opened_until=None, probe_until=None)
        )

    async def _went_wrong(self, problem: str) -> None:
        now = self._clock.now()
        self._failing = True

        def counted(source: SourceState) -> SourceState:
            streak = source.failure_streak + 1
            opens = streak >= self._limits.breaker_failures
            return msgspec.structs.replace(
                source,
                failure_streak=streak,
                opened_until=now + self._limits.breaker_cooldown if opens else source.opened_until,
                probe_until=None,
                last_failure_at=now,
                last_failure=problem[:_ERROR_CHARACTERS],
            )

        after = await self._change_source(counted)
        if after.opened_until and after.opened_until > now:
            for desk in self._desks:
                desk.slots.clear()

    async def _refused(self, ticket: Ticket, refused: SourceRefused) -> None:
        """The key is no good any more. With no key left the source itself is paused, until somebody acts."""
        now = self._clock.now()
        desk = self._desk(ticket)
        desk.paused = True
        desk.slots.clear()
        last = all(other.paused for other in self._desks)

        def paused(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState, None]:
            key = msgspec.structs.replace(key, paused_at=now, pause_reason=refused.problem)
            if last and not source.paused_at:
                source = msgspec.structs.replace(
                    source, paused_at=now, paused_by=PausedBy.SOURCE, pause_reason=refused.problem
                )
            return source, key, None

        await self._book.change(self._source, ticket.label, paused)
        logger.error(
            "{source} is paused: {problem}. Mend it, then: mistnet sources resume {source}",
            source=self._source,
            problem=refused.problem,
        )
        if self._metrics:
            self._metrics.refusals.labels(self._source).inc()
        if last:
            self._halt = Halt.REFUSED

    async def _slow_down(self, ticket: Ticket, limited: RateLimited) -> None:
        """Nobody asks with this key before the time it was told, and then more slowly for a while."""
        desk, now = self._desk(ticket), self._clock.now()
        desk.slots.clear()
        desk.free_at = limited.until
        if limited.key_unseen:
            desk.unseen += 1
            if desk.unseen >= _UNSEEN_LIMIT:
                problem = f"it says {desk.unseen} times in a row that no key was sent"
                await self._refused(ticket, SourceRefused(self._source, limited.until, problem, status=403))
                return

        def slower(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState, None]:
            key = msgspec.structs.replace(key, next_at=max(key.next_at or limited.until, limited.until))
            if limited.free_tier:
                slowest = min(self._grants.rate(key), _FREE_KEY_PER_MINUTE)
                key = msgspec.structs.replace(key, rate_per_minute=slowest, slowdown=1.0, slowed_at=None)
            elif self._grants.rate(key) > _FREE_KEY_PER_MINUTE and (
                key.slowed_at is None or now - key.slowed_at >= _SLOWED_ONCE
            ):
                key = msgspec.structs.replace(key, slowdown=key.slowdown * _SLOWER, slowed_at=now)
            return source, key, None

        await self._book.change(self._source, ticket.label, slower)

    def _desk(self, ticket: Ticket) -> Desk:
        return next(desk for desk in self._desks if desk.label == ticket.label)

    async def _change_source(self, change: Callable[[SourceState], SourceState]) -> SourceState:
        def both(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState, SourceState]:
            changed = change(source)
            return changed, key, changed

        return await self._book.change(self._source, self._desks[0].label, both)

    def _note(
        self, ticket: Ticket, endpoint: str, errand: Errand, at: datetime, seconds: float, error: BaseException | None
    ) -> None:
        """The ledger's row, and the unspent part of what was set aside back into the purse."""
        status = getattr(error, "status", None) if error else 200
        cost = ticket.cost if ticket.cost is not None else self._limits.failure_credits(status)
        self._purse += ticket.reserved - cost
        record = CallRecord(
            source=self._source,
            key_label=ticket.label,
            endpoint=endpoint,
            at=at,
            seconds=seconds,
            status=status,
            items=ticket.items,
            credits=cost,
            job_id=errand.job_id,
            account_id=errand.account_id,
            error=f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS] if error else None,
        )
        self._unwritten.append(record)
        if self._metrics:
            self._metrics.called(self._source, endpoint, status, cost, seconds)
        if self._on_call:
            self._on_call(record)

    async def write_down(self) -> None:
        """Adds what was called since the last time to the ledger."""
        written, self._unwritten = self._unwritten, []
        if not written:
            return
        try:
            await self._book.record(written)
        except DatabaseError:
            self._unwritten = written + self._unwritten
            raise

    async def _write_down_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await over.wait()
            with suppress(DatabaseError):  # kept, and tried again
                await self.write_down()

    async def _give_back(self) -> None:
        left, self._purse = self._purse, 0
        if left and self._purse_day == day_of(self._clock.now()):
            await self._change_source(
                lambda source: msgspec.structs.replace(
                    source,
                    day_credits=max(source.day_credits - left, 0),
                    month_credits=max(source.month_credits - left, 0),
                )
            )
