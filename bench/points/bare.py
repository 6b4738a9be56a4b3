"""What the database allows: an upsert for each point by the plain driver, a transaction per look, and nothing else."""

import asyncio
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import asyncpg

from mistnet.prices.model import PriceFetch

COLUMNS = (
    *("item_id", "source", "dedupe_key", "kind", "amount", "currency", "condition", "title", "url", "external_id"),
    *("bid_count", "match_strength", "observed_at", "first_seen_at", "last_seen_at", "times_seen"),
)
KEPT = ("item_id", "source", "dedupe_key", "first_seen_at", "times_seen")
_POSTGRESQL_MEDIAN = (
    "SELECT item_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) FROM price_points "
    "WHERE item_id BETWEEN $1 AND $2 GROUP BY item_id"
)
_SQLITE_MEDIAN = """
    SELECT item_id, avg(amount) FROM (
        SELECT item_id, CAST(amount AS REAL) AS amount, count(*) OVER (PARTITION BY item_id) AS many,
            row_number() OVER (PARTITION BY item_id ORDER BY CAST(amount AS REAL)) AS place
        FROM price_points WHERE item_id BETWEEN ? AND ?)
    WHERE place IN ((many + 1) / 2, (many + 2) / 2) GROUP BY item_id"""
Row = tuple[Any, ...]


class Bare(Protocol):
    def rows(self, look: PriceFetch) -> list[Row]: ...
    async def upsert(self, rows: list[Row]) -> None: ...
    async def medians(self, first: int, last: int) -> int: ...
    async def close(self) -> None: ...


def _upsert(places: Sequence[str]) -> str:
    told = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in KEPT)
    return (
        f"INSERT INTO price_points ({', '.join(COLUMNS)}) VALUES ({', '.join(places)}) "
        f"ON CONFLICT (item_id, source, dedupe_key) DO UPDATE SET {told}, times_seen = price_points.times_seen + 1 "
        f"WHERE excluded.match_strength >= price_points.match_strength"
    )


class Postgres:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._sql = _upsert([f"${place}" for place in range(1, len(COLUMNS) + 1)])

    def rows(self, look: PriceFetch) -> list[Row]:
        now = datetime.now(UTC)
        return [_row(look, each, each.amount, each.observed_at, now) for each in look.points]

    async def upsert(self, rows: list[Row]) -> None:
        async with self._connection.transaction():
            await self._connection.executemany(self._sql, rows)

    async def medians(self, first: int, last: int) -> int:
        return len(await self._connection.fetch(_POSTGRESQL_MEDIAN, first, last))

    async def close(self) -> None:
        await self._connection.close()


class Sqlite:
    def __init__(self, file: str) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._sql = _upsert(["?"] * len(COLUMNS))

    def rows(self, look: PriceFetch) -> list[Row]:
        now = _text(datetime.now(UTC))
        return [_row(look, each, f"{each.amount:f}", _text(each.observed_at), now) for each in look.points]

    async def upsert(self, rows: list[Row]) -> None:
        await asyncio.to_thread(self._write, rows)

    def _write(self, rows: list[Row]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(self._sql, rows)
        self._connection.execute("COMMIT")

    async def medians(self, first: int, last: int) -> int:
        return len(await asyncio.to_thread(self._connection.execute(_SQLITE_MEDIAN, (first, last)).fetchall))

    async def close(self) -> None:
        self._connection.close()


async def bare(dsn: str) -> Bare:
    return Postgres(await asyncpg.connect(dsn)) if "://" in dsn else Sqlite(dsn)


def _row(look: PriceFetch, point: Any, amount: Any, observed_at: Any, now: Any) -> Row:
    told = (point.kind.value, amount, point.currency, point.condition, point.title, point.url, point.external_id)
    seen = (point.bid_count, point.match_strength, observed_at, now, now, 1)
    return (look.item_id, look.source, point.dedupe_key, *told, *seen)


def _text(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(" ", "microseconds")
