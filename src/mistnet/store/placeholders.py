"""Users of old databases that nobody was ever told of: found, hydrated by force, settled if they are gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.social import Platform, UserId
from mistnet.store.database import Database
from mistnet.store.tables import users

REASON: Final = "upstream does not return this user"


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of placeholders that upstream does not return."""

    forgotten: Sequence[UserId] = ()
    marked: Sequence[UserId] = ()


class Placeholders:
    """Rows without the time of a telling. This version writes none, and its schema allows none."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self) -> int:
        async with self._database.read() as connection:
            counted = select(func.count()).select_from(users).where(_untold())
            return (await connection.execute(counted)).scalar_one()

    async def some(self, *, after: int, limit: int) -> Sequence[UserId]:
        """By id, so that a hundred at a time reach them all."""
        asked = select(users.c.id).where(_untold(), users.c.id > after).order_by(users.c.id).limit(limit)
        async with self._database.read() as connection:
            return [UserId(each) for each in (await connection.execute(asked)).scalars()]

    async def settle(self, ids: Sequence[UserId], now: datetime) -> Settled:
        """Upstream was asked and does not have them. What nothing refers to is forgotten; the rest is marked so."""
        forgotten: list[UserId] = []
        marked: list[UserId] = []
        async with self._database.write() as connection:
            for each in sorted(ids):
                (forgotten if await _forget(connection, each) else marked).append(each)
            for each in marked:
                await _mark(connection, each, now)
        return Settled(forgotten=forgotten, marked=marked)


async def _forget(connection: AsyncConnection, user_id: UserId) -> bool:
    try:
        async with connection.begin_nested():
            await connection.execute(delete(users).where(_untold(), users.c.id == user_id))
    except IntegrityError:
        return False
    return True


async def _mark(connection: AsyncConnection, user_id: UserId, now: datetime) -> None:
    told = {"unavailable_reason": REASON, "last_updated_at": now, "profiled_at": now}
    await connection.execute(update(users).where(_untold(), users.c.id == user_id).values(**told))


def _untold() -> ColumnElement[bool]:
    return (users.c.platform == Platform.X) & users.c.last_updated_at.is_(None)
