"""Handles that were to be tracked and could not be: the refusals that still stand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, exists, func, select

from mistnet.domain.accounts import AccountState
from mistnet.domain.social import Platform
from mistnet.store.database import Database
from mistnet.store.tables import accounts, suggestions, users

REFUSED: Final = "refused"


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A handle that is not tracked, when it was refused, and why."""

    handle: str
    reason: str
    refused_at: datetime


class Refusals:
    """Reads. A refusal stands until its handle is suggested again, tracked, or let go by hand."""

    def __init__(self, database: Database, platform: Platform = Platform.X) -> None:
        self._database = database
        self._platform = platform

    async def standing(self, limit: int | None = None) -> Sequence[Refused]:
        """The latest first."""
        return await self._refused(still_refused(self._platform).limit(limit))

    async def of_handle(self, handle: str) -> Refused | None:
        found = await self._refused(still_refused(self._platform).where(suggestions.c.handle_key == handle.lower()))
        return found[0] if found else None

    async def _refused(self, asked: Select[Any]) -> Sequence[Refused]:
        async with self._database.read() as connection:
            rows = (await connection.execute(asked)).all()
        return [Refused(handle=row.handle, reason=row.reason or "", refused_at=row.deleted_at) for row in rows]


def still_refused(platform: Platform) -> Select[Any]:
    """Of each handle the latest suggestion, if it was refused and no account of that name is tracked."""
    latest = select(func.max(suggestions.c.id)).where(suggestions.c.platform == platform)
    return (
        select(suggestions.c.handle, suggestions.c.reason, suggestions.c.deleted_at)
        .where(
            suggestions.c.platform == platform,
            suggestions.c.outcome == REFUSED,
            suggestions.c.withdrawn_at.is_(None),
            suggestions.c.id.in_(latest.group_by(suggestions.c.handle_key).correlate(None)),
            ~exists(
                select(accounts.c.user_id)
                .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
                .where(
                    users.c.platform == platform,
                    users.c.handle_key == suggestions.c.handle_key,
                    accounts.c.state != AccountState.UNTRACKED,
                )
            ),
        )
        .order_by(suggestions.c.id.desc())
    )
