"""Messages as they come in: manual acknowledgement, a prefetch per lane, and a connection that mends itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import aiormq
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage, AbstractQueue
from loguru import logger

from mistnet.queue.errors import BrokerError
from mistnet.queue.model import JobId, Lane
from mistnet.queue.rabbitmq import QueueType, declare_queues, queue_of
from mistnet.queue.rabbitmq.connection import BrokerConnector, forgiven
from mistnet.queue.rabbitmq.publisher import named_job

_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 15.0
_SHOWN_BYTES: Final = 80


class RabbitDelivery:
    """An unacknowledged message. If its connection is lost, the broker has taken it back already."""

    __slots__ = ("_message", "job_id", "lane")

    def __init__(self, message: AbstractIncomingMessage, *, lane: Lane, job_id: JobId) -> None:
        self._message = message
        self.lane = lane
        self.job_id = job_id

    async def accept(self) -> None:
        with forgiven():
            await self._message.ack()

    async def give_back(self) -> None:
        with forgiven():
            await self._message.reject(requeue=True)


class RabbitConsumer:
    """Consumes the queues of some lanes, those with a higher priority first."""

    def __init__(
        self,
        line: BrokerConnector,
        lanes: Sequence[Lane],
        *,
        queue_type: QueueType,
        prefetch: int,
        priorities: Mapping[str, int],
        on_unreadable: Callable[[Lane], None],
    ) -> None:
        self._line = line
        self._lanes = sorted(lanes, key=lambda lane: (-priorities.get(lane, 0), lane))
        self._queue_type: QueueType = queue_type
        self._prefetch = prefetch
        self._on_unreadable = on_unreadable
        self._arrived: dict[Lane, deque[RabbitDelivery]] = {lane: deque() for lane in self._lanes}
        self._wakeup = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._consumers: list[tuple[AbstractQueue, str]] = []
        self._stopped = False
        self._wait = _FIRST_WAIT

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self._keeping = asyncio.create_task(self._keep(), name="consumer")
        try:
            yield
        finally:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._arrived.values()))

    def arrived(self, limit: int) -> Sequence[RabbitDelivery]:
        taken: list[RabbitDelivery] = []
        for lane in self._lanes:
            waiting = self._arrived[lane]
            while waiting and len(taken) < limit:
                taken.append(waiting.popleft())
        return taken

    def ring(self) -> None:
        self._wakeup.set()

    async def wait(self, seconds: float) -> None:
        if self._keeping is not None and self._keeping.done():
            # Nothing will ever arrive again, and that is worth an end.
            self._keeping.result()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        self._wakeup.clear()

    async def stop(self) -> None:
        self._stopped = True
        with forgiven():
            for queue, tag in self._consumers:
                await queue.cancel(tag)
        for waiting in self._arrived.values():
            while waiting:
                await waiting.popleft().give_back()

    async def _keep(self) -> None:
        while True:
            try:
                async with self._line.connected() as connection:
                    await self._consume(connection)
                logger.warning("the connection to RabbitMQ at {url} is lost: making another", url=self._line.shown)
            except BrokerError as error:
                logger.warning("no messages for now: {problem}", problem=str(error))
            finally:
                # Messages of a lost connection are delivered again.
                self._consumers.clear()
                for waiting in self._arrived.values():
                    waiting.clear()
                self._wakeup.set()
            await asyncio.sleep(self._wait)
            self._wait = min(self._wait * 2, _LONGEST_WAIT)

    async def _consume(self, connection: AbstractConnection) -> None:
        """Wait until the connection or the channel is lost, or the broker ends a consumer."""
        lost = asyncio.Event()

        def gone(*_why: Any) -> None:
            lost.set()

        with self._line.translated():
            channel = await connection.channel(publisher_confirms=False)
            connection.close_callbacks.add(gone)
            channel.close_callbacks.add(gone)
            underlying = await channel.get_underlay_channel()
            if isinstance(underlying, aiormq.Channel):
                underlying.on_consumer_cancel_callbacks.add(gone)
            await channel.set_qos(prefetch_count=self._prefetch)
            await declare_queues(channel, self._lanes, queue_type=self._queue_type)
            for lane in self._lanes:
                queue = await channel.get_queue(queue_of(lane), ensure=False)
                self._consumers.append((queue, await queue.consume(partial(self._received, lane))))
        self._wait = _FIRST_WAIT
        logger.info("takes messages of {lanes} from {url}", lanes=", ".join(self._lanes), url=self._line.shown)
        if connection.connected.is_set():
            await lost.wait()

    async def _received(self, lane: Lane, message: AbstractIncomingMessage) -> None:
        job_id = named_job(message.body)
        if job_id is None:
            self._on_unreadable(lane)
            shown = repr(message.body[:_SHOWN_BYTES])
            logger.error(
                "a message of lane {lane} names no job: {shown}; it goes to the dead letters", lane=lane, shown=shown
            )
            with forgiven():
                await message.reject(requeue=False)
            return
        delivery = RabbitDelivery(message, lane=lane, job_id=job_id)
        if self._stopped:
            await delivery.give_back()
            return
        self._arrived[lane].append(delivery)
        self._wakeup.set()
