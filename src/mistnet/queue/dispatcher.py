"""Tells the broker which jobs are due, and of those that are dead. Publishing twice is harmless."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from loguru import logger

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.queue.errors import BrokerError
from mistnet.queue.metrics import BrokerMetrics
from mistnet.queue.model import DueMessage, Lane, Target

if TYPE_CHECKING:
    from mistnet.queue.rabbitmq.publisher import RabbitBroker
    from mistnet.queue.store.dispatch import StoreDispatch
    from mistnet.queue.store.wakeups import LocalWakeups

_SLICE: Final = 500
_LOOK_SECONDS: Final = 1.0
_FULL_SECONDS: Final = 0.05
"""How soon to look again when there is more to tell than the broker's queues are to hold."""

_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 15.0
_RESTING: Final = 20
"""A look at all gaps takes no more than one part in so many of the time."""

_TIDY_EVERY: Final = timedelta(hours=1)


class DispatchRules(msgspec.Struct, frozen=True, kw_only=True):
    """How much the broker is told at a time, and after how long a message counts as lost."""

    window: int = 1_000
    republish: timedelta = timedelta(seconds=600)


class Dispatcher:
    """Looks into the database for what is due on its lanes. One per installation is enough, more do no harm."""

    def __init__(
        self,
        *,
        dispatch: StoreDispatch,
        broker: RabbitBroker,
        clock: Clock,
        rules: DispatchRules,
        targets: Sequence[Target],
        metrics: BrokerMetrics,
        unpark: Callable[[], Awaitable[int]],
    ) -> None:
        self._dispatch = dispatch
        self._broker = broker
        self._clock = clock
        self._rules = rules
        self._targets = targets
        self._metrics = metrics
        self._unpark = unpark
        self._wait = _FIRST_WAIT
        self._tidied_at = clock.now()
        self._dead_letters_at = 0.0

    @property
    def lanes(self) -> list[Lane]:
        return sorted({target.lane for target in self._targets})

    async def run(self, wakeup: LocalWakeups) -> None:
        """Until cancelled. What cannot be told now is told later: it stays due in the database."""
        while True:
            try:
                await self._broker.declare(self.lanes)
                while True:
                    await wakeup.wait(await self.round())
                    self._wait = _FIRST_WAIT
            except DatabaseError as error:
                logger.warning("cannot dispatch: {problem}; trying again", problem=str(error))
            except BrokerError as error:
                logger.warning("cannot dispatch: {problem}", problem=str(error))
                await self._take_back_without_asking()
            await asyncio.sleep(self._wait)
            self._wait = min(self._wait * 2, _LONGEST_WAIT)

    async def round(self) -> float:
        """Everything once; returns how long to wait for the next time if nobody rings."""
        await self._take_back()
        told = await self.publish()
        if time.monotonic() >= self._dead_letters_at:
            begun = time.monotonic()
            await self.publish_dead_letters()
            ended = time.monotonic()
            self._dead_letters_at = ended + max(_LOOK_SECONDS, _RESTING * (ended - begun))
        if told >= _SLICE:
            return 0.0
        if told:
            return _FULL_SECONDS
        await self._unpark()
        await self._tidy()
        return _LOOK_SECONDS

    async def publish(self) -> int:
        """Tells the broker of due jobs, then notes which ids it confirmed; returns how many those are."""
        now = self._clock.now()
        letters = await self._dispatch.to_publish(self._targets, window=self._rules.window, limit=_SLICE, now=now)
        if not letters:
            return 0
        confirmed = await self._broker.publish(letters)
        told = [letter for letter in letters if letter.job_id in confirmed]
        await self._dispatch.mark_queued(told, now=self._clock.now())
        self._count(letters, confirmed)
        if len(told) < len(letters):
            await self._broker.declare(self.lanes)  # a queue that somebody deleted takes nothing
        return len(told)

    def _count(self, letters: Sequence[DueMessage], confirmed: Collection[int]) -> None:
        for lane, number in Counter(each.lane for each in letters if each.job_id in confirmed).items():
            self._metrics.published.labels(lane).inc(number)
        for lane, number in Counter(each.lane for each in letters if each.job_id not in confirmed).items():
            self._metrics.returned.labels(lane).inc(number)
            logger.warning("{number} messages of lane {lane} came back or were not confirmed", number=number, lane=lane)
        for lane, number in Counter(each.lane for each in letters if each.again and each.job_id in confirmed).items():
            self._metrics.republished.labels(lane).inc(number)

    async def publish_dead_letters(self) -> int:
        """Tells the dead-letter queues of jobs that ended without their result; returns how many."""
        letters = await self._dispatch.unpublished_dead_letters(self._targets, limit=_SLICE)
        if not letters:
            return 0
        confirmed = await self._broker.publish_dead_letters(letters)
        told = [letter for letter in letters if letter.job_id in confirmed]
        await self._dispatch.mark_dead_lettered(told, now=self._clock.now())
        for lane, number in Counter(each.lane for each in told).items():
            self._metrics.dead_lettered.labels(lane).inc(number)
        return len(told)

    async def _take_back(self) -> None:
        """Jobs whose message seems lost are due again. While a queue holds a message for each, none is lost."""
        before = self._clock.now() - self._rules.republish
        queued = await self._dispatch.queued(self.lanes, before=before)
        overdue = {lane: jobs for lane, (jobs, late) in queued.items() if late}
        if not overdue:
            return
        depths = await self._broker.depths(list(overdue))
        for lane, jobs in overdue.items():
            if depths[lane].ready < jobs:
                taken = await self._dispatch.unqueue(lane, before=before)
                logger.warning("{taken} messages of lane {lane} seem lost: telling again", taken=taken, lane=lane)

    async def _take_back_without_asking(self) -> None:
        """The broker is away: what waits there for too long is due again, for workers that need no broker."""
        before = self._clock.now() - self._rules.republish
        try:
            for lane in self.lanes:
                await self._dispatch.unqueue(lane, before=before)
        except DatabaseError as error:
            logger.debug("cannot take jobs back: {problem}", problem=str(error))

    async def _tidy(self) -> None:
        if self._clock.now() - self._tidied_at > _TIDY_EVERY:
            self._tidied_at = self._clock.now()
            await self._dispatch.delete_stale_dead_letters()
