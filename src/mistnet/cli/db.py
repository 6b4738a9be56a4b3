"""Opens the database alone, for commands that need nothing else and start faster so. The commands of `db`."""

from asyncio import to_thread
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from loguru import logger

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.output import document
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseInUse, NotAFile
from mistnet.kit.migrate import migrate as bring_forward
from mistnet.kit.migrate import ready, require_current, schema_state
from mistnet.kit.sqlite import copy_database
from mistnet.settings import Settings


@asynccontextmanager
async def open_database(settings: Settings, *, checked: bool = True) -> AsyncIterator[Database]:
    """Unless `checked`, the database may be in any state, such as without tables."""
    database = Database(settings.database_url.get_secret_value())
    try:
        if checked:
            await ready(database)
        yield database
    finally:
        await database.close()


_WAITS: Final = "{url} cannot be migrated yet: {problem}; waiting"


@shared_options
async def migrate(invocation: Invocation) -> None:
    """Create the tables, or migrate them to this version. Safe to repeat, also on several machines at the same time."""
    # A check would refuse the very state that is to be migrated.
    async with open_database(invocation.settings, checked=False) as database:
        url = database.shown_url
        before = await bring_forward(database, on_wait=lambda problem: logger.warning(_WAITS, url=url, problem=problem))
    changed = before.found != before.wanted
    said = f"{url} went from {before.found or 'empty'} to {before.wanted}" if changed else f"{url} is up to date"
    invocation.out.show(document(found=before.found, now=before.wanted, changed=changed), said)


@shared_options
async def check(invocation: Invocation) -> int:
    """Check whether the tables match this version; exit code 1 if they are not."""
    async with open_database(invocation.settings, checked=False) as database:
        state = await schema_state(database)
        if invocation.out.as_json:
            invocation.out.show(state)
            return 0 if state.verdict == "current" else 1
        await require_current(database)
        invocation.out.show(state, f"{database.shown_url} is at revision {state.found}, as this version needs")
    return 0


@shared_options
async def backup(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it. An existing file is kept.")],
) -> None:
    """Copy a SQLite database into a file, while workers write.

    The copy is consistent, and is checked before it gets its name.
    """
    file = file.absolute()
    if file.exists():
        raise typer.BadParameter(f"{file} exists already")
    if not file.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}")
    async with open_database(invocation.settings, checked=False) as database:
        source = _sqlite_file(database, "pg_dump")
        await schema_state(database)  # raises if there is no database
    await to_thread(copy_database, source, file)
    size = file.stat().st_size
    invocation.out.show(document(file=str(file), bytes=size), f"{source} is copied to {file}, {size / 1e6:,.1f} MB")


@shared_options
async def restore(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A copy by `db backup`.")],
) -> None:
    """Replace the SQLite database with a copy. Stop all mistnet processes first.

    The replaced database is kept beside it, under another name.
    """
    from mistnet.operations.events import silence_of  # noqa: PLC0415 (other commands start faster without)
    from mistnet.queue.leader import StoreLeaders  # noqa: PLC0415
    from mistnet.queue.store.inspect import Inspector  # noqa: PLC0415

    copied = Database(f"sqlite:///{file.absolute()}")
    try:
        await ready(copied)
    finally:
        await copied.close()
    aside: Path | None = None
    settings = invocation.settings
    async with open_database(settings, checked=False) as database:
        target = _sqlite_file(database, "pg_restore")
        if target.exists() and (await schema_state(database)).verdict == "current":
            now = database.clock.now()
            workers = [
                each for each in await Inspector(database).workers() if now - each.seen_at < silence_of(settings)
            ]
            leaders = [each.holder for each in await StoreLeaders(database).all() if each.leads_at(now)]
            if busy := sorted({*leaders, *(each.name for each in workers)}):
                raise DatabaseInUse(busy)
    if target.exists():
        aside = target.with_name(f"{target.name}.before-{datetime.now(UTC):%Y%m%d-%H%M%S}")
        # The journal beside the file belongs to it: the copy would be read together with it.
        for suffix in ("", "-wal", "-shm"):
            if (each := target.with_name(target.name + suffix)).exists():
                each.rename(aside.with_name(aside.name + suffix))
    await to_thread(copy_database, file.absolute(), target)
    kept = f"; what was there is now {aside}" if aside else ""
    shown = document(database=str(target), restored_from=str(file), kept=str(aside) if aside else None)
    invocation.out.show(shown, f"{target} is restored from {file}{kept}")


def _sqlite_file(database: Database, instead: str) -> Path:
    if database.file is None:
        raise NotAFile(database.shown_url, instead)
    return database.file
