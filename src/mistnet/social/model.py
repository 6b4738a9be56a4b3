"""Users and posts as a source reports them, on any platform."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType
from urllib.parse import urlsplit

import msgspec

from mistnet.queue.model import Write
from mistnet.social.errors import BadHandle

UserId = NewType("UserId", int)
PostId = NewType("PostId", int)


Platform = NewType("Platform", str)
"""A social platform by its name. Any source may bring one more, so no feature lists them."""

PLATFORM_NAME: Final = r"[a-z][a-z0-9_]{0,31}"
X: Final = Platform("x")
THREADS: Final = Platform("threads")
PLATFORMS: Final = (X, THREADS)


class Detail(StrEnum):
    """How much of a user a payload shows. A poorer one never overwrites what a richer one told."""

    AUTHOR = "author"
    LISTED = "listed"
    PROFILE = "profile"


class Media(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A picture or film attached to a post. `shown_as` is the link that stands for it in the text."""

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
    """A link as a post shows it, and where upstream says it leads.

    `place` is where it stands if not among the text's own links: one of the words of `links.Place`.
    """

    url: str
    expanded_url: str | None = None
    place: str | None = None


class User(Write, frozen=True, kw_only=True):
    """A profile. None means that this payload did not say, not that there is nothing."""

    platform: Platform
    id: UserId
    detail: Detail
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
    raw: bytes
    ingest_id: int | None = None
    """The ingest it came with; of one that a job does, `ingest_job_id` says whose."""

    ingest_job_id: int | None = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts that change while a post lives."""

    likes: int | None = None
    replies: int | None = None
    reposts: int | None = None
    quotes: int | None = None
    bookmarks: int | None = None
    views: int | None = None


LONGEST_CLEAN_TEXT: Final = 25_000


def clean_text(text: str) -> str:
    """A text on one line, each run of white space a single blank."""
    return " ".join(text.split())


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The post another one quotes or repeats, as far as it was shown along with it."""

    id: PostId
    text: str | None = None
    author_handle: str | None = None
    media: Sequence[Media] = ()

    @property
    def text_clean(self) -> str | None:
        return None if self.text is None else clean_text(self.text)[:LONGEST_CLEAN_TEXT]


class Post(Write, frozen=True, kw_only=True):
    """A post. Whom it answers, quotes or repeats are plain ids: those posts may be gone.

    `nested` says that it was shown inside another one, where upstream leaves things out.
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
        """The whole text, cleaned."""
        return clean_text(self.text)

    @property
    def text_clean(self) -> str:
        """The same, cut where no post of X is longer."""
        return self.one_line[:LONGEST_CLEAN_TEXT]


class PartOfPost(Write, frozen=True, kw_only=True):
    """What was read together with a post and is as old as it."""

    platform: Platform
    post_id: PostId


class Unreadable(Write, frozen=True, kw_only=True):
    """A payload that could not be understood: kept whole, with the reason, to be tried again.

    Of a post on a page: its id if that much is legible, and its neighbours' ids.
    """

    platform: Platform
    endpoint: str
    problem: str
    payload: bytes
    post_id: PostId | None = None
    above: PostId | None = None
    below: PostId | None = None


class Gathered(msgspec.Struct, frozen=True):
    """What one answer told: posts and people, each once, and what could not be read."""

    posts: dict[PostId, Post]
    users: dict[UserId, User]
    unreadable: list[Unreadable]

    @property
    def writes(self) -> list[Write]:
        return [*self.users.values(), *self.posts.values(), *self.unreadable]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of posts: its own, in order, and all that came along."""

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


class IdPage(msgspec.Struct, frozen=True, kw_only=True):
    ids: Sequence[UserId]
    has_more: bool
    cursor: str | None = None


_HANDLE: Final = re.compile(r"[A-Za-z0-9_]{1,15}")
_HOSTS: Final = frozenset(
    prefix + host for prefix in ("", "www.", "mobile.", "m.") for host in ("x.com", "twitter.com")
)
_TABS: Final = frozenset({"with_replies", "media", "likes", "highlights", "articles", "followers", "following"})
_NOBODY: Final = frozenset(
    {"home", "explore", "search", "hashtag", "i", "intent", "settings", "messages", "notifications", "login", "share"}
)


def read_handle(written: str) -> str:
    """The handle alone. Raises BadHandle, which says how to write one."""
    given = written.strip()
    name = _from_address(given) if "/" in given else given.removeprefix("@")
    if not _HANDLE.fullmatch(name):
        raise BadHandle(written, "a handle has 1 to 15 letters, digits or _")
    return name


def _from_address(given: str) -> str:
    try:
        parts = urlsplit(given if "://" in given else f"https://{given}")
    except ValueError:
        raise BadHandle(given, "it is not an address") from None
    if parts.scheme not in ("http", "https") or (parts.hostname or "") not in _HOSTS:
        raise BadHandle(given, "it is not an address of X")
    name, *rest = [part for part in parts.path.split("/") if part] or [""]
    if name.lower() in _NOBODY or len(rest) > 1 or not _TABS.issuperset(rest):
        raise BadHandle(given, "it is not the address of a profile")
    return name.removeprefix("@")
