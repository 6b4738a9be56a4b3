"""Operators and workers at the same rows in the same moment."""

import asyncio

from sqlalchemy import text

from mistnet.app import App, open_app
from mistnet.queue.model import JobId
from mistnet.settings import load_settings
from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import CommandLine
from tests.plugins import toy


def test_a_key_taken_while_its_gap_is_requeued_leaves_the_gap(on_postgres: CommandLine) -> None:
    on_postgres.add("quick", key="same", n=1)
    on_postgres.sql("UPDATE jobs SET state = 'dead'")

    async def race() -> None:
        async with open_app(load_settings(database_url=on_postgres.url), plugins=[toy.plugin()]) as app:
            now = app.database.clock.now()
            async with app.database.transaction() as connection:
                await app.job_writer.write(connection, [app.kinds.new_job("quick", '{"n": 2}', key="same")], now)
                requeue = asyncio.create_task(app.operations.requeue(now=now))
                await _blocked(app)
            done = await requeue
            assert (done.requeued, done.held) == ([], [JobId(1)])

    asyncio.run(race())


async def _blocked(app: App) -> None:
    """Wait until a transaction waits for another."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    async with asyncio.timeout(DEADLINE_SECONDS), app.database.read() as connection:
        while not (await connection.execute(waiting)).scalar_one():
            await asyncio.sleep(0.02)


def test_of_many_gaps_with_one_key_only_the_newest_goes(mistnet: CommandLine) -> None:
    for n in range(5):
        mistnet.add("quick", key="same", n=n)
        mistnet.sql("UPDATE jobs SET state = 'dead'")
    mistnet.add("quick", key="other", n=9)
    mistnet.sql("UPDATE jobs SET state = 'failed' WHERE key = 'other'")

    async def requeue() -> None:
        async with open_app(load_settings(database_url=mistnet.url), plugins=[toy.plugin()]) as app:
            done = await app.operations.requeue(now=app.database.clock.now())
            assert (done.requeued, done.held) == (
                [JobId(5), JobId(6)],
                [JobId(1), JobId(2), JobId(3), JobId(4)],
            )

    asyncio.run(requeue())


def test_a_running_job_can_be_cancelled_but_not_retried(mistnet: CommandLine) -> None:
    mistnet.add("quick", n=1)
    mistnet.sql("UPDATE jobs SET state = 'running', worker = 'w', fence = 1, lease_until = '2999-01-01 00:00:00.0'")

    async def change() -> None:
        async with open_app(load_settings(database_url=mistnet.url), plugins=[toy.plugin()]) as app:
            now = app.database.clock.now()
            refused, missing = await app.operations.retry([JobId(1), JobId(2)], now=now)
            assert (refused.changed, refused.why) == (False, "a worker is on it")
            assert (missing.changed, missing.state) == (False, None)
            (cancelled,) = await app.operations.cancel([JobId(1)], now=now)
            assert cancelled.changed

    asyncio.run(change())
