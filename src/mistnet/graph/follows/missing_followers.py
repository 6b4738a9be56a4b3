"""Those whom two complete syncs have missed: gone from the platform, no longer following, or left out by the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from mistnet.governor.errors import BadRequest, BrokenAnswer
from mistnet.governor.model import X_SOURCE, CallPurpose, Meter
from mistnet.graph.follows.args import FollowPhase, FollowSyncArgs, begun, sync_of
from mistnet.graph.follows.model import (
    Cause,
    FollowLook,
    FollowsEnded,
    FollowSource,
    FollowsSeen,
    Relation,
    Side,
    cause_of,
    checks_at_most,
)
from mistnet.kit.clock import Clock
from mistnet.queue.errors import Temporary
from mistnet.queue.model import Continue, Job, Outcome, Write
from mistnet.social.ingests.model import IngestAdvanced
from mistnet.social.jobs.args import CollectRules
from mistnet.social.model import Gathered, User, UserId, X

FULL_BATCH: Final = 100
FILLS_UP: Final = 6
"""From so many on, a batch filled up to a hundred is cheaper than a small one."""

CHECK_TRIES: Final = 3


class Doubter(msgspec.Struct, frozen=True, kw_only=True):
    """Settles doubts, a batch or a single user per step. Both ways answer None when nothing is left to settle."""

    look: FollowLook
    x: FollowSource
    clock: Clock
    rules: CollectRules
    profile_holds: timedelta
    meter: Meter | None = None

    @property
    def _size(self) -> int:
        return min(FULL_BATCH, self.rules.users_per_call)

    async def doubt(self, job: Job[FollowSyncArgs]) -> Outcome | None:
        """Looks at the next of the missing by id. Who is not there at all is on nobody's list; of the others, a list
        that accounts for everybody proves that they left, and any other proves nothing."""
        at = job.args
        ids = await self.look.missed(sync_of(job), after=at.after, limit=self._size)
        if not ids:
            return Continue(args=msgspec.structs.replace(at, phase=FollowPhase.CHECKS)) if at.checks else None
        found, writes, calls = await self._profiles(job, ids)
        gone = {each: _why(found.get(each)) for each in ids}
        there = [each for each in ids if gone[each] is None]
        if at.accounted:
            gone |= dict.fromkeys(there, Cause.UNFOLLOWED)
        room = 0 if at.accounted else max(checks_at_most(at.seen) - len(at.checks), 0)
        left = 0 if at.accounted else len(there[room:])
        on = msgspec.structs.replace(at, after=ids[-1], checks=[*at.checks, *there[:room]], unsure=at.unsure + left)
        told = IngestAdvanced(job_id=job.id, calls=calls)
        return Continue([begun(job), *writes, *self._ended(job, gone), told], args=on)

    async def explain(self, job: Job[FollowSyncArgs]) -> Outcome:
        """Counts, of those whom a short list lacks, who cannot be shown any more. Ends nothing."""
        at = job.args
        ids = await self.look.unseen(sync_of(job), after=at.after, limit=self._size)
        if not ids:
            judged = msgspec.structs.replace(at, phase=FollowPhase.JUDGE, after=None, explained=at.explained or 0)
            return Continue(args=judged)
        found, writes, calls = await self._profiles(job, ids)
        hidden = sum(_why(found.get(each)) is not None for each in ids)
        on = msgspec.structs.replace(at, after=ids[-1], explained=(at.explained or 0) + hidden)
        return Continue([begun(job), *writes, IngestAdvanced(job_id=job.id, calls=calls)], args=on)

    async def _profiles(
        self, job: Job[FollowSyncArgs], ids: Sequence[UserId]
    ) -> tuple[Mapping[UserId, User], list[Write], int]:
        """What upstream says of them. Whom it does not return it is asked for once more."""
        asked = [*ids, *(extra := await self._filling(ids))]
        first = await self._users(job, asked)
        known = {each for each in extra if each in first.users} | set(ids)
        absent = [each for each in ids if each not in first.users]
        second = await self._users(job, absent) if absent else Gathered({}, {}, [])
        found = {each: user for each, user in {**first.users, **second.users}.items() if each in known}
        return found, list(found.values()), 2 if absent else 1

    async def _users(self, job: Job[FollowSyncArgs], ids: Sequence[UserId]) -> Gathered:
        gathered = await self.x.users(ids, purpose=self._purpose(job))
        if gathered.unreadable:
            raise BrokenAnswer(X_SOURCE, "user/batch_info_by_ids", gathered.unreadable[0].problem)
        return gathered

    async def _filling(self, ids: Sequence[UserId]) -> Sequence[UserId]:
        room = FULL_BATCH - len(ids)
        if len(ids) < FILLS_UP or room <= 0 or self.rules.users_per_call < FULL_BATCH:
            return ()
        extra = await self.look.stalest_users(X, room, ids)
        return extra if len(extra) == room else ()

    def _ended(self, job: Job[FollowSyncArgs], gone: Mapping[UserId, Cause | None]) -> list[FollowsEnded]:
        sync = sync_of(job)
        causes = sorted({cause for cause in gone.values() if cause})
        return [
            FollowsEnded(
                platform=sync.platform,
                side=sync.side,
                subject_id=sync.subject_id,
                ids=[each for each, why in gone.items() if why is cause],
                cause=cause,
                job_id=sync.job_id,
                since=sync.since,
            )
            for cause in causes
        ]

    async def check(self, job: Job[FollowSyncArgs]) -> Outcome | None:
        """Asks for one edge alone: a list may leave somebody out, an answer about him does not."""
        at = job.args
        if not at.checks:
            return None
        stale = at.profiled_at is None or self.clock.now() - at.profiled_at > self.profile_holds
        if stale:  # by now a handle may be somebody else's
            return self._on(job, [], left=len(at.checks), done=len(at.checks))
        user_id = at.checks[0]
        follows = await self._follows(job, user_id)
        if follows is None:
            return self._on(job, [], left=1)
        if follows:
            return self._on(job, [self._seen(job, user_id)])
        return self._on(job, self._ended(job, {user_id: Cause.UNFOLLOWED}))

    def _on(self, job: Job[FollowSyncArgs], writes: Sequence[Write], *, left: int = 0, done: int = 1) -> Continue:
        at = job.args
        on = msgspec.structs.replace(at, checks=at.checks[done:], unsure=at.unsure + left)
        return Continue([begun(job), *writes, IngestAdvanced(job_id=job.id, calls=int(done == 1))], args=on)

    async def _follows(self, job: Job[FollowSyncArgs], user_id: UserId) -> bool | None:
        """None: it cannot be told."""
        handle = await self.look.handle(X, user_id)
        if handle is None:
            return None
        try:
            relation: Relation | None = await self.x.relation(handle, job.args.handle, purpose=self._purpose(job))
        except BadRequest:
            return None
        except Temporary:
            if job.attempt < CHECK_TRIES:
                raise
            return None
        if relation is None:
            return None
        return relation.following if job.args.side is Side.FOLLOWERS else relation.followed_by

    def _seen(self, job: Job[FollowSyncArgs], user_id: UserId) -> FollowsSeen:
        at = job.args
        return FollowsSeen(platform=X, side=at.side, subject_id=at.user_id, ids=[user_id], job_id=job.id)

    def _purpose(self, job: Job[FollowSyncArgs]) -> CallPurpose:
        return CallPurpose(job.id, job.args.user_id, self.meter)


def _why(user: User | None) -> Cause | None:
    return Cause.VANISHED if user is None else cause_of(user)
