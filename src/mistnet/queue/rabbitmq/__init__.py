"""RabbitMQ behind a port: it carries job ids to workers, and dead letters to operators.

Here are the names of its exchanges and queues, and how they are made.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from mistnet.kit import lazy_names

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel

    from mistnet.queue.model import Lane
    from mistnet.queue.rabbitmq.connection import BrokerAddress, BrokerConnector
    from mistnet.queue.rabbitmq.consumer import RabbitConsumer
    from mistnet.queue.rabbitmq.publisher import RabbitBroker
else:  # the AMQP client takes long to load, and only dispatched lanes need it
    __getattr__ = lazy_names(
        __name__,
        {
            "BrokerAddress": "connection",
            "BrokerConnector": "connection",
            "RabbitBroker": "publisher",
            "RabbitConsumer": "consumer",
        },
    )

__all__ = [
    "BrokerAddress",
    "BrokerConnector",
    "RabbitBroker",
    "RabbitConsumer",
]

EXCHANGE: Final = "crawl.jobs"
DEAD_EXCHANGE: Final = "crawl.dlx"
QueueType: TypeAlias = Literal["quorum", "classic"]


def queue_of(lane: str) -> str:
    return f"crawl.{lane}"


def dead_queue_of(lane: str) -> str:
    return f"crawl.dlq.{lane}"


async def declare_queues(channel: AbstractChannel, lanes: Collection[Lane], *, queue_type: QueueType) -> None:
    """Make the exchanges and the queues of these lanes; making them again changes nothing.

    A lane is the routing key of its jobs and of its dead letters.
    """
    jobs = await channel.declare_exchange(EXCHANGE, "direct", durable=True)
    dead = await channel.declare_exchange(DEAD_EXCHANGE, "direct", durable=True)
    for lane in lanes:
        made: dict[str, Any] = {"x-queue-type": queue_type}
        dead_queue = await channel.declare_queue(dead_queue_of(lane), durable=True, arguments=made)
        await dead_queue.bind(dead, routing_key=lane)
        made = {**made, "x-dead-letter-exchange": DEAD_EXCHANGE, "x-dead-letter-routing-key": lane}
        queue = await channel.declare_queue(queue_of(lane), durable=True, arguments=made)
        await queue.bind(jobs, routing_key=lane)
