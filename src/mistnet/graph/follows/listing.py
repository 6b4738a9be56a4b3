"""Lists of followers and followings, their changes, and the syncs that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, case, func, literal, select, union_all

from mistnet.graph.follows.model import Cause, FollowChange, FollowKind, FollowLine, Side
from mistnet.graph.follows.store import OTHER_END, OWN_END, full_syncs
from mistnet.graph.tables import follow_events, follows
from mistnet.kit.database import Database
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import ListPage, View, columns_of, record_of, records_of
from mistnet.queue.model import LIVE_STATES
from mistnet.queue.tables import jobs
from mistnet.social.ingests import IngestId, IngestStatus
from mistnet.social.model import UserId, X
from mistnet.social.tables import accounts, ingest_events, users


class SyncLine(msgspec.Struct, frozen=True, kw_only=True):
    """The latest sync of one list. `waits` is what its live job waits for."""

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


class EdgeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many edges of one list are live, how many of these are doubted, and how many have ended."""

    live: int
    doubted: int
    ended: int


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many users a complete list showed."""

    at: datetime
    users: int


class FollowNews(msgspec.Struct, frozen=True, kw_only=True):
    """A change on one side of an account, with the user at the other end."""

    id: int
    side: Side
    kind: FollowKind
    cause: Cause
    at: datetime
    user_id: UserId
    handle: str | None
    name: str | None
    tracked: bool


def _lines(side: Side) -> View[FollowLine]:
    other = OTHER_END[side]
    user_id = other.label("user_id")
    query = select(
        user_id,
        users.c.handle,
        users.c.name,
        follows.c.first_seen_at,
        follows.c.last_seen_at,
        follows.c.missed_in.is_not(None).label("doubted"),
        follows.c.ended_at,
    ).join(users, (users.c.platform == follows.c.platform) & (users.c.id == other))
    return View(FollowLine, query.where(follows.c.platform == X), user_id, descending=False)


_LINES: Final[Mapping[Side, View[FollowLine]]] = {side: _lines(side) for side in Side}
_own: Final = ingest_events.c
_ingest_id: Final = _own.id.label("ingest_id")
_SYNCS: Final = View(
    SyncLine,
    select(
        _ingest_id,
        _own.subject_id.label("user_id"),
        users.c.handle,
        case({side.ingest_kind: str(side) for side in Side}, value=_own.kind).label("side"),
        *columns_of(SyncLine, ingest_events),
        jobs.c.wait_reason.label("waits"),
    )
    .join(users, (users.c.platform == _own.platform) & (users.c.id == _own.subject_id), isouter=True)
    .join(jobs, (jobs.c.id == _own.job_id) & jobs.c.state.in_(LIVE_STATES), isouter=True),
    _ingest_id,
)


class Follows:
    """Reads, each through an index."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, user_id: UserId, side: Side, *, ended: bool = False, after: int = 0, limit: int
    ) -> ListPage[FollowLine]:
        """The users on one list, or those who have left it, by id."""
        over = follows.c.ended_at.is_not(None) if ended else follows.c.ended_at.is_(None)
        return await _LINES[side].page(self._database, OWN_END[side] == user_id, over, after=after, limit=limit)

    async def counts(self, user_id: UserId, side: Side) -> EdgeCounts:
        live = follows.c.ended_at.is_(None)
        query = select(
            func.count().filter(live).label("live"),
            func.count().filter(live & follows.c.missed_in.is_not(None)).label("doubted"),
            func.count().filter(~live).label("ended"),
        ).where(follows.c.platform == X, OWN_END[side] == user_id)
        (row,) = await self._database.fetch_rows(query)
        return record_of(EdgeCounts, row)

    async def known_since(self, user_id: UserId) -> Mapping[Side, datetime]:
        """When each list was first read in full: users who were on it then are not reported as changes."""
        found = {}
        for side in Side:
            own = ingest_events.c
            query = select(own.finished_at).where(*full_syncs(X, side), own.subject_id == user_id)
            if finished_at := await self._database.fetch_value(query.order_by(own.id).limit(1)):
                found[side] = finished_at
        return found

    async def events(self, user_id: UserId, *, before: int | None = None, limit: int) -> ListPage[FollowChange]:
        """Changes of both lists, the latest first."""
        changed = _changes(user_id, before, limit)
        follower, followed = users.alias("follower"), users.alias("followed")
        query = (
            select(
                *(changed.c[name] for name in ("id", "follower_id", "followed_id", "kind", "cause", "at", "ingest_id")),
                follower.c.handle.label("follower_handle"),
                followed.c.handle.label("followed_handle"),
            )
            .join_from(changed, follower, (follower.c.platform == X) & (follower.c.id == changed.c.follower_id))
            .join(followed, (followed.c.platform == X) & (followed.c.id == changed.c.followed_id))
            .order_by(changed.c.id.desc())
        )
        rows = await self._database.fetch_rows(query.limit(limit + 1))
        return ListPage.cut(records_of(FollowChange, rows), limit, lambda change: change.id)

    async def news(self, user_id: UserId, *, before: int | None, limit: int) -> ListPage[FollowNews]:
        """The same changes as the account's page shows them: the other user, and whether they are tracked."""
        changed = _changes(user_id, before, limit)
        query = (
            select(changed, users.c.handle, users.c.name, accounts.c.user_id.is_not(None).label("tracked"))
            .join_from(changed, users, and_(users.c.platform == X, users.c.id == changed.c.user_id))
            .outerjoin(accounts, and_(accounts.c.platform == X, accounts.c.user_id == changed.c.user_id))
            .order_by(changed.c.id.desc())
        )
        rows = await self._database.fetch_rows(query.limit(limit + 1))
        return ListPage.cut(records_of(FollowNews, rows), limit, lambda change: change.id)

    async def syncs(self, *, user_id: UserId | None = None, limit: int = 50) -> Sequence[SyncLine]:
        """The latest sync of each list, the latest first."""
        own = ingest_events.c
        latest = select(func.max(own.id)).where(own.platform == X, own.kind.in_([side.ingest_kind for side in Side]))
        if user_id is not None:
            latest = latest.where(own.subject_id == user_id)
        chosen = own.id.in_(latest.group_by(own.kind, own.subject_id))
        return await _SYNCS.rows(self._database, chosen, limit=limit)

    async def count_history(self, user_id: UserId, *, limit: int) -> Mapping[Side, Sequence[Counted]]:
        """What the latest full syncs of each side counted, the oldest first."""
        own = ingest_events.c
        found = {}
        for side in Side:
            query = (
                select(own.finished_at.label("at"), own["items"].label("users"))
                .where(*full_syncs(X, side), own.subject_id == user_id)
                .order_by(own.id.desc())
                .limit(limit)
            )
            rows = await self._database.fetch_rows(query)
            found[side] = records_of(Counted, rows)[::-1]
        return found


def _changes(user_id: UserId, before: int | None, limit: int) -> Any:
    """The latest events of both sides, one more than `limit` of each: each side has its own index, and a condition
    on either end would use none. `user_id` is the other user."""
    own = follow_events.c
    sides: list[Select[Any]] = []
    for side in Side:
        mine, other = own[OWN_END[side].name], own[OTHER_END[side].name]
        half = (
            select(follow_events, literal(str(side)).label("side"), other.label("user_id"))
            .where(own.platform == X, mine == user_id, own.id < (LARGEST_ID if before is None else before))
            .order_by(own.id.desc())
            .limit(limit + 1)
            .subquery()
        )
        sides.append(select(half))
    return union_all(*sides).subquery()
