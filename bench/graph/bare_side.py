"""The bare limit of a sync: fetch a page, decode it, upsert its users and edges in bulk, ask for the next.

python -m bench.graph.bare_side sync --dsn DSN --jobs FOLLOWERS
"""

import asyncio
import sqlite3
import sys
from datetime import UTC, datetime
from typing import Any, Protocol

import aiohttp
import asyncpg
import msgspec
import uvloop

from bench.collect import rows
from bench.graph.side import main
from bench.graph.source import HANDLE, PAGE, SUBJECT
from mistnet.social.model import Detail, User
from mistnet.sources.x.decode import gather_users, read_user

FOLLOWS = ("platform", "follower_id", "followed_id", "first_seen_at", "last_seen_at", "seen_in")
TOLD = ("handle", "handle_key", "name", "bio", "followers_count", "following_count", "raw", "last_updated_at")


class Envelope(msgspec.Struct):
    followers: list[msgspec.Raw] = []
    data: msgspec.Raw = msgspec.Raw(b"")
    has_next_page: bool = False
    next_cursor: str = ""


_envelope = msgspec.json.Decoder(Envelope).decode


def _upsert(table: str, columns: tuple[str, ...], places: list[str], key: str, told: tuple[str, ...]) -> str:
    new = ", ".join(f"{name} = excluded.{name}" for name in told)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(places)}) "
        f"ON CONFLICT ({key}) DO UPDATE SET {new}"
    )


def _statements(place: str) -> tuple[str, str]:
    def places(count: int) -> list[str]:
        return [f"${each}" if place == "$" else "?" for each in range(1, count + 1)]

    return (
        _upsert("users", rows.USER, places(len(rows.USER)), "platform, id", TOLD),
        _upsert(
            "follows", FOLLOWS, places(len(FOLLOWS)), "platform, follower_id, followed_id", ("last_seen_at", "seen_in")
        ),
    )


class Table(Protocol):
    async def upsert(self, users: list[User]) -> None: ...


class Postgres:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._users, self._follows = _statements("$")

    async def upsert(self, users: list[User]) -> None:
        now = datetime.now(UTC)
        people = [rows.user_row(user, now, lambda at: at) for user in users]
        edges = [("x", user.id, SUBJECT, now, now, 1) for user in users if user.id != SUBJECT]
        async with self._connection.transaction():
            await self._connection.executemany(self._users, people)
            await self._connection.executemany(self._follows, edges)


class Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._users, self._follows = _statements("?")

    async def upsert(self, users: list[User]) -> None:
        now = _text(datetime.now(UTC))
        people = [rows.user_row(user, now, _text) for user in users]
        edges = [("x", user.id, SUBJECT, now, now, 1) for user in users if user.id != SUBJECT]
        await asyncio.to_thread(self._write, people, edges)

    def _write(self, people: list[rows.Row], edges: list[tuple[Any, ...]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(self._users, people)
        self._connection.executemany(self._follows, edges)
        self._connection.execute("COMMIT")


def _text(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(" ", "microseconds")


async def collect(dsn: str, url: str) -> None:
    if "://" in dsn:
        connection = await asyncpg.connect(dsn)
        try:
            await _walk(Postgres(connection), url)
        finally:
            await connection.close()
        return
    file = sqlite3.connect(dsn, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536"):
        file.execute(f"PRAGMA {pragma}")
    try:
        await _walk(Sqlite(file), url)
    finally:
        file.close()


async def _walk(table: Table, url: str) -> None:
    async with aiohttp.ClientSession(url) as session:
        found = _envelope(await _get(session, "/twitter/user/info", userName=HANDLE))
        await table.upsert([read_user(found.data, Detail.PROFILE)])
        cursor, more = "", True
        while more:
            found = _envelope(
                await _get(session, "/twitter/user/followers", userName=HANDLE, pageSize=PAGE, cursor=cursor)
            )
            gathered = gather_users(found.followers, "user/followers", Detail.LISTED)
            await table.upsert(sorted(gathered.users.values(), key=lambda user: user.id))
            cursor, more = found.next_cursor, found.has_next_page


async def _get(session: aiohttp.ClientSession, path: str, **params: Any) -> bytes:
    async with session.get(path, params=params) as answer:
        answer.raise_for_status()
        return await answer.read()


def command(dsn: str, url: str) -> list[str]:
    return [sys.executable, "-m", "bench.graph.bare_side", "collect", dsn, url]


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        uvloop.run(collect(*sys.argv[2:4]))
    else:
        main("bare loop", "a page after the other", command)
