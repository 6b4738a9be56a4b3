"""Users and posts as a source reports them, on any platform, and the port to the sources."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, NewType, Protocol
from urllib.parse import urlsplit

import msgspec

from mistnet.governor.model import CallPurpose
from mistnet.queue.model import Write
from mistnet.social.errors import BadFeed, BadHandle, NoSource

UserId = NewType("UserId", int)
PostId = NewType("PostId", int)


Platform = NewType("Platform", str)
"""A social platform by its name. Any source may bring one more, so no feature lists them."""

PLATFORM_NAME: Final = r"[a-z][a-z0-9_]{0,31}"
X: Final = Platform("x")
THREADS: Final = Platform("threads")


class Detail(StrEnum):
    """How much of a user a payload contains. A poorer payload never overwrites fields of a richer one."""

    AUTHOR = "author"
    LISTED = "listed"
    PROFILE = "profile"


class Media(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image or video of a post. `shown_as` is the link that represents it in the text."""

    kind: str
    url: str | None = None
    key: str | None = None
    width: int | None = None
    height: int | None = None
    alt_text: str | None = None
    duration_ms: int | None = None
    variants: Sequence[str] = ()
    shown_as: str | None = None


class LinkMention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link in a post, and its target according to the source.

    `place` is where it was found, if not among the links of the text: a value of `LinkPlace`.
    """

    url: str
    expanded_url: str | None = None
    place: str | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What platforms tell of a user. None: it is not known."""

    id: UserId
    handle: str | None = None
    name: str | None = None
    bio: str | None = None
    location: str | None = None
    website: str | None = None
    avatar_url: str | None = None
    banner_url: str | None = None
    verified: bool | None = None
    verified_kind: str | None = None
    protected: bool | None = None
    automated: bool | None = None
    followers_count: int | None = None
    following_count: int | None = None
    posts_count: int | None = None
    media_count: int | None = None
    likes_count: int | None = None
    created_at: datetime | None = None
    unavailable_reason: str | None = None


class User(Profile, Write, frozen=True, kw_only=True):
    """A profile in a payload. None means that this payload does not contain the field, not that it is empty."""

    platform: Platform
    detail: Detail
    raw: bytes
    ingest_id: int | None = None
    """The ingest that fetched it. For ingests of jobs, `ingest_job_id` names the job instead."""

    ingest_job_id: int | None = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a post that change over time: as sources report them, as columns, and in every record of a post."""

    likes: Annotated[int | None, "The number of likes when it was last seen."] = None
    replies: Annotated[int | None, "The number of replies when it was last seen."] = None
    reposts: Annotated[int | None, "The number of reposts when it was last seen."] = None
    quotes: Annotated[int | None, "The number of quotes when it was last seen."] = None
    bookmarks: Annotated[int | None, "The number of bookmarks when it was last seen."] = None
    views: Annotated[int | None, "The number of views when it was last seen."] = None


LONGEST_CLEAN_TEXT: Final = 25_000


def clean_text(text: str) -> str:
    """A text on one line, with single spaces."""
    return " ".join(text.split())


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A quoted or reposted post, with what the payload contains of it."""

    id: PostId
    text: str | None = None
    author_handle: str | None = None
    media: Sequence[Media] = ()

    @property
    def text_clean(self) -> str | None:
        return None if self.text is None else clean_text(self.text)[:LONGEST_CLEAN_TEXT]


class Post(Write, frozen=True, kw_only=True):
    """A post. Posts that it replies to, quotes or reposts are plain ids, because they may be deleted.

    `nested`: it was part of another post's payload, which leaves fields out.
    """

    platform: Platform
    id: PostId
    author_id: UserId
    text: str
    created_at: datetime
    lang: str | None = None
    url: str | None = None
    conversation_id: PostId | None = None
    in_reply_to_id: PostId | None = None
    in_reply_to_user_id: UserId | None = None
    quoted: Reference | None = None
    reposted: Reference | None = None
    media: Sequence[Media] = ()
    links: Sequence[LinkMention] = ()
    metrics: Metrics = Metrics()
    nested: bool = False
    raw: bytes
    ingest_id: int | None = None
    ingest_job_id: int | None = None

    @property
    def one_line(self) -> str:
        """The whole text on one line."""
        return clean_text(self.text)

    @property
    def text_clean(self) -> str:
        """The text on one line, cut at a length that no post should exceed."""
        return self.one_line[:LONGEST_CLEAN_TEXT]


class PartOfPost(Write, frozen=True, kw_only=True):
    """A value that was read together with a post, and is as old as the post."""

    platform: Platform
    post_id: PostId


class Unreadable(Write, frozen=True, kw_only=True):
    """A payload that could not be decoded. It is stored whole, with the reason, and tried again later.

    For a post on a page: its id, if that can be read, and the ids of its neighbours.
    """

    platform: Platform
    endpoint: str
    problem: str
    payload: bytes
    post_id: PostId | None = None
    above: PostId | None = None
    below: PostId | None = None


class Gathered(msgspec.Struct, frozen=True):
    """The content of one response: each post and user once, and payloads that could not be decoded."""

    posts: dict[PostId, Post]
    users: dict[UserId, User]
    unreadable: list[Unreadable]

    @property
    def writes(self) -> list[Write]:
        return [*self.users.values(), *self.posts.values(), *self.unreadable]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of posts: the ids of its own posts in order, and everything the response contained."""

    own: Sequence[PostId]
    gathered: Gathered
    has_more: bool
    cursor: str | None = None


class UserPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a follower or following list, newest first."""

    own: Sequence[UserId]
    gathered: Gathered
    has_more: bool
    cursor: str | None = None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The ids a page is searched for: above the floor, up to the ceiling."""

    floor: PostId = PostId(0)
    ceiling: PostId | None = None

    def __contains__(self, post_id: PostId) -> bool:
        return self.floor < post_id and (self.ceiling is None or post_id <= self.ceiling)


class SocialSource(Protocol):
    """One platform, through whichever service reads it for us.

    The platform, its lane of jobs and its source in the ledger share one name. Ids are positive 64-bit numbers, and a
    later post has a higher id: sweeps go by ids. Every answer with posts holds the profiles of their authors.
    """

    @property
    def platform(self) -> Platform: ...

    @property
    def separate_reposts(self) -> bool:
        """Whether `search_posts` leaves native reposts out unless they are requested."""
        ...

    @property
    def full_batch_from(self) -> int | None:
        """From how many users on a full batch costs less than these users alone; None: never."""
        ...

    async def user(self, handle: str, *, purpose: CallPurpose) -> User | None:
        """The profile with this handle; None if there is none."""
        ...

    async def users(self, ids: Sequence[UserId], *, purpose: CallPurpose) -> Gathered:
        """Profiles by id. A user who is missing from the answer does not exist, or no longer does."""
        ...

    async def posts(self, ids: Sequence[PostId], *, purpose: CallPurpose) -> Gathered:
        """Posts by id. A post that is missing from the answer is deleted or protected."""
        ...

    async def search_posts(
        self, handles: Collection[str], span: Span, *, reposts: bool = False, purpose: CallPurpose
    ) -> Page:
        """One page of posts by these authors with ids in the span, newest first; with `reposts`, native reposts alone.

        The next page is the same search with a lower ceiling.
        """
        ...


class SocialSources(dict[Platform, SocialSource]):
    """The sources of this process by platform."""

    def __init__(self, sources: Iterable[SocialSource]) -> None:
        super().__init__({each.platform: each for each in sources})

    def __missing__(self, platform: Platform) -> SocialSource:
        raise NoSource(platform)


_HANDLE: Final = re.compile(r"[A-Za-z0-9_]{1,15}")
_HOSTS: Final = frozenset(
    prefix + host for prefix in ("", "www.", "mobile.", "m.") for host in ("x.com", "twitter.com")
)
_TABS: Final = frozenset({"with_replies", "media", "likes", "highlights", "articles", "followers", "following"})
_NOT_HANDLES: Final = frozenset(
    {"home", "explore", "search", "hashtag", "i", "intent", "settings", "messages", "notifications", "login", "share"}
)


def read_handle(written: str) -> str:
    """Parse a handle or a profile URL. Raises BadHandle with how to write one."""
    name = given = written.strip()
    if "/" in given:
        name, *rest = read_profile_path(given, _HOSTS, "X", BadHandle)
        if name.lower() in _NOT_HANDLES or len(rest) > 1 or not _TABS.issuperset(rest):
            raise BadHandle(given, "it is not the address of a profile")
    name = name.removeprefix("@")
    if not _HANDLE.fullmatch(name):
        raise BadHandle(written, "a handle has 1 to 15 letters, digits or _")
    return name


def read_profile_path(given: str, hosts: Collection[str], site: str, error: type[BadHandle | BadFeed]) -> Sequence[str]:
    """The parts of the path of a profile's URL, with or without its scheme: first the name, which may be empty."""
    try:
        parts = urlsplit(given if "://" in given else f"https://{given}")
    except ValueError:
        raise error(given, "it is not an address") from None
    if parts.scheme not in ("http", "https") or (parts.hostname or "") not in hosts:
        raise error(given, f"it is not an address of {site}")
    return [part for part in parts.path.split("/") if part] or [""]
