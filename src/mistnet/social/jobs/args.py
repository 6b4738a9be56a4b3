"""Arguments, keys and rules of the job kinds that collect users and posts."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import floor
from typing import Final

import msgspec

from mistnet.queue.model import Args, Awaited, KindName, Lane, NewJob, Wake
from mistnet.social.accounts import FetchRules, Frontier
from mistnet.social.model import Platform, Post, PostId, UserId, X

SUGGESTION: Final = KindName("suggestion")
BACKFILL: Final = KindName("backfill")
CATCH_UP: Final = KindName("catch_up")
REPOSTS: Final = KindName("reposts")
RELOOK: Final = KindName("relook")
WALK: Final = KindName("walk")
HYDRATE_USER: Final = KindName("hydrate_user")
HYDRATE_POST: Final = KindName("hydrate_post")

WALKS_PER_CALL: Final = 20
WALKS_FIRST: Final = 2
"""Batches of walks that users by id wait for."""

FILLS_A_BATCH: Final = "waits for a full batch"

HEAD_START: Final = timedelta(days=1)
"""A tracked user is hydrated before all others: its job counts as due for this long."""


class MostCredits(msgspec.Struct, frozen=True, kw_only=True):
    """The highest cost of one call, for jobs with a cap of their own."""

    posts: int = 300
    profile: int = 18
    follows: int = 398
    relation: int = 100


class CollectRules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of collecting."""

    second_look: timedelta = timedelta(seconds=30)
    batch_fill: timedelta = timedelta(seconds=30)
    relook: timedelta = timedelta(days=7)
    reposts: bool = True
    round_pause: timedelta = timedelta(seconds=60)
    fetching: FetchRules = FetchRules()
    summarize: bool = False
    users_per_call: int = 100
    posts_per_call: int = 50
    most: MostCredits = MostCredits()


class SuggestionArgs(Args, frozen=True):
    """Args without a platform are about X: they were stored before there was another one."""

    handle: str
    platform: Platform = X


class BackfillArgs(Args, frozen=True):
    """The sweep's position is stored with the account. `suspected`: the end seems to be reached.

    That is so after an empty page, or one that promises no more. A second request has to confirm it.
    """

    user_id: UserId
    suspected: bool = False
    platform: Platform = X


class RangeArgs(Args, frozen=True):
    """A sweep over ids above `floor`, down from `ceiling`. `top` is the highest own post of the `found` ones.

    `known` of those were stored already. A catch-up with a `limit` goes in rounds; what it had found and known
    when its current round began is in `found_before` and `known_before`.
    """

    user_id: UserId
    floor: PostId = PostId(0)
    ceiling: PostId | None = None
    top: PostId | None = None
    found: int = 0
    suspected: bool = False
    mending: bool = False
    known: int = 0
    limit: int | None = None
    found_before: int = 0
    known_before: int = 0
    platform: Platform = X

    @property
    def fetched(self) -> int:
        """The number of posts of this round."""
        return self.found - self.found_before

    @property
    def fetched_new(self) -> int:
        return self.fetched - (self.known - self.known_before)


class RelookArgs(Args, frozen=True):
    user_id: UserId
    platform: Platform = X


class WalkArgs(Args, frozen=True):
    """The way up from a reply: the next post to fetch, its author, and the account the walk is for."""

    conversation_id: PostId
    reply_id: PostId
    next_id: PostId
    next_user_id: UserId | None = None
    account_id: UserId | None = None
    platform: Platform = X


class HydrateUserArgs(Args, frozen=True):
    user_id: UserId
    tracked: bool = False
    platform: Platform = X


class HydratePostArgs(Args, frozen=True):
    """A post to fetch by id. If a sweep could not read it, it leads to the same jobs as a swept one."""

    post_id: PostId
    account_id: UserId | None = None
    platform: Platform = X


def key_of(platform: Platform, key: object) -> str:
    """Keys are unique per kind, and ids only per platform. Keys of X, which came first, have no prefix."""
    return str(key) if platform == X else f"{platform}/{key}"


def platform_and_key(key: str) -> tuple[Platform, str]:
    """The reverse of `key_of`."""
    platform, _, own = key.rpartition("/")
    return Platform(platform or X), own


def suggestion(handle: str, platform: Platform = X) -> NewJob:
    return _job(SUGGESTION, platform, handle.lower(), SuggestionArgs(handle=handle, platform=platform))


def backfill(user_id: UserId, platform: Platform = X) -> NewJob:
    return _job(BACKFILL, platform, user_id, BackfillArgs(user_id=user_id, platform=platform))


def catch_up(user_id: UserId, newest: PostId | None, limit: int | None = None, platform: Platform = X) -> NewJob:
    """Everything since the newest stored post; with a limit, in rounds of about that size with pauses.

    Without a newest post, everything: the account had no posts when its backfill ended.
    """
    floor = newest or PostId(0)
    return _job(CATCH_UP, platform, user_id, RangeArgs(user_id=user_id, floor=floor, limit=limit, platform=platform))


def mend(
    user_id: UserId, floor: PostId, ceiling: PostId | None, *, reposts: bool = False, platform: Platform = X
) -> NewJob:
    """Search again between two posts, where something could not be read."""
    args = RangeArgs(user_id=user_id, floor=floor, ceiling=ceiling, mending=True, platform=platform)
    return _job(REPOSTS if reposts else CATCH_UP, platform, f"{user_id}:{floor}-{ceiling or ''}", args)


def reposts(user_id: UserId, floor: PostId, platform: Platform = X) -> NewJob:
    return _job(REPOSTS, platform, user_id, RangeArgs(user_id=user_id, floor=floor, platform=platform))


def resweep(user_id: UserId, *, reposts: bool = False, platform: Platform = X) -> NewJob:
    """The whole history again, for an account with implausibly few stored posts."""
    args = RangeArgs(user_id=user_id, platform=platform)
    return _job(REPOSTS if reposts else CATCH_UP, platform, f"{user_id}:0-", args)


def relook(user_id: UserId, platform: Platform = X) -> NewJob:
    return _job(RELOOK, platform, user_id, RelookArgs(user_id=user_id, platform=platform))


def walk(reply: Post, frontier: Frontier, account_id: UserId, *, run_at: datetime | None = None) -> NewJob:
    """The way up from a reply, starting at the first post that is not stored.

    A deleted post costs as much as an existing one unless it shares a call, so walks wait to fill a batch.
    """
    conversation_id = reply.conversation_id or reply.id
    args = WalkArgs(
        conversation_id=conversation_id,
        reply_id=reply.id,
        next_id=frontier.post_id,
        next_user_id=frontier.user_id,
        account_id=account_id,
        platform=reply.platform,
    )
    made = _job(WALK, reply.platform, f"{conversation_id}:{reply.id}", args)
    return msgspec.structs.replace(made, run_at=run_at, reason=FILLS_A_BATCH if run_at else None)


def awaits_sweep(platform: Platform, user_id: UserId) -> str:
    """The reason of a waiting walk. The end of that sweep ends the wait."""
    return f"the sweep of account {key_of(platform, user_id)} will bring its next post"


def sweep_of(platform: Platform, user_id: UserId) -> Awaited:
    """The job that a walk waits for."""
    return Awaited(BACKFILL, key_of(platform, user_id))


def sweep_is_over(platform: Platform, user_id: UserId) -> Wake:
    return Wake(kind=WALK, reason=awaits_sweep(platform, user_id))


def hydrate_user(
    user_id: UserId, *, now: datetime, fill: timedelta, tracked: bool = False, platform: Platform = X
) -> NewJob:
    """All jobs of one time span are due together, to fill a batch. A tracked user does not wait.

    Other users wait longer than walks, which fetch many of them along with their posts.
    """
    run_at = now - HEAD_START if tracked else end_of_span(now, fill) + WALKS_FIRST * fill
    args = HydrateUserArgs(user_id=user_id, tracked=tracked, platform=platform)
    made = _job(HYDRATE_USER, platform, user_id, args)
    return msgspec.structs.replace(made, run_at=run_at, reason=None if tracked else FILLS_A_BATCH)


def hydrate_post(post_id: PostId, account_id: UserId | None = None, platform: Platform = X) -> NewJob:
    args = HydratePostArgs(post_id=post_id, account_id=account_id, platform=platform)
    return _job(HYDRATE_POST, platform, post_id, args)


def _job(kind: KindName, platform: Platform, key: object, args: Args) -> NewJob:
    """Every platform has a lane of its own, with the same name."""
    return NewJob(kind=kind, key=key_of(platform, key), lane=Lane(platform), args=args)


def end_of_span(now: datetime, fill: timedelta) -> datetime:
    seconds = fill.total_seconds()
    if seconds <= 0:
        return now
    spans = floor(now.timestamp() / seconds) + 1
    return datetime.fromtimestamp(spans * seconds, now.tzinfo)
