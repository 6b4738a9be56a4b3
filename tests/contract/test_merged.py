"""Several writes in one statement of PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.merged import Part, write_at_once
from mistnet.queue.model import Continue, Done
from tests.support import Effect, Number, new, open_shop

NOTED = "INSERT INTO noted SELECT $1::int, clock_timestamp()"
RETURNED = "WITH chosen AS (SELECT $1::int AS n) INSERT INTO noted SELECT n, clock_timestamp() FROM chosen RETURNING n"


@asynccontextmanager
async def notes(url: str) -> AsyncIterator[AsyncConnection]:
    async with open_shop(url) as shop, shop.database.autocommit() as connection:
        await connection.exec_driver_sql("CREATE TABLE noted (n integer, at timestamptz)")
        yield connection


async def noted(connection: AsyncConnection) -> list[int]:
    return list((await connection.exec_driver_sql("SELECT n FROM noted ORDER BY at")).scalars())


async def test_what_is_counted_is_written_first_then_the_rest_in_order(postgresql_url: str) -> None:
    async with notes(postgresql_url) as connection:
        parts = [
            Part(RETURNED, [1], 1),
            Part(NOTED, [3]),
            Part(NOTED, [4]),
            Part(RETURNED.replace("chosen", "other"), [2], 1),
            Part(NOTED, [5]),
        ]
        assert await write_at_once(connection, parts)
        assert await noted(connection) == [1, 2, 3, 4, 5]


async def test_nothing_is_written_if_a_part_returns_other_rows_than_it_has_to(postgresql_url: str) -> None:
    async with notes(postgresql_url) as connection:
        assert not await write_at_once(connection, [Part(RETURNED, [1], 2), Part(NOTED, [2])])
        assert await noted(connection) == []


async def test_a_settlement_of_steps_and_ends_is_one_statement(postgresql_url: str) -> None:
    async with open_shop(postgresql_url) as shop:
        await shop.add(new(key="a"), new(key="b"))
        first, second = await shop.claim(slots=2)
        settlements = [
            shop.settlement(first, Done([Effect(job_id=first.id), new(key="child")])),
            shop.settlement(second, Continue([Effect(job_id=second.id)], args=Number(n=7))),
        ]
        assert len(await shop.queue.settle(settlements, now=shop.now)) == 2
        assert await shop.effects() == [first.id, second.id]
        assert [row.key for row in await shop.rows("SELECT key FROM jobs ORDER BY key")] == ["b", "child"]
        transactions = "SELECT xmin::text FROM jobs UNION SELECT xmin::text FROM effects UNION SELECT xmin::text FROM "
        assert len(await shop.rows(f"{transactions} job_history")) == 1


async def test_a_job_may_be_followed_by_one_of_its_own_key(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="a"))
        (lease,) = await shop.claim()
        assert await shop.settle(lease, Done([new(key="a", n=2)]))
        assert (await shop.one("SELECT count(*) FROM jobs WHERE state = 'pending'")) == 1
