"""Publish due jobs and dead letters to the broker. Publishing a job twice is harmless: its claim is guarded."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from loguru import logger
from prometheus_client import Counter as Meter

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.queue.errors import BrokerError
from mistnet.queue.metrics import BrokerMetrics
from mistnet.queue.model import DeadLetter, DueMessage, Lane, Target

if TYPE_CHECKING:
    from mistnet.queue.rabbitmq.publisher import RabbitBroker
    from mistnet.queue.store.dispatch import StoreDispatch
    from mistnet.queue.store.wakeups import LocalWakeups

_SLICE: Final = 500
_LOOK_SECONDS: Final = 1.0
# The pause while jobs are due and the broker's queues are full.
_FULL_SECONDS: Final = 0.05
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 15.0
# Looking for dead letters reads all failed jobs: it takes at most one part in this many of the time.
_DEAD_LETTER_SHARE: Final = 20
_TIDY_EVERY: Final = timedelta(hours=1)


class Dispatcher:
    """Publishes what is due on its lanes. One per installation is enough; more do no harm.

    A lane's queue holds up to `window` messages. One that is older than `republish` may be lost.
    """

    def __init__(
        self,
        *,
        dispatch: StoreDispatch,
        broker: RabbitBroker,
        clock: Clock,
        window: int,
        republish: timedelta,
        targets: Sequence[Target],
        metrics: BrokerMetrics,
        unpark: Callable[[], Awaitable[int]],
    ) -> None:
        self._dispatch = dispatch
        self._broker = broker
        self._clock = clock
        self._window = window
        self._republish = republish
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
        """Run until cancelled. A job that cannot be published stays due in the database and is published later."""
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
                await self._take_back_all()
            await asyncio.sleep(self._wait)
            self._wait = min(self._wait * 2, _LONGEST_WAIT)

    async def round(self) -> float:
        """Do everything once. Return how many seconds to wait for the next round, unless woken."""
        await self._take_back()
        published = await self.publish()
        if time.monotonic() >= self._dead_letters_at:
            begun = time.monotonic()
            await self.publish_dead_letters()
            ended = time.monotonic()
            self._dead_letters_at = ended + max(_LOOK_SECONDS, _DEAD_LETTER_SHARE * (ended - begun))
        if published >= _SLICE:
            return 0.0
        if published:
            return _FULL_SECONDS
        await self._unpark()
        if self._clock.now() - self._tidied_at > _TIDY_EVERY:
            self._tidied_at = self._clock.now()
            await self._dispatch.delete_stale_dead_letters()
        return _LOOK_SECONDS

    async def publish(self) -> int:
        """Publish due jobs, then record those that the broker confirmed. Return their number.

        In this order: a job recorded first and not published would wait until its message counts as lost.
        """
        now = self._clock.now()
        messages = await self._dispatch.to_publish(self._targets, window=self._window, limit=_SLICE, now=now)
        if not messages:
            return 0
        confirmed = await self._broker.publish(messages)
        published = [message for message in messages if message.job_id in confirmed]
        await self._dispatch.mark_queued(published, now=self._clock.now())
        _count(self._metrics.published, published)
        _count(self._metrics.republished, [each for each in published if each.again])
        returned = [each for each in messages if each.job_id not in confirmed]
        for lane, number in _count(self._metrics.returned, returned).items():
            logger.warning("{number} messages of lane {lane} came back or were not confirmed", number=number, lane=lane)
        if len(published) < len(messages):
            # A deleted queue takes no messages: declare it again.
            await self._broker.declare(self.lanes)
        return len(published)

    async def publish_dead_letters(self) -> int:
        """Publish failed jobs to the dead-letter queues. Return how many were confirmed."""
        messages = await self._dispatch.unpublished_dead_letters(self._targets, limit=_SLICE)
        if not messages:
            return 0
        confirmed = await self._broker.publish_dead_letters(messages)
        published = [message for message in messages if message.job_id in confirmed]
        await self._dispatch.mark_dead_lettered(published, now=self._clock.now())
        _count(self._metrics.dead_lettered, published)
        return len(published)

    async def _take_back(self) -> None:
        """Make jobs due again whose message seems lost. While a queue holds a message for each of its jobs, none is."""
        before = self._clock.now() - self._republish
        queued = await self._dispatch.queued(self.lanes, before=before)
        overdue = {lane: jobs for lane, (jobs, late) in queued.items() if late}
        if not overdue:
            return
        depths = await self._broker.depths(list(overdue))
        for lane, jobs in overdue.items():
            if depths[lane].ready < jobs:
                taken = await self._dispatch.unqueue(lane, before=before)
                logger.warning("{taken} messages of lane {lane} seem lost: publishing again", taken=taken, lane=lane)

    async def _take_back_all(self) -> None:
        """Make jobs due again while the broker is unreachable, for workers that need no broker."""
        before = self._clock.now() - self._republish
        try:
            for lane in self.lanes:
                await self._dispatch.unqueue(lane, before=before)
        except DatabaseError as error:
            logger.debug("cannot take jobs back: {problem}", problem=str(error))


def _count(meter: Meter, messages: Sequence[DueMessage | DeadLetter]) -> Counter[Lane]:
    by_lane = Counter(each.lane for each in messages)
    for lane, number in by_lane.items():
        meter.labels(lane).inc(number)
    return by_lane
