"""Segments: rules that name sets of users or posts, and what is kept of each time they were worked out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import reduce
from typing import Annotated, Any, Final, NewType, Protocol, TypeAlias, TypeVar, assert_never

import msgspec

from mistnet.graph.follows.model import Side
from mistnet.queue.model import Args, KindName, NewJob, Write
from mistnet.social.ingests.model import IngestId
from mistnet.social.model import Platform, PostId, UserId

SegmentId = NewType("SegmentId", int)
SegmentName = NewType("SegmentName", str)
SnapshotId = NewType("SnapshotId", int)

MATERIALIZE: Final = KindName("materialize")
LANE: Final = "segments"
"""A lane of its own: workers without a key for X can do it."""

NAME: Final = r"[a-z][a-z0-9_.-]{0,63}"
SUBJECT: Final = r"([1-9][0-9]{0,18}|@[A-Za-z0-9_]{1,15})"
HOST: Final = r"[a-z0-9-]+(\.[a-z0-9-]+)*"
LARGEST_ID: Final = 2**63 - 1
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 3650 * 86_400.0
MOST_PARTS: Final = 50

Subject: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^{SUBJECT}\Z")]
"""A user's id; as people write a rule, also his @handle."""

Named: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^{NAME}\Z")]
Parts: TypeAlias = Annotated[list[Named], msgspec.Meta(min_length=2, max_length=MOST_PARTS)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=SHORTEST_SECONDS, le=LONGEST_SECONDS)]


class What(StrEnum):
    """What a segment has for members. The two are never mixed."""

    USERS = "users"
    POSTS = "posts"


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """How the members are found. Each kind of rule has its own subclass."""


class SpecifiedUsers(Rule, frozen=True, tag="specified_users"):
    """Users somebody named one by one: the segment's inputs."""


class AboutSubject(Rule, frozen=True):
    """A rule about whom one user follows, or who follows him."""

    subject: Subject

    @property
    def subject_id(self) -> UserId:
        return UserId(int(self.subject))


class Followers(AboutSubject, frozen=True, tag="followers"):
    """Those who follow the subject."""


class Followed(AboutSubject, frozen=True, tag="followed"):
    """Those whom the subject follows."""


class Mutuals(AboutSubject, frozen=True, tag="mutuals"):
    """Those who follow the subject and are followed by him."""


class UnreciprocatedFollowed(AboutSubject, frozen=True, tag="unreciprocated_followed"):
    """Those whom the subject follows, and who do not follow him."""


class PostsWhere(Rule, frozen=True, tag="posts"):
    """Stored posts that fit all that is said here. `within_seconds` counts back from when it is worked out."""

    authors_in: Named | None = None
    query: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)] | None = None
    link: Annotated[str, msgspec.Meta(pattern=rf"^{HOST}\Z", max_length=253)] | None = None
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    within_seconds: Seconds | None = None


class OfSegments(Rule, frozen=True):
    """A rule over other segments, by their names."""

    of: Parts


class Union(OfSegments, frozen=True, tag="union"):
    """Members of at least one of them."""


class Intersection(OfSegments, frozen=True, tag="intersection"):
    """Members of all of them."""


class Difference(OfSegments, frozen=True, tag="difference"):
    """Members of the first that are in none of the others."""


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
    """A rule with a name. A disabled one keeps the members it has."""

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
    """One time a segment was worked out: how many were in it, came and went, and which ingests it rests on."""

    id: SnapshotId
    segment_id: SegmentId
    at: datetime
    members: int
    entered: int
    departed: int
    ingests: Sequence[IngestId]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a post in a segment. `place` orders the members as they came; of a post, the handle is its author's."""

    place: int
    platform: Platform
    user_id: UserId | None
    post_id: PostId | None
    since: datetime
    handle: str | None
    name: str | None
    text: str | None = None


class MemberEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a post that came or went."""

    id: int
    snapshot_id: SnapshotId
    platform: Platform
    user_id: UserId | None
    post_id: PostId | None
    kind: str
    at: datetime
    handle: str | None


class Need(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An ingest that must have succeeded before a rule can be trusted: one side of one user's follows."""

    platform: Platform
    side: Side
    subject_id: UserId

    def __str__(self) -> str:
        return f"the {self.side} of user {self.subject_id}"


class SyncStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the sync a segment needs stands: `alive` while a job works for it.

    Else `problem` is why a full one failed meanwhile, and `lesser` whether one that only looks for what is new ended.
    """

    alive: bool
    problem: str | None = None
    lesser: bool = False


class Materialized(Write, frozen=True, kw_only=True):
    """A segment is to be worked out now. `changed_at` is that of the rule whose needs were met."""

    segment_id: SegmentId
    changed_at: datetime
    ingests: Sequence[IngestId] = ()


class MaterializeArgs(Args, frozen=True):
    """Which segment, for whom, and the syncs that were asked for on its behalf, by their keys."""

    segment_id: SegmentId
    asked_by: str
    asked: Sequence[str] = ()


class SegmentLook(Protocol):
    """What a materialization asks the store. Nothing is locked, nothing stays open."""

    async def all(self) -> Mapping[SegmentName, Segment]: ...

    async def standings(self, syncs: Mapping[Need, NewJob], *, since: datetime) -> Mapping[Need, SyncStatus]:
        """How the jobs stand that would meet these needs, and what became of others since then."""
        ...

    async def complete_ingest(self, need: Need, *, since: datetime | None) -> IngestId | None:
        """The last complete, plausible and successful sync that began no earlier. Failures after it do not count."""
        ...


def materialize(segment_id: SegmentId, *, asked_by: str) -> NewJob:
    """One live job per segment: whoever asks meanwhile shares it."""
    args = MaterializeArgs(segment_id=segment_id, asked_by=asked_by)
    return NewJob(kind=MATERIALIZE, key=str(segment_id), args=args)


def awaits(need: Need) -> str:
    """Why a materialization waits. The end of that sync may end the wait."""
    return f"waits for a complete sync of {need}"


class Sets(Protocol):
    """Something that can be joined, met and taken away."""

    def __or__(self, other: Any, /) -> Any: ...

    def __and__(self, other: Any, /) -> Any: ...

    def __sub__(self, other: Any, /) -> Any: ...


S = TypeVar("S", bound=Sets)
M = TypeVar("M")


def combined(rule: Union | Intersection | Difference, parts: Sequence[S]) -> S:
    """The rule's members, given those of its segments in the order in which it names them."""
    match rule:
        case Union():
            return reduce(lambda all_, each: all_ | each, parts)
        case Intersection():
            return reduce(lambda all_, each: all_ & each, parts)
        case Difference():
            return reduce(lambda all_, each: all_ - each, parts)
        case _:
            assert_never(rule)


def replayed(events: Iterable[tuple[str, M]]) -> set[M]:
    """Who is in after these, in order: (`entered` or `left`, member). One that cannot be is an error."""
    members: set[M] = set()
    for kind, member in events:
        if (kind == "entered") == (member in members):
            raise ValueError(f"{member} {kind} out of turn")
        (members.add if kind == "entered" else members.remove)(member)
    return members
