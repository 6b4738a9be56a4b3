"""Users as upstream told us of them, and what they showed before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, select

from mistnet.domain.social import Platform, UserId
from mistnet.store.database import Database
from mistnet.store.tables import user_versions, users

_X: Final = Platform.X


class KnownUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user as the latest payloads show him."""

    id: UserId
    handle: str | None
    name: str | None
    bio: str | None
    location: str | None
    website: str | None
    avatar_url: str | None
    banner_url: str | None
    verified: bool | None
    verified_kind: str | None
    protected: bool | None
    automated: bool | None
    followers_count: int | None
    following_count: int | None
    posts_count: int | None
    media_count: int | None
    likes_count: int | None
    created_at: datetime | None
    unavailable_reason: str | None
    detail: str
    first_seen_at: datetime
    last_updated_at: datetime
    profiled_at: datetime | None


class UserVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What a user showed until then."""

    until: datetime
    handle: str | None
    name: str | None
    bio: str | None
    avatar_url: str | None


class People:
    """Reads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def by_id(self, user_id: UserId) -> KnownUser | None:
        return await self._one(_USER.where(users.c.id == user_id))

    async def called(self, handle: str) -> KnownUser | None:
        """Who goes by this handle; of several, the one that showed it last."""
        own = _USER.where(users.c.handle_key == handle.lower())
        return await self._one(own.order_by(users.c.last_updated_at.desc(), users.c.id).limit(1))

    async def versions(self, user_id: UserId, *, before: datetime | None, limit: int) -> Sequence[UserVersion]:
        """The latest first."""
        own = user_versions.c
        asked = select(*(own[name] for name in UserVersion.__struct_fields__)).where(
            own.platform == _X, own.user_id == user_id
        )
        if before is not None:
            asked = asked.where(own.until < before)
        async with self._database.read() as connection:
            rows = await connection.execute(asked.order_by(own.until.desc()).limit(limit))
            return [UserVersion(**row) for row in rows.mappings()]

    async def _one(self, asked: Select[Any]) -> KnownUser | None:
        async with self._database.read() as connection:
            row = (await connection.execute(asked)).mappings().first()
        return KnownUser(**row) if row else None


_USER: Final = select(*(users.c[name] for name in KnownUser.__struct_fields__)).where(users.c.platform == _X)
