"""What the sides of the broker benchmark share: the jobs, the messages, a node, and the figure.

A side starts a private RabbitMQ, stores the jobs in mistnet's own table and publishes an id for each. The clock runs
from the first message that is taken to the last that is acknowledged.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop
from loguru import logger
from sqlalchemy import text

from bench.queue.common import PER_SECOND, Figure, Options, Span, emit
from mistnet.app import App
from mistnet.kit.migrate import migrate
from mistnet.queue.kinds import single
from mistnet.queue.model import Args, Done, Job, JobClass, KindName, NewJob, Outcome
from mistnet.queue.plugins import Plugin
from mistnet.settings import load_settings
from tests.services.rabbitmq import RabbitNode

LANE = "bench"
CHUNK = 10_000


class Number(Args, frozen=True):
    n: int


async def noop(_job: Job[Number]) -> Outcome:
    return Done()


@asynccontextmanager
async def opened(options: Options, broker_url: str) -> AsyncIterator[App]:
    """The app on a fresh database, with the queue type and prefetch of this measurement."""
    logger.remove()
    settings = load_settings(
        database_url=options.dsn,
        broker_url=broker_url,
        amqp_lanes=[LANE],
        amqp_queue_type=options.form.split(",")[0],
        amqp_prefetch=options.batch,
        amqp_window=1_000_000,
        log_level="ERROR",
    )
    kind = single("noop", noop, Number, job_class=JobClass.WALK, lanes=[LANE])
    app = App(settings, plugins=[Plugin(kinds=[kind])])
    try:
        await migrate(app.database)
        await app.database.correct_clock()
        yield app
    finally:
        await app.database.close()


async def fill(app: App, jobs: int) -> None:
    for first in range(0, jobs, CHUNK):
        numbers = range(first, min(first + CHUNK, jobs))
        await app.enqueue([NewJob(kind=KindName("noop"), args=Number(n=number)) for number in numbers])


async def publish_all(app: App) -> None:
    """Every due job is published before the clock starts."""
    async with app.dispatching.broker() as broker:
        dispatcher = app.dispatching.dispatcher(broker)
        await broker.declare(dispatcher.lanes)
        while await dispatcher.publish():
            pass


async def finished(app: App) -> int:
    async with app.database.read() as connection:
        asked = text("SELECT count(*) FROM job_history WHERE state = 'succeeded'")
        return int((await connection.execute(asked)).scalar_one())


def main(side: str, drain: Callable[[App, str, Options], Awaitable[Span]]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="classic")
    options = Options(**vars(parser.parse_args()))
    with RabbitNode() as node:
        uvloop.run(_measure(side, drain, options, node.vhost()))


async def _measure(side: str, drain: Any, options: Options, broker_url: str) -> None:
    async with opened(options, broker_url) as app:
        await fill(app, options.jobs)
        if "dispatched" not in options.form:
            await publish_all(app)
        span: Span = await asyncio.wait_for(drain(app, broker_url, options), 300)
        got = await finished(app)
    queue, _, way = options.form.partition(",")
    emit(
        Figure(
            name=f"jobs over RabbitMQ, {queue} queue",
            side=side,
            setting=f"prefetch {options.batch}{', ' + way.strip() if way else ''}",
            figure=span.handled / span.seconds,
            unit=PER_SECOND,
            expected=options.jobs,
            got=got,
            detail={"seconds": span.seconds},
        )
    )
