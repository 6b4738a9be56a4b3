"""The bare limit: fetch a page, decode it, insert it, ask for the next. No queue, no memory of where it was."""

import argparse
import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import aiohttp
import asyncpg
import msgspec
import uvloop

from bench.collect import rows
from bench.collect.common import LOOKS_AT_THE_END, PASSES, PROFILE, SEARCH, Options, query
from bench.collect.side import Side, main
from bench.collect.source import KEY, Source
from mistnet.social.model import Detail, Gathered, Post, User
from mistnet.sources.x.decode import gather_posts, read_user

CONNECTIONS = 3
ABREAST = {"single": 1, "abreast": 16}
"""Accounts walked at once: a loop, or as many loops as help."""


class Envelope(msgspec.Struct):
    tweets: list[msgspec.Raw] = []
    data: msgspec.Raw = msgspec.Raw(b"")


_envelope = msgspec.json.Decoder(Envelope).decode


class Table(Protocol):
    async def insert(self, users: list[User], posts: list[Post]) -> None: ...


class Postgres:
    USERS = rows.insert("users", rows.USER, [f"${place}" for place in range(1, len(rows.USER) + 1)])
    POSTS = rows.insert("posts", rows.POST, [f"${place}" for place in range(1, len(rows.POST) + 1)])

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def insert(self, users: list[User], posts: list[Post]) -> None:
        now = datetime.now(UTC)
        people = [rows.user_row(user, now, _same) for user in users]
        told = [rows.post_row(post, now, _same) for post in posts]
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.executemany(self.USERS, people)
            if told:
                await connection.executemany(self.POSTS, told)


class Sqlite:
    USERS = rows.insert("users", rows.USER, ["?"] * len(rows.USER))
    POSTS = rows.insert("posts", rows.POST, ["?"] * len(rows.POST))

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()

    async def insert(self, users: list[User], posts: list[Post]) -> None:
        now = _text(datetime.now(UTC))
        people = [rows.user_row(user, now, _text) for user in users]
        told = [rows.post_row(post, now, _text) for post in posts]
        async with self._lock:
            await asyncio.to_thread(self._insert, people, told)

    def _insert(self, people: list[rows.Row], told: list[rows.Row]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(self.USERS, people)
        self._connection.executemany(self.POSTS, told)
        self._connection.execute("COMMIT")


def _same(at: datetime) -> datetime:
    return at


def _text(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(" ", "microseconds")


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Table]:
    if "://" in dsn:
        async with asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
            yield Postgres(pool)
        return
    connection = sqlite3.connect(dsn, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536"):
        connection.execute(f"PRAGMA {pragma}")
    try:
        yield Sqlite(connection)
    finally:
        connection.close()


async def collect(dsn: str, url: str, handles: list[str], form: str) -> None:
    turns = asyncio.Semaphore(ABREAST[form])
    session = aiohttp.ClientSession(url, headers={"X-API-Key": KEY})
    async with opened(dsn) as table, session, asyncio.TaskGroup() as group:
        for handle in handles:
            group.create_task(_account(handle, session, table, turns))


async def _account(handle: str, session: aiohttp.ClientSession, table: Table, turns: asyncio.Semaphore) -> None:
    async with turns:
        found = _envelope(await _get(session, PROFILE, userName=handle))
        await table.insert([read_user(found.data, Detail.PROFILE)], [])
        for filters in PASSES:
            await _walk(handle, filters, session, table)


async def _walk(handle: str, filters: str, session: aiohttp.ClientSession, table: Table) -> None:
    ceiling, looks = None, 0
    while looks < LOOKS_AT_THE_END:
        asked = query(handle, filters, ceiling)
        found = _envelope(await _get(session, SEARCH, query=asked, queryType="Latest"))
        gathered, own = gather_posts(found.tweets, SEARCH)
        if not own:
            looks += 1
            continue
        looks, ceiling = 0, min(own) - 1
        await table.insert(*_sorted(gathered))


def _sorted(gathered: Gathered) -> tuple[list[User], list[Post]]:
    """In one order for all, or two transactions would wait for each other."""
    users = sorted(gathered.users.values(), key=lambda user: user.id)
    return users, sorted(gathered.posts.values(), key=lambda post: post.id)


async def _get(session: aiohttp.ClientSession, path: str, **params: Any) -> bytes:
    async with session.get(path, params=params) as answer:
        answer.raise_for_status()
        return await answer.read()


def command(options: Options, source: Source, handles: list[str]) -> list[str]:
    form = options.form if options.form in ABREAST else "single"
    given = ("--dsn", options.dsn, "--url", source.url, "--handles", ",".join(handles), "--form", form)
    return [sys.executable, "-m", "bench.collect.bare_side", "collect", *given]


def setting(options: Options) -> str:
    return "16 accounts at once" if options.form == "abreast" else "one account after another"


def _collect() -> None:
    parser = argparse.ArgumentParser()
    for name in ("dsn", "url", "handles", "form"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args(sys.argv[2:])
    uvloop.run(collect(given.dsn, given.url, given.handles.split(","), given.form))


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        _collect()
    else:
        main(Side(name="bare loop", setting=setting, command=command))
