"""Settles finished jobs, many in one transaction, each all or nothing."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from mistnet.kit.errors import DatabaseError, DatabaseFails, MistnetError, WriteRefused
from mistnet.kit.outage import Outage
from mistnet.kit.text import shorten
from mistnet.queue.journal import Journal
from mistnet.queue.kinds import Policy
from mistnet.queue.model import Continue, Done, Fail, JobState, Lease, Outcome, Retry, Settlement, Snooze
from mistnet.queue.ports import Tools

JITTER = 0.2


def settlement(lease: Lease, outcome: Outcome, *, now: datetime, policy: Policy, chance: float) -> Settlement:
    """The next state of a leased job. `chance`, a number from 0 to 1, spreads retries out."""
    match outcome:
        case Done(writes):
            return Settlement(
                lease=lease,
                state=JobState.SUCCEEDED,
                run_at=lease.run_at,
                attempts=lease.attempts,
                writes=writes,
            )
        case Continue(writes, args, run_at, reason):
            return Settlement(
                lease=lease,
                state=JobState.PENDING,
                run_at=run_at or now,
                attempts=0,
                args=msgspec.json.encode(args).decode() if args is not None else None,
                reason=reason or "takes turns with the other jobs of its class",
                writes=writes,
            )
        case Snooze(until, reason, awaits):
            return Settlement(
                lease=lease,
                state=JobState.PENDING,
                run_at=until,
                attempts=lease.attempts,
                reason=reason,
                awaits=awaits,
            )
        case Retry(error, alone, within, writes):
            attempts, wait = lease.attempts + 1, backoff(lease.attempts, policy, chance)
            last = attempts >= lease.max_attempts
            return Settlement(
                lease=lease,
                state=JobState.DEAD if last else JobState.RETRYABLE,
                run_at=now if last else now + min(wait, within or wait),
                attempts=attempts,
                error=error,
                reason=None if last else f"waits after attempt {attempts} of {lease.max_attempts} failed",
                alone=alone,
                writes=writes,
            )
        case Fail(error, writes):
            return Settlement(
                lease=lease,
                state=JobState.FAILED,
                run_at=now,
                attempts=lease.attempts + 1,
                error=error,
                writes=writes,
            )
        case _:
            assert_never(outcome)


def backoff(attempts: int, policy: Policy, chance: float) -> timedelta:
    """base * 2^attempts, spread by a fifth either way, never above the cap."""
    spread = 1 + JITTER * (2 * chance - 1)
    # Far beyond any cap, and far below the power at which a float overflows.
    doublings = min(attempts, 40)
    seconds = policy.backoff_base.total_seconds() * 2.0**doublings * spread
    return min(timedelta(seconds=min(seconds, policy.backoff_cap.total_seconds())), policy.backoff_cap)


# A database that fails for everyone answers or recovers within these tries; then one job may be the cause.
_TRIES_TOGETHER: Final = 8


class Finished(msgspec.Struct, frozen=True):
    """A job whose handler returned, and how long it ran."""

    lease: Lease
    outcome: Outcome
    seconds: float


class Settler:
    """Settles all jobs that finished since the last transaction in one new transaction."""

    def __init__(self, tools: Tools, outage: Outage, journal: Journal) -> None:
        self._tools = tools
        self._policy = tools.policy
        self._journal = journal
        self._outage = outage
        self._waiting: list[Finished] = []
        self._unsettled = 0
        self._arrived = asyncio.Event()
        self._settled = asyncio.Event()

    def put(self, finished: Sequence[Finished]) -> None:
        self._unsettled += len(finished)
        self._waiting += finished
        self._arrived.set()

    async def until_below(self, count: int) -> None:
        """Waits until fewer than `count` finished jobs are unsettled."""
        while self._unsettled >= count:
            self._settled.clear()
            await self._settled.wait()

    async def run(self) -> None:
        """Settle one group after the other: two at once would wait for each other's posts, and gain nothing."""
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            size = self._group_size()
            group, self._waiting = self._waiting[:size], self._waiting[size:]
            later = await self._settle(group)
            self._waiting += later
            self._unsettled -= len(group) - len(later)
            self._settled.set()

    def _group_size(self) -> int:
        """How many go together. Each value is in memory in several forms while it is written, so these are limited."""
        values = 0
        for place, each in enumerate(self._waiting[: self._policy.settle_group]):
            values += 0 if isinstance(each.outcome, Snooze) else len(each.outcome.writes)
            if place and values > self._policy.settle_writes:
                return place
        return self._policy.settle_group

    async def _settle(self, group: Sequence[Finished]) -> Sequence[Finished]:
        """Settle a group, one by one if it fails as a whole. Return those that the database could not take now."""
        try:
            await self._persist(group)
        except MistnetError as error:
            if len(group) > 1:
                return [late for each in group for late in await self._settle([each])]
            if isinstance(error, DatabaseFails):
                return group
            # The writes of this job cannot be stored: store a failed attempt with the reason instead.
            failed = Retry(shorten(str(error), self._policy.error_limit))
            refused = msgspec.structs.replace(group[0], outcome=failed)
            try:
                await self._persist([refused])
            except DatabaseFails:
                return [refused]
            except MistnetError:
                # Its lease runs out, which counts as an attempt.
                self._journal.lost(refused.lease)
        return []

    async def _persist(self, group: Sequence[Finished]) -> None:
        """Try until the database answers: the work is done and paid for, and the fence decides whether it counts."""
        for tried in itertools.count(1):
            now = self._tools.clock.now()
            settlements = [
                settlement(each.lease, each.outcome, now=now, policy=self._policy, chance=self._tools.chance.random())
                for each in group
            ]
            try:
                begun = time.perf_counter()
                won = await self._tools.queue.settle(settlements, now=now)
                self._tools.metrics.settle_seconds.observe(time.perf_counter() - begun)
                break
            except WriteRefused:
                raise
            except DatabaseError as error:
                await asyncio.sleep(self._outage.failed(error))
                if isinstance(error, DatabaseFails) and tried >= _TRIES_TOGETHER:
                    # If one of them is the cause, the others need not wait for it.
                    raise
        self._outage.over()
        pairs = [(settled, each.seconds) for settled, each in zip(settlements, group, strict=True)]
        self._journal.settled([pair for pair in pairs if pair[0].lease.claim in won], now)
        for settled, _seconds in pairs:
            if settled.lease.claim not in won:
                self._journal.lost(settled.lease)
