"""Users of old databases that were never fetched: find them, and settle those that do not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.social.accounts import Missing
from mistnet.social.ingests.model import IngestId
from mistnet.social.model import UserId, X
from mistnet.social.store.posts import write_missing
from mistnet.social.tables import users

REASON: Final = "upstream does not return this user"


class SettledPlaceholders(msgspec.Struct, frozen=True, kw_only=True):
    """Placeholders that the source did not return."""

    removed: Sequence[UserId] = ()
    unavailable: Sequence[UserId] = ()


class Placeholders:
    """Rows without `last_updated_at`. This version writes none, and its schema allows none."""

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

    async def settle(self, lacking: Mapping[UserId, IngestId], now: datetime) -> SettledPlaceholders:
        """Each with the ingest whose answer lacked it. What nothing refers to is removed; the rest is unavailable."""
        removed: list[UserId] = []
        unavailable: list[UserId] = []
        async with self._database.transaction() as connection:
            for each in sorted(lacking):
                (removed if await _remove(connection, each) else unavailable).append(each)
            for each in unavailable:
                # Upstream's answer is that there is no such user. No profile was fetched, so `profiled_at` stays empty.
                said = {
                    "id": str(each),
                    "unavailable": True,
                    "unavailableReason": REASON,
                    "ingestId": str(lacking[each]),
                }
                answer = {"raw": msgspec.json.encode(said), "unavailable_reason": REASON, "last_updated_at": now}
                await connection.execute(update(users).where(_untold(), users.c.id == each).values(**answer))
            if unavailable:
                gone = [Missing(platform=X, what="user", id=each, reason=REASON) for each in unavailable]
                await write_missing(connection, gone, now)
        return SettledPlaceholders(removed=removed, unavailable=unavailable)


async def _remove(connection: AsyncConnection, user_id: UserId) -> bool:
    try:
        async with connection.begin_nested():
            await connection.execute(delete(users).where(_untold(), users.c.id == user_id))
    except IntegrityError:
        return False
    return True


def _untold() -> ColumnElement[bool]:
    return (users.c.platform == X) & users.c.last_updated_at.is_(None)
