"""A process has so many connections and no more; who finds none free is told that the database is busy."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import text

from mistnet.domain.errors import DatabaseBusy
from mistnet.store.database import _CONNECTIONS, Database

pytestmark = pytest.mark.fresh_database


async def test_a_question_waits_for_a_free_connection_and_then_says_busy(url: str) -> None:
    database = Database(url)
    pool = database.engine.sync_engine.pool
    pool._timeout = 0.2  # type: ignore[attr-defined]
    try:
        async with AsyncExitStack() as held:
            for _ in range(_CONNECTIONS):
                connection = await held.enter_async_context(database.glance())
                await connection.execute(text("SELECT 1"))
            with pytest.raises(DatabaseBusy):
                async with database.glance():
                    pass
            pool._timeout = 10  # type: ignore[attr-defined]

            async def ask() -> int:
                async with database.glance() as connection:
                    return int((await connection.execute(text("SELECT 7"))).scalar_one())

            waiting = asyncio.create_task(ask())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await held.aclose()
            assert await waiting == 7
    finally:
        await database.close()
