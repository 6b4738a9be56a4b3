"""Brings a database's tables up to this version, and tells whether they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from sqlalchemy import Connection, inspect, text

from mistnet.domain.errors import DatabaseForeign, DatabaseMissing, DatabaseNotMigrated, DatabaseTooNew
from mistnet.store.database import Database
from mistnet.store.private_files import make_private

MIGRATIONS = Path(__file__).parent / "migrations"
BEFORE_HYDRATED_ONLY = "0004"
"""The revision after which no user may be there whom upstream never told us of."""


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


async def migrate(database: Database) -> SchemaState:
    """Goes forward to this version; says where the database stood before."""
    _make_private(database)
    before = await _schema_state(database)
    if before.verdict == "too new":
        raise DatabaseTooNew(database.shown_url, str(before.found))
    for stage in _stages(before):
        async with database.write() as connection:
            await connection.run_sync(_refuse_foreign, database.shown_url)
            await connection.run_sync(_upgrade, stage)
    return before


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


def _stages(before: SchemaState) -> Sequence[str]:
    """An old database goes in two: if the second refuses, the first has made what it takes to mend that."""
    if before.verdict == "current":
        return []
    old = before.found is not None and before.found < BEFORE_HYDRATED_ONLY
    return [BEFORE_HYDRATED_ONLY, "head"] if old else ["head"]


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # noqa: PLC0415 (slow to load, and seldom needed)
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
