"""Admits calls to one source: rate limit, circuit breaker, budget and pause, shared by all workers.

A process takes time slots and credits from the shared rows in slices, so that most calls need no round trip to the
database. A refusal always has a reason and a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec
from loguru import logger

from mistnet.governor.errors import BrokenAnswer, RateLimited, SourceDown, SourcePaused, SourceRefused
from mistnet.governor.grants import (
    PAUSED_LOOK,
    CallSlots,
    CreditReserve,
    GovernedCall,
    GovernorLimits,
    Grant,
    Grants,
    KeySlots,
    slow_down_key,
)
from mistnet.governor.model import (
    LATELY,
    OTHERS_WORK_WAIT,
    PROBE,
    CallPurpose,
    CallRecord,
    Halt,
    KeyLabel,
    KeyState,
    PausedBy,
    SourceName,
    SourceState,
    SourceStore,
    end_foreign_pauses,
    extend_probe,
    fingerprint,
    is_open,
    is_refused,
    on_day,
    record_failure,
    record_success,
    refuse_key,
    release_probe,
)
from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.queue.errors import NotNow, Permanent
from mistnet.queue.metrics import SourceMetrics

# How long slots may be used without a look at the shared row, where another process may have set a pause.
_FRESH_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 0.25
_AT_ONCE: Final = 5_000
_UNSEEN_LIMIT: Final = 30
_ERROR_CHARACTERS: Final = 500


class Governor:
    """One per source and process. It must be open while calls are made."""

    def __init__(
        self,
        source: SourceName,
        keys: Mapping[KeyLabel, str],
        *,
        store: SourceStore,
        clock: Clock,
        limits: GovernorLimits,
        metrics: SourceMetrics | None = None,
        on_call: Callable[[CallRecord], None] | None = None,
        fingerprint_of: Callable[[], str] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.source = source
        self.limits = limits
        self._key_slots = [KeySlots(label, secret) for label, secret in keys.items()]
        self._store = store
        self._now = clock.now
        self._grants = Grants(source=source, limits=limits)
        self._metrics = metrics
        self._on_call = on_call
        self._fingerprint_of = fingerprint_of
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._reserve = CreditReserve()
        self._unwritten: list[CallRecord] = []
        self._probing: GovernedCall | None = None
        self._turned_away_until: datetime | None = None
        self._halt: Halt | None = None
        self.failing = False
        self.stands_aside = False
        """Whether every key of this process is refused while another process's key works, which then does the work."""

    @property
    def labels(self) -> Collection[KeyLabel]:
        """The keys of this process, by labels that do not give them away."""
        return [key_slots.label for key_slots in self._key_slots]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Governor]:
        """Write the ledger while calls are made; return unspent credits at the end."""
        over = asyncio.Event()

        async def flush_until_over() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), _FLUSH_SECONDS)
                with suppress(DatabaseError):  # the calls stay in the buffer
                    await self.keep_probe()
                    await self.flush()

        writing = asyncio.create_task(flush_until_over(), name=f"ledger of {self.source}")
        try:
            yield self
        finally:
            over.set()  # not cancelled: a write that is cut off would be lost, or made twice
            await asyncio.gather(writing, return_exceptions=True)
            with suppress(DatabaseError):
                # Give the unspent credits back.
                left, self._reserve.left = self._reserve.left, 0
                if left and self._now().timestamp() < self._reserve.until:
                    await self._change_source(
                        lambda source: msgspec.structs.replace(
                            source,
                            day_credits=max(source.day_credits - left, 0),
                            month_credits=max(source.month_credits - left, 0),
                        )
                    )
                await self.flush()

    def halted(self, source: SourceState, *, a_page: int) -> Halt | None:
        """Why the source will not serve us until an operator acts or the day is over; None if it does."""
        if not self._key_slots:
            return Halt.REFUSED
        if source.paused_at and source.paused_by is not PausedBy.SOURCE:
            return Halt.PAUSED
        if all(key_slots.paused for key_slots in self._key_slots):
            return Halt.REFUSED  # a pause by the source applies only to the keys that it refused
        today = on_day(source, self._now())
        if any(cap is not None and cap - spent < a_page for cap, spent in self.limits.caps(today)):
            return Halt.BUDGET
        return self._halt

    async def look_at_keys(self, sources: Sequence[SourceState], keys: Sequence[KeyState]) -> None:
        """Learn which keys are refused. A key that is not ends the pauses that refused ones caused."""
        source = next((each for each in sources if each.name == self.source), SourceState(name=self.source))
        rows = {each.label: each for each in keys if each.source == self.source}
        for key_slots in self._key_slots:
            key = rows.get(key_slots.label) or KeyState(source=self.source, label=key_slots.label)
            key_slots.paused = self._is_refused(key_slots, key)
            self.stands_aside = not source.paused_at and all(each.paused for each in self._key_slots)
            if not key_slots.paused and end_foreign_pauses(source, key) != (source, key):
                # Decided again under the lock: other workers may have changed the rows since they were read.
                await self._store.change(
                    self.source, key_slots.label, lambda own, row: (*end_foreign_pauses(own, row), None)
                )

    def _is_refused(self, key_slots: KeySlots, key: KeyState) -> bool:
        """Resuming the source deletes the fingerprint: then a key that was refused here is tried again."""
        key_slots.refused = key_slots.refused and key.fingerprint is not None
        return key_slots.refused or is_refused(key, self._fingerprint(key_slots))

    def _fingerprint(self, key_slots: KeySlots) -> str:
        return self._fingerprint_of() if self._fingerprint_of else fingerprint(key_slots.secret)

    def call(self, endpoint: str, *, most: int, purpose: CallPurpose) -> GovernedCall:
        return GovernedCall(self, endpoint, most, purpose)

    async def flush(self) -> None:
        """Write the buffered calls to the ledger, a few thousand per transaction."""
        while self._unwritten:
            written = self._unwritten[:_AT_ONCE]
            del self._unwritten[: len(written)]
            try:
                await self._store.record(written)
            except DatabaseError:  # kept, and written when the database can be reached again
                self._unwritten[:0] = written
                raise

    def try_admit(self, governed: GovernedCall) -> bool:
        """Take a slot and credits for one call if this process holds both and no call waits. Most calls do so."""
        now = self._now()
        at = now.timestamp()
        if len(self._key_slots) == 1:
            key_slots: KeySlots | None = self._key_slots[0]
        else:
            open_ones = [each for each in self._key_slots if not each.paused]
            key_slots = min(open_ones, key=lambda each: each.free_from(at), default=None)
        reserve, most = self._reserve, governed.most
        if (
            key_slots is None
            or at > key_slots.fresh_until
            or reserve.left < most
            or at >= reserve.until
            or self._lock.locked()
            or not key_slots.slots.take_due(at)
        ):
            return False
        reserve.left -= most
        governed.key_slots, governed.at, governed.day = key_slots, now, reserve.until
        return True

    async def admit(self, governed: GovernedCall) -> None:
        """Take them from the shared rows. Waits for the slot, at most a few seconds."""
        # One call at a time: concurrent ones would each take a slice, and the slices of all but one would go unused.
        async with self._lock:
            key_slots, probe_until = await self._ready_key_slots(governed.most)
            slot = key_slots.slots.take()
            self._reserve.left -= governed.most
            governed.key_slots, governed.day, governed.probe_until = key_slots, self._reserve.until, probe_until
            if probe_until is not None:
                self._probing = governed
        try:
            wait, emptied = slot - self._now().timestamp(), key_slots.emptied
            if wait > 0:
                await self._sleep(wait + key_slots.slots.rest)
            # Another call was told to stop meanwhile. A probe does not stop: it is the only call.
            if key_slots.emptied != emptied and probe_until is None:
                raise self._interrupted(key_slots)  # noqa: TRY301
        except BaseException:
            self._reserve.put_back(governed.most, governed.day)
            await self._end_probe(governed)
            raise
        governed.at = self._now()

    async def _ready_key_slots(self, most: int) -> tuple[KeySlots, datetime | None]:
        """A key that may be used now: the one that is free first, or the next one if it is refused."""
        now = self._now()
        at = now.timestamp()
        refusals: list[NotNow] = []
        if not self._key_slots:
            raise SourcePaused(self.source, now + PAUSED_LOOK, "no key is configured", resumable=False)
        # With every key paused, all are tried: another process may have ended the pause.
        candidates = [each for each in self._key_slots if not each.paused] or self._key_slots
        for key_slots in sorted(candidates, key=lambda each: each.free_from(at)):
            key_slots.slots.drop_late(at)
            in_hand = len(key_slots.slots) and self._reserve.left >= most and at < self._reserve.until
            if in_hand and at <= key_slots.fresh_until:
                return key_slots, None
            grant = await self._fetch_grant(key_slots, most, now)
            if grant.refusal is None:
                return key_slots, grant.probe_until
            if grant.free_at is None:
                refusals.append(grant.refusal)
                if not grant.key_paused:
                    break  # the source itself is closed; no other key would help
            else:
                # The rate refuses it. Retries are spread, so that they do not come back all at once.
                after = self._turned_away_until
                late = after is not None and after >= grant.free_at
                staggered = after + timedelta(seconds=1 / grant.rate) if after and late else grant.free_at
                self._turned_away_until = staggered
                refusals.append(NotNow(staggered, grant.refusal.reason))
        raise min(refusals, key=lambda refusal: refusal.until)

    async def _fetch_grant(self, key_slots: KeySlots, most: int, now: datetime) -> Grant:
        self._reserve.begin_day(now)
        need = max(most - self._reserve.left, 0)
        span, emptied = 0.0 if len(key_slots.slots) else key_slots.next_span(), key_slots.emptied
        grant = await self._store.change(
            self.source,
            key_slots.label,
            lambda source, key: self._grants.grant(
                source, key, refused=self._is_refused(key_slots, key), need=need, span=span, now=now
            ),
        )
        self._reserve.left += grant.credits
        if key_slots.emptied != emptied and grant.probe_until is None:
            if grant.refusal:
                return grant
            refusal = self._interrupted(key_slots)
            return Grant(refusal=refusal, free_at=refusal.until, rate=self.limits.rate_per_minute / 60)
        self._halt = grant.halt
        key_slots.fresh_until = now.timestamp() + _FRESH_SECONDS
        key_slots.paused, key_slots.free_at = grant.key_paused, grant.free_at.timestamp() if grant.free_at else None
        if grant.probe_until or grant.refusal:
            for other in self._key_slots if grant.probe_until else [key_slots]:
                other.slots = CallSlots()
        if grant.refusal is None:
            self.failing = grant.failing
        if grant.slots:
            key_slots.slots, key_slots.span = grant.slots, span or key_slots.span
        return grant

    def _interrupted(self, key_slots: KeySlots) -> NotNow:
        """Another call was told to stop while this one waited: its grant must not be used."""
        now = self._now()
        later = max(key_slots.free_at or 0.0, now.timestamp() + _FRESH_SECONDS)
        return NotNow(datetime.fromtimestamp(later, now.tzinfo), f"{self.source}: another call was just told to stop")

    async def record_success(self, governed: GovernedCall) -> None:
        governed.key_slots.unseen = 0
        if governed.probe_until is None and not self.failing:
            return
        self.failing = False
        self._clear_probe(governed)
        await self._change_source(lambda source: record_success(source, probe=governed.probe_until))

    async def record_failure(self, governed: GovernedCall, error: BaseException) -> None:
        match error:
            case SourceRefused():
                await self._pause_key(governed, error)
            case RateLimited():
                await self._slow_down(governed, error)
            case SourceDown() | BrokenAnswer():
                self.failing = True
                self._clear_probe(governed)
                now, limits = self._now(), self.limits
                after = await self._change_source(
                    lambda source: record_failure(
                        source,
                        probe=governed.probe_until,
                        problem=str(error),
                        now=now,
                        failures=limits.breaker_failures,
                        cooldown=limits.breaker_cooldown,
                    )
                )
                if is_open(after, now):
                    for key_slots in self._key_slots:
                        key_slots.empty()
            case Permanent() if governed.probe_until:
                await self.record_success(governed)  # the source refused the request: it answers
            case _:
                await self._end_probe(governed)

    async def _end_probe(self, governed: GovernedCall) -> None:
        """A probe without a result lets the next call be the probe."""
        if governed.probe_until is None:
            return
        self._clear_probe(governed)
        with suppress(DatabaseError):  # it then expires by itself
            await self._change_source(lambda source: release_probe(source, probe=governed.probe_until))

    def _clear_probe(self, governed: GovernedCall) -> None:
        if self._probing is governed:
            self._probing = None

    async def keep_probe(self) -> None:
        """Extend the time of a slow probe, so that no second one starts."""
        governed, now = self._probing, self._now()
        if governed is None or governed.probe_until is None or governed.probe_until - now > PROBE / 2:
            return
        before = governed.probe_until

        def extend(source: SourceState) -> SourceState:
            # Set before the commit: the call may end meanwhile, and must then release the probe by its new time.
            changed, governed.probe_until = extend_probe(source, probe=before, now=now)
            return changed

        try:
            await self._change_source(extend)
        except DatabaseError:
            governed.probe_until = before
            raise

    async def _pause_key(self, governed: GovernedCall, refused: SourceRefused) -> None:
        """Pause the key. With no working key left, here or elsewhere, pause the source."""
        now, key_slots = self._now(), governed.key_slots
        key_slots.paused = key_slots.refused = True
        key_slots.empty()
        self._clear_probe(governed)
        last = all(other.paused for other in self._key_slots)
        others = last and await self._store.another_works(self.source, self.labels, since=now - LATELY)

        def paused(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState, None]:
            source = release_probe(source, probe=governed.probe_until)
            source = msgspec.structs.replace(source, last_failure_at=now, last_failure=refused.problem)
            own_print = self._fingerprint(key_slots)
            return *refuse_key(source, key, own_print, refused.problem, now, last=last and not others), None

        await self._store.change(self.source, key_slots.label, paused)
        logger.error(
            "{source} refuses the key {label}: {problem}. Set another key, which is used at once, or fix this one and "
            "run `mistnet sources resume {source}`",
            source=self.source,
            label=key_slots.label,
            problem=refused.problem,
        )
        if self._metrics:
            self._metrics.refusals.labels(self.source).inc()
        if last:
            self._halt = Halt.REFUSED
        self.stands_aside = others
        if others:  # its job can run with the other key
            refused.until = now + OTHERS_WORK_WAIT

    async def _slow_down(self, governed: GovernedCall, limited: RateLimited) -> None:
        """Make no call with this key before the given time, and fewer calls for a while after it."""
        key_slots, now = governed.key_slots, self._now()
        key_slots.empty()
        key_slots.free_at = limited.until.timestamp()
        if limited.key_unseen:
            key_slots.unseen += 1
            if key_slots.unseen >= _UNSEEN_LIMIT:
                problem = f"it says {key_slots.unseen} times in a row that no key was sent"
                await self._pause_key(governed, SourceRefused(self.source, limited.until, problem, status=403))
                return
        self._clear_probe(governed)

        def slower(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState, None]:
            slowed = slow_down_key(key, limited, rate=self._grants.rate(key), now=now)
            return release_probe(source, probe=governed.probe_until), slowed, None

        await self._store.change(self.source, key_slots.label, slower)

    async def _change_source(self, change: Callable[[SourceState], SourceState]) -> SourceState:
        def both(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState, SourceState]:
            changed = change(source)
            return changed, key, changed

        return await self._store.change(self.source, self._key_slots[0].label, both)

    def note(self, governed: GovernedCall, seconds: float, error: BaseException | None) -> None:
        """Add the call to the ledger and return the unspent part of its reservation."""
        ticket, purpose = governed.ticket, governed.purpose
        status = 200 if error is None else getattr(error, "status", None)
        cost = ticket.cost if ticket.cost is not None else self.limits.failure_credits(status, ticket.reserved)
        self._reserve.put_back(ticket.reserved - cost, governed.day)
        if purpose.meter:
            purpose.meter.credits += cost
        record = CallRecord(
            source=self.source,
            key_label=ticket.label,
            endpoint=governed.endpoint,
            at=governed.at,
            seconds=seconds,
            status=status,
            items=ticket.items,
            credits=cost,
            job_id=purpose.job_id,
            account_id=purpose.account_id,
            error=None if error is None else f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS],
        )
        self._unwritten.append(record)
        if self._metrics:
            self._metrics.called(self.source, governed.endpoint, status, cost, seconds)
        if self._on_call:
            self._on_call(record)
