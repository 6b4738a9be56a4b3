"""pgqueuer: its queue manager, which runs a task per job, and its queries called a batch at a time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from pgqueuer.db import AsyncpgDriver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.queue.common import Options, Span, connected, now_ns
from bench.queue.side import Enqueue, Side, Starts, main

CHUNK = 10_000
LEASE = timedelta(seconds=30)


def setting(options: Options) -> str:
    if options.command == "enqueue":
        return f"lists of {CHUNK}"
    return f"{'queries' if options.form == 'queries' else 'queue manager'}, batch {options.batch}"


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[Any]:
    async with connected(options.dsn) as connection:
        yield Queries(AsyncpgDriver(connection))


async def install(options: Options) -> None:
    async with opened(options) as queries:
        await queries.install()


async def fill(options: Options) -> Span:
    async with opened(options) as queries:
        started_ns = now_ns()
        for first in range(0, options.jobs, CHUNK):
            numbers = range(first, min(first + CHUNK, options.jobs))
            await queries.enqueue(["noop"] * len(numbers), [b"%d" % number for number in numbers], [0] * len(numbers))
        return Span(started_ns=started_ns, ended_ns=now_ns(), handled=options.jobs)


async def unfinished(options: Options) -> int:
    async with connected(options.dsn) as connection:
        return int(await connection.fetchval("SELECT count(*) FROM pgqueuer"))


async def drain(options: Options, begin: Callable[[], None]) -> Span:
    work = drain_in_batches if options.form == "queries" else drain_singly
    async with opened(options) as queries:
        return await work(queries, options, begin)


async def drain_singly(queries: Any, options: Options, begin: Callable[[], None]) -> Span:
    manager = QueueManager(queries)
    handled = 0
    first_claim_ns = 0
    dequeue = queries.dequeue

    async def count(_job: object) -> None:
        nonlocal handled
        handled += 1

    async def dequeue_until_empty(**arguments: Any) -> Any:
        nonlocal first_claim_ns
        first_claim_ns = first_claim_ns or now_ns()
        jobs = await dequeue(**arguments)
        if not jobs:
            manager.shutdown.set()
        return jobs

    queries.dequeue = dequeue_until_empty
    manager.entrypoint("noop")(count)
    begin()
    await manager.run(batch_size=options.batch)
    return Span(started_ns=first_claim_ns, ended_ns=now_ns(), handled=handled)


async def drain_in_batches(queries: Any, options: Options, begin: Callable[[], None]) -> Span:
    manager = QueueManager(queries)
    entrypoints = {"noop": EntrypointExecutionParameter(concurrency_limit=0)}

    async def claim() -> Any:
        return await queries.dequeue(
            batch_size=options.batch,
            entrypoints=entrypoints,
            queue_manager_id=manager.queue_manager_id,
            global_concurrency_limit=None,
            heartbeat_timeout=LEASE,
        )

    begin()
    handled, started_ns = 0, now_ns()
    while jobs := await claim():
        await queries.log_jobs([(job, "successful", None) for job in jobs])
        handled += len(jobs)
    return Span(started_ns=started_ns, ended_ns=now_ns(), handled=handled)


async def serve(options: Options, starts: Starts) -> None:
    async def note(job: Any) -> None:
        starts.note(int(job.payload))

    async with opened(options) as queries:
        manager = QueueManager(queries)
        manager.entrypoint("noop")(note)
        await manager.run()


@asynccontextmanager
async def enqueuer(options: Options) -> AsyncIterator[Enqueue]:
    async with opened(options) as queries:

        async def enqueue(number: int) -> None:
            await queries.enqueue("noop", b"%d" % number)

        yield enqueue


if __name__ == "__main__":
    main(
        Side(
            name="pgqueuer",
            setting=setting,
            install=install,
            fill=fill,
            unfinished=unfinished,
            drain=drain,
            serve=serve,
            enqueuer=enqueuer,
        )
    )
