"""The bare limit: claim and delete on one asyncpg connection, with nothing around them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bench.queue.common import Options, Span, connected, now_ns
from bench.queue.side import Enqueue, Side, Starts, main

TABLE = """
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    payload jsonb NOT NULL,
    state text NOT NULL DEFAULT 'ready',
    run_at timestamptz NOT NULL DEFAULT now(),
    fence bigint NOT NULL DEFAULT 0,
    worker text,
    lease_until timestamptz
);
CREATE INDEX job_claim ON job (run_at, id) WHERE state = 'ready';
"""
KEYED = """
ALTER TABLE job ADD COLUMN key text NOT NULL;
CREATE UNIQUE INDEX job_key ON job (key);
"""
CLAIM = """
UPDATE job SET state = 'leased', fence = fence + 1, worker = 'bare', lease_until = now() + interval '1 minute'
WHERE id = ANY(ARRAY(
    SELECT id FROM job WHERE state = 'ready' AND run_at <= now()
    ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
))
RETURNING id, kind, payload, fence
"""
FINISH = "DELETE FROM job WHERE id = ANY($1)"
ENQUEUE = """
WITH added AS (INSERT INTO job (kind, payload) VALUES ('noop', $1) RETURNING id)
SELECT pg_notify('job', '') FROM added
"""


def setting(options: Options) -> str:
    return "COPY" if options.command == "enqueue" else f"batch {options.batch}"


async def install(options: Options) -> None:
    async with connected(options.dsn) as connection:
        await connection.execute(TABLE)
        if options.command == "enqueue":
            await connection.execute(KEYED)


async def fill(options: Options) -> Span:
    columns = ["kind", "payload"] + ["key"] * (options.command == "enqueue")
    async with connected(options.dsn) as connection:
        started_ns = now_ns()
        records = (("noop", f'{{"number": {n}}}', f"noop:{n}")[: len(columns)] for n in range(options.jobs))
        await connection.copy_records_to_table("job", records=records, columns=columns)
        return Span(started_ns=started_ns, ended_ns=now_ns(), handled=options.jobs)


async def unfinished(options: Options) -> int:
    async with connected(options.dsn) as connection:
        return int(await connection.fetchval("SELECT count(*) FROM job"))


async def drain(options: Options, begin: Callable[[], None]) -> Span:
    async with connected(options.dsn) as connection:
        claim, finish = await connection.prepare(CLAIM), await connection.prepare(FINISH)
        begin()
        handled, started_ns = 0, now_ns()
        while rows := await claim.fetch(options.batch):
            await finish.fetch([row["id"] for row in rows])
            handled += len(rows)
        return Span(started_ns=started_ns, ended_ns=now_ns(), handled=handled)


async def serve(options: Options, starts: Starts) -> None:
    async with connected(options.dsn) as connection:
        wake = asyncio.Event()
        await connection.add_listener("job", lambda *_: wake.set())
        claim, finish = await connection.prepare(CLAIM), await connection.prepare(FINISH)
        while True:
            wake.clear()
            while rows := await claim.fetch(100):
                for row in rows:
                    starts.note(int(row["payload"]))
                await finish.fetch([row["id"] for row in rows])
            await wake.wait()


@asynccontextmanager
async def enqueuer(options: Options) -> AsyncIterator[Enqueue]:
    async with connected(options.dsn) as connection:
        statement = await connection.prepare(ENQUEUE)

        async def enqueue(number: int) -> None:
            await statement.fetchval(str(number))

        yield enqueue


if __name__ == "__main__":
    main(
        Side(
            name="bare asyncpg",
            setting=setting,
            install=install,
            fill=fill,
            unfinished=unfinished,
            drain=drain,
            serve=serve,
            enqueuer=enqueuer,
        )
    )
