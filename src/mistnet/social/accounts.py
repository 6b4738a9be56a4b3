"""Tracked accounts: our intent and progress, beside what upstream says of the user."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from mistnet.queue.model import Write
from mistnet.social.fetch_sizes import FetchStats
from mistnet.social.model import Platform, PostId, UserId


class AccountState(StrEnum):
    """What can be collected of an account now."""

    ACTIVE = "active"
    PROTECTED = "protected"
    SUSPENDED = "suspended"
    VANISHED = "vanished"
    UNTRACKED = "untracked"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A tracked user with what a sweep needs to know."""

    platform: Platform
    user_id: UserId
    handle: str
    state: AccountState
    oldest_post_id: PostId | None = None
    newest_post_id: PostId | None = None
    newest_repost_id: PostId | None = None
    backfilled_at: datetime | None = None
    reposts_backfilled_at: datetime | None = None
    profiled_at: datetime | None = None
    posts_count: int | None = None
    suspect_since: datetime | None = None
    fetch: FetchStats = FetchStats()


class TrackedAccount(Write, frozen=True, kw_only=True):
    """From now on this user is tracked, or tracked again."""

    platform: Platform
    user_id: UserId


class AccountStateChange(Write, frozen=True, kw_only=True):
    """What became of an account, why, and when to look again if it cannot be collected."""

    platform: Platform
    user_id: UserId
    state: AccountState
    reason: str | None = None
    next_look_at: datetime | None = None


class Swept(Write, frozen=True, kw_only=True):
    """What one step of a sweep proved. Oldest only falls, newest only rises; None leaves things as they are.

    `found` is how many posts it brought.
    """

    platform: Platform
    user_id: UserId
    oldest: PostId | None = None
    newest: PostId | None = None
    newest_repost: PostId | None = None
    backfilled: bool = False
    reposts_backfilled: bool = False
    found: int | None = None


class HistoryJudged(Write, frozen=True, kw_only=True):
    """Whether what a sweep to the end of an account's history left stored is implausibly little."""

    platform: Platform
    user_id: UserId
    suspect: bool


class SuggestionClosed(Write, frozen=True, kw_only=True):
    """A suggestion was accepted or refused."""

    platform: Platform
    handle: str
    accepted: bool
    reason: str | None = None
    user_id: UserId | None = None


class Missing(Write, frozen=True, kw_only=True):
    """Upstream was asked for this id and did not return it: a recorded gap."""

    platform: Platform
    what: str
    id: int
    reason: str


class Frontier(msgspec.Struct, frozen=True):
    """Where the way up from a reply leaves what we have: a post we lack, and whose it is if that was said."""

    post_id: PostId
    user_id: UserId | None = None


class StoredProfile(msgspec.Struct, frozen=True):
    """What a search needs to know of a stored user: a handle, and how old that knowledge is."""

    handle: str | None
    profiled_at: datetime | None


class Look(Protocol):
    """What handlers may ask the store. Nothing is locked, nothing stays open."""

    async def account(self, platform: Platform, user_id: UserId) -> Account | None: ...

    async def frontiers(self, platform: Platform, ids: Collection[PostId]) -> Mapping[PostId, Frontier]:
        """From each of these posts up through what is stored: the first that is not, and not known to be gone."""
        ...

    async def known_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        """Those that are stored."""
        ...

    async def stored_posts(self, platform: Platform, user_id: UserId, *, most: int) -> int:
        """How many posts of a user are stored, counted no further than `most`."""
        ...

    async def unreadable_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        """Those that could not be read for good, as far as anybody has tried: each is a gap already."""
        ...

    async def new_posts(
        self, platform: Platform, user_id: UserId, *, above: PostId, stored_since: datetime
    ) -> Sequence[PostId]:
        """A user's posts above an id that were stored since then, oldest first."""
        ...

    async def known_users(self, platform: Platform, ids: Collection[UserId]) -> set[UserId]:
        """Those that are stored, or that upstream is known not to have."""
        ...

    async def being_backfilled(self, platform: Platform, user_ids: Collection[UserId]) -> set[UserId]:
        """Those whose backfill is still alive, so that their posts will come by themselves."""
        ...

    async def stalest_users(self, platform: Platform, limit: int, without: Collection[UserId]) -> Sequence[UserId]: ...
