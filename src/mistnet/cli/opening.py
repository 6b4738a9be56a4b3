"""Opens the database alone, for commands that put no other part to work: they start sooner."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mistnet.settings import Settings
from mistnet.store.database import Database
from mistnet.store.schema import ready


@asynccontextmanager
async def open_database(settings: Settings, *, checked: bool = True) -> AsyncIterator[Database]:
    """Closes it again. Unless it is checked, it may be in any state."""
    database = Database(settings.database_url.get_secret_value())
    try:
        if checked:
            await ready(database)
        yield database
    finally:
        await database.close()
