"""Jobs that fetch profiles: suggestions, accounts that could not be collected, users by id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from mistnet.governor.errors import BrokenAnswer
from mistnet.governor.model import CallPurpose
from mistnet.kit.clock import Clock
from mistnet.queue.errors import Permanent, Temporary
from mistnet.queue.model import Done, Job, NewJob, Outcome, Retry, Write
from mistnet.social.accounts import (
    Account,
    AccountState,
    AccountStateChange,
    AccountTracked,
    Look,
    Missing,
    SuggestionClosed,
)
from mistnet.social.ingests.model import IngestKind
from mistnet.social.ingests.recording import failed_call, one_call, with_event
from mistnet.social.jobs import args
from mistnet.social.jobs.args import CollectRules, HydrateUserArgs, RelookArgs, SuggestionArgs
from mistnet.social.model import Platform, User, UserId
from mistnet.social.sources import SocialSource, SocialSources

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


class Profiler(msgspec.Struct, frozen=True, kw_only=True):
    """Handlers of suggestions, relooks and hydrations of users."""

    look: Look
    sources: SocialSources
    clock: Clock
    rules: CollectRules

    async def suggestion(self, job: Job[SuggestionArgs]) -> Outcome:
        """Track a suggested handle, or refuse it with the reason."""
        user = await self.sources[job.args.platform].user(job.args.handle, purpose=CallPurpose(job.id))
        if user is None:
            return Done([_closed(job.args, "there is no account of that name")])
        if user.unavailable_reason is not None:
            return Done([user, _closed(job.args, f"unavailable: {user.unavailable_reason}")])
        return Done([user, *await self._tracked(user), _closed(job.args, None, user.id)])

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
        asked = [*unknown, *(extra := await self._filling(platform, unknown))]
        try:
            gathered = await self.sources[platform].users(asked, purpose=CallPurpose(jobs[0].id))
        except (Temporary, Permanent) as error:
            return failed_call(platform, IngestKind.USERS_BY_IDS, jobs, asked, error)
        along: list[Write] = [gathered.users[each] for each in extra if each in gathered.users]
        along += gathered.unreadable
        outcomes: list[Outcome] = []
        for job in jobs:
            user = gathered.users.get(job.args.user_id)
            if user is not None:
                tracked = await self._tracked(user) if job.args.tracked else []
                outcomes.append(Done([*along, user, *tracked]))
            elif job.args.user_id in known:
                outcomes.append(Done(along))
            elif gathered.unreadable:
                outcomes.append(Retry(f"not among the users that could be read: {gathered.unreadable[0].problem}"))
            else:
                # a deleted user is a result, not a failure: an operator could do nothing about it
                outcomes.append(Done([*along, never_returned(platform, job.args.user_id)]))
            along = []
        return with_event(outcomes, one_call(platform, IngestKind.USERS_BY_IDS, jobs, asked, gathered.users))

    async def _filling(self, platform: Platform, unknown: Sequence[UserId]) -> Sequence[UserId]:
        room = FULL_BATCH - len(unknown)
        pays_from = self.sources[platform].full_batch_from
        if pays_from is None or len(unknown) < pays_from or room <= 0 or self.rules.users_per_call < FULL_BATCH:
            return ()
        extra = await self.look.stalest_users(platform, room, unknown)
        return extra if len(extra) == room else ()

    async def _tracked(self, user: User) -> list[Write]:
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


def _closed(given: SuggestionArgs, reason: str | None, user_id: UserId | None = None) -> SuggestionClosed:
    return SuggestionClosed(
        platform=given.platform, handle=given.handle, accepted=user_id is not None, reason=reason, user_id=user_id
    )
