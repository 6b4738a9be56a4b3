"""Opens the database alone, for commands that need nothing else and start faster so. Commands: migrate, check."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from loguru import logger

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.output import document
from mistnet.kit.database import Database
from mistnet.kit.migrate import migrate as bring_forward
from mistnet.kit.migrate import ready, require_current, schema_state
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
    """Create the tables, or bring them up to this version. Safe to run again, and by several machines at once."""
    # A check would refuse the very state that is to be migrated.
    async with open_database(invocation.settings, checked=False) as database:
        url = database.shown_url
        before = await bring_forward(database, on_wait=lambda problem: logger.warning(_WAITS, url=url, problem=problem))
    changed = before.found != before.wanted
    said = f"{url} went from {before.found or 'empty'} to {before.wanted}" if changed else f"{url} is up to date"
    invocation.out.show(document(found=before.found, now=before.wanted, changed=changed), said)


@shared_options
async def check(invocation: Invocation) -> int:
    """Say whether the tables are those of this version; exit code 1 if they are not."""
    async with open_database(invocation.settings, checked=False) as database:
        state = await schema_state(database)
        if invocation.out.as_json:
            invocation.out.show(state)
            return 0 if state.verdict == "current" else 1
        await require_current(database)
        invocation.out.show(state, f"{database.shown_url} is at revision {state.found}, as this version needs")
    return 0
