"""Users whom two full syncs missed: find out whether each is unavailable, unfollowed, or just left out of the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict

from mistnet.governor.errors import BadRequest, BrokenAnswer
from mistnet.governor.model import X_SOURCE, CallPurpose, Meter
from mistnet.graph.follows.model import (
    PROFILE_HOLDS,
    Cause,
    FollowPhase,
    FollowsEnded,
    FollowSource,
    FollowsSeen,
    FollowSyncArgs,
    Side,
    absence_cause,
    begin_ingest,
    check_limit,
    sync_of,
)
from mistnet.kit.clock import Clock
from mistnet.queue.errors import Temporary
from mistnet.queue.model import Continue, Job, Outcome, Write
from mistnet.social.ingests import IngestAdvanced
from mistnet.social.jobs.args import CollectRules
from mistnet.social.jobs.hydration import FULL_BATCH, users_to_fill
from mistnet.social.model import User, UserId, X

if TYPE_CHECKING:
    from mistnet.graph.follows.store import SyncReads

FILLS_UP: Final = 6
"""From this many users on, a batch filled up to 100 is cheaper than a small one."""

CHECK_TRIES: Final = 3


class MissingUsers(msgspec.Struct, frozen=True, kw_only=True):
    """Resolves missing users, a batch or a single one per step. The steps return None when none are left."""

    reads: SyncReads
    x: FollowSource
    clock: Clock
    rules: CollectRules
    meter: Meter | None = None

    async def look_up(self, job: Job[FollowSyncArgs]) -> Outcome | None:
        """Look up the next missing users by id. An unavailable user is on no list. For the others, a list that
        accounts for everyone proves that they unfollowed; any other list proves nothing, so they are checked later."""
        at = job.args
        ids = await self.reads.missed(sync_of(job), after=at.after, limit=self._batch_size)
        if not ids:
            return Continue(args=msgspec.structs.replace(at, phase=FollowPhase.CHECKS)) if at.checks else None
        profiles, calls = await self._fetch_profiles(job, ids)
        causes = {each: absence_cause(profiles.get(each)) for each in ids}
        available = [each for each in ids if causes[each] is None]
        to_check: Sequence[UserId] = ()
        if at.accounted:
            causes |= dict.fromkeys(available, Cause.UNFOLLOWED)
            unsure = 0
        else:
            # A check costs 100 credits: the others stay doubted until the next full sync.
            to_check = available[: max(check_limit(at.seen) - len(at.checks), 0)]
            unsure = len(available) - len(to_check)
        args = msgspec.structs.replace(at, after=ids[-1], checks=[*at.checks, *to_check], unsure=at.unsure + unsure)
        writes = [begin_ingest(job), *profiles.values(), *_ended(job, causes)]
        return Continue([*writes, IngestAdvanced(job_id=job.id, calls=calls)], args=args)

    async def explain_shortfall(self, job: Job[FollowSyncArgs]) -> Outcome:
        """Count the unavailable users among those missing from a short list. Ends no edges."""
        at = job.args
        ids = await self.reads.unseen(sync_of(job), after=at.after, limit=self._batch_size)
        if not ids:
            args = msgspec.structs.replace(at, phase=FollowPhase.JUDGE, after=None, explained=at.explained or 0)
            return Continue(args=args)
        profiles, calls = await self._fetch_profiles(job, ids)
        hidden = sum(absence_cause(profiles.get(each)) is not None for each in ids)
        args = msgspec.structs.replace(at, after=ids[-1], explained=(at.explained or 0) + hidden)
        advanced = IngestAdvanced(job_id=job.id, calls=calls)
        return Continue([begin_ingest(job), *profiles.values(), advanced], args=args)

    async def check_next(self, job: Job[FollowSyncArgs]) -> Outcome | None:
        """Ask about a single edge: a list may leave a user out, an answer about this user does not."""
        at = job.args
        if not at.checks:
            return None
        if at.profiled_at is None or self.clock.now() - at.profiled_at > PROFILE_HOLDS:
            # By now another user may have the handle: an answer could be about the wrong account.
            args = msgspec.structs.replace(at, checks=(), unsure=at.unsure + len(at.checks))
            return Continue([begin_ingest(job)], args=args)
        user_id = at.checks[0]
        follows = await self._fetch_relation(job, user_id)
        writes: Sequence[Write] = ()
        if follows:
            writes = [FollowsSeen(platform=X, side=at.side, subject_id=at.user_id, ids=[user_id], job_id=job.id)]
        elif follows is not None:
            writes = _ended(job, {user_id: Cause.UNFOLLOWED})
        args = msgspec.structs.replace(at, checks=at.checks[1:], unsure=at.unsure + (follows is None))
        return Continue([begin_ingest(job), *writes, IngestAdvanced(job_id=job.id, calls=1)], args=args)

    @property
    def _batch_size(self) -> int:
        return min(FULL_BATCH, self.rules.users_per_call)

    async def _fetch_profiles(
        self, job: Job[FollowSyncArgs], ids: Sequence[UserId]
    ) -> tuple[Mapping[UserId, User], int]:
        """The profiles that upstream returns, and the number of calls. Users it leaves out are requested again, because
        one answer without them does not prove that they are gone."""
        stalest, most = self.reads.stalest_users, self.rules.users_per_call
        extra = await users_to_fill(stalest, X, ids, pays_from=FILLS_UP, most=most)
        found = await self._fetch_users(job, [*ids, *extra])
        absent = [each for each in ids if each not in found]
        if not absent:
            return found, 1
        return {**found, **await self._fetch_users(job, absent)}, 2

    async def _fetch_users(self, job: Job[FollowSyncArgs], ids: Sequence[UserId]) -> Mapping[UserId, User]:
        gathered = await self.x.users(ids, purpose=CallPurpose(job.id, job.args.user_id, self.meter))
        if gathered.unreadable:
            raise BrokenAnswer(X_SOURCE, "user/batch_info_by_ids", gathered.unreadable[0].problem)
        return {each: user for each, user in gathered.users.items() if each in set(ids)}

    async def _fetch_relation(self, job: Job[FollowSyncArgs], user_id: UserId) -> bool | None:
        """Whether the edge exists; None if that cannot be determined."""
        handle = await self.reads.handle(X, user_id)
        if handle is None:
            return None
        purpose = CallPurpose(job.id, job.args.user_id, self.meter)
        try:
            relation = await self.x.relation(handle, job.args.handle, purpose=purpose)
        except BadRequest:
            return None
        except Temporary:
            # An edge that cannot be checked stays as it is: a false unfollow is worse than a late one.
            if job.attempt < CHECK_TRIES:
                raise
            return None
        if relation is None:
            return None
        return relation.following if job.args.side is Side.FOLLOWERS else relation.followed_by


def _ended(job: Job[FollowSyncArgs], causes: Mapping[UserId, Cause | None]) -> list[FollowsEnded]:
    """One write for each cause."""
    return [
        FollowsEnded(ids=[each for each, why in causes.items() if why is cause], cause=cause, **asdict(sync_of(job)))
        for cause in sorted({cause for cause in causes.values() if cause})
    ]
