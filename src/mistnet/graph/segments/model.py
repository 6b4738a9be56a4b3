"""Segments: named sets of users or posts, their rules, members, snapshots and errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal, NewType, TypeAlias

import msgspec

from mistnet.graph.follows.model import Side
from mistnet.kit.errors import Conflict, Nonexistent, UsageError, did_you_mean
from mistnet.queue.model import Args, KindName, NewJob, Write
from mistnet.social.ingests import IngestId
from mistnet.social.model import Platform, PostId, UserId

SegmentId = NewType("SegmentId", int)
SegmentName = NewType("SegmentName", str)
SnapshotId = NewType("SnapshotId", int)

MATERIALIZE: Final = KindName("materialize")
LANE: Final = "segments"
"""A lane of its own, so that workers without a key for X can run it."""

NAME: Final = r"[a-z][a-z0-9_.-]{0,63}"
SUBJECT: Final = r"([1-9][0-9]{0,18}|@[A-Za-z0-9_]{1,15})"
HOST: Final = r"[a-z0-9-]+(\.[a-z0-9-]+)*"
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 3650 * 86_400.0
MOST_PARTS: Final = 50

Subject: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^{SUBJECT}\Z")]
"""A user's id. In a rule that is not stored yet, it may also be an @handle."""

Named: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^{NAME}\Z")]
Parts: TypeAlias = Annotated[list[Named], msgspec.Meta(min_length=2, max_length=MOST_PARTS)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=SHORTEST_SECONDS, le=LONGEST_SECONDS)]


class What(StrEnum):
    """What the members of a segment are. The two are never mixed."""

    USERS = "users"
    POSTS = "posts"


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """How the members are found. Each kind of rule has its subclass."""


class SpecifiedUsers(Rule, frozen=True, tag="specified_users"):
    """Users named one by one: the segment's inputs."""


class AboutSubject(Rule, frozen=True):
    """A rule about the followers or followings of one user."""

    subject: Subject

    @property
    def subject_id(self) -> UserId:
        return UserId(int(self.subject))


class Followers(AboutSubject, frozen=True, tag="followers"):
    """The users who follow the subject."""


class Followed(AboutSubject, frozen=True, tag="followed"):
    """The users whom the subject follows."""


class Mutuals(AboutSubject, frozen=True, tag="mutuals"):
    """The users who follow the subject and whom the subject follows."""


class UnreciprocatedFollowed(AboutSubject, frozen=True, tag="unreciprocated_followed"):
    """The users whom the subject follows and who do not follow back."""


class PostsWhere(Rule, frozen=True, tag="posts"):
    """Stored posts that match every condition. `within_seconds` counts back from the time of materialization."""

    authors_in: Named | None = None
    query: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)] | None = None
    link: Annotated[str, msgspec.Meta(pattern=rf"^{HOST}\Z", max_length=253)] | None = None
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    within_seconds: Seconds | None = None


class OfSegments(Rule, frozen=True):
    """A rule over other segments, by name."""

    of: Parts


class Union(OfSegments, frozen=True, tag="union"):
    """Members of at least one of them."""


class Intersection(OfSegments, frozen=True, tag="intersection"):
    """Members of all of them."""


class Difference(OfSegments, frozen=True, tag="difference"):
    """Members of the first one that are in none of the others."""


AnyRule: TypeAlias = (
    SpecifiedUsers
    | Followers
    | Followed
    | Mutuals
    | UnreciprocatedFollowed
    | PostsWhere
    | Union
    | Intersection
    | Difference
)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A named rule. A disabled segment keeps its members."""

    id: SegmentId
    name: SegmentName
    what: What
    rule: AnyRule
    enabled: bool
    every_seconds: float | None
    fresh_seconds: float | None
    created_at: datetime
    changed_at: datetime
    materialized_at: datetime | None
    next_at: datetime | None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one materialization: its members, how many entered and left, and the ingests it rests on."""

    id: SnapshotId
    segment_id: SegmentId
    at: datetime
    members: int
    entered: int
    departed: int
    ingests: Sequence[IngestId]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a post in a segment. `place` orders members as they entered. A post has its author's names."""

    place: int
    platform: Platform
    user_id: UserId | None
    post_id: PostId | None
    since: datetime
    handle: str | None
    name: str | None
    text: str | None = None


class MemberEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a post that entered or left."""

    id: int
    snapshot_id: SnapshotId
    platform: Platform
    user_id: UserId | None
    post_id: PostId | None
    kind: Literal["entered", "left"]
    at: datetime
    handle: str | None


class Need(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A list of follows that must be read in full before a rule can be evaluated."""

    platform: Platform
    side: Side
    subject_id: UserId

    def __str__(self) -> str:
        return f"the {self.side} of user {self.subject_id}"


class SyncStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a sync that a segment needs. `alive`: there is a live job for it.

    Otherwise `problem` is why a full sync failed meanwhile, and `lesser` whether an incremental one ended instead.
    """

    alive: bool
    problem: str | None = None
    lesser: bool = False


class Materialized(Write, frozen=True, kw_only=True):
    """Materialize a segment now. `changed_at` identifies the version of the rule whose needs were met."""

    segment_id: SegmentId
    changed_at: datetime
    ingests: Sequence[IngestId] = ()


class MaterializeArgs(Args, frozen=True):
    """`asked` are the keys of the syncs that were requested for this materialization."""

    segment_id: SegmentId
    asked_by: str
    asked: Sequence[str] = ()


def materialize(segment_id: SegmentId, *, asked_by: str) -> NewJob:
    """The job of a segment. Later requests share the live one."""
    args = MaterializeArgs(segment_id=segment_id, asked_by=asked_by)
    return NewJob(kind=MATERIALIZE, key=str(segment_id), args=args)


def awaits(need: Need) -> str:
    """The reason of a waiting materialization. The end of that sync wakes the jobs that wait for this reason."""
    return f"waits for a complete sync of {need}"


class BadSegment(UsageError):
    """A segment cannot be defined like this."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"segment {name[:80]!r}: {problem}")
        self.name, self.problem = name, problem


class SegmentCycle(BadSegment):
    """Segments that build on each other in a cycle, so that none of them could be materialized first."""

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(path[0], f"it would build on itself: {' -> '.join(path)}; remove one of these")
        self.path = tuple(path)


class SegmentNotFound(Nonexistent, UsageError):
    """There is no segment of that name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(
            f"there is no segment {name[:80]!r}.{did_you_mean(name[:80], known)} Run `mistnet segments list` to see all"
        )
        self.name = name


class SegmentDisabled(Conflict, UsageError):
    """A disabled segment is not materialized."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the segment {name!r} is disabled. Run `mistnet segments enable {name}`")
        self.name = name
