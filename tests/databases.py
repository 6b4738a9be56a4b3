"""Fresh, migrated databases for tests: a file for SQLite, a copy of a template on PostgreSQL and libSQL."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from pathlib import Path

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.store.database import Database
from mistnet.store.schema import migrate
from tests.services.sqld import TEMPLATE, SqldServer
from tests.support import effects


class Templates:
    """Migrates once per process and copies from then on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sqlite: Path | None = None
        self._postgresql: dict[str, str] = {}
        self._libsql: set[int] = set()

    def sqlite(self) -> str:
        if self._sqlite is None:
            self._sqlite = self._folder / "template.db"
            asyncio.run(_prepare(f"sqlite:///{self._sqlite}"))
        fresh = self._folder / f"{secrets.token_hex(6)}.db"
        shutil.copy(self._sqlite, fresh)
        return f"sqlite:///{fresh}"

    def postgresql(self, dsn: str) -> str:
        if dsn not in self._postgresql:
            self._postgresql[dsn] = f"template_{os.getpid()}_{secrets.token_hex(3)}"
            asyncio.run(create_database(dsn, self._postgresql[dsn]))
            asyncio.run(_prepare(with_database(dsn, self._postgresql[dsn])))
        name = f"test_{secrets.token_hex(6)}"
        asyncio.run(create_database(dsn, name, template=self._postgresql[dsn]))
        return with_database(dsn, name)

    def libsql(self, server: SqldServer) -> str:
        template = f"{TEMPLATE}{id(self)}"
        if server.port not in self._libsql:
            asyncio.run(_prepare(server.create(template)))
            self._libsql.add(server.port)
        return server.copy(template)


def with_database(dsn: str, name: str) -> str:
    return f"{dsn.rsplit('/', 1)[0]}/{name}"


async def analyze(connection: AsyncConnection) -> None:
    """Gives the planner its statistics. A libSQL server takes no such order: plans must be good there without any."""
    if connection.dialect.driver != "libsql":
        await connection.execute(text("ANALYZE"))


async def create_database(dsn: str, name: str, *, template: str = "template1") -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    finally:
        await connection.close()


async def drop_database(dsn: str, name: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    finally:
        await connection.close()


async def _prepare(url: str) -> None:
    database = Database(url)
    try:
        await migrate(database)
        async with database.write() as connection:
            await connection.run_sync(effects.create)
        if database.product == "sqlite":
            async with database.read() as connection:
                await connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
    finally:
        await database.close()
