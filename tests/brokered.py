"""What tests of dispatching share: an app whose toy lane goes over RabbitMQ, and a look into the queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aio_pika
import msgspec
import pytest
from sqlalchemy import text

from mistnet.app import App, Via
from mistnet.queue.dispatch import Dispatcher
from mistnet.queue.kinds import Kind
from mistnet.queue.model import NewJob
from mistnet.queue.plugins import Plugin
from mistnet.queue.rabbitmq import dead_queue_of, queue_of
from mistnet.queue.rabbitmq.publisher import RabbitBroker
from mistnet.queue.store.writes import Writer
from mistnet.queue.worker import Worker
from mistnet.settings import load_settings
from tests.databases import make_app
from tests.support import Effect, done, write_effects
from tests.support import kind as any_kind

LANE: Final = "toy"
PATIENCE: Final = 50.0
QUICK: Final[dict[str, Any]] = {
    "lease_seconds": 2.0,
    "heartbeat_seconds": 0.5,
    "reclaim_seconds": 0.3,
    "backoff_base_seconds": 0.05,
    "leader_lease_seconds": 1.0,
    "idle_poll_seconds": 1.0,
    "grace_seconds": 5.0,
    "amqp_queue_type": "classic",
}


def kind(name: str = "step", handler: Any = done, *, lanes: Sequence[str] = (LANE,), **about: Any) -> Kind:
    return any_kind(name, handler, lanes=lanes, **about)


@asynccontextmanager
async def brokered(url: str, broker_url: str, *kinds: Kind, **settings: Any) -> AsyncIterator[App]:
    """An app whose toy lane is dispatched."""
    given = {**QUICK, "amqp_lanes": [LANE], **settings}
    loaded = load_settings(database_url=url, broker_url=broker_url, **given)
    app = make_app(loaded, plugins=[Plugin(kinds=kinds, writers=[Writer(Effect, write_effects)])])
    try:
        await app.database.correct_clock()
        yield app
    finally:
        await app.database.close()


@asynccontextmanager
async def dispatcher(app: App) -> AsyncIterator[tuple[Dispatcher, RabbitBroker]]:
    """A dispatcher whose rounds the test calls itself."""
    async with app.dispatching.broker() as broker:
        made = app.dispatching.dispatcher(broker)
        await broker.declare(made.lanes)
        yield made, broker


def hurry(patch: pytest.MonkeyPatch, seconds: float, *pauses: str) -> None:
    """Make these pauses between two looks shorter than in life."""
    for pause in pauses:
        patch.setattr(pause, seconds)


async def add(app: App, *jobs: NewJob) -> None:
    await app.enqueue(jobs)


async def rows(app: App, sql: str, **binds: Any) -> list[Any]:
    async with app.database.read() as connection:
        return list((await connection.execute(text(sql), binds)).all())


async def change(app: App, sql: str) -> None:
    async with app.database.transaction() as connection:
        await connection.execute(text(sql))


async def states(app: App) -> dict[str, int]:
    return {row.state: row.n for row in await rows(app, "SELECT state, count(*) AS n FROM jobs GROUP BY state")}


async def effects(app: App) -> list[int]:
    return sorted(row.job_id for row in await rows(app, "SELECT job_id FROM effects"))


@asynccontextmanager
async def consuming(app: App, **about: Any) -> AsyncIterator[Worker]:
    """A worker that takes messages while the block lasts."""
    async with app.worker(via=Via.AMQP, **about) as worker:
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.drain()
            await running


async def until(condition: Callable[[], Awaitable[object]], *, seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def channel_to(broker_url: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    async with await aio_pika.connect(broker_url) as connection:
        yield await connection.channel()


async def send(broker_url: str, body: bytes, *, lane: str = LANE) -> None:
    """A message from another publisher."""
    async with channel_to(broker_url) as channel:
        await channel.default_exchange.publish(aio_pika.Message(body), routing_key=queue_of(lane))


async def letters(broker_url: str, queue: str) -> list[dict[str, Any]]:
    """The messages of a queue, which stay there."""
    async with channel_to(broker_url) as channel:
        found = await channel.declare_queue(queue, passive=True)
        count = found.declaration_result.message_count or 0
        got = [await found.get(fail=False) for _ in range(count)]
        return [msgspec.json.decode(each.body) for each in got if each is not None]


async def dead(broker_url: str, lane: str = LANE) -> list[int]:
    return sorted(int(letter["job_id"]) for letter in await letters(broker_url, dead_queue_of(lane)))


async def ready(broker_url: str, lane: str = LANE) -> list[int]:
    return sorted(int(letter["job_id"]) for letter in await letters(broker_url, queue_of(lane)))


async def purge(broker_url: str, lane: str = LANE) -> None:
    async with channel_to(broker_url) as channel:
        await (await channel.get_queue(queue_of(lane))).purge()
