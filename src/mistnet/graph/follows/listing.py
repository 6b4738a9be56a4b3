"""Pages of followers, followings, how they changed, and how the syncs of them stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, and_, case, func, select, union_all

from mistnet.graph.follows.model import Cause, FollowChange, FollowKind, FollowLine, Side, SyncMode
from mistnet.graph.follows.store import other_end, own_end, read_lists
from mistnet.graph.segments.model import LARGEST_ID
from mistnet.graph.tables import follow_events, follows
from mistnet.kit.database import Database
from mistnet.queue.model import LIVE_STATES
from mistnet.queue.tables import jobs
from mistnet.social.ingests.model import IngestId, IngestKind, IngestStatus
from mistnet.social.model import UserId, X
from mistnet.social.tables import accounts, ingest_events, users

_LARGEST_ID: Final = 2**63 - 1
_SIDES: Final = {side.ingest_kind: side for side in Side}


class SyncLine(msgspec.Struct, frozen=True, kw_only=True):
    """The latest sync of one side of a user, and the job that is alive for it, if any."""

    ingest_id: IngestId
    user_id: UserId
    handle: str | None
    side: Side
    mode: str | None
    status: IngestStatus
    plausible: bool | None
    items: int
    calls: int
    started_at: datetime
    finished_at: datetime | None
    problem: str | None
    waits: str | None


class Tallied(msgspec.Struct, frozen=True, kw_only=True):
    """How many edges of one list live, how many of these are doubted, and how many have ended."""

    live: int
    doubted: int
    ended: int


class Follows:
    """Reads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, user_id: UserId, side: Side, *, ended: bool = False, after: int = 0, limit: int
    ) -> Sequence[FollowLine]:
        """Those on one side of a user, or those who were, by their ids."""
        other = other_end(side)
        asked = (
            select(
                other.label("user_id"),
                users.c.handle,
                users.c.name,
                follows.c.first_seen_at,
                follows.c.last_seen_at,
                follows.c.missed_in.is_not(None).label("doubted"),
                follows.c.ended_at,
            )
            .join(users, (users.c.platform == follows.c.platform) & (users.c.id == other))
            .where(follows.c.platform == X, own_end(side) == user_id, other > after)
            .where(follows.c.ended_at.is_not(None) if ended else follows.c.ended_at.is_(None))
            .order_by(other)
            .limit(limit)
        )
        return [FollowLine(**{**row, "doubted": bool(row["doubted"])}) for row in await self._rows(asked)]

    async def tallied(self, user_id: UserId, side: Side) -> Tallied:
        live = follows.c.ended_at.is_(None)
        asked = select(
            _sum(live).label("live"),
            _sum(live & follows.c.missed_in.is_not(None)).label("doubted"),
            _sum(~live).label("ended"),
        ).where(follows.c.platform == X, own_end(side) == user_id)
        (row,) = await self._rows(asked)
        return Tallied(**{name: int(value) for name, value in row.items()})

    async def known_since(self, user_id: UserId) -> Mapping[Side, datetime]:
        """When each list was first read to its end and believed: who was on it then is no news."""
        found = dict[Side, datetime]()
        for side in Side:
            asked = (
                select(ingest_events.c.finished_at)
                .where(*read_lists(X, side), ingest_events.c.subject_id == user_id)
                .order_by(ingest_events.c.id)
                .limit(1)
            )
            if rows := await self._rows(asked):
                found[side] = rows[0]["finished_at"]
        return found

    async def events(self, user_id: UserId, *, before: int = _LARGEST_ID, limit: int) -> Sequence[FollowChange]:
        """How both sides of a user changed, the latest first."""
        ends = (follow_events.c.followed_id, follow_events.c.follower_id)
        halves = [
            select(follow_events.c.id)
            .where(follow_events.c.platform == X, end == user_id, follow_events.c.id < before)
            .order_by(follow_events.c.id.desc())
            .limit(limit)
            .subquery()
            for end in ends
        ]
        wanted = union_all(*(select(half.c.id) for half in halves))
        asked = _EVENTS.where(follow_events.c.id.in_(wanted)).order_by(follow_events.c.id.desc()).limit(limit)
        rows = await self._rows(asked)
        words = [{"kind": FollowKind(row["kind"]), "cause": Cause(row["cause"])} for row in rows]
        return [FollowChange(**{**row, **told}) for row, told in zip(rows, words, strict=True)]

    async def syncs(self, *, user_id: UserId | None = None, limit: int = 50) -> Sequence[SyncLine]:
        """The latest sync of each list, the latest first."""
        latest = (
            select(func.max(ingest_events.c.id))
            .where(ingest_events.c.platform == X, ingest_events.c.kind.in_(list(_SIDES)))
            .group_by(ingest_events.c.kind, ingest_events.c.subject_id)
        )
        if user_id is not None:
            latest = latest.where(ingest_events.c.subject_id == user_id)
        asked = _SYNCS.where(ingest_events.c.id.in_(latest)).order_by(ingest_events.c.id.desc()).limit(limit)
        return [_sync(row) for row in await self._rows(asked)]

    async def _rows(self, asked: Select[*tuple[Any, ...]]) -> Sequence[dict[str, Any]]:
        async with self._database.read() as connection:
            return [dict(row) for row in (await connection.execute(asked)).mappings()]


def _sum(wanted: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((wanted, 1), else_=0)), 0)


def _sync(row: dict[str, Any]) -> SyncLine:
    side = _SIDES[IngestKind(row.pop("kind"))]
    plausible = None if row["plausible"] is None else bool(row["plausible"])
    return SyncLine(**{**row, "side": side, "status": IngestStatus(row["status"]), "plausible": plausible})


_follower, _followed = users.alias("follower"), users.alias("followed")
_EVENTS: Final = (
    select(
        follow_events.c.id,
        follow_events.c.follower_id,
        _follower.c.handle.label("follower_handle"),
        follow_events.c.followed_id,
        _followed.c.handle.label("followed_handle"),
        follow_events.c.kind,
        follow_events.c.cause,
        follow_events.c.at,
        follow_events.c.ingest_id,
    )
    .join(
        _follower, (_follower.c.platform == follow_events.c.platform) & (_follower.c.id == follow_events.c.follower_id)
    )
    .join(
        _followed, (_followed.c.platform == follow_events.c.platform) & (_followed.c.id == follow_events.c.followed_id)
    )
)
_SYNCS: Final = (
    select(
        ingest_events.c.id.label("ingest_id"),
        ingest_events.c.subject_id.label("user_id"),
        users.c.handle,
        ingest_events.c.kind,
        ingest_events.c.mode,
        ingest_events.c.status,
        ingest_events.c.plausible,
        ingest_events.c["items"],
        ingest_events.c.calls,
        ingest_events.c.started_at,
        ingest_events.c.finished_at,
        ingest_events.c.problem,
        jobs.c.wait_reason.label("waits"),
    )
    .join(
        users, (users.c.platform == ingest_events.c.platform) & (users.c.id == ingest_events.c.subject_id), isouter=True
    )
    .join(jobs, (jobs.c.id == ingest_events.c.job_id) & jobs.c.state.in_(LIVE_STATES), isouter=True)
)


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
            .where(own.platform == X, own.kind == side.ingest_kind, own.subject_id == user_id)
            .where(own.status == IngestStatus.SUCCESS, own.mode == SyncMode.FULL, own.plausible.is_(True))
            .order_by(own.id.desc())
            .limit(limit)
        )
        return [Counted(**row) for row in reversed(await self._rows(asked))]

    async def news(self, user_id: UserId, *, before: int | None, limit: int) -> Sequence[FollowNews]:
        """The latest first, on both sides."""
        sides = [_side(user_id, side, before or LARGEST_ID, limit).subquery() for side in Side]
        both = union_all(*(select(side) for side in sides)).subquery()
        own = and_(users.c.platform == X, users.c.id == both.c.user_id)
        account = and_(accounts.c.platform == X, accounts.c.user_id == both.c.user_id)
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
    return asked.where(own.platform == X, mine == user_id, own.id < before).order_by(own.id.desc()).limit(limit)


def _news(user_id: UserId, row: Mapping[str, Any]) -> FollowNews:
    told = {name: row[name] for name in FollowNews.__struct_fields__ if name != "side"}
    side = Side.FOLLOWERS if row["followed_id"] == user_id else Side.FOLLOWINGS
    return FollowNews(**{**told, "side": side, "kind": FollowKind(row["kind"]), "cause": Cause(row["cause"])})
