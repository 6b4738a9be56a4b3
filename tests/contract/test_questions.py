"""Questions asked of the driver itself are answered as the ones that go the long way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from sqlalchemy import bindparam, select, text

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError, DatabaseNotMigrated
from mistnet.kit.statements import statement
from mistnet.queue.tables import paused_kinds
from tests.databases import open_database

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
PAUSED = select(paused_kinds.c.kind, paused_kinds.c.paused_at).where(paused_kinds.c.paused_at <= bindparam("before"))


@asynccontextmanager
async def opened_with_content(url: str) -> AsyncIterator[Database]:
    opened = open_database(url)
    async with opened.transaction() as connection:
        await connection.execute(paused_kinds.insert(), {"kind": "walk", "reason": "a 'reason'", "paused_at": AT})
    try:
        yield opened
    finally:
        await opened.close()


async def test_times_and_texts_come_back_as_they_were_written(url: str) -> None:
    async with opened_with_content(url) as database:
        async with database.read() as connection:
            long_way = [tuple(row) for row in await connection.execute(PAUSED, {"before": AT})]
        quick = await database.fetch_prepared(PAUSED, {"before": AT})
        assert [tuple(row) for row in quick] == long_way == [("walk", AT)]
        assert quick[0].paused_at == AT
        assert await database.fetch_prepared(PAUSED, {"before": AT.replace(year=2020)}) == []


async def test_many_ids_are_one_value(url: str) -> None:
    async with opened_with_content(url) as database:
        asked = statement("known_users", database.dialect)
        assert await database.fetch_prepared(asked, {"platform": "x", "ids": [1, 2, 3]}) == []


async def test_database_errors_become_errors_of_mistnet(url: str) -> None:
    async with opened_with_content(url) as database:
        nowhere = text("SELECT n FROM nowhere").columns()
        with pytest.raises(DatabaseNotMigrated):
            await database.fetch_prepared(nowhere, {})


async def test_a_connection_that_broke_is_not_used_again(url: str) -> None:
    async with opened_with_content(url) as database:
        if database.dialect == "sqlite":
            return  # a file does not hang up
        async with database.read() as connection:
            await connection.execute(text("SELECT 1"))
        end = text("SELECT pg_terminate_backend(pg_backend_pid())").columns()
        with pytest.raises(DatabaseError):
            await database.fetch_prepared(end, {})
        assert len(await database.fetch_prepared(PAUSED, {"before": AT})) == 1
