"""mistnet's own worker: it is sent ids, claims by id, runs, settles and acknowledges."""

import asyncio

from bench.broker.common import LANE, main
from bench.queue.common import Options, Span, now_ns
from mistnet.app import App, Via

SIDE = "mistnet"


async def drain(app: App, _broker_url: str, options: Options) -> Span:
    async with app.worker(via=Via.AMQP, lanes=[LANE], concurrency=options.batch) as worker:
        running = asyncio.create_task(worker.run())
        while not worker.settled_count:
            await asyncio.sleep(0.001)
        started_ns, before = now_ns(), worker.settled_count
        while worker.settled_count < options.jobs and not running.done():
            await asyncio.sleep(0.002)
        ended_ns = now_ns()
        worker.drain()
        await running
    return Span(started_ns=started_ns, ended_ns=ended_ns, handled=worker.settled_count - before)


if __name__ == "__main__":
    main(SIDE, drain)
