"""The commands `db backup` and `db restore`: a SQLite database copied into a file, and put back."""

from asyncio import to_thread
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.output import document
from mistnet.kit.database import Database, copy_database
from mistnet.kit.errors import DatabaseInUse, NotAFile
from mistnet.kit.migrate import ready, schema_state
from mistnet.operations.alerts.watch import silence_of
from mistnet.queue.leader import StoreLeaders
from mistnet.queue.store.inspect import Inspector


@shared_options
async def backup(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it. An existing file is kept.")],
) -> None:
    """Copy a SQLite database into a file, while workers write.

    The copy is one moment of the database, and is checked before it gets its name.
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
    """Put a copy in the place of the SQLite database. Stop all mistnet processes first.

    What was there before is kept beside it, under another name.
    """
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
