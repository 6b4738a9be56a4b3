"""Settles finished jobs, many in one transaction, each all or nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

import msgspec
from loguru import logger

from mistnet.domain.errors import DatabaseBusy, DatabaseFull, DatabaseUnreachable, MistnetError
from mistnet.domain.jobs import Lease, Outcome, Retry, Settlement
from mistnet.domain.ports import Clock, Queue
from mistnet.domain.redaction import shorten
from mistnet.engine.metrics import EngineMetrics
from mistnet.engine.policy import Policy
from mistnet.engine.settlement import settlement

_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 5.0


class Finished(msgspec.Struct, frozen=True):
    """A job whose handler has answered, and how long that took."""

    lease: Lease
    outcome: Outcome
    seconds: float


class Witness(Protocol):
    """Told of every job that was settled, or that could not be because its lease was gone."""

    def settled(self, settled: Sequence[tuple[Settlement, float]], now: datetime) -> None: ...

    def lost(self, lease: Lease) -> None: ...


class Settler:
    """Takes whatever has finished since the last settling and settles it together."""

    def __init__(
        self,
        *,
        queue: Queue,
        clock: Clock,
        policy: Policy,
        witness: Witness,
        metrics: EngineMetrics,
        chance: random.Random,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._policy = policy
        self._witness = witness
        self._metrics = metrics
        self._chance = chance
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
        """As many at once as the database gains from."""
        async with asyncio.TaskGroup() as hands:
            for _ in range(self._policy.settlers):
                hands.create_task(self._settle_forever())

    async def _settle_forever(self) -> None:
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            size = self._policy.settle_group
            group, self._waiting = self._waiting[:size], self._waiting[size:]
            await self._settle(group)
            self._unsettled -= len(group)
            self._settled.set()

    async def _settle(self, group: Sequence[Finished]) -> None:
        try:
            await self._persist(group)
        except MistnetError as error:
            if len(group) == 1:
                await self._refused(group[0], error)
                return
            for each in group:
                await self._settle([each])

    async def _refused(self, finished: Finished, error: MistnetError) -> None:
        """The writes of this one job cannot be stored: that is a failed attempt, kept with its reason."""
        outcome = Retry(shorten(str(error), self._policy.error_limit))
        try:
            await self._persist([Finished(finished.lease, outcome, finished.seconds)])
        except MistnetError:
            self._witness.lost(finished.lease)  # its lease runs out, which counts as an attempt

    async def _persist(self, group: Sequence[Finished]) -> None:
        """Tries until the database answers: the work is done and paid for, and the fence decides if it counts."""
        wait = _FIRST_WAIT
        while True:
            now = self._clock.now()
            settlements = [self._settlement(each, now) for each in group]
            try:
                begun = time.perf_counter()
                won = await self._queue.settle(settlements, now=now)
                self._metrics.settle_seconds.observe(time.perf_counter() - begun)
                break
            except (DatabaseBusy, DatabaseUnreachable) as error:
                if isinstance(error, DatabaseFull):  # it does not pass by itself, so somebody has to know
                    logger.warning("cannot write what was done: {problem} Trying again.", problem=str(error))
                await asyncio.sleep(wait * (0.5 + self._chance.random()))
                wait = min(wait * 2, _LONGEST_WAIT)
        pairs = [(settled, each.seconds) for settled, each in zip(settlements, group, strict=True)]
        self._witness.settled([pair for pair in pairs if pair[0].lease.claim in won], now)
        for settled, _seconds in pairs:
            if settled.lease.claim not in won:
                self._witness.lost(settled.lease)

    def _settlement(self, finished: Finished, now: datetime) -> Settlement:
        chance = self._chance.random()
        return settlement(finished.lease, finished.outcome, now=now, policy=self._policy, chance=chance)
