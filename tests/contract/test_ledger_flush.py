"""The ledger loses no call when its process ends in the middle of writing it down."""

import asyncio
from collections.abc import Sequence

from sqlalchemy import text

from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import X_SOURCE, CallPurpose, CallRecord, KeyLabel
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from tests.databases import open_database


class SlowBook(DatabaseSourceStore):
    """The real book; its first entry waits until the ledger is closing."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.writing, self.closing = asyncio.Event(), asyncio.Event()

    async def record(self, records: Sequence[CallRecord]) -> None:
        self.writing.set()
        await self.closing.wait()
        await super().record(records)


async def test_a_call_that_is_being_written_down_at_the_end_is_there_once(url: str) -> None:
    database = open_database(url)
    try:
        book = SlowBook(database)
        keys = {KeyLabel("key-1"): "secret"}
        governor = Governor(X_SOURCE, keys, store=book, clock=database.clock, limits=GovernorLimits())
        loop = asyncio.get_running_loop()
        async with governor.opened():
            async with governor.call("tweets", most=15, purpose=CallPurpose()) as call:
                call.settle(items=1, credits_due=15)
            await book.writing.wait()
            loop.call_soon(book.closing.set)
        async with database.read() as connection:
            assert (await connection.execute(text("SELECT endpoint, credits FROM calls"))).all() == [("tweets", 15)]
    finally:
        await database.close()
