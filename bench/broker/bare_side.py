"""A bare consumer: for each message the same claim and the same write, a statement each, and the acknowledgement."""

import asyncio
import json

import aio_pika
import asyncpg

from bench.broker.common import LANE, main
from bench.queue.common import Options, Span, now_ns
from mistnet.app import App
from mistnet.queue.rabbitmq import queue_of

SIDE = "bare loop"
CONNECTIONS = 10
CLAIM = """
UPDATE jobs
SET state = 'running', fence = fence + 1, worker = 'bare', lease_until = now() + interval '5 minutes',
    started_at = now()
WHERE id = $1 AND (state IN ('pending', 'queued', 'retryable') OR (state = 'running' AND lease_until <= now()))
RETURNING id, fence, kind, key, lane, args, attempts, max_attempts, run_at, created_at
"""
FINISH = """
WITH finished AS (
    DELETE FROM jobs WHERE id = $1 AND fence = $2 AND worker IS NOT NULL
    RETURNING id, kind, key, lane, class, args, attempts, fence, run_at, created_at, started_at, worker
)
INSERT INTO job_history (id, kind, key, lane, class, state, args, attempts, fence, run_at, created_at, started_at,
    finished_at, worker)
SELECT f.id, f.kind, f.key, f.lane, f.class, 'succeeded', f.args, f.attempts, f.fence, f.run_at, f.created_at,
    f.started_at, now(), f.worker
FROM finished f
"""


async def drain(_app: App, broker_url: str, options: Options) -> Span:
    handled = 0
    over = asyncio.Event()
    async with asyncpg.create_pool(options.dsn, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:

        async def handle(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            nonlocal handled
            async with pool.acquire() as connection:
                row = await connection.fetchrow(CLAIM, json.loads(message.body)["job_id"])
                if row is not None:
                    await connection.execute(FINISH, row["id"], row["fence"])
            await message.ack()
            handled += 1
            if handled == options.jobs:
                over.set()

        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            await channel.set_qos(prefetch_count=options.batch)
            queue = await channel.get_queue(queue_of(LANE), ensure=False)
            started_ns = now_ns()
            await queue.consume(handle)
            await over.wait()
            return Span(started_ns=started_ns, ended_ns=now_ns(), handled=handled)


if __name__ == "__main__":
    main(SIDE, drain)
