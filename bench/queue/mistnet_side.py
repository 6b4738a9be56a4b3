"""mistnet: its own worker, with full leases, fences and history."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from loguru import logger
from sqlalchemy import text

from bench.queue.common import PER_SECOND, Figure, Options, Span, now_ns, settle
from bench.queue.side import Enqueue, Side, Starts, main
from mistnet.app import App
from mistnet.kit.migrate import migrate, ready
from mistnet.queue.kinds import Kind, batched, single
from mistnet.queue.model import Args, Done, Job, JobClass, KindName, NewJob, Outcome
from mistnet.queue.plugins import Plugin
from mistnet.settings import load_settings

CHUNK = 100_000
IN_FLIGHT = 2
"""Batches a worker has in hand: while one is settled the next is claimed."""
DEPTH_MEASURED = 50_000


class Number(Args, frozen=True):
    n: int


def setting(options: Options) -> str:
    if options.command == "enqueue":
        return f"lists of {CHUNK}"
    if options.batch == 1 or options.form == "single jobs":
        return f"worker, single jobs, concurrency {options.batch}"
    return f"worker, batch {options.batch}"


def noop(batch: int) -> Kind:
    async def one(_job: Job[Number]) -> Outcome:
        return Done()

    async def many(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
        return [Done() for _ in jobs]

    if batch == 1:
        return single("noop", one, Number, job_class=JobClass.WALK, lanes=["bench"])
    return batched("noop", many, Number, batch=batch, job_class=JobClass.WALK, lanes=["bench"])


def url(options: Options) -> str:
    return options.dsn if "://" in options.dsn else f"sqlite:///{options.dsn}"


@asynccontextmanager
async def opened(options: Options, kind: Kind) -> AsyncIterator[App]:
    logger.remove()  # the peers are measured without their log lines too
    app = App(load_settings(database_url=url(options)), plugins=[Plugin(kinds=[kind])])
    try:
        yield app
    finally:
        await app.database.close()


async def install(options: Options) -> None:
    async with opened(options, noop(1)) as app:
        await migrate(app.database)


async def fill(options: Options) -> Span:
    async with opened(options, noop(1)) as app:
        await ready(app.database, create=True)
        started_ns = now_ns()
        for first in range(0, options.jobs, CHUNK):
            numbers = range(first, min(first + CHUNK, options.jobs))
            await app.enqueue([NewJob(kind=KindName("noop"), args=Number(n=number)) for number in numbers])
        return Span(started_ns=started_ns, ended_ns=now_ns(), handled=options.jobs)


async def unfinished(options: Options) -> int:
    """Whatever is not in the history: a job that only left the queue does not count."""
    async with opened(options, noop(1)) as app, app.database.read() as connection:
        done = (
            await connection.execute(text("SELECT count(*) FROM job_history WHERE state = 'succeeded'"))
        ).scalar_one()
        return options.jobs - int(done)


async def drain(options: Options, begin: Callable[[], None]) -> Span:
    singly = options.batch == 1 or options.form == "single jobs"
    kind = noop(1 if singly else options.batch)
    async with opened(options, kind) as app:
        await ready(app.database, create=True)
        width = options.batch if singly else IN_FLIGHT
        async with app.worker(concurrency=width, until_idle=True) as worker:
            begin()
            started_ns = now_ns()
            await worker.run()
            return Span(started_ns=started_ns, ended_ns=now_ns(), handled=worker.settled_count)


async def serve(options: Options, starts: Starts) -> None:
    async def note(job: Job[Number]) -> Outcome:
        starts.note(job.args.n)
        return Done()

    kind = single("noop", note, Number, job_class=JobClass.WALK, lanes=["bench"])
    async with opened(options, kind) as app:
        await ready(app.database, create=True)
        async with app.worker(concurrency=20) as worker:
            await worker.run()


@asynccontextmanager
async def enqueuer(options: Options) -> AsyncIterator[Enqueue]:
    async with opened(options, noop(1)) as app:
        await ready(app.database, create=True)

        async def enqueue(number: int) -> None:
            await app.enqueue([NewJob(kind=KindName("noop"), args=Number(n=number))])

        yield enqueue


async def depth(side: Side, options: Options) -> list[Figure]:
    """How fast the first jobs go while so many more are pending behind them."""
    await install(options)
    if options.jobs < DEPTH_MEASURED:
        span = await _rounds(options, DEPTH_MEASURED // options.jobs)
        return [_named(side, span, f"{options.jobs:,} pending, again and again", span.handled)]
    await fill(options)
    await settle(options.dsn)
    span = await _first_jobs(options, DEPTH_MEASURED)
    return [_named(side, span, f"{options.jobs:,} pending", DEPTH_MEASURED)]


async def aged(side: Side, options: Options) -> list[Figure]:
    """How fast a queue is that has seen so many jobs come and go, without any rest in between."""
    await install(options)
    await fill(options)
    await settle(options.dsn)
    figures = []
    step = options.jobs // 5
    for done in range(0, options.jobs, step):
        figure = await _first_jobs(options, step)
        figures.append(_named(side, figure, f"after {done:,} processed", step))
    await fill(replace(options, jobs=DEPTH_MEASURED))
    figure = await _first_jobs(options, DEPTH_MEASURED)
    figures.append(_named(side, figure, f"after {options.jobs:,} processed, refilled", DEPTH_MEASURED))
    return figures


async def _rounds(options: Options, rounds: int) -> Span:
    """A small queue is empty before a worker is warm, so one worker empties it many times.

    Within a round the clock runs from the first batch a handler gets to the last: filling and waking are not counted.
    """
    calls: list[tuple[int, int]] = []

    async def noted(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
        calls.append((now_ns(), len(jobs)))
        return [Done() for _ in jobs]

    kind = batched("noop", noted, Number, batch=options.batch, job_class=JobClass.WALK, lanes=["bench"])
    async with opened(options, kind) as app:
        await ready(app.database, create=True)
        async with app.worker(concurrency=IN_FLIGHT) as worker:
            running = asyncio.create_task(worker.run())
            worked_ns = handled = 0
            for done in range(1, rounds + 1):
                calls.clear()
                await app.enqueue([NewJob(kind=KindName("noop"), args=Number(n=n)) for n in range(options.jobs)])
                while worker.settled_count < done * options.jobs:
                    await asyncio.sleep(0.0005)
                worked_ns += calls[-1][0] - calls[0][0]
                handled += sum(jobs for _, jobs in calls[1:])
            worker.drain()
            await running
            return Span(started_ns=0, ended_ns=worked_ns, handled=handled)


async def _first_jobs(options: Options, count: int) -> Span:
    """Works off just so many jobs of what is there."""
    taken = 0
    enough = asyncio.Event()

    async def counted(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
        nonlocal taken
        taken += len(jobs)
        if taken >= count:
            enough.set()
        return [Done() for _ in jobs]

    kind = batched("noop", counted, Number, batch=options.batch, job_class=JobClass.WALK, lanes=["bench"])
    async with opened(options, kind) as app:
        await ready(app.database, create=True)
        async with app.worker(concurrency=IN_FLIGHT) as worker:
            started_ns = now_ns()
            running = asyncio.create_task(worker.run())
            await enough.wait()
            worker.drain()
            await running
            return Span(started_ns=started_ns, ended_ns=now_ns(), handled=worker.settled_count)


def _named(side: Side, span: Span, name: str, count: int) -> Figure:
    return Figure(
        name="sqlite" if name.startswith("SQLite") else "depth",
        side=side.name,
        setting=name,
        figure=span.handled / span.seconds,
        unit=PER_SECOND,
        expected=count,
        got=min(span.handled, count),
    )


async def sqlite(side: Side, options: Options) -> list[Figure]:
    """The same worker on a SQLite file, synchronous = FULL."""
    await install(options)
    span = await fill(options)
    figures = [_named(side, span, "SQLite, bulk enqueue", options.jobs)]
    for batch, form in ((options.batch, "batch"), (options.batch, "single jobs")):
        one = replace(options, batch=batch, form=form)
        if form == "single jobs":
            await fill(one)
        span = await drain(one, lambda: None)
        figures.append(_named(side, span, f"SQLite, {setting(one)}", options.jobs))
    return figures


if __name__ == "__main__":
    main(
        Side(
            name="mistnet",
            setting=setting,
            install=install,
            fill=fill,
            unfinished=unfinished,
            drain=drain,
            serve=serve,
            enqueuer=enqueuer,
            more={"depth": depth, "aged": aged, "sqlite": sqlite},
        )
    )
