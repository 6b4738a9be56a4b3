"""Read one of a user's follow lists, a few pages per step, and trust it only as far as it can be verified.

Users whom two full syncs missed are looked up: each is unavailable, unfollowed, or just left out of the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict

from mistnet.governor.errors import BadRequest, BrokenAnswer
from mistnet.governor.model import X_SOURCE, CallPurpose, Meter
from mistnet.graph.follows.model import (
    PAGE_SIZE,
    PROFILE_HOLDS,
    Cause,
    FollowPhase,
    FollowsEnded,
    FollowSource,
    FollowsSeen,
    FollowSyncArgs,
    Side,
    SyncEnded,
    SyncMode,
    SyncVerdict,
    absence_cause,
    begin_ingest,
    check_limit,
    confirming_sync,
    judge_list,
    page_limit,
    sync_of,
)
from mistnet.graph.segments.model import MATERIALIZE, Need, awaits
from mistnet.kit.clock import Clock
from mistnet.queue.errors import Temporary, WorkError
from mistnet.queue.model import Continue, Done, Job, Outcome, Wake, Write
from mistnet.social.ingests import IngestAdvanced, IngestEnded, IngestStatus, recorded
from mistnet.social.jobs.args import CollectRules
from mistnet.social.jobs.hydration import FULL_BATCH, NEVER_RETURNED, never_returned, users_to_fill
from mistnet.social.model import User, UserId, UserPage, X

if TYPE_CHECKING:
    from mistnet.graph.follows.store import SyncReads

PAGES_PER_STEP: Final = 5
STEP_TAKES: Final = timedelta(seconds=1)
"""What a crash can cost: the pages of one second, which are then requested again."""

CURSORS_KEPT: Final = 8
KNOWN_PAGES: Final = 2
"""An incremental sync ends after this many pages in a row that hold only known edges."""


class FollowSyncer(msgspec.Struct, frozen=True, kw_only=True):
    """The handler of follow syncs. Users come from the list's own payloads; edges, events and progress are written
    together with them."""

    reads: SyncReads
    x: FollowSource
    clock: Clock
    rules: CollectRules
    meter: Meter | None = None

    async def sync(self, job: Job[FollowSyncArgs]) -> Outcome:
        """One step, recorded as part of the job's ingest even if it fails."""
        # A meter of its own: all jobs of a worker share this handler.
        metered = self if job.args.max_credits is None else msgspec.structs.replace(self, meter=Meter())
        return await recorded(metered.capped_step, begin_ingest)(job)

    async def capped_step(self, job: Job[FollowSyncArgs]) -> Outcome:
        """The next step, or the end if it could exceed the job's cap. A failed attempt counts as much as a good one,
        because upstream may have charged for it."""
        at = job.args
        if at.max_credits is None:
            return await self._step(job)
        at = msgspec.structs.replace(at, spent=at.spent + (job.attempt - 1) * self._most_credits(at.phase))
        if not self._affords(at):
            read = "1 user is read" if at.tally.listed == 1 else f"{at.tally.listed:,} users are read"
            problem = f"stopped at its cap of {at.max_credits:,} credits: {at.spent:,} are spent, {read}"
            return self._end(job, SyncVerdict(plausible=False, problem=problem))
        match await self._step(msgspec.structs.replace(job, args=at)):
            case Continue(args=FollowSyncArgs() as after) as outcome:
                return msgspec.structs.replace(outcome, args=msgspec.structs.replace(after, spent=self._spent(after)))
            case outcome:
                return outcome

    def _most_credits(self, phase: FollowPhase) -> int:
        """The most a step of this phase can cost before it checks the cap again."""
        most = self.rules.most
        match phase:
            case FollowPhase.BEGIN | FollowPhase.JUDGE:
                return most.profile
            case FollowPhase.PAGES:
                # A step may read the profile again before its pages.
                return most.follows + most.profile
            case FollowPhase.EXPLAIN | FollowPhase.DOUBTS:
                # Missing users are requested twice before they count as gone.
                return 2 * most.profile * self.rules.users_per_call
            case FollowPhase.CHECKS:
                return most.relation

    def _spent(self, at: FollowSyncArgs) -> int:
        return at.spent + (self.meter.credits if self.meter else 0)

    def _affords(self, at: FollowSyncArgs) -> bool:
        return at.max_credits is None or self._spent(at) + self._most_credits(at.phase) <= at.max_credits

    async def _step(self, job: Job[FollowSyncArgs]) -> Outcome:
        missing = MissingUsers(reads=self.reads, x=self.x, clock=self.clock, rules=self.rules, meter=self.meter)
        match job.args.phase:
            case FollowPhase.BEGIN:
                return await self._begin(job)
            case FollowPhase.PAGES:
                return await self._read_pages(job)
            case FollowPhase.JUDGE:
                return await self._judge(job)
            case FollowPhase.EXPLAIN:
                return await missing.explain_shortfall(job)
            case FollowPhase.DOUBTS:
                return await missing.look_up(job) or await self._finish_checked(job)
            case FollowPhase.CHECKS:
                return await missing.check_next(job) or await self._finish_checked(job)

    async def _begin(self, job: Job[FollowSyncArgs]) -> Outcome:
        """Read the subject's profile first: the handle, and how long the list should be."""
        at = job.args
        # Without a complete list, no edge is known that could end an incremental sync.
        if at.mode is SyncMode.INCREMENTAL and await self.reads.last_sync(X, at.side, at.user_id) is None:
            return Continue(args=msgspec.structs.replace(at, mode=SyncMode.FULL))
        now = self.clock.now()
        user = await self._fetch_subject(job)
        if user is None or _unreadable_reason(user):
            return self._end_unreadable(job, user)
        args = msgspec.structs.replace(
            at,
            phase=FollowPhase.PAGES,
            begun_at=now,
            profiled_at=now,
            handle=user.handle or "",
            at_start=at.side.count_of(user),
        )
        return Continue([begin_ingest(job), user, IngestAdvanced(job_id=job.id, calls=1)], args=args)

    async def _fetch_subject(self, job: Job[FollowSyncArgs]) -> User | None:
        """By id: handles change, ids do not."""
        user_id = job.args.user_id
        gathered = await self.x.users([user_id], purpose=self._purpose(job))
        if user_id not in gathered.users and gathered.unreadable:
            raise BrokenAnswer(X_SOURCE, "user/batch_info_by_ids", gathered.unreadable[0].problem)
        return gathered.users.get(user_id)

    def _end_unreadable(self, job: Job[FollowSyncArgs], user: User | None) -> Done:
        """An operator cannot fix a deleted or protected account: the ingest records the error, the job is no gap."""
        at = job.args
        why = _unreadable_reason(user) if user else NEVER_RETURNED
        problem = f"the {at.side} of user {at.user_id} cannot be read: {why}"
        ended = IngestEnded(job_id=job.id, status=IngestStatus.ERROR, calls=1, problem=problem)
        return Done([user or never_returned(X, at.user_id), begin_ingest(job), ended, _wake_segments(at)])

    async def _read_pages(self, job: Job[FollowSyncArgs]) -> Outcome:
        """Read as many pages as arrive within a second, so that a slow source's pages are stored one by one.

        Reads the profile first if it is old, or if the previous attempt failed: the handle may have changed.
        """
        at, started = job.args, self.clock.now()
        writes: list[Write] = [begin_ingest(job)]
        if job.attempt > 1 or at.profiled_at is None or started - at.profiled_at > PROFILE_HOLDS:
            user = await self._fetch_subject(job)
            if user is None or _unreadable_reason(user):
                return self._end_unreadable(job, user)
            writes += [user, IngestAdvanced(job_id=job.id, calls=1)]
            at = msgspec.structs.replace(at, profiled_at=started, handle=user.handle or "")
        for number in range(PAGES_PER_STEP):
            try:
                at, page, ids = await self._read_page(job, at)
            except WorkError:
                if not number:
                    raise
                # Keep the pages before this one. The next step meets the same error, and reports it.
                break
            seen = FollowsSeen(platform=X, side=at.side, subject_id=at.user_id, ids=ids, job_id=job.id)
            writes += [*page.gathered.writes, seen, IngestAdvanced(job_id=job.id, calls=1, items=len(ids))]
            if not _goes_on(at, page) or self.clock.now() - started >= STEP_TAKES or not self._affords(at):
                break
        return self._after_pages(job, at, page, writes)

    async def _read_page(
        self, job: Job[FollowSyncArgs], at: FollowSyncArgs
    ) -> tuple[FollowSyncArgs, UserPage, Sequence[UserId]]:
        """The progress after the next page, the page, and the users on it.

        Raises BrokenAnswer for a page that cannot be continued: it is requested again, never taken as the end.
        """
        fetch = self.x.followers if at.side is Side.FOLLOWERS else self.x.followings
        page = await fetch(at.handle, size=PAGE_SIZE, cursor=at.cursor, purpose=self._purpose(job))
        problem = None
        if page.has_more and not page.cursor:
            problem = "the page says that more follows, but has no cursor"
        elif page.has_more and page.cursor in (at.cursor, *at.cursors):
            problem = "the cursor leads back to an earlier page"
        elif not page.own and page.gathered.unreadable:
            problem = "nothing on the page can be read"
        if problem:
            raise BrokenAnswer(X_SOURCE, f"user/{at.side}", problem)
        # Upstream may list the subject itself, and no edge leads from a user to the same user.
        ids, known_pages = [each for each in page.own if each != at.user_id], 0
        if at.mode is SyncMode.INCREMENTAL and ids:
            last = await self.reads.last_sync(X, at.side, at.user_id)
            known = await self.reads.known_edges(X, at.side, at.user_id, ids, last) if last else ()
            # New follows come first: a page with something new means that more may follow below it.
            known_pages = at.known_pages + 1 if len(known) == len(ids) else 0
        after = msgspec.structs.replace(
            at,
            # The last cursors suffice to notice a loop, and a job's arguments stay small.
            cursor=page.cursor,
            cursors=[*at.cursors, *([at.cursor] if at.cursor else [])][-CURSORS_KEPT:],
            tally=at.tally.with_page(page, listed=len(ids)),
            known_pages=known_pages,
        )
        return after, page, ids

    def _after_pages(
        self, job: Job[FollowSyncArgs], at: FollowSyncArgs, page: UserPage, writes: Sequence[Write]
    ) -> Outcome:
        if _goes_on(at, page):
            return Continue(writes, args=at)
        # Cursors that neither repeat nor end would cost credits without limit.
        if page.has_more and _is_endless(at):
            problem = f"the list does not end: {at.tally.pages:,} pages for the {at.at_start:,} the profile counts"
            return self._end(job, SyncVerdict(plausible=False, problem=problem), writes)
        if at.known_pages >= KNOWN_PAGES:
            return self._end(job, SyncVerdict(plausible=True), writes)
        return Continue(writes, args=msgspec.structs.replace(at, phase=FollowPhase.JUDGE, cursor=None, cursors=()))

    async def _judge(self, job: Job[FollowSyncArgs]) -> Outcome:
        """The list is read to its end: decide whether it is plausible, and who is missing from it."""
        at, now = job.args, self.clock.now()
        user = await self._fetch_subject(job)
        if user is None or _unreadable_reason(user):
            return self._end_unreadable(job, user)
        sync = sync_of(job)
        seen = await self.reads.seen(sync)
        explained = await self.reads.hidden(sync) + (at.explained or 0)
        verdict = judge_list(
            at.tally, seen=seen, at_start=at.at_start, at_end=at.side.count_of(user), explained=explained
        )
        phase: FollowPhase | None = None
        # A plausible list shows who is missing.
        if at.mode is SyncMode.FULL and verdict.plausible:
            phase = FollowPhase.DOUBTS if await self.reads.missed(sync, after=None, limit=1) else None
        # Unavailable users may explain a short list, once: the same users would be paid for again.
        elif at.mode is SyncMode.FULL and verdict.lacking and at.explained is None:
            phase = FollowPhase.EXPLAIN if await self.reads.unseen(sync, after=None, limit=1) else None
        writes: list[Write] = [user, IngestAdvanced(job_id=job.id, calls=1)]
        if phase is None:
            return await self._finish(job, verdict, writes)
        args = msgspec.structs.replace(
            at, phase=phase, accounted=verdict.accounted, seen=seen, handle=user.handle or "", profiled_at=now
        )
        return Continue([begin_ingest(job), *writes], args=args)

    async def _finish_checked(self, job: Job[FollowSyncArgs]) -> Done:
        """Missing users are only looked up after a plausible list; those that could not be resolved are reported."""
        at = job.args
        unsure = f"{at.unsure:,} edges stay as they are: the list is incomplete" if at.unsure else None
        return await self._finish(job, SyncVerdict(plausible=True, accounted=at.accounted, problem=unsure))

    async def _finish(self, job: Job[FollowSyncArgs], verdict: SyncVerdict, writes: Sequence[Write] = ()) -> Done:
        """A plausible full list casts doubt on the edges it lacks. The first to do so requests a second sync, because
        a list can leave users out at random."""
        at, sync = job.args, sync_of(job)
        if not verdict.plausible or at.mode is not SyncMode.FULL:
            return self._end(job, verdict, [begin_ingest(job), *writes])
        later: list[Write] = []
        # After a pause, because a list that leaves users out at random differs by then.
        if not at.confirming and await self.reads.newly_missed(sync):
            later.append(confirming_sync(at, self.clock.now() + self.rules.second_look))
        return self._end(job, verdict, [begin_ingest(job), *writes], [*later, SyncEnded(**asdict(sync))])

    def _end(
        self,
        job: Job[FollowSyncArgs],
        verdict: SyncVerdict,
        writes: Sequence[Write] | None = None,
        later: Sequence[Write] = (),
    ) -> Done:
        ended = IngestEnded(
            job_id=job.id, status=IngestStatus.SUCCESS, plausible=verdict.plausible, problem=verdict.problem
        )
        return Done([*([begin_ingest(job)] if writes is None else writes), ended, _wake_segments(job.args), *later])

    def _purpose(self, job: Job[FollowSyncArgs]) -> CallPurpose:
        return CallPurpose(job.id, job.args.user_id, self.meter)


def _is_endless(at: FollowSyncArgs) -> bool:
    most = page_limit(at.at_start)
    return most is not None and at.tally.pages >= most


def _goes_on(at: FollowSyncArgs, page: UserPage) -> bool:
    return page.has_more and at.known_pages < KNOWN_PAGES and not _is_endless(at)


def _unreadable_reason(user: User) -> str | None:
    """Why this user's lists cannot be read by anyone."""
    if user.unavailable_reason is not None:
        return f"unavailable: {user.unavailable_reason}"
    if user.protected:
        return "the account is protected"
    return None if user.handle else "upstream returned no handle to request it by"


def _wake_segments(at: FollowSyncArgs) -> Wake:
    """Materializations that wait for this sync can continue."""
    return Wake(kind=MATERIALIZE, reason=awaits(Need(platform=X, side=at.side, subject_id=at.user_id)))


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
