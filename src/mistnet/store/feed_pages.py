"""Feeds as the dashboard watches them."""

from __future__ import annotations

from sqlalchemy import func, select

from mistnet.store.database import Database
from mistnet.store.tables import feeds


class FeedPages:
    """Reads. There are as many feeds as somebody asked for by hand."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def latest(self) -> tuple[object, ...]:
        """Other values mean that a feed was added, removed, refused or polled meanwhile."""
        own = feeds.c
        asked = select(
            func.count().label("feeds"),
            func.count(own.removed_at).label("removed"),
            func.count(own.reason).label("refused"),
            func.coalesce(func.sum(own.posts), 0).label("posts"),
            func.max(own.polled_at).label("polled_at"),
        )
        async with self._database.read() as connection:
            row = (await connection.execute(asked)).one()
        return tuple(row)
