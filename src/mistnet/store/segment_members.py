"""Who is in a segment, who was at any time before, and who came and went."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, exists, select
from sqlalchemy.sql.expression import Join, Subquery

from mistnet.domain.segments import Member, MemberEvent, Segment, SegmentId, What
from mistnet.domain.social import Platform
from mistnet.store.tables import posts, segment_events, segment_members, segment_snapshots, users

ENTERED, LEFT = "entered", "left"
LARGEST_ID: Final = 2**63 - 1


def present(segment: Segment, *, after: int, limit: int) -> Select[Any]:
    """The members as of the last time it was worked out, in the order in which they came."""
    own = segment_members.c
    asked = select(own.id.label("place"), own.platform, own.user_id, own.post_id, own.since)
    chosen = asked.where(own.segment_id == segment.id, own.id > after).order_by(own.id).limit(limit)
    return _shown(segment, chosen).order_by("place")


def as_of(segment: Segment, at: datetime, *, after: int, limit: int) -> Select[Any]:
    """The members as they were then: who had entered, and had not left since."""
    own, later = segment_events.c, segment_events.alias("later").c
    member = "user_id" if segment.what is What.USERS else "post_id"
    left = exists().where(
        later.segment_id == segment.id,
        later.platform == own.platform,
        later[member] == own[member],
        later.id > own.id,
        later.kind == LEFT,
        later.at <= at,
    )
    asked = select(own.id.label("place"), own.platform, own.user_id, own.post_id, own.at.label("since")).where(
        own.segment_id == segment.id, own.id > after, own.kind == ENTERED, own.at <= at, ~left
    )
    return _shown(segment, asked.order_by(own.id).limit(limit)).order_by("place")


def changes(segment: Segment, *, baseline: int, before: int, limit: int, kind: str | None) -> Select[Any]:
    """Who came and went since it was worked out first, the latest first."""
    own = segment_events.c
    asked = select(*(own[name] for name in MemberEvent.__struct_fields__ if name != "handle")).where(
        own.segment_id == segment.id, own.id < before, own.snapshot_id != baseline
    )
    if kind is not None:
        asked = asked.where(own.kind == kind)
    chosen = asked.order_by(own.id.desc()).limit(limit).subquery("chosen")
    shown = select(chosen, users.c.handle).select_from(_with_people(segment, chosen))
    return shown.order_by(chosen.c.id.desc())


def baseline_of(segment_id: SegmentId) -> Select[Any]:
    """The snapshot of the first time. Its events say who is in the segment since then, and are no changes."""
    own = segment_snapshots.c
    return select(own.id).where(own.segment_id == segment_id).order_by(own.at).limit(1)


def _shown(segment: Segment, chosen: Select[Any]) -> Select[Any]:
    """Names are looked up for the few that are shown."""
    few = chosen.subquery("chosen")
    told = (
        [users.c.handle, users.c.name] if segment.what is What.USERS else [users.c.handle, users.c.name, posts.c.text]
    )
    return select(few, *told).select_from(_with_people(segment, few))


def _with_people(segment: Segment, few: Subquery) -> Join:
    if segment.what is What.USERS:
        return few.join(users, (users.c.platform == few.c.platform) & (users.c.id == few.c.user_id))
    its_post = few.join(posts, (posts.c.platform == few.c.platform) & (posts.c.id == few.c.post_id))
    return its_post.join(users, (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id))


def member_of(row: Mapping[Any, Any]) -> Member:
    return Member(**{**row, "platform": Platform(row["platform"])})


def event_of(row: Mapping[Any, Any]) -> MemberEvent:
    return MemberEvent(**{**row, "platform": Platform(row["platform"])})
