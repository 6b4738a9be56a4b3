"""Messages, and how they are published: with confirms, over a connection that is replaced when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aiormq.exceptions import ChannelNotFoundEntity, DeliveryError
from pamqp.commands import Queue

from mistnet.kit.text import shorten
from mistnet.queue.model import DeadLetter, Depth, DueMessage, JobId, Lane
from mistnet.queue.rabbitmq import DEAD_EXCHANGE, EXCHANGE, QueueType, dead_queue_of, declare_queues, queue_of
from mistnet.queue.rabbitmq.connection import FAULTS, BrokerConnector, forgiven, hang_up

_IN_FLIGHT: Final = 100
_CONFIRM_SECONDS: Final = 10.0
_JSON: Final = "application/json"
_LARGEST: Final = 2**63 - 1
_ERROR_CHARACTERS: Final = 2_000


class Named(msgspec.Struct, frozen=True):
    """The only required field of a message. Other fields are ignored."""

    job_id: int


def job_message(message: DueMessage) -> Message:
    return Message(
        msgspec.json.encode(Named(message.job_id)),
        content_type=_JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=f"{message.job_id}.{message.fence}",
    )


def dead_message(message: DeadLetter) -> Message:
    """For people who inspect the queue. The database has the complete job."""
    content: dict[str, Any] = {
        "job_id": message.job_id,
        "kind": message.kind,
        "key": message.key,
        "lane": message.lane,
        "state": message.state,
        "attempts": message.attempts,
        "error": shorten(message.error or "", _ERROR_CHARACTERS),
    }
    return Message(
        msgspec.json.encode(content),
        content_type=_JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=f"{message.job_id}.{message.fence}",
    )


def named_job(body: bytes) -> JobId | None:
    """The job id in a message, or None if it cannot be read."""
    try:
        job_id = msgspec.json.decode(body, type=Named, strict=False).job_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return JobId(job_id) if 0 < job_id <= _LARGEST else None


class DeadMessage:
    """One message of a dead-letter queue. Unless it is accepted it goes back when its block ends."""

    def __init__(self, message: AbstractIncomingMessage) -> None:
        self._message = message
        self.job_id = named_job(message.body)

    async def accept(self) -> None:
        await self._message.ack()


class RabbitBroker:
    """One connection for all that is published, opened when it is first needed."""

    def __init__(self, line: BrokerConnector, *, queue_type: QueueType) -> None:
        self._line = line
        self._queue_type: QueueType = queue_type
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None

    async def declare(self, lanes: Collection[Lane]) -> None:
        async with self._asking() as channel:
            await declare_queues(channel, lanes, queue_type=self._queue_type)

    async def look(self, lanes: Collection[Lane]) -> Sequence[str]:
        """The names of missing queues. Raises if one was declared differently; declares nothing."""
        missing = []
        for lane in lanes:
            names = (queue_of(lane), dead_queue_of(lane))
            absent = [name for name in names if await self._found(name) is None]
            missing += absent
            if not absent:
                await self.declare([lane])
        return missing

    async def publish(self, messages: Sequence[DueMessage]) -> Collection[JobId]:
        return await self._send(EXCHANGE, [(each.job_id, each.lane, job_message(each)) for each in messages])

    async def publish_dead_letters(self, messages: Sequence[DeadLetter]) -> Collection[JobId]:
        return await self._send(DEAD_EXCHANGE, [(each.job_id, each.lane, dead_message(each)) for each in messages])

    async def depths(self, lanes: Collection[Lane]) -> Mapping[Lane, Depth]:
        found: dict[Lane, Depth] = {}
        for lane in lanes:
            ready, consumers = await self._depth(queue_of(lane))
            dead, _ = await self._depth(dead_queue_of(lane))
            found[lane] = Depth(ready=ready, consumers=consumers, dead=dead)
        return found

    @asynccontextmanager
    async def dead_letters(self, lane: Lane) -> AsyncIterator[Sequence[DeadMessage]]:
        """All messages of a lane's dead-letter queue, unacknowledged as long as the block lasts."""
        async with self._asking() as channel:
            await declare_queues(channel, [lane], queue_type=self._queue_type)
            queue = await channel.get_queue(dead_queue_of(lane))
            count = queue.declaration_result.message_count or 0
            got = [await queue.get(fail=False) for _ in range(count)]
            yield [DeadMessage(each) for each in got if each is not None]

    async def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await hang_up(connection)

    async def _send(self, exchange: str, messages: Sequence[tuple[JobId, Lane, Message]]) -> set[JobId]:
        """Publish and return the ids that the broker confirmed. Raises if it could not be reached at all."""
        if self._channel is None or self._channel.is_closed or not self._is_connected:
            connection = await self._connected()
            with self._line.translated():
                self._channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        target = await self._channel.get_exchange(exchange, ensure=False)
        confirmed: set[JobId] = set()
        for start in range(0, len(messages), _IN_FLIGHT):
            part = messages[start : start + _IN_FLIGHT]
            # Mandatory: a message no queue takes comes back, and raises as one that was refused does.
            sent = [
                target.publish(message, routing_key=lane, mandatory=True, timeout=_CONFIRM_SECONDS)
                for _, lane, message in part
            ]
            answers = await asyncio.gather(*sent, return_exceptions=True)
            failed = [each if isinstance(each, BaseException) else None for each in answers]
            confirmed |= {job_id for (job_id, _, _), fault in zip(part, failed, strict=True) if fault is None}
            faults = [each for each in failed if each is not None and not isinstance(each, DeliveryError)]
            if faults:
                await self.close()
                if confirmed:
                    # What the broker confirmed must be recorded before anything else.
                    return confirmed
                if isinstance(faults[0], FAULTS):
                    raise self._line.named(faults[0])
                raise faults[0]
        return confirmed

    async def _depth(self, queue: str) -> tuple[int, int]:
        found = await self._found(queue)
        return (found.message_count or 0, found.consumer_count or 0) if found else (0, 0)

    async def _found(self, queue: str) -> Queue.DeclareOk | None:
        try:
            async with self._asking() as channel:
                return (await channel.declare_queue(queue, passive=True)).declaration_result
        except _NoQueue:
            return None

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[AbstractChannel]:
        """A channel for one question: a refusal closes its channel, and shall close no other."""
        connection = await self._connected()
        with self._line.translated():
            channel = await connection.channel(publisher_confirms=False)
            try:
                yield channel
            except ChannelNotFoundEntity:
                raise _NoQueue from None
            finally:
                with forgiven():
                    await channel.close()

    async def _connected(self) -> AbstractConnection:
        if self._connection is None or not self._is_connected:
            await self.close()
            self._connection = await self._line.connect()
        return self._connection

    @property
    def _is_connected(self) -> bool:
        return self._connection is not None and self._connection.connected.is_set()


class _NoQueue(Exception):
    """There is no such queue."""
