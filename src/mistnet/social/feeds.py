"""Feeds: accounts that are polled, the port to the sources that show them, and what a poll may find."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType, Protocol

import msgspec

from mistnet.governor.model import CallPurpose
from mistnet.queue.model import KindName, Write
from mistnet.social.errors import BadFeed
from mistnet.social.model import Gathered, Platform, PostId, User, UserId, read_profile_path

FeedId = NewType("FeedId", int)
FEED_POLL: Final = KindName("feed_poll")
SHORTEST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 31_536_000.0
_HANDLE: Final = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9._]{1,30}(?<!\.)")
_HOSTS: Final = frozenset(prefix + host for prefix in ("", "www.") for host in ("threads.com", "threads.net"))


class FeedState(StrEnum):
    NEW = "new"
    ACTIVE = "active"
    REFUSED = "refused"
    REMOVED = "removed"


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """One feed. Until `newest_post_at` and `newest_reply_at`, by upstream's clock, everything has been read."""

    id: FeedId
    platform: Platform
    handle: str
    user_id: UserId | None
    state: FeedState
    reason: str | None
    every_seconds: float | None
    added_at: datetime
    newest_post_at: datetime | None
    newest_reply_at: datetime | None
    polled_at: datetime | None
    posts: int


class FeedFound(Write, frozen=True, kw_only=True):
    """The profile behind a feed is there: from now on it is read."""

    feed_id: FeedId
    user_id: UserId


class FeedRefused(Write, frozen=True, kw_only=True):
    """A feed that cannot be read, and why."""

    feed_id: FeedId
    reason: str


class FeedGrown(Write, frozen=True, kw_only=True):
    """One step of a poll brought so many posts that were not known."""

    feed_id: FeedId
    posts: int


class FeedPolled(Write, frozen=True, kw_only=True):
    """A poll is over: until these times everything has been read. `reason` is what could not be."""

    feed_id: FeedId
    newest_post_at: datetime | None
    newest_reply_at: datetime | None
    reason: str | None = None


class FeedPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page, newest first. No cursor: it is the last one. `at` is when it was made, by upstream's clock.

    `answered` are those of its own posts that are not said to be without replies.
    """

    own: Sequence[PostId]
    gathered: Gathered
    cursor: str | None = None
    at: datetime | None = None
    answered: frozenset[PostId] = frozenset()

    @property
    def is_empty_end(self) -> bool:
        return not self.own and not self.gathered.unreadable and self.cursor is None

    @property
    def has_nameless(self) -> bool:
        """Whether something on it has an unreadable id, so that it cannot be fetched alone."""
        return any(each.post_id is None for each in self.gathered.unreadable)


class FeedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A user, and whether the source's token is theirs."""

    user: User
    own: bool


class FeedSource(Protocol):
    """One platform whose accounts are polled. It shares its name with its lane of jobs and its source in the ledger."""

    @property
    def platform(self) -> Platform: ...

    async def profile(self, handle: str, *, purpose: CallPurpose) -> FeedProfile | None:
        """The profile with this handle; None if there is none."""
        ...

    async def is_own(self, handle: str, *, purpose: CallPurpose) -> bool:
        """Whether the token belongs to this account: then its posts can be read without permission to read others."""
        ...

    async def posts(self, handle: str, *, own: bool, after: str | None, purpose: CallPurpose) -> FeedPage:
        """A page of the account's posts, newest first."""
        ...

    async def own_replies(self, *, after: str | None, purpose: CallPurpose) -> FeedPage:
        """A page of the replies that the token's own account wrote, newest first."""
        ...

    async def conversation(self, post_id: PostId, *, after: str | None, purpose: CallPurpose) -> FeedPage:
        """A page of the replies below a post."""
        ...

    async def post(self, post_id: PostId, *, purpose: CallPurpose) -> Gathered | None:
        """One post by its id; None if it is deleted or not visible to the token."""
        ...


class FeedLook(Protocol):
    """What polls may ask the store."""

    async def feed(self, feed_id: FeedId) -> Feed | None: ...

    async def profiled_at(self, platform: Platform, user_id: UserId) -> datetime | None: ...

    async def known_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]: ...

    async def missing_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        """Those that upstream is known not to show."""
        ...


def read_feed_handle(written: str) -> str:
    """The handle alone. Raises BadFeed, which says how to write one."""
    name = given = written.strip()
    if "/" in given:
        name, *rest = read_profile_path(given, _HOSTS, "Threads", BadFeed)
        # Other pages have no @ before their first part, such as /search or /about.
        if not name.startswith("@") or (rest and rest != ["replies"]):
            raise BadFeed(given, "it is not the address of a profile")
    name = name.removeprefix("@")
    if not _HANDLE.fullmatch(name):
        raise BadFeed(written, "a handle of Threads has 1 to 30 letters, digits, dots or _")
    return name
