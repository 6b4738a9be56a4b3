"""Migrate a database's tables to this version, and compare them with it."""

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

from mistnet.kit.database import Database
from mistnet.kit.errors import (
    DatabaseBusy,
    DatabaseFails,
    DatabaseForeign,
    DatabaseMissing,
    DatabaseNotMigrated,
    DatabaseTooNew,
    DatabaseTooOld,
)
from mistnet.kit.sqlite import make_private

MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATION_PATIENCE: Final = 600.0
"""Seconds to wait for another process that migrates a SQLite file or a libSQL database. PostgreSQL queues by itself."""

# An arbitrary number that all mistnet processes share.
_MIGRATION_LOCK: Final = 0x6D696772
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class SchemaState(msgspec.Struct, frozen=True, kw_only=True):
    """A database's revision compared with this version of mistnet."""

    found: str | None
    wanted: str
    verdict: Literal["current", "empty", "behind", "too old", "too new"]


async def schema_state(database: Database) -> SchemaState:
    """Raises DatabaseMissing if there is no file: connecting would create an empty one."""
    if database.file is not None and not database.file.exists():
        raise DatabaseMissing(database.file)
    return await _schema_state(database)


async def _schema_state(database: Database) -> SchemaState:
    async with database.read() as connection:
        return await connection.run_sync(_compare)


async def require_current(database: Database) -> None:
    """Raises unless the tables are exactly those of this version."""
    state = await schema_state(database)
    if state.verdict in ("empty", "behind"):
        raise DatabaseNotMigrated(database.shown_url, state.found, state.wanted)
    _require_known(state, database.shown_url)


def _require_known(state: SchemaState, url: str) -> None:
    if state.verdict == "too new":
        raise DatabaseTooNew(url, str(state.found))
    if state.verdict == "too old":
        raise DatabaseTooOld(url, str(state.found), revisions()[0])


async def migrate(
    database: Database, *, patience: float = MIGRATION_PATIENCE, on_wait: Callable[[str], object] = lambda _: None
) -> SchemaState:
    """Migrate to this version and return the state before.

    Of several processes that do this at once, one migrates. The others pass the reason of their wait to `on_wait`.
    """
    if database.file is not None and not database.file.exists():
        # Whatever is wrong, SQLite reports it when it connects.
        with suppress(OSError):
            make_private(database.file)
    before = await _when_free(lambda: _schema_state(database), patience, on_wait)
    if before.verdict == "current":
        # Without the lock, so that a current database's workers go on.
        return before
    return await _when_free(lambda: _advance(database, on_wait), patience, on_wait)


async def _when_free(
    step: Callable[[], Awaitable[SchemaState]], patience: float, on_wait: Callable[[str], object]
) -> SchemaState:
    """Retry a step while another process writes.

    SQLite and libSQL have one writer, and others wait for it only a few seconds; a migration may take longer. A libSQL
    server takes the lock from a slow writer while others wait. Random pauses let one of them finish.
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
    """Migrate in one transaction, and return the state found in it."""
    async with database.transaction() as connection:
        if database.product == "postgresql":
            # PostgreSQL releases the lock with the transaction, however it ends.
            lock = f"pg_try_advisory_xact_lock({_MIGRATION_LOCK})"
            if not (await connection.execute(text(f"SELECT {lock}"))).scalar_one():
                on_wait("another process migrates it")
                await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
        # Again: another process may have migrated before the lock.
        before = await connection.run_sync(_compare)
        _require_known(before, database.shown_url)
        if before.verdict != "current":
            await connection.run_sync(_upgrade, database.shown_url)
    return before


async def ready(database: Database, *, create: bool = False) -> None:
    """Raises unless the tables are current. With `create`, a missing or empty SQLite file gets them.

    Few commands create: in the wrong folder, an empty new database would look like lost data.
    """
    file = database.file if create else None
    if file is not None and (not file.exists() or (await schema_state(database)).verdict == "empty"):
        await migrate(database)
    await require_current(database)
    await database.correct_clock()


@cache
def revisions() -> list[str]:
    """The revisions that this version can migrate, oldest first. A migration's file name begins with its revision."""
    return sorted(script.name.partition("_")[0] for script in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def _compare(connection: Connection) -> SchemaState:
    known, found = revisions(), None
    if inspect(connection).has_table("alembic_version"):
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    verdict: Literal["current", "empty", "behind", "too old", "too new"]
    if found is None:
        verdict = "empty"
    elif found not in known:
        verdict = "too old" if found < known[0] else "too new"
    else:
        verdict = "current" if found == known[-1] else "behind"
    return SchemaState(found=found, wanted=known[-1], verdict=verdict)


def _upgrade(connection: Connection, url: str) -> None:
    present = set(inspect(connection).get_table_names())
    # Tables of another program must not be mixed with ours.
    if "alembic_version" not in present and "jobs" in present:
        raise DatabaseForeign(url, "it has a table 'jobs' that mistnet did not make; use a database of its own")
    from alembic import command  # noqa: PLC0415 (slow to load, and needed only here)
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
