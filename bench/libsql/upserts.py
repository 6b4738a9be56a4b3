"""Upserts to a private libSQL server, by batches: bare requests, our client, our driver under SQLAlchemy.

    python -m bench.libsql.upserts --rows 5000 --batch 100

A row has 25 columns, about 1 KB and 3.2 KB of JSON; the table has four indexes; every fifth row renews an earlier one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import aiohttp
import msgspec
from sqlalchemy.engine import make_url

from mistnet.kit.database import Database
from mistnet.kit.libsql.client import LibsqlServer
from mistnet.kit.libsql.driver import Connection
from mistnet.kit.libsql.server import address_of
from tests.services.sqld import SqldServer

Row = tuple[object, ...]
Write = Callable[[Sequence[Row]], Awaitable[object]]

COLUMNS = ["id", *(f"text_{n}" for n in range(10)), *(f"count_{n}" for n in range(13)), "raw"]
TABLE = f"CREATE TABLE measured ({', '.join(COLUMNS)}, PRIMARY KEY (id))"
INDEXES = [f"CREATE INDEX measured_{n} ON measured (count_{n}, id)" for n in range(4)]
UPSERT = (
    f"INSERT INTO measured ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[1:])}"
)


def made(count: int) -> list[Row]:
    chance = random.Random(1)
    rows: list[Row] = []
    for n in range(count):
        again = n and n % 5 == 0
        key = chance.choice(rows)[0] if again else 1_800_000_000_000_000_000 + n
        texts = [chance.randbytes(45).hex() for _ in range(10)]
        rows.append((key, *texts, *(chance.randrange(10**6) for _ in range(13)), '{"raw":"' + "x" * 3_200 + '"}'))
    return rows


def batches(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


async def timed(write: Write, rows: Sequence[Row], size: int) -> float:
    began = time.perf_counter()
    for batch in batches(rows, size):
        await write(batch)
    return len(rows) / (time.perf_counter() - began)


def bare(session: aiohttp.ClientSession, base_url: str) -> Write:
    """One request holds a whole transaction, which only works if all of it is known beforehand."""

    def value(given: object) -> dict[str, object]:
        return {"type": "integer", "value": str(given)} if isinstance(given, int) else {"type": "text", "value": given}

    async def write(rows: Sequence[Row]) -> None:
        steps: list[dict[str, Any]] = [{"stmt": {"sql": "BEGIN IMMEDIATE"}}]
        steps += [{"stmt": {"sql_id": 1, "args": [value(each) for each in row], "want_rows": False}} for row in rows]
        steps += [{"stmt": {"sql": "COMMIT"}}]
        requests = [
            {"type": "store_sql", "sql_id": 1, "sql": UPSERT},
            {"type": "batch", "batch": {"steps": steps}},
            {"type": "close"},
        ]
        body = msgspec.json.encode({"baton": None, "requests": requests})
        async with session.post(f"{base_url}/v3/pipeline", data=body) as answer:
            assert (await answer.read()).count(b'"affected_row_count":1') == len(rows)

    return write


def client(server: LibsqlServer) -> Write:
    async def write(rows: Sequence[Row]) -> None:
        connection = Connection(server)
        connection.begin()
        await connection.run_many(UPSERT, rows)
        await connection.commit()

    return write


def driver(database: Database) -> Write:
    async def write(rows: Sequence[Row]) -> None:
        async with database.transaction() as connection:
            await connection.exec_driver_sql(UPSERT, list(rows))

    return write


async def measured(sqld: SqldServer, side: str, rows: Sequence[Row], size: int) -> float:
    url = sqld.create()
    database = Database(url)
    server = LibsqlServer(address_of(make_url(url)))
    headers = {"Authorization": f"Bearer {sqld.token}", "Host": make_url(url).host or ""}
    try:
        async with database.transaction() as connection:
            for sql in (TABLE, *INDEXES):
                await connection.exec_driver_sql(sql)
        async with aiohttp.ClientSession(headers=headers) as session:
            sides = {
                "bare": bare(session, f"http://127.0.0.1:{sqld.port}"),
                "client": client(server),
                "driver": driver(database),
            }
            return await timed(sides[side], rows, size)
    finally:
        await server.close()
        await database.close()
        sqld.drop(url)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rows", type=int, default=5_000)
    asked.add_argument("--batch", type=int, default=100)
    asked.add_argument("--repeat", type=int, default=3)
    options = asked.parse_args()
    rows = made(options.rows)
    found: dict[str, list[float]] = {"bare": [], "client": [], "driver": []}
    with SqldServer() as sqld:
        for _ in range(options.repeat):
            for side, rates in found.items():
                rates.append(asyncio.run(measured(sqld, side, rows, options.batch)))
    best = statistics.median(found["bare"])
    for side, rates in found.items():
        rate = statistics.median(rates)
        print(f"{side:8} {rate:8,.0f} rows/s  {rate / best:5.2f} of bare  ({min(rates):,.0f} - {max(rates):,.0f})")


if __name__ == "__main__":
    main()
