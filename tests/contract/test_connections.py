"""A connection that a fault left unusable is replaced before anything is asked of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Database]:
    database = Database(dsn)
    try:
        yield database
    finally:
        await database.close()


async def driver_of(connection: AsyncConnection) -> Any:
    return (await connection.get_raw_connection()).driver_connection


async def test_one_whose_rollback_failed_is_replaced(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as database:
        async with database.read_cached_plan() as connection:
            driver = await driver_of(connection)
            await driver.execute("BEGIN")
            with pytest.raises(asyncpg.DivisionByZeroError):
                await driver.execute("SELECT 1 / 0")
        async with database.read_cached_plan() as connection:
            assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
        async with database.transaction() as connection:
            assert (await connection.execute(text("SELECT 2"))).scalar_one() == 2


async def test_one_that_the_server_closed_is_replaced(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as database:
        async with database.read_cached_plan() as connection:
            idle = await driver_of(connection)
        async with database.read() as connection:
            await connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": idle.get_server_pid()})
        async with asyncio.timeout(20):
            while not idle.is_closed():
                await asyncio.sleep(0.01)
        async with database.read_cached_plan() as connection:
            assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
