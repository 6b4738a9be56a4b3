"""Virtual time on a real PostgreSQL: it passes while a statement waits for a lock, and never because one is slow."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.kit.errors import DatabaseBusy, DatabaseError
from tests.databases import Templates
from tests.simulation.oracle import simulate
from tests.simulation.virtual import run_virtually
from tests.simulation.world import open_database

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind

WRITE = "INSERT INTO effects (job_id, note) VALUES (:id, 'there')"
LOCK = "UPDATE effects SET note = 'changed' WHERE job_id = :id"


@pytest.fixture
def url(memory: Templates, postgres_dsn: str) -> str:
    return memory.postgresql(postgres_dsn)


def test_a_slow_statement_takes_no_virtual_time(url: str) -> None:
    async def main() -> list[float]:
        database, loop = open_database(url), asyncio.get_running_loop()

        async def tick() -> list[float]:
            times = []
            for _ in range(3):
                await asyncio.sleep(1)
                times.append(loop.time())
            return times

        ticking = asyncio.create_task(tick())
        async with database.read() as connection:
            await connection.execute(text("SELECT pg_sleep(0.4)"))
        assert loop.time() == 0
        await database.close()
        return await ticking

    assert run_virtually(main()) == [1, 2, 3]


def test_a_statement_that_waits_for_a_lock_lets_virtual_time_pass(url: str) -> None:
    async def main() -> tuple[float, float]:
        database, loop = open_database(url), asyncio.get_running_loop()
        async with database.transaction() as connection:
            await connection.execute(text(WRITE), {"id": 1})

        async def wait_for_it() -> float:
            async with database.transaction() as connection:
                await connection.execute(text(LOCK), {"id": 1})
            return loop.time()

        async with database.transaction() as connection:
            await connection.execute(text(LOCK), {"id": 1})
            waiting = asyncio.create_task(wait_for_it())
            await asyncio.sleep(3600)
            assert not waiting.done()
            released = loop.time()
        return released, await waiting

    assert run_virtually(main()) == (3600, 3600)


def test_a_slow_statement_beside_a_blocked_one_takes_no_virtual_time(url: str) -> None:
    async def main() -> float:
        database, loop = open_database(url), asyncio.get_running_loop()
        async with database.transaction() as connection:
            await connection.execute(text(WRITE), {"id": 1})

        async def wait_for_it() -> None:
            async with database.transaction() as connection:
                await connection.execute(text(LOCK), {"id": 1})

        async with database.transaction() as connection:
            await connection.execute(text(LOCK), {"id": 1})
            waiting = asyncio.create_task(wait_for_it())
            await asyncio.sleep(5)
            await connection.execute(text("SELECT pg_sleep(0.4)"))
            elapsed = loop.time()
        await waiting
        return elapsed

    assert run_virtually(main()) == 5


def test_the_locks_of_a_connection_that_breaks_off_are_free_at_the_same_instant(url: str) -> None:
    async def main() -> float:
        connections: list[Callable[[], None]] = []
        dying, database, loop = open_database(url, connections), open_database(url), asyncio.get_running_loop()
        async with database.transaction() as connection:
            await connection.execute(text(WRITE), {"id": 1})
        async with dying.engine.connect() as connection:
            await connection.execute(text(LOCK), {"id": 1})
            for break_off in connections:
                break_off()
            async with database.transaction() as other:
                await other.execute(text(LOCK), {"id": 1})
            await connection.invalidate()
        return loop.time()

    assert run_virtually(main()) == 0


def test_a_statement_that_outlives_its_connection_waits_like_any_other(url: str) -> None:
    async def main() -> float:
        connections: list[Callable[[], None]] = []
        dying, database, loop = open_database(url, connections), open_database(url), asyncio.get_running_loop()
        async with database.transaction() as connection:
            await connection.execute(text(WRITE), {"id": 1})

        async def wait_in_vain() -> None:
            async with dying.transaction() as connection:
                await connection.execute(text(LOCK), {"id": 1})

        async with database.transaction() as connection:
            await connection.execute(text(LOCK), {"id": 1})
            waiting = asyncio.create_task(wait_in_vain())
            await asyncio.sleep(5)
            for break_off in connections:
                break_off()
            with pytest.raises(DatabaseError):
                await waiting
            await asyncio.sleep(5)
        return loop.time()

    assert run_virtually(main()) == 10


def test_a_deadlock_is_resolved_by_the_server_before_time_passes(url: str) -> None:
    async def main() -> tuple[list[str], float]:
        database, loop = open_database(url), asyncio.get_running_loop()
        async with database.transaction() as connection:
            for number in (1, 2):
                await connection.execute(
                    text("INSERT INTO effects (job_id, note) VALUES (:id, 'there')"), {"id": number}
                )

        async def lock(*numbers: int) -> str:
            try:
                async with database.transaction() as connection:
                    for number in numbers:
                        await connection.execute(text(LOCK), {"id": number})
                        await asyncio.sleep(1)
            except DatabaseBusy:
                return "ended by the server"
            return "done"

        found = await asyncio.gather(lock(1, 2), lock(2, 1))
        return sorted(found), loop.time()

    assert run_virtually(main()) == (["done", "ended by the server"], 2)


@pytest.mark.in_turn(1)
def test_a_seed_gives_the_same_life_twice_on_postgresql(memory: Templates, postgres_dsn: str) -> None:
    first, second = (simulate(memory.postgresql(postgres_dsn), 7) for _ in range(2))
    assert first.faults == second.faults == []
    assert first.trace == second.trace


def test_what_can_never_go_on_is_an_error() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    waiting: Coroutine[Any, Any, None] = main()
    with pytest.raises(RuntimeError, match="nothing is scheduled"):
        run_virtually(waiting)
