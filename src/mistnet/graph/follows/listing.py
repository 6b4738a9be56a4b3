"""Reads lists of followers and followings, their changes, and the syncs that read them, for people to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Integer, Select, and_, bindparam, case, func, literal, select, union_all

from mistnet.graph.follows.model import Cause, FollowChange, FollowKind, FollowLine, Side
from mistnet.graph.follows.store import OTHER_END, OWN_END, full_syncs
from mistnet.graph.tables import follow_events, follows
from mistnet.kit.database import Store
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import ListPage, View, columns_of, record_of, records_of
from mistnet.queue.model import LIVE_STATES
from mistnet.queue.tables import jobs
from mistnet.social.ingests import IngestId, IngestStatus
from mistnet.social.model import UserId, X
from mistnet.social.tables import accounts, ingest_events, users

_ingest: Final = ingest_events.c


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


_LINES: Final[Mapping[Side, View[FollowLine]]] = {
    side: View(
        FollowLine,
        select(
            other.label("user_id"),
            *(users.c.handle, users.c.name),
            *(follows.c.first_seen_at, follows.c.last_seen_at, follows.c.ended_at),
            follows.c.missed_in.is_not(None).label("doubted"),
        )
        .join(users, (users.c.platform == follows.c.platform) & (users.c.id == other))
        .where(follows.c.platform == X),
        other.label("user_id"),
        descending=False,
    )
    for side, other in OTHER_END.items()
}
_sync_id: Final = _ingest.id.label("ingest_id")
_SYNCS: Final = View(
    SyncLine,
    select(
        _sync_id,
        _ingest.subject_id.label("user_id"),
        users.c.handle,
        case({side.ingest_kind: str(side) for side in Side}, value=_ingest.kind).label("side"),
        *columns_of(SyncLine, ingest_events),
        jobs.c.wait_reason.label("waits"),
    )
    .join(users, (users.c.platform == _ingest.platform) & (users.c.id == _ingest.subject_id), isouter=True)
    .join(jobs, (jobs.c.id == _ingest.job_id) & jobs.c.state.in_(LIVE_STATES), isouter=True),
    _sync_id,
)


def _changes_of(side: Side) -> Select[Any]:
    """The latest events of one side. `user_id` is the other user."""
    own = follow_events.c
    mine, other = own[OWN_END[side].name], own[OTHER_END[side].name]
    half = (
        select(follow_events, literal(str(side)).label("side"), other.label("user_id"))
        .where(own.platform == X, mine == bindparam("subject"), own.id < bindparam("before"))
        .order_by(own.id.desc())
        .limit(_MOST)
    )
    return select(half.subquery())


_MOST: Final = bindparam("most", type_=Integer)
# Each side has its own index, and a condition on either end would use none. Put together once: that takes longer than
# to run them.
_CHANGES: Final = union_all(*map(_changes_of, Side)).subquery()
_FOLLOWER, _FOLLOWED = users.alias("follower"), users.alias("followed")
_EVENTS: Final = (
    select(
        *(_CHANGES.c[name] for name in ("id", "follower_id", "followed_id", "kind", "cause", "at", "ingest_id")),
        _FOLLOWER.c.handle.label("follower_handle"),
        _FOLLOWED.c.handle.label("followed_handle"),
    )
    .join_from(_CHANGES, _FOLLOWER, (_FOLLOWER.c.platform == X) & (_FOLLOWER.c.id == _CHANGES.c.follower_id))
    .join(_FOLLOWED, (_FOLLOWED.c.platform == X) & (_FOLLOWED.c.id == _CHANGES.c.followed_id))
    .order_by(_CHANGES.c.id.desc())
    .limit(_MOST)
)
_NEWS: Final = (
    select(_CHANGES, users.c.handle, users.c.name, accounts.c.user_id.is_not(None).label("tracked"))
    .join_from(_CHANGES, users, and_(users.c.platform == X, users.c.id == _CHANGES.c.user_id))
    .outerjoin(accounts, and_(accounts.c.platform == X, accounts.c.user_id == _CHANGES.c.user_id))
    .order_by(_CHANGES.c.id.desc())
    .limit(_MOST)
)


def _binds_of_changes(user_id: UserId, before: int | None, limit: int) -> Mapping[str, int]:
    """One row too many of each side shows whether a next page follows."""
    return {"subject": user_id, "before": LARGEST_ID if before is None else before, "most": limit + 1}


class Follows(Store):
    """Lists of followers and followings, their changes, and the syncs that read them: each through an index."""

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
            query = select(_ingest.finished_at).where(*full_syncs(X, side), _ingest.subject_id == user_id)
            if finished_at := await self._database.fetch_value(query.order_by(_ingest.id).limit(1)):
                found[side] = finished_at
        return found

    async def events(self, user_id: UserId, *, before: int | None = None, limit: int) -> ListPage[FollowChange]:
        """Changes of both lists, the latest first."""
        rows = await self._database.fetch_rows(_EVENTS, _binds_of_changes(user_id, before, limit))
        return ListPage.cut(records_of(FollowChange, rows), limit, lambda change: change.id)

    async def news(self, user_id: UserId, *, before: int | None, limit: int) -> ListPage[FollowNews]:
        """The same changes as the account's page shows them: the other user, and whether they are tracked."""
        rows = await self._database.fetch_rows(_NEWS, _binds_of_changes(user_id, before, limit))
        return ListPage.cut(records_of(FollowNews, rows), limit, lambda change: change.id)

    async def syncs(self, *, user_id: UserId | None = None, limit: int = 50) -> Sequence[SyncLine]:
        """The latest sync of each list, the latest first."""
        latest = select(func.max(_ingest.id)).where(
            _ingest.platform == X, _ingest.kind.in_([side.ingest_kind for side in Side])
        )
        if user_id is not None:
            latest = latest.where(_ingest.subject_id == user_id)
        chosen = _ingest.id.in_(latest.group_by(_ingest.kind, _ingest.subject_id))
        return await _SYNCS.rows(self._database, chosen, limit=limit)

    async def count_history(self, user_id: UserId, *, limit: int) -> Mapping[Side, Sequence[Counted]]:
        """What the latest full syncs of each side counted, the oldest first."""
        found = {}
        for side in Side:
            query = (
                select(_ingest.finished_at.label("at"), _ingest["items"].label("users"))
                .where(*full_syncs(X, side), _ingest.subject_id == user_id)
                .order_by(_ingest.id.desc())
                .limit(limit)
            )
            rows = await self._database.fetch_rows(query)
            found[side] = records_of(Counted, rows)[::-1]
        return found
