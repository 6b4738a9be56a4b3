"""Exchanges and queues: what they are called and how they are made. Making them again changes nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from mistnet.queue.model import Lane

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel


EXCHANGE: Final = "crawl.jobs"
DEAD_EXCHANGE: Final = "crawl.dlx"
QueueType: TypeAlias = Literal["quorum", "classic"]


def queue_of(lane: str) -> str:
    return f"crawl.{lane}"


def dead_queue_of(lane: str) -> str:
    return f"crawl.dlq.{lane}"


async def declare(channel: AbstractChannel, lanes: Collection[Lane], *, queue_type: QueueType) -> None:
    """A lane is the routing key of its jobs and of its dead letters."""
    jobs = await channel.declare_exchange(EXCHANGE, "direct", durable=True)
    dead = await channel.declare_exchange(DEAD_EXCHANGE, "direct", durable=True)
    for lane in lanes:
        made: dict[str, Any] = {"x-queue-type": queue_type}
        dead_queue = await channel.declare_queue(dead_queue_of(lane), durable=True, arguments=made)
        await dead_queue.bind(dead, routing_key=lane)
        made = {**made, "x-dead-letter-exchange": DEAD_EXCHANGE, "x-dead-letter-routing-key": lane}
        queue = await channel.declare_queue(queue_of(lane), durable=True, arguments=made)
        await queue.bind(jobs, routing_key=lane)
