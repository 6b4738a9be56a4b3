"""An account's follows as its page shows them: how many over time, and the latest who came and went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, select, union_all

from mistnet.domain.follows import Cause, FollowKind, Side, SyncMode
from mistnet.domain.ingests import IngestStatus
from mistnet.domain.segments import LARGEST_ID
from mistnet.domain.social import Platform, UserId
from mistnet.store.database import Database
from mistnet.store.tables import accounts, follow_events, ingest_events, users

_X: Final = Platform.X


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many a complete list showed."""

    at: datetime
    users: int


class FollowNews(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody came or went on one side of an account. The user is the other one."""

    id: int
    side: Side
    kind: FollowKind
    cause: Cause
    at: datetime
    user_id: UserId
    handle: str | None
    name: str | None
    tracked: bool


class FollowPages:
    """Reads, each by an index."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def counts(self, user_id: UserId, *, limit: int) -> Mapping[Side, Sequence[Counted]]:
        """What the latest complete and plausible syncs of each side counted, the oldest first."""
        return {side: await self._counts(user_id, side, limit) for side in Side}

    async def _counts(self, user_id: UserId, side: Side, limit: int) -> Sequence[Counted]:
        own = ingest_events.c
        asked = (
            select(own.finished_at.label("at"), own["items"].label("users"))
            .where(own.platform == _X, own.kind == side.ingest_kind, own.subject_id == user_id)
            .where(own.status == IngestStatus.SUCCESS, own.mode == SyncMode.FULL, own.plausible.is_(True))
            .order_by(own.id.desc())
            .limit(limit)
        )
        return [Counted(**row) for row in reversed(await self._rows(asked))]

    async def news(self, user_id: UserId, *, before: int | None, limit: int) -> Sequence[FollowNews]:
        """The latest first, on both sides."""
        sides = [_side(user_id, side, before or LARGEST_ID, limit).subquery() for side in Side]
        both = union_all(*(select(side) for side in sides)).subquery()
        own = and_(users.c.platform == _X, users.c.id == both.c.user_id)
        account = and_(accounts.c.platform == _X, accounts.c.user_id == both.c.user_id)
        asked = (
            select(both, users.c.handle, users.c.name, accounts.c.user_id.is_not(None).label("tracked"))
            .select_from(both.join(users, own).outerjoin(accounts, account))
            .order_by(both.c.id.desc())
            .limit(limit)
        )
        return [_news(user_id, row) for row in await self._rows(asked)]

    async def _rows(self, asked: Select[Any]) -> Sequence[Any]:
        async with self._database.read() as connection:
            return list((await connection.execute(asked)).mappings())


def _side(user_id: UserId, side: Side, before: int, limit: int) -> Select[Any]:
    own = follow_events.c
    mine, other = own.followed_id, own.follower_id
    if side is Side.FOLLOWINGS:
        mine, other = other, mine
    asked = select(own.id, own.followed_id, own.kind, own.cause, own.at, other.label("user_id"))
    return asked.where(own.platform == _X, mine == user_id, own.id < before).order_by(own.id.desc()).limit(limit)


def _news(user_id: UserId, row: Mapping[str, Any]) -> FollowNews:
    told = {name: row[name] for name in FollowNews.__struct_fields__ if name != "side"}
    side = Side.FOLLOWERS if row["followed_id"] == user_id else Side.FOLLOWINGS
    return FollowNews(**{**told, "side": side, "kind": FollowKind(row["kind"]), "cause": Cause(row["cause"])})
