"""Jobs that fetch users and posts by id: suggestions, relooks, hydrations, and walks from replies up to their roots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.governor.errors import BrokenAnswer
from mistnet.governor.model import CallPurpose
from mistnet.kit.clock import Clock
from mistnet.queue.errors import Permanent, Temporary
from mistnet.queue.model import Continue, Done, Job, JobId, NewJob, Outcome, Retry, Snooze, Write
from mistnet.social.accounts import (
    Account,
    AccountState,
    AccountStateChange,
    AccountTracked,
    Frontier,
    Missing,
    SuggestionClosed,
)
from mistnet.social.ingests import IngestKind, failed_call, one_call, with_event
from mistnet.social.jobs import args
from mistnet.social.jobs.args import (
    CollectRules,
    HydratePostArgs,
    HydrateUserArgs,
    RelookArgs,
    SuggestionArgs,
    WalkArgs,
)
from mistnet.social.model import Gathered, Platform, Post, PostId, SocialSource, SocialSources, User, UserId

if TYPE_CHECKING:
    from mistnet.social.store.accounts import StoreLook

FULL_BATCH: Final = 100
NEVER_RETURNED: Final = "upstream does not return this user"


class CurrentProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The current profile of a tracked user."""

    state: AccountState
    reason: str | None = None
    handle: str | None = None
    posts_count: int | None = None
    writes: Sequence[Write] = ()

    def renames(self, account: Account) -> bool:
        """Whether the handle has changed, so that a search for the known one finds nothing."""
        return self.handle is not None and self.handle.lower() != account.handle.lower()


async def check_profile(source: SocialSource, account: Account, purpose: CallPurpose) -> CurrentProfile:
    """Fetch the profile by id: handles change, ids do not."""
    gathered = await source.users([account.user_id], purpose=purpose)
    user = gathered.users.get(account.user_id)
    if user is None and gathered.unreadable:
        raise BrokenAnswer(account.platform, "users", gathered.unreadable[0].problem)
    if user is None:
        return CurrentProfile(state=AccountState.VANISHED, reason=NEVER_RETURNED)
    state = state_of(user)
    reason = user.unavailable_reason or ("its posts are protected" if user.protected else None)
    return CurrentProfile(state=state, reason=reason, handle=user.handle, posts_count=user.posts_count, writes=[user])


def state_of(user: User) -> AccountState:
    if user.unavailable_reason is not None:
        suspended = "suspend" in user.unavailable_reason.lower()
        return AccountState.SUSPENDED if suspended else AccountState.VANISHED
    return AccountState.PROTECTED if user.protected else AccountState.ACTIVE


def state_change(
    platform: Platform, user_id: UserId, profile: CurrentProfile, next_look_at: datetime
) -> AccountStateChange:
    """An account that cannot be collected is checked again after a while."""
    active = profile.state is AccountState.ACTIVE
    return AccountStateChange(
        platform=platform,
        user_id=user_id,
        state=profile.state,
        reason=profile.reason,
        next_look_at=None if active else next_look_at,
    )


async def users_to_fill(
    stalest_users: Callable[[Platform, int, Collection[UserId]], Awaitable[Sequence[UserId]]],
    platform: Platform,
    ids: Sequence[UserId],
    *,
    pays_from: int | None,
    most: int,
) -> Sequence[UserId]:
    """The users with the oldest profiles that fill this batch of `most`, if a full one costs less than these alone."""
    room = FULL_BATCH - len(ids)
    if pays_from is None or len(ids) < pays_from or room <= 0 or most < FULL_BATCH:
        return ()
    extra = await stalest_users(platform, room, ids)
    # One user short of a full batch, all of them would cost the price of single profiles.
    return extra if len(extra) == room else ()


class Profiler(msgspec.Struct, frozen=True, kw_only=True):
    """Handlers of suggestions, relooks and hydrations of users."""

    look: StoreLook
    sources: SocialSources
    clock: Clock
    rules: CollectRules

    async def suggestion(self, job: Job[SuggestionArgs]) -> Outcome:
        """Track a suggested handle, or refuse it with the reason."""
        user = await self.sources[job.args.platform].user(job.args.handle, purpose=CallPurpose(job.id))
        if user is None:
            return Done([_close(job.args, "there is no account of that name")])
        if user.unavailable_reason is not None:
            return Done([user, _close(job.args, f"unavailable: {user.unavailable_reason}")])
        return Done([user, *await self._track(user), _close(job.args, None, user.id)])

    async def relook(self, job: Job[RelookArgs]) -> Outcome:
        """Check an account that could not be collected."""
        account = await self.look.account(job.args.platform, job.args.user_id)
        if account is None or account.state is AccountState.UNTRACKED:
            return Done()
        profile = await check_profile(self.sources[account.platform], account, CallPurpose(job.id, account.user_id))
        change = state_change(account.platform, account.user_id, profile, self.clock.now() + self.rules.relook)
        work = [_sweep(account)] if profile.state is AccountState.ACTIVE else []
        return Done([*profile.writes, change, *work])

    async def hydrate(self, jobs: Sequence[Job[HydrateUserArgs]]) -> Sequence[Outcome]:
        """Fetch users by id; each job has its own outcome. If a full batch is cheaper, add the stalest profiles."""
        platform, wanted = jobs[0].args.platform, {job.args.user_id for job in jobs}
        known = await self.look.known_users(platform, wanted)
        unknown = sorted(wanted - known | {job.args.user_id for job in jobs if job.args.tracked})
        if not unknown:
            return [Done() for _ in jobs]
        source, users_per_call = self.sources[platform], self.rules.users_per_call
        pays_from, stalest = source.full_batch_from, self.look.stalest_users
        extra = await users_to_fill(stalest, platform, unknown, pays_from=pays_from, most=users_per_call)
        ids = [*unknown, *extra]
        try:
            gathered = await source.users(ids, purpose=CallPurpose(jobs[0].id))
        except (Temporary, Permanent) as error:
            return failed_call(platform, IngestKind.USERS_BY_IDS, jobs, ids, error)
        along: list[Write] = [gathered.users[each] for each in extra if each in gathered.users]
        along += gathered.unreadable
        outcomes: list[Outcome] = []
        for job in jobs:
            user = gathered.users.get(job.args.user_id)
            if user is not None:
                tracked = await self._track(user) if job.args.tracked else []
                outcomes.append(Done([*along, user, *tracked]))
            elif job.args.user_id in known:
                outcomes.append(Done(along))
            elif gathered.unreadable:
                outcomes.append(Retry(f"not among the users that could be read: {gathered.unreadable[0].problem}"))
            else:
                # A deleted user is a result, not a failure: an operator could do nothing about it.
                outcomes.append(Done([*along, never_returned(platform, job.args.user_id)]))
            along = []
        return with_event(outcomes, one_call(platform, IngestKind.USERS_BY_IDS, jobs, ids, gathered.users))

    async def _track(self, user: User) -> list[Write]:
        account = await self.look.account(user.platform, user.id)
        writes: list[Write] = [AccountTracked(platform=user.platform, user_id=user.id)]
        profile = CurrentProfile(state=state_of(user), reason="its posts are protected" if user.protected else None)
        if profile.state is not AccountState.ACTIVE:
            return [*writes, state_change(user.platform, user.id, profile, self.clock.now() + self.rules.relook)]
        return [*writes, _sweep(account) if account else args.backfill(user.id, user.platform)]


def _sweep(account: Account) -> NewJob:
    """The job an account needs next: the rest of its history, or its new posts."""
    if account.backfilled_at:
        return args.catch_up(account.user_id, account.newest_post_id, platform=account.platform)
    return args.backfill(account.user_id, account.platform)


def never_returned(platform: Platform, user_id: UserId) -> Missing:
    return Missing(platform=platform, what="user", id=user_id, reason=NEVER_RETURNED)


def _close(given: SuggestionArgs, reason: str | None, user_id: UserId | None = None) -> SuggestionClosed:
    return SuggestionClosed(
        platform=given.platform, handle=given.handle, accepted=user_id is not None, reason=reason, user_id=user_id
    )


NOT_RETURNED: Final = "upstream does not return this post: deleted, protected or suspended"
LEAST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(minutes=10)
"""Waits for a sweep that will fetch the post. Its end wakes the walk; these are for sweeps that never end."""

IN_FLIGHT: Final = timedelta(minutes=2)
JUST_FETCHED: Final = timedelta(seconds=2)


def first_unknown(reply: Post, shown: Mapping[PostId, Post], own: Collection[PostId]) -> Frontier | None:
    """Go up from a reply through posts of the same page, to the first post that is not on it.

    None at a root, and at another post of the account itself, which has its own walk.
    """
    current, seen = reply, {reply.id}
    while (up := current.in_reply_to_id) is not None and up not in own and up not in seen:
        if up not in shown:
            return Frontier(up, current.in_reply_to_user_id)
        seen.add(up)
        current = shown[up]
    return None


def beyond(start: Frontier, stored: Mapping[PostId, Frontier]) -> Frontier | None:
    """The first post on the way up that is not stored. None: it ends at a root or a deleted post."""
    found = stored.get(start.post_id)
    return start if found and found.post_id == start.post_id else found


def ways_up(posts: Sequence[Post], shown: Mapping[PostId, Post]) -> dict[PostId, Frontier]:
    """For those of an account's posts that are replies, the first post above that is not among the `shown` ones."""
    own = {post.id for post in posts}
    return {post.id: start for post in posts if (start := first_unknown(post, shown, own))}


def walks_up(
    posts: Sequence[Post],
    starts: Mapping[PostId, Frontier],
    stored: Mapping[PostId, Frontier],
    account_id: UserId,
    *,
    run_at: datetime,
) -> list[NewJob]:
    """The walks up from posts, past the stored ones above their starts.

    A stored post may have come as a quotation: they climb on to the first one above that is not stored.
    """
    return [
        args.walk(post, frontier, account_id, run_at=run_at)
        for post in posts
        if (start := starts.get(post.id)) and (frontier := beyond(start, stored))
    ]


class Threads(msgspec.Struct, frozen=True, kw_only=True):
    """Handlers of walks and of hydrations of posts. Walks never create walks."""

    look: StoreLook
    sources: SocialSources
    clock: Clock
    rules: CollectRules
    in_flight: dict[tuple[Platform, PostId], datetime]

    async def walk(self, jobs: Sequence[Job[WalkArgs]]) -> Sequence[Outcome]:
        """Fetch the next post up for all these walks with one call. A walk ends at a root or a deleted post."""
        platform, now = jobs[0].args.platform, self.clock.now()
        starts = {job.id: Frontier(job.args.next_id, job.args.next_user_id) for job in jobs}
        stored = await self.look.frontiers(platform, {start.post_id for start in starts.values()})
        wanted = {job_id: beyond(start, stored) for job_id, start in starts.items()}
        authors = {each.user_id for each in wanted.values() if each and each.user_id}
        # Most replies answer older posts of the account itself: its sweep is about to bring them, so do not pay twice.
        swept = await self.look.being_backfilled(platform, authors)
        waits: dict[JobId, Snooze] = {}
        asking: dict[JobId, Frontier] = {}
        for job in jobs:
            frontier = wanted[job.id]
            if frontier is not None and frontier.user_id is not None and frontier.user_id in swept:
                wait = min(max(now - job.created_at, LEAST_WAIT), LONGEST_WAIT)
                own = (platform, frontier.user_id)
                waits[job.id] = Snooze(now + wait, args.awaits_sweep(*own), args.sweep_of(*own))
            elif frontier is not None and self.in_flight.get((platform, frontier.post_id), now) > now:
                waits[job.id] = Snooze(now + JUST_FETCHED, "another walk is fetching the same post")
            elif frontier is not None:
                asking[job.id] = frontier
        gathered = await self._fetch(jobs, {each.post_id for each in asking.values()}, now)
        authors = {each.user_id for each in asking.values() if each.post_id not in gathered.posts and each.user_id}
        strangers = authors - await self.look.known_users(platform, authors)
        along: list[Write] = list(gathered.unreadable)
        outcomes: list[Outcome] = []
        for job in jobs:
            if job.id in asking:
                outcomes.append(self._step(job, asking[job.id], gathered, strangers, along))
            else:
                outcomes.append(waits.get(job.id) or Done(along))
            along = along if isinstance(outcomes[-1], Snooze | Retry) else []
        return outcomes

    async def _fetch(self, jobs: Sequence[Job[WalkArgs]], ids: Collection[PostId], now: datetime) -> Gathered:
        if not ids:
            return Gathered({}, {}, [])
        platform, accounts = jobs[0].args.platform, {job.args.account_id for job in jobs}
        # The call is booked on an account only if all of these walks are for it.
        purpose = CallPurpose(jobs[0].id, accounts.pop() if len(accounts) == 1 else None)
        for key in [each for each, until in self.in_flight.items() if until <= now]:
            del self.in_flight[key]
        keys = [(platform, each) for each in ids]
        self.in_flight.update(dict.fromkeys(keys, now + IN_FLIGHT))
        hold = timedelta()
        try:
            gathered = await self.sources[platform].posts(sorted(ids), purpose=purpose)
            hold = JUST_FETCHED
        finally:
            # Fetched posts are written in a moment. After an error another walk may fetch them at once.
            self.in_flight.update(dict.fromkeys(keys, self.clock.now() + hold))
        return gathered

    def _step(
        self,
        job: Job[WalkArgs],
        frontier: Frontier,
        gathered: Gathered,
        strangers: Collection[UserId],
        along: Sequence[Write],
    ) -> Outcome:
        post = gathered.posts.get(frontier.post_id)
        if post is None and (problem := _unread(frontier.post_id, gathered)):
            return Retry(problem)
        if post is None:
            lost: list[Write] = [*along, gone(job.args.platform, frontier.post_id)]
            if frontier.user_id is not None and frontier.user_id in strangers:
                now, fill = self.clock.now(), self.rules.batch_fill
                lost.append(args.hydrate_user(frontier.user_id, now=now, fill=fill, platform=job.args.platform))
            return Done(lost)
        writes = [*along, *about(post, gathered)]
        if post.in_reply_to_id is None:
            return Done(writes)
        up = msgspec.structs.replace(job.args, next_id=post.in_reply_to_id, next_user_id=post.in_reply_to_user_id)
        return Continue(writes, args=up)

    async def hydrate(self, jobs: Sequence[Job[HydratePostArgs]]) -> Sequence[Outcome]:
        """Fetch posts by id with their authors; each job has its own outcome."""
        platform = jobs[0].args.platform
        swept = {job.args.post_id for job in jobs if job.args.account_id is not None}
        stored = await self.look.known_posts(platform, swept)
        # A sweep's post that is stored meanwhile, with all posts above it, needs no call.
        settled = stored - (await self.look.frontiers(platform, stored)).keys()
        done = {job.id for job in jobs if job.args.account_id is not None and job.args.post_id in settled}
        if done:
            waiting = [job for job in jobs if job.id not in done]
            rest = iter(await self.hydrate(waiting) if waiting else ())
            return [Done() if job.id in done else next(rest) for job in jobs]
        ids = [job.args.post_id for job in jobs]
        try:
            gathered = await self.sources[platform].posts(ids, purpose=CallPurpose(jobs[0].id))
        except (Temporary, Permanent) as error:
            return failed_call(platform, IngestKind.POSTS_BY_IDS, jobs, ids, error)
        # Walks of one span share a call: one for posts that are all gone costs as much as one for a single post.
        together = args.end_of_span(self.clock.now(), self.rules.batch_fill)
        along: list[Write] = list(gathered.unreadable)
        outcomes: list[Outcome] = []
        for job in jobs:
            post = gathered.posts.get(job.args.post_id)
            if post is not None:
                # A reply that its sweep could not read still needs its walk.
                replies = [post] if job.args.account_id == post.author_id else []
                starts = ways_up(replies, {})
                above = await self.look.frontiers(platform, {start.post_id for start in starts.values()})
                walks = walks_up(replies, starts, above, post.author_id, run_at=together)
                outcomes.append(Done([*along, *about(post, gathered), *walks]))
            elif problem := _unread(job.args.post_id, gathered):
                outcomes.append(Retry(problem))
                continue
            else:
                outcomes.append(Done([*along, gone(platform, job.args.post_id)]))
            along = []
        return with_event(outcomes, one_call(platform, IngestKind.POSTS_BY_IDS, jobs, ids, gathered.posts))


def about(post: Post, gathered: Gathered) -> list[Write]:
    """A post with the posts it quotes or reposts, and all their authors."""
    shown = [reference.id for reference in (post.quoted, post.reposted) if reference]
    posts = [post, *(gathered.posts[post_id] for post_id in shown)]
    return [*(gathered.users[each.author_id] for each in posts), *posts]


def _unread(post_id: PostId, gathered: Gathered) -> str | None:
    """Why a requested post could not be read; None if the response did not contain it."""
    own = next((each.problem for each in gathered.unreadable if each.post_id == post_id), None)
    if own is not None:
        return f"cannot be read: {own}"
    nameless = next((each.problem for each in gathered.unreadable if each.post_id is None), None)
    return f"not among the posts that could be read; one without an id: {nameless}" if nameless else None


def gone(platform: Platform, post_id: PostId) -> Missing:
    return Missing(platform=platform, what="post", id=post_id, reason=NOT_RETURNED)
