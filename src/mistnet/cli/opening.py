"""Opens the database alone, for commands that put no other part to work: they start sooner."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mistnet.kit.database import Database
from mistnet.kit.migrate import ready
from mistnet.settings import Settings


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
