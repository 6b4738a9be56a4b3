"""Opens only the database, for commands that need nothing else of the app: they start faster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mistnet.kit.database import Database
from mistnet.kit.migrate import ready
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
