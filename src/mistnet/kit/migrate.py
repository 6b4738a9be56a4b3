"""Brings a database's tables up to this version, and tells whether they are."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Final, Literal

import msgspec
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.errors import (
    DatabaseBusy,
    DatabaseFails,
    DatabaseForeign,
    DatabaseMissing,
    DatabaseNotMigrated,
    DatabaseTooNew,
)
from mistnet.kit.sqlite import make_private

MIGRATIONS = Path(__file__).parent / "migrations"
BEFORE_HYDRATED_ONLY = "0004"
"""The revision after which no user may be there whom upstream never told us of."""

MIGRATION_PATIENCE: Final = 600.0
"""How many seconds to wait for another process that migrates a file or a libSQL database. PostgreSQL has a queue."""

_MIGRATION_LOCK: Final = 0x6D696772  # any number all mistnet processes share: migrations go one at a time
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class SchemaState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a database stands against this version of mistnet."""

    found: str | None
    wanted: str
    verdict: Literal["current", "empty", "behind", "too new"]


async def schema_state(database: Database) -> SchemaState:
    """Raises if there is no file: to ask SQLite would make an empty one."""
    if database.file is not None and not database.file.exists():
        raise DatabaseMissing(database.file)
    return await _schema_state(database)


async def _schema_state(database: Database) -> SchemaState:
    async with database.read() as connection:
        return await connection.run_sync(_state)


async def require_current(database: Database) -> None:
    """Raises unless the tables are exactly those of this version."""
    state = await schema_state(database)
    match state.verdict:
        case "current":
            return
        case "too new":
            raise DatabaseTooNew(database.shown_url, str(state.found))
        case "empty" | "behind":
            raise DatabaseNotMigrated(database.shown_url, state.found, state.wanted)


async def migrate(
    database: Database, *, patience: float = MIGRATION_PATIENCE, on_wait: Callable[[str], object] = lambda _: None
) -> SchemaState:
    """Goes forward to this version; says where the database stood before.

    Of several processes that do this at once, one migrates; the others tell `on_wait` why they wait, and find it done.
    """
    _make_private(database)
    before = await _when_free(lambda: _schema_state(database), patience, on_wait)
    if before.verdict != "current":  # one that is current is not locked: its workers go on
        before = await _when_free(lambda: _advance(database, on_wait), patience, on_wait)
    if before.verdict != "current" and _stage(before) != "head":
        await _when_free(lambda: _advance(database, on_wait), patience, on_wait)
    return before


async def _when_free(
    step: Callable[[], Awaitable[SchemaState]], patience: float, on_wait: Callable[[str], object]
) -> SchemaState:
    """SQLite and libSQL have one writer, whom others wait for only a few seconds; a migration may take longer.

    A libSQL server takes the lock away from a writer who is slow while others wait. Pauses of random length let one
    of them finish.
    """
    deadline = time.monotonic() + patience
    pauses = chain(_PAUSES, repeat(_PAUSES[-1]))
    while True:
        try:
            return await step()
        except DatabaseBusy as error:
            if isinstance(error, DatabaseFails) or time.monotonic() >= deadline:
                raise
            on_wait(error.problem)
        await asyncio.sleep(random.uniform(0, next(pauses)))  # noqa: S311 (no secret)


async def _advance(database: Database, on_wait: Callable[[str], object]) -> SchemaState:
    """One stage in one transaction, once no other process migrates; says where the database stood before it."""
    async with database.transaction() as connection:
        if database.product == "postgresql" and not await _is_locked(connection):
            on_wait("another process migrates it")
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
        before = await connection.run_sync(_state)  # what was seen before the lock may be out of date
        if before.verdict == "too new":
            raise DatabaseTooNew(database.shown_url, str(before.found))
        if before.verdict != "current":
            await connection.run_sync(_refuse_foreign, database.shown_url)
            await connection.run_sync(_upgrade, _stage(before))
    return before


async def _is_locked(connection: AsyncConnection) -> bool:
    """Whether we hold the lock of migrations now. PostgreSQL frees it with the transaction, however that ends."""
    tried = await connection.execute(text(f"SELECT pg_try_advisory_xact_lock({_MIGRATION_LOCK})"))
    return bool(tried.scalar_one())


async def ready(database: Database, *, create: bool = False) -> None:
    """Makes sure the tables are there. With `create`, a file that is not there or is empty gets them.

    Few commands create: in the wrong folder, an empty new database would look like lost data.
    """
    if create and await _is_blank_file(database):
        await migrate(database)
    await require_current(database)
    await database.correct_clock()


async def _is_blank_file(database: Database) -> bool:
    if database.product != "sqlite":
        return False
    return bool(database.file and not database.file.exists()) or (await schema_state(database)).verdict == "empty"


def _make_private(database: Database) -> None:
    """A new file is its owner's alone; SQLite would let everybody on the machine read what was collected."""
    if database.file is not None and not database.file.exists():
        with suppress(OSError):  # whatever is wrong, SQLite says it in its own words
            make_private(database.file)


async def require_hydratable(database: Database) -> None:
    """Raises unless users can be fetched into this database: all but its last rule may still be lacking."""
    state = await schema_state(database)
    if state.verdict != "behind" or state.found != BEFORE_HYDRATED_ONLY:
        await require_current(database)


@cache
def revisions() -> list[str]:
    """All there are, the oldest first. A migration's file name begins with its revision."""
    return sorted(script.name.partition("_")[0] for script in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def _found(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _state(connection: Connection) -> SchemaState:
    found, known = _found(connection), revisions()
    wanted = known[-1]
    verdict: Literal["current", "empty", "behind", "too new"]
    if found is None:
        verdict = "empty"
    elif found not in known:
        verdict = "too new"
    else:
        verdict = "current" if found == wanted else "behind"
    return SchemaState(found=found, wanted=wanted, verdict=verdict)


def _refuse_foreign(connection: Connection, url: str) -> None:
    """Another program's tables must not be mixed with ours."""
    present = set(inspect(connection).get_table_names())
    if "alembic_version" not in present and "jobs" in present:
        raise DatabaseForeign(url, "it has a table 'jobs' that mistnet did not make; use a database of its own")


def _stage(before: SchemaState) -> str:
    """An old database goes in two: if the second refuses, the first has made what it takes to mend that."""
    is_old = before.found is not None and before.found < BEFORE_HYDRATED_ONLY
    return BEFORE_HYDRATED_ONLY if is_old else "head"


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # noqa: PLC0415 (slow to load, and seldom needed)
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
