"""Which users and posts are stored already."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from sqlalchemy import ColumnElement, Table, select

from mistnet.kit.database import Database
from mistnet.social.model import Platform, PostId, UserId
from mistnet.social.store.account_jobs import slices
from mistnet.social.tables import posts, users

Id = TypeVar("Id", UserId, PostId)


async def stored_users(database: Database, platform: Platform, ids: Collection[UserId]) -> set[UserId]:
    """The stored ones. Users known only as unavailable are left out, so that a caller fetches them again."""
    own = users.c
    return await _stored(
        database, users, platform, ids, own.unavailable_reason.is_(None) | own.profiled_at.is_not(None)
    )


async def stored_posts(database: Database, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
    return await _stored(database, posts, platform, ids)


async def _stored(
    database: Database, table: Table, platform: Platform, ids: Collection[Id], *conditions: ColumnElement[bool]
) -> set[Id]:
    found: set[Id] = set()
    async with database.read() as connection:
        for each in slices(sorted(ids)):
            asked = select(table.c.id).where(table.c.platform == platform, table.c.id.in_(each), *conditions)
            found.update((await connection.execute(asked)).scalars())
    return found
