"""A connection that two threads use is never in both at once."""

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from mistnet.data.export import Exporter
from mistnet.data.model import Selection, TableName
from mistnet.kit.database import Database
from mistnet.kit.export import Format
from mistnet.kit.migrate import migrate
from mistnet.kit.sqlite import quick


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
async def test_a_database_and_the_files_beside_it_are_their_owners_alone(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        database = Database(f"sqlite:///{tmp_path}/m.db")
        await migrate(database)
        async with database.transaction() as connection:
            await connection.execute(text("DELETE FROM jobs"))
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        await Exporter(database).export(Selection(what=TableName.POSTS), Format.SQLITE, tmp_path / "posts.db")
        await database.close()
    assert modes == {"m.db": 0o600, "m.db-wal": 0o600, "m.db-shm": 0o600}
    assert stat.S_IMODE((tmp_path / "posts.db").stat().st_mode) == 0o600


async def test_short_calls_stay_in_the_thread_of_the_loop_and_commits_leave_it() -> None:
    def commit() -> int:
        return threading.get_ident()

    connection = quick(":memory:")
    async with connection:
        assert await connection._execute(threading.get_ident) == threading.get_ident()
        assert await connection._execute(commit) != threading.get_ident()


async def test_what_follows_a_cancelled_call_waits_for_it() -> None:
    entered, release = threading.Event(), threading.Event()

    def commit() -> None:
        entered.set()
        release.wait(60)

    connection = quick(":memory:")
    async with connection:
        cancelled = asyncio.create_task(connection._execute(commit))
        await asyncio.to_thread(entered.wait, 60)
        cancelled.cancel()
        following = asyncio.create_task(connection._execute(threading.get_ident))
        while len(connection._handed) < 2 and not following.done():
            await asyncio.sleep(0)
        assert not following.done()
        release.set()
        assert await following != threading.get_ident()
        assert await connection._execute(threading.get_ident) == threading.get_ident()


async def test_a_cursor_closes_where_it_is_and_a_connection_where_it_may_wait() -> None:
    connection = quick(":memory:")
    async with connection:
        seen: list[str] = []
        in_thread = connection._in_thread

        def noted(call: object, fn: Callable[..., object], *args: object) -> object:
            seen.append(fn.__name__)
            return in_thread(call, fn, *args)

        connection._in_thread = noted  # type: ignore[method-assign, assignment]
        cursor = await connection.execute("SELECT 1")
        await cursor.close()
        assert seen == []
    assert seen == ["close"]
