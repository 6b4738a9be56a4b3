"""Our libSQL client against a real server: what goes in comes out, what is refused is named, little is sent."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseBusy, DatabaseUnreachable, WriteRefused
from mistnet.kit.libsql.client import LibsqlServer
from mistnet.kit.libsql.driver import Connection
from mistnet.kit.libsql.server import ServerGone, TokenRefused, TransactionLost, address_of
from tests.services.middleman import Fate, Middleman
from tests.services.sqld import SqldServer

pytestmark = pytest.mark.fresh_database

NUMBERS = "CREATE TABLE numbers (id INTEGER PRIMARY KEY, word TEXT UNIQUE CHECK (word <> 'bad'), of REFERENCES numbers)"
ADD = "INSERT INTO numbers (id, word) VALUES (?, ?)"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    server = LibsqlServer(address_of(make_url(url)))
    connection = Connection(server)
    try:
        yield connection
    finally:
        await connection.close()
        await server.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
def numbers_url(sqld: SqldServer) -> str:
    return with_numbers(sqld)


def with_numbers(sqld: SqldServer) -> str:
    url = sqld.create()

    async def prepare() -> None:
        async with connected(url) as connection:
            await connection.run(NUMBERS)

    asyncio.run(prepare())
    return url


async def rows(connection: Connection, sql: str, *values: object) -> list[Any]:
    cursor = await connection.cursor().execute(sql, values)
    return list(await cursor.fetchall())


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        2**31,
        -(2**53) - 1,
        2**63 - 1,
        -(2**63),
        1.5,
        0.1,
        -1e300,
        5e-324,
        "",
        "café 日本語 🦜 \\ \" ' \x00 end",
        "\u2028\u202e\ufeff",
        b"",
        b"\x00\xff\xfe",
        bytes(range(256)),
    ],
)
async def test_a_value_comes_back_as_it_went(sqld: SqldServer, numbers_url: str, value: object) -> None:
    async with connected(numbers_url) as connection:
        ((found,),) = await rows(connection, "SELECT ?", value)
        assert found == value
        assert type(found) is type(value)


async def test_truth_is_a_number_and_what_is_no_number_is_null(numbers_url: str) -> None:
    async with connected(numbers_url) as connection:
        assert await rows(connection, "SELECT ?, ?, typeof(?)", True, float("nan"), False) == [(1, None, "integer")]
        with pytest.raises(OverflowError):
            await rows(connection, "SELECT ?", 2**63)
        with pytest.raises(sqlite3.DataError):
            await rows(connection, "SELECT ?", float("inf"))
        with pytest.raises(sqlite3.ProgrammingError):
            await rows(connection, "SELECT ?", object())


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("INSERT INTO numbers (id, word) VALUES (2, 'one')", "UNIQUE constraint failed"),
        ("INSERT INTO numbers (id, word) VALUES (2, 'bad')", "CHECK constraint failed"),
        ("INSERT INTO numbers (id, of) VALUES (2, 77)", "FOREIGN KEY constraint failed"),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
async def test_broken_rules_are_integrity_errors_in_sqlites_words(
    numbers_url: str, sql: str, said: str, alone: bool
) -> None:
    async with connected(numbers_url) as connection:
        await connection.run(ADD, [1, "one"])
        if not alone:
            connection.begin()
        with pytest.raises(sqlite3.IntegrityError, match=f"^{said}"):
            await connection.run(sql)


async def test_what_is_refused_is_an_operational_error(numbers_url: str) -> None:
    async with connected(numbers_url) as connection:
        for sql in ("SELEC 1", "SELECT * FROM nowhere", "PRAGMA journal_mode = DELETE", "VACUUM"):
            with pytest.raises(sqlite3.OperationalError) as raised:
                await connection.run(sql)
            assert not isinstance(raised.value, ServerGone)


COUNTED = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 15000)"


async def test_an_answer_too_large_for_one_piece_is_read_row_by_row(numbers_url: str) -> None:
    many = f"SELECT * FROM ({COUNTED} SELECT i, hex(zeroblob(500)) AS zeros FROM n)"
    async with connected(numbers_url) as connection:
        cursor = await connection.cursor().execute(many)
        assert [column[0] for column in cursor.description or ()] == ["i", "zeros"]
        found = await cursor.fetchall()
        assert [row[0] for row in found] == list(range(1, 15_001))
        assert {row[1] for row in found} == {"0" * 1_000}
        with pytest.raises(sqlite3.OperationalError, match="fewer rows"):
            await connection.run(f"{COUNTED} SELECT i, hex(zeroblob(500)) FROM n")


async def test_a_batch_is_one_request_and_a_transaction_one_more(sqld: SqldServer, numbers_url: str) -> None:
    async with Middleman(sqld).running() as between, connected(between.url(numbers_url)) as connection:
        connection.begin()
        cursor = await connection.cursor().executemany(ADD, [(n, f"w{n}") for n in range(100)])
        assert cursor.rowcount == 100
        assert len(between.requests) == 1
        assert between.requests[0].count(b"INSERT INTO numbers") == 1, "the text is sent once for all rows"
        await connection.commit()
        assert len(between.requests) == 2
        assert await rows(connection, "SELECT count(*), max(id) FROM numbers") == [(100, 99)]
        assert len(between.requests) == 3


async def test_a_transaction_that_said_nothing_costs_nothing(sqld: SqldServer, numbers_url: str) -> None:
    async with Middleman(sqld).running() as between, opened(between.url(numbers_url)) as database:
        async with database.transaction():
            pass
        assert between.requests == []
        async with database.read() as connection:
            await connection.execute(text("SELECT 1"))
        assert len(between.requests) == 1


async def test_many_rows_alone_are_written_all_or_none(numbers_url: str) -> None:
    async with connected(numbers_url) as connection:
        with pytest.raises(sqlite3.IntegrityError):
            await connection.cursor().executemany(ADD, [(1, "a"), (2, "b"), (3, "a"), (4, "d")])
        assert await rows(connection, "SELECT * FROM numbers") == []
        touched = await connection.run_many(ADD, [(n, str(n)) for n in range(2_500)])
        assert touched == 2_500
        assert await rows(connection, "SELECT count(*) FROM numbers") == [(2_500,)]


async def test_after_an_error_the_transaction_stands_until_it_is_undone(numbers_url: str) -> None:
    async with connected(numbers_url) as connection:
        connection.begin()
        await connection.run(ADD, [1, "one"])
        with pytest.raises(sqlite3.IntegrityError):
            await connection.run(ADD, [2, "one"])
        await connection.run(ADD, [3, "three"])
        await connection.commit()
        assert await rows(connection, "SELECT id FROM numbers") == [(1,), (3,)]
        connection.begin()
        await connection.run("DELETE FROM numbers")
        await connection.rollback()
        assert await rows(connection, "SELECT id FROM numbers") == [(1,), (3,)]


async def test_savepoints_work_within_a_transaction(numbers_url: str) -> None:
    async with opened(numbers_url) as database:
        async with database.transaction() as connection:
            await connection.exec_driver_sql(ADD, (1, "one"))
            with pytest.raises(IntegrityError):  # noqa: PT012 (the block is what fails)
                async with connection.begin_nested():
                    await connection.exec_driver_sql(ADD, (2, "two"))
                    await connection.exec_driver_sql(ADD, (3, "one"))
            await connection.exec_driver_sql(ADD, (4, "four"))
        async with database.read() as connection:
            found = await connection.exec_driver_sql("SELECT id FROM numbers ORDER BY id")
            assert [row.id for row in found] == [1, 4]


async def test_a_rule_that_only_fails_at_the_end_undoes_everything(numbers_url: str) -> None:
    async with opened(numbers_url) as database:
        with pytest.raises(WriteRefused, match="FOREIGN KEY"):  # noqa: PT012 (the block is what fails)
            async with database.transaction() as connection:
                await connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
                await connection.exec_driver_sql("INSERT INTO numbers (id, of) VALUES (1, 99)")
        async with database.transaction() as connection:
            assert (await connection.exec_driver_sql("SELECT count(*) FROM numbers")).scalar_one() == 0


async def test_two_writers_take_turns(numbers_url: str) -> None:
    async with opened(numbers_url) as one, opened(numbers_url) as other:

        async def add(database: Database, start: int) -> None:
            for n in range(start, start + 25):
                async with database.transaction() as connection:
                    count = (await connection.exec_driver_sql("SELECT count(*) FROM numbers")).scalar_one()
                    await connection.exec_driver_sql(ADD, (n, f"{count} before"))

        await asyncio.gather(add(one, 0), add(other, 1_000))
        async with one.read() as connection:
            found = (await connection.exec_driver_sql("SELECT count(DISTINCT word) FROM numbers")).scalar_one()
        assert found == 50, "no two saw the same table"


async def test_who_dallies_loses_the_transaction_and_nothing_is_kept_of_it(sqld: SqldServer) -> None:
    """The server ends a transaction that rests for five seconds. A database and a bare connection rest side by side."""
    first, second = [await asyncio.to_thread(with_numbers, sqld) for _ in range(2)]
    async with asyncio.TaskGroup() as both:
        both.create_task(_lose_through_a_database(first))
        both.create_task(_lose_through_a_connection(second))


async def _lose_through_a_database(numbers_url: str) -> None:
    async with opened(numbers_url) as slow, opened(numbers_url) as quick:
        with pytest.raises(DatabaseBusy, match="timed out"):  # noqa: PT012 (the block is what fails)
            async with slow.transaction() as connection:
                await connection.exec_driver_sql(ADD, (1, "slow"))
                async with quick.transaction() as other:
                    await other.exec_driver_sql(ADD, (2, "quick"))
                await connection.exec_driver_sql(ADD, (3, "after"))
        async with slow.transaction() as connection:
            await connection.exec_driver_sql(ADD, (4, "again"))
            found = await connection.exec_driver_sql("SELECT word FROM numbers ORDER BY id")
            assert list(found.scalars()) == ["quick", "again"]


async def _lose_through_a_connection(numbers_url: str) -> None:
    """After a lost transaction no statement stands alone."""
    async with connected(numbers_url) as slow, connected(numbers_url) as quick:
        slow.begin()
        await slow.run(ADD, [1, "slow"])
        await quick.run(ADD, [2, "quick"])
        for _ in range(2):
            with pytest.raises(TransactionLost):
                await slow.run(ADD, [3, "after"])
        with pytest.raises(TransactionLost):
            await slow.commit()
        await slow.rollback()
        assert await rows(slow, "SELECT word FROM numbers") == [("quick",)]


async def test_a_cancelled_writer_leaves_no_lock_behind(sqld: SqldServer, numbers_url: str) -> None:
    async with (
        Middleman(sqld).running() as between,
        opened(between.url(numbers_url)) as one,
        opened(numbers_url) as other,
    ):
        began = asyncio.Event()

        async def write_and_wait() -> None:
            async with one.transaction() as connection:
                await connection.exec_driver_sql(ADD, (1, "one"))
                began.set()
                while True:
                    await connection.exec_driver_sql("UPDATE numbers SET word = word")

        writing = asyncio.create_task(write_and_wait())
        await began.wait()
        await asyncio.sleep(0.05)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        asked = time.monotonic()
        async with other.transaction() as connection:
            await connection.exec_driver_sql(ADD, (2, "two"))
        assert time.monotonic() - asked < 2, "the lock was given back, not waited for"
        async with other.read() as connection:
            assert list((await connection.exec_driver_sql("SELECT id FROM numbers")).scalars()) == [2]


async def test_a_text_that_cannot_be_sent_leaves_the_transaction_as_it_was(numbers_url: str) -> None:
    async with connected(numbers_url) as connection, connected(numbers_url) as other:
        connection.begin()
        await connection.run(ADD, [1, "one"])
        with pytest.raises(UnicodeError):
            await connection.run(ADD, [2, "half a pair: \ud83e"])
        await connection.run(ADD, [3, "three"])
        await connection.rollback()
        asked = time.monotonic()
        await other.run(ADD, [4, "four"])
        assert time.monotonic() - asked < 2, "the lock was given back, not waited for"
        assert await rows(other, "SELECT id FROM numbers") == [(4,)]


async def test_streams_do_not_pile_up(numbers_url: str) -> None:
    """More transactions than the server allows connections, none of them closed by hand."""
    async with opened(numbers_url) as database:
        for n in range(150):
            async with database.transaction() as connection:
                await connection.exec_driver_sql(ADD, (n, str(n)))
        async with database.read() as connection:
            assert (await connection.exec_driver_sql("SELECT count(*) FROM numbers")).scalar_one() == 150


@pytest.mark.parametrize("claims", [{"exp": 1_000_000_000}, None])
async def test_a_token_that_is_not_good_is_refused_and_never_shown(
    sqld: SqldServer, numbers_url: str, claims: dict[str, Any] | None
) -> None:
    bad = sqld.keys.token(**claims) if claims else "not.a-real.token"
    url = numbers_url.replace(sqld.token, bad)
    async with connected(url) as connection:
        with pytest.raises(TokenRefused) as refused:
            await connection.run("SELECT 1")
    async with opened(url) as database:
        with pytest.raises(DatabaseUnreachable, match="authToken=") as told:
            async with database.transaction() as write:
                await write.execute(text("SELECT 1"))
        shown = f"{refused.value} {told.value} {database.shown_url} {database.url!r} {told.value.__cause__}"
        assert bad not in shown
        assert "***" in database.shown_url


async def test_a_token_for_reading_may_not_write(sqld: SqldServer, numbers_url: str) -> None:
    async with opened(numbers_url.replace(sqld.token, sqld.keys.token(a="ro"))) as database:
        async with database.read() as connection:
            assert (await connection.execute(text("SELECT count(*) FROM numbers"))).scalar_one() == 0
        with pytest.raises(DatabaseUnreachable, match="read and write"):
            async with database.transaction() as connection:
                await connection.exec_driver_sql(ADD, (1, "one"))


async def test_a_database_that_is_not_there_is_named(sqld: SqldServer) -> None:
    async with opened(sqld.url("nowhere")) as database:
        with pytest.raises(DatabaseUnreachable, match="nowhere"):
            async with database.read() as connection:
                await connection.execute(text("SELECT 1"))


async def test_the_servers_clock_counts(numbers_url: str) -> None:
    async with opened(numbers_url) as database:
        await database.correct_clock()
        async with database.read() as connection:
            there = await database.time_there(connection)
        assert abs((database.clock.now() - there).total_seconds()) < 1
        assert database.clock.now().utcoffset() is not None


@pytest.mark.parametrize("fate", [Fate.NEVER_ARRIVES, Fate.NEVER_ANSWERED])
@pytest.mark.parametrize("word", [b"second", b"COMMIT"])
async def test_a_cut_leaves_all_of_a_transaction_or_nothing(
    sqld: SqldServer, numbers_url: str, fate: Fate, word: bytes
) -> None:
    async with Middleman(sqld).running() as between, opened(between.url(numbers_url)) as database:
        between.decide = lambda body: fate if word in body else Fate.THROUGH
        with pytest.raises(DatabaseUnreachable):  # noqa: PT012 (the block is what fails)
            async with database.transaction() as connection:
                await connection.exec_driver_sql(ADD, (1, "first"))
                await connection.exec_driver_sql(ADD, (2, "second"))
                await connection.exec_driver_sql(ADD, (3, "third"))
        async with database.read() as connection:
            found = list((await connection.exec_driver_sql("SELECT id FROM numbers ORDER BY id")).scalars())
        committed = word == b"COMMIT" and fate is Fate.NEVER_ANSWERED
        assert found == ([1, 2, 3] if committed else [])


async def test_a_server_that_restarts_undoes_what_was_open_and_goes_on() -> None:
    with SqldServer() as sqld:
        url = sqld.create()
        async with opened(url) as database:
            async with database.transaction() as connection:
                await connection.exec_driver_sql(NUMBERS)
            with pytest.raises(DatabaseUnreachable):  # noqa: PT012 (the block is what fails)
                async with database.transaction() as connection:
                    await connection.exec_driver_sql(ADD, (1, "one"))
                    sqld.restart()
                    await connection.exec_driver_sql(ADD, (2, "two"))
            async with database.transaction() as connection:
                await connection.exec_driver_sql(ADD, (3, "three"))
                assert list((await connection.exec_driver_sql("SELECT id FROM numbers")).scalars()) == [3]
            sqld.kill()
            with pytest.raises(DatabaseUnreachable):
                async with database.read() as connection:
                    await connection.execute(text("SELECT 1"))
