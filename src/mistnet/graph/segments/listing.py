"""Segments on the dashboard: all of them, and one over time with its members and changes; exports of members."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, func, select

from mistnet.graph.segments.model import AboutSubject, AnyRule, Member, MemberEvent, Segment, SegmentId, Snapshot, What
from mistnet.graph.segments.store import SNAPSHOTS, Segments, baseline_of
from mistnet.graph.tables import segment_events, segment_members, segment_snapshots, segments
from mistnet.kit.columns import Field, field_of
from mistnet.kit.database import Store
from mistnet.kit.export import ExportTarget, Format, Target, export_pages, stream_pages
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import ListPage, View, columns_of, records_of
from mistnet.social.model import X
from mistnet.social.tables import accounts, posts, users

_EXPORT_ROWS: Final = 1_000


class SegmentLine(msgspec.Struct, frozen=True, kw_only=True):
    """One segment in a list, with its last snapshot. `subject` is the handle of the user its rule is about.

    `known_since` is when it was first materialized: its members at that time are not reported as changes.
    """

    id: SegmentId
    name: str
    what: What
    rule: AnyRule
    enabled: bool
    every_seconds: float | None
    fresh_seconds: float | None
    created_at: datetime
    materialized_at: datetime | None
    next_at: datetime | None
    members: int | None
    entered: int | None
    departed: int | None
    known_since: datetime | None
    subject: str | None = None


class ListedMember(Member, frozen=True, kw_only=True):
    """A member as the dashboard shows it. `tracked`: the user's posts, or those of the post's author, are collected."""

    followers_count: int | None
    tracked: bool


class MembershipChange(MemberEvent, frozen=True, kw_only=True):
    """The same for a member that entered or left."""

    name: str | None
    tracked: bool


_last: Final = segment_snapshots.alias("last")
_of_segment: Final = (
    select(segment_snapshots.c.id).where(segment_snapshots.c.segment_id == segments.c.id).correlate(segments)
)
_latest: Final = _of_segment.order_by(segment_snapshots.c.at.desc(), segment_snapshots.c.id.desc()).limit(1)
_first: Final = _of_segment.with_only_columns(func.min(segment_snapshots.c.at)).scalar_subquery()
_LINES: Final = View(
    SegmentLine,
    select(
        *columns_of(SegmentLine, segments),
        *(_last.c.members, _last.c.entered, _last.c.departed),
        _first.label("known_since"),
    ).select_from(segments.outerjoin(_last, _last.c.id == _latest.scalar_subquery())),
    segments.c.name,
    descending=False,
)


class SegmentPages(Store):
    """Reads, each through an index."""

    async def list(self, *, after: str = "", limit: int) -> ListPage[SegmentLine]:
        """By name."""
        page = await _LINES.page(self._database, after=after, limit=limit)
        return ListPage(items=await self._with_subjects(page.items), next=page.next)

    async def one(self, segment_id: SegmentId) -> SegmentLine | None:
        line = await _LINES.first(self._database, segments.c.id == segment_id)
        return (await self._with_subjects([line]))[0] if line else None

    async def _with_subjects(self, lines: Sequence[SegmentLine]) -> Sequence[SegmentLine]:
        subjects = {line.id: line.rule.subject_id for line in lines if isinstance(line.rule, AboutSubject)}
        if not subjects:
            return lines
        query = select(users.c.id, users.c.handle).where(users.c.platform == X, users.c.id.in_(set(subjects.values())))
        handles = {row["id"]: row["handle"] for row in await self._database.fetch_rows(query)}
        return [msgspec.structs.replace(line, subject=handles.get(subjects.get(line.id))) for line in lines]

    async def snapshots(self, segment_id: SegmentId, *, limit: int) -> Sequence[Snapshot]:
        """The latest ones, the oldest of them first."""
        latest = await SNAPSHOTS.rows(self._database, segment_snapshots.c.segment_id == segment_id, limit=limit)
        return latest[::-1]

    async def members(self, segment_id: SegmentId, *, before: int | None, limit: int) -> ListPage[ListedMember]:
        """The last to enter first."""
        own = segment_members.c
        query = (
            select(own.id, own.platform, own.user_id, own.post_id, own.since)
            .where(own.segment_id == segment_id, own.id < (LARGEST_ID if before is None else before))
            .order_by(own.id.desc())
            .limit(limit + 1)
        )
        few = query.subquery()
        query = _with_users(few, few.c.id.label("place"), few.c.since, users.c.followers_count, posts.c.text)
        rows = await self._database.fetch_rows(query)
        return ListPage.cut(records_of(ListedMember, rows), limit, lambda member: member.place)

    async def changes(self, segment_id: SegmentId, *, before: int | None, limit: int) -> ListPage[MembershipChange]:
        """The latest first."""
        own = segment_events.c
        query = (
            select(*columns_of(MembershipChange, segment_events))
            .where(own.segment_id == segment_id, own.id < (LARGEST_ID if before is None else before))
            .where(own.snapshot_id != baseline_of(segment_id).scalar_subquery())
            .order_by(own.id.desc())
            .limit(limit + 1)
        )
        few = query.subquery()
        rows = await self._database.fetch_rows(_with_users(few, few.c.id, few.c.snapshot_id, few.c.kind, few.c.at))
        return ListPage.cut(records_of(MembershipChange, rows), limit, lambda change: change.id)

    async def latest(self) -> tuple[int, int]:
        """Changes whenever a segment is created or materialized."""
        query = select(
            select(func.max(segments.c.id)).scalar_subquery().label("created"),
            select(func.max(segment_snapshots.c.id)).scalar_subquery().label("materialized"),
        )
        (row,) = await self._database.fetch_rows(query)
        return row["created"] or 0, row["materialized"] or 0


def _with_users(few: Any, *columns: Any) -> Select[Any]:
    """Users are joined after the limit: they are looked up for one page only. A post has its author's."""
    user_id = func.coalesce(few.c.user_id, posts.c.author_id)
    post = and_(posts.c.platform == few.c.platform, posts.c.id == few.c.post_id)
    user = and_(users.c.platform == few.c.platform, users.c.id == user_id)
    account = and_(accounts.c.platform == few.c.platform, accounts.c.user_id == user_id)
    joined = few.outerjoin(posts, post).outerjoin(users, user).outerjoin(accounts, account)
    tracked = accounts.c.user_id.is_not(None).label("tracked")
    known = (few.c.platform, user_id.label("user_id"), few.c.post_id, users.c.handle, users.c.name, tracked)
    return select(*columns, *known).select_from(joined).order_by(few.c.id.desc())


_COLUMNS: Final[Mapping[What, Mapping[str, str]]] = {
    What.USERS: {name: name for name in ("platform", "user_id", "handle", "name", "since")},
    What.POSTS: {
        "platform": "platform",
        "post_id": "post_id",
        "author_handle": "handle",
        "author_name": "name",
        "text": "text",
        "since": "since",
    },
}
"""The columns of an export, with the member's field for each."""

_HINTS: Final = {"user_id": int, "post_id": int, "since": datetime}


async def export_members(
    store: Segments, segment: Segment, format_: Format, target: Target, *, as_of: datetime | None = None
) -> int:
    """All current members, or those of an earlier time, in the order in which they entered. Returns how many."""
    return await export_pages("members", _fields(segment), _pages(store, segment, as_of), format_, target)


def stream_members(
    store: Segments, segment: Segment, format_: Format, *, as_of: datetime | None = None, safe_cells: bool = False
) -> AsyncGenerator[bytes, None]:
    """The same as a stream, a page at a time."""
    pages = _pages(store, segment, as_of)
    return stream_pages(
        "members", _fields(segment), pages, format_, lambda file: ExportTarget(file, safe_cells=safe_cells)
    )


def _fields(segment: Segment) -> Sequence[Field]:
    return [field_of(name, _HINTS.get(name, str)) for name in _COLUMNS[segment.what]]


async def _pages(
    store: Segments, segment: Segment, as_of: datetime | None
) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
    names = _COLUMNS[segment.what].values()
    place = 0
    while True:
        page = await store.members(segment.name, as_of_=as_of, after=place, limit=_EXPORT_ROWS)
        if page.items:
            yield [[getattr(member, name) for name in names] for member in page.items]
        if page.next is None:
            return
        place = page.next
