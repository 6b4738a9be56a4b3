"""procrastinate: its async worker, one statement to fetch a job and one to finish it."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.queue.common import Options, Span, connected, now_ns
from bench.queue.side import Enqueue, Side, Starts, main

CHUNK = 5_000


def setting(options: Options) -> str:
    return f"lists of {CHUNK}" if options.command == "enqueue" else f"concurrency {options.batch}"


@asynccontextmanager
async def opened(options: Options, noop: Callable[..., Any]) -> AsyncIterator[tuple[App, Any]]:
    app = App(connector=PsycopgConnector(conninfo=options.dsn, min_size=4, max_size=20))
    task = app.task(noop, name="noop")
    async with app.open_async():
        yield app, task


async def ignore(number: int) -> None:
    pass


async def install(options: Options) -> None:
    async with opened(options, ignore) as (app, _):
        await app.schema_manager.apply_schema_async()


async def fill(options: Options) -> Span:
    async with opened(options, ignore) as (_, task):
        started_ns = now_ns()
        for first in range(0, options.jobs, CHUNK):
            numbers = range(first, min(first + CHUNK, options.jobs))
            await task.batch_defer_async(*({"number": number} for number in numbers))
        return Span(started_ns=started_ns, ended_ns=now_ns(), handled=options.jobs)


async def unfinished(options: Options) -> int:
    async with connected(options.dsn) as connection:
        return int(await connection.fetchval("SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'"))


async def drain(options: Options, begin: Callable[[], None]) -> Span:
    handled = 0

    async def count(number: int) -> None:  # noqa: ARG001 - the task is called by its arguments' names
        nonlocal handled
        handled += 1

    async with opened(options, count) as (app, _):
        begin()
        started_ns = now_ns()
        await app.run_worker_async(concurrency=options.batch, wait=False, install_signal_handlers=False)
        return Span(started_ns=started_ns, ended_ns=now_ns(), handled=handled)


async def serve(options: Options, starts: Starts) -> None:
    async def note(number: int) -> None:
        starts.note(number)

    async with opened(options, note) as (app, _):
        await app.run_worker_async(concurrency=20, install_signal_handlers=False)


@asynccontextmanager
async def enqueuer(options: Options) -> AsyncIterator[Enqueue]:
    async with opened(options, ignore) as (_, task):

        async def enqueue(number: int) -> None:
            await task.defer_async(number=number)

        yield enqueue


if __name__ == "__main__":
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    main(
        Side(
            name="procrastinate",
            setting=setting,
            install=install,
            fill=fill,
            unfinished=unfinished,
            drain=drain,
            serve=serve,
            enqueuer=enqueuer,
        )
    )
