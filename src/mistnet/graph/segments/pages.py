"""Segments as the dashboard shows them: all of them, one over time, its members, and a part of its graph."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from io import BytesIO
from typing import Any, Final

import msgspec
from sqlalchemy import Select, Text, and_, cast, func, select, text

from mistnet.graph.segments.model import (
    LARGEST_ID,
    MATERIALIZE,
    AboutSubject,
    AnyRule,
    Member,
    Segment,
    SegmentId,
    What,
)
from mistnet.graph.segments.store import Segments, baseline_of
from mistnet.graph.tables import segment_events, segment_members, segment_snapshots, segments
from mistnet.kit.database import Database
from mistnet.kit.export import FORMATS, Field, Format, ForSpreadsheets, Target, export_pages, instant
from mistnet.queue.tables import GAP, LIVE_KEY, jobs
from mistnet.social.model import PostId, UserId, X
from mistnet.social.tables import accounts, posts, users

_RULE: Final = msgspec.json.Decoder(AnyRule)


class SegmentLine(msgspec.Struct, frozen=True, kw_only=True):
    """One segment in a list. `subject` is the handle of whom its rule is about; `members` those of the last time.

    `known_since` is when it was worked out first: who was in it then has not come.
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


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many were in a segment once it had been worked out."""

    at: datetime
    members: int
    entered: int
    departed: int


class ShownMember(msgspec.Struct, frozen=True, kw_only=True):
    """A user, or the author of a post, in a segment. `place` is where the next page begins."""

    place: int
    user_id: UserId | None
    post_id: PostId | None
    since: datetime
    handle: str | None
    name: str | None
    followers_count: int | None
    tracked: bool
    text: str | None


class MembershipChange(msgspec.Struct, frozen=True, kw_only=True):
    """Who came or went."""

    id: int
    kind: str
    at: datetime
    user_id: UserId | None
    post_id: PostId | None
    handle: str | None
    name: str | None
    tracked: bool


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The job that works a segment out, as long as there is one."""

    job_id: int
    state: str
    wait_reason: str | None
    last_error: str | None


class SegmentPages:
    """Reads, each by an index and a page at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, *, after: str = "", limit: int) -> Sequence[SegmentLine]:
        """By name."""
        asked = _LINES.where(segments.c.name > after).order_by(segments.c.name).limit(limit)
        return await self._named([_line(row) for row in await self._rows(asked)])

    async def one(self, segment_id: SegmentId) -> SegmentLine | None:
        rows = await self._rows(_LINES.where(segments.c.id == segment_id))
        return (await self._named([_line(row) for row in rows]))[0] if rows else None

    async def counts(self, segment_id: SegmentId, *, limit: int) -> Sequence[Count]:
        """The latest times it was worked out, the oldest of them first."""
        own = segment_snapshots.c
        asked = (
            select(*(own[name] for name in Count.__struct_fields__))
            .where(own.segment_id == segment_id)
            .order_by(own.at.desc(), own.id.desc())
            .limit(limit)
        )
        return [Count(**row) for row in reversed(await self._rows(asked))]

    async def members(self, segment_id: SegmentId, *, before: int | None, limit: int) -> Sequence[ShownMember]:
        """The latest to come first."""
        own = segment_members.c
        page = (
            select(own.id, own.platform, own.user_id, own.post_id, own.since)
            .where(own.segment_id == segment_id, own.id < (before or LARGEST_ID))
            .order_by(own.id.desc())
            .limit(limit)
            .subquery()
        )
        asked = _with_users(page, page.c.id.label("place"), page.c.since, users.c.followers_count, posts.c.text)
        return [ShownMember(**row) for row in await self._rows(asked.order_by(page.c.id.desc()))]

    async def changes(self, segment_id: SegmentId, *, before: int | None, limit: int) -> Sequence[MembershipChange]:
        """The latest first."""
        own = segment_events.c
        page = (
            select(own.id, own.platform, own.user_id, own.post_id, own.kind, own.at)
            .where(own.segment_id == segment_id, own.id < (before or LARGEST_ID))
            .where(own.snapshot_id != baseline_of(segment_id).scalar_subquery())
            .order_by(own.id.desc())
            .limit(limit)
            .subquery()
        )
        asked = _with_users(page, page.c.id, page.c.kind, page.c.at)
        return [MembershipChange(**row) for row in await self._rows(asked.order_by(page.c.id.desc()))]

    async def work(self, segment_id: SegmentId) -> Work | None:
        """The live one, or else the last that ended without a result."""
        own = jobs.c
        asked = select(own.id.label("job_id"), own.state, own.wait_reason, own.last_error).where(
            own.kind == MATERIALIZE, own.key == str(segment_id)
        )
        for standing in (LIVE_KEY, GAP):
            rows = await self._rows(asked.where(text(standing)).order_by(own.id.desc()).limit(1))
            if rows:
                return Work(**rows[0])
        return None

    async def latest(self) -> tuple[int, int]:
        """Other numbers mean that a segment was made or worked out meanwhile."""
        asked = select(
            select(func.max(segments.c.id)).scalar_subquery().label("made"),
            select(func.max(segment_snapshots.c.id)).scalar_subquery().label("worked_out"),
        )
        (row,) = await self._rows(asked)
        return row["made"] or 0, row["worked_out"] or 0

    async def _named(self, lines: Sequence[SegmentLine]) -> Sequence[SegmentLine]:
        """With the handles of those whom rules are about."""
        subjects = {line.rule.subject_id for line in lines if isinstance(line.rule, AboutSubject)}
        if not subjects:
            return lines
        asked = select(users.c.id, users.c.handle).where(users.c.platform == X, users.c.id.in_(subjects))
        handles: Mapping[int, str | None] = {row["id"]: row["handle"] for row in await self._rows(asked)}
        return [
            msgspec.structs.replace(line, subject=handles.get(line.rule.subject_id))
            if isinstance(line.rule, AboutSubject)
            else line
            for line in lines
        ]

    async def _rows(self, asked: Select[Any]) -> Sequence[Any]:
        async with self._database.read() as connection:
            return list((await connection.execute(asked)).mappings())


def _with_users(page: Any, *columns: Any) -> Select[Any]:
    """Looked up for the few that are shown. Of a post it is the author who is shown."""
    whose = func.coalesce(page.c.user_id, posts.c.author_id)
    post = and_(posts.c.platform == page.c.platform, posts.c.id == page.c.post_id)
    user = and_(users.c.platform == page.c.platform, users.c.id == whose)
    account = and_(accounts.c.platform == page.c.platform, accounts.c.user_id == whose)
    joined = page.outerjoin(posts, post).outerjoin(users, user).outerjoin(accounts, account)
    tracked = accounts.c.user_id.is_not(None).label("tracked")
    known = (whose.label("user_id"), page.c.post_id, users.c.handle, users.c.name, tracked)
    return select(*columns, *known).select_from(joined)


def _line(row: Mapping[str, Any]) -> SegmentLine:
    return SegmentLine(**{**row, "rule": _RULE.decode(row["rule"]), "what": What(row["what"])})


def _lines() -> Select[Any]:
    own, last = segments.c, segment_snapshots.alias("last")
    plain = (
        "id",
        "name",
        "what",
        "enabled",
        "every_seconds",
        "fresh_seconds",
        "created_at",
        "materialized_at",
        "next_at",
    )
    latest = (
        select(segment_snapshots.c.id)
        .where(segment_snapshots.c.segment_id == own.id)
        .order_by(segment_snapshots.c.at.desc(), segment_snapshots.c.id.desc())
        .limit(1)
        .correlate(segments)
        .scalar_subquery()
    )
    first = (
        select(func.min(segment_snapshots.c.at))
        .where(segment_snapshots.c.segment_id == own.id)
        .correlate(segments)
        .scalar_subquery()
        .label("known_since")
    )
    counts = (last.c.members, last.c.entered, last.c.departed, first)
    rule = cast(own.rule, Text).label("rule")
    return select(*(own[name] for name in plain), rule, *counts).select_from(
        segments.outerjoin(last, last.c.id == latest)
    )


_LINES: Final = _lines()

_PAGE: Final = 1_000
_OF_USERS: Final = ("platform", "user_id", "handle", "name", "since")
_OF_POSTS: Final = ("platform", "post_id", "author_handle", "author_name", "text", "since")


async def export_members(
    store: Segments, segment: Segment, format_: Format, target: Target, *, as_of: datetime | None = None
) -> int:
    """All members now, or as they were at a time before, in the order in which they came. Answers how many."""
    return await export_pages("members", _fields(segment), _pages(store, segment, as_of), format_, target)


async def stream_members(
    store: Segments, segment: Segment, format_: Format, *, as_of: datetime | None = None, safe_cells: bool = False
) -> AsyncGenerator[bytes, None]:
    """The same, a page at a time."""
    held = BytesIO()
    with FORMATS[format_]("members", _fields(segment), ForSpreadsheets(held) if safe_cells else held) as write:
        async with aclosing(_pages(store, segment, as_of)) as pages:
            async for page in pages:
                write(page)
                yield held.getvalue()
                held.seek(0)
                held.truncate()
    yield held.getvalue()


async def _pages(
    store: Segments, segment: Segment, as_of: datetime | None
) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
    place = 0
    while page := await store.members(segment.name, as_of_=as_of, after=place, limit=_PAGE):
        yield [_row(each, segment.what) for each in page]
        place = page[-1].place


def _fields(segment: Segment) -> Sequence[Field]:
    names = _OF_USERS if segment.what is What.USERS else _OF_POSTS
    return [Field(name) for name in names]


def _row(member: Member, what: What) -> Sequence[Any]:
    people = [member.handle, member.name]
    if what is What.USERS:
        return [str(member.platform), str(member.user_id), *people, instant(member.since)]
    return [str(member.platform), str(member.post_id), *people, member.text, instant(member.since)]
