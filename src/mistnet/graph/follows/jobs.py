"""Read one side of a user's follows, a page per step, and believe no more of it than it proves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from mistnet.governor.errors import BrokenAnswer
from mistnet.governor.model import X_SOURCE, CallPurpose, Meter
from mistnet.graph.follows.args import FollowPhase, FollowSyncArgs, begun, confirming_sync, sync_of
from mistnet.graph.follows.missing_followers import Doubter
from mistnet.graph.follows.model import (
    PAGE_SIZE,
    FollowLook,
    FollowSource,
    FollowsSeen,
    Side,
    SyncEnded,
    SyncMode,
    SyncVerdict,
    pages_at_most,
    verdict,
)
from mistnet.graph.segments.model import MATERIALIZE, Need, awaits
from mistnet.kit.clock import Clock
from mistnet.queue.errors import WorkError
from mistnet.queue.model import Continue, Done, Job, Outcome, Wake, Write
from mistnet.social.ingests.model import IngestAdvanced, IngestEnded, IngestStatus
from mistnet.social.ingests.recording import recorded
from mistnet.social.jobs.args import CollectRules
from mistnet.social.jobs.profiles import NEVER_RETURNED, never_returned
from mistnet.social.model import User, UserId, UserPage, X

PROFILE_HOLDS: Final = timedelta(hours=1)
"""A handle may change hands; after that long it is looked at again before anything is asked by it."""

PAGES_PER_STEP: Final = 5
STEP_TAKES: Final = timedelta(seconds=1)
"""What a crash can cost: pages of one second, which are then asked for again."""

CURSORS_KEPT: Final = 8
KNOWN_PAGES: Final = 2
"""An incremental sync ends at a page of nothing but known edges, and looks at one more to be sure."""


class FollowSyncer(msgspec.Struct, frozen=True, kw_only=True):
    """The syncs of one source. Users come from the page's own payloads; edges, events and the place land with them."""

    look: FollowLook
    x: FollowSource
    clock: Clock
    rules: CollectRules
    meter: Meter | None = None

    async def sync(self, job: Job[FollowSyncArgs]) -> Outcome:
        """One step, recorded as part of the job's ingest whatever becomes of it."""
        metered = self if job.args.max_credits is None else msgspec.structs.replace(self, meter=Meter())
        return await recorded(metered.step, begun)(job)

    async def step(self, job: Job[FollowSyncArgs]) -> Outcome:
        """The next step, or the end at the job's own cap. Tries that failed may have cost as much as a good one."""
        if job.args.max_credits is None:
            return await self._step(job)
        failed = (job.attempt - 1) * self._most(job.args.phase)
        job = msgspec.structs.replace(job, args=msgspec.structs.replace(job.args, spent=job.args.spent + failed))
        if not self._affords(job.args):
            return Done([begun(job), self._ended(job, _stopped(job.args)), _over(job.args)])
        match await self._step(job):
            case Continue(args=FollowSyncArgs() as at) as outcome:
                return msgspec.structs.replace(outcome, args=msgspec.structs.replace(at, spent=self._spent(at)))
            case outcome:
                return outcome

    def _most(self, phase: FollowPhase) -> int:
        """What a call of this phase costs at most; those who are missing are asked for twice."""
        most = self.rules.most
        match phase:
            case FollowPhase.BEGIN | FollowPhase.JUDGE:
                return most.profile
            case FollowPhase.PAGES:
                return most.follows + most.profile
            case FollowPhase.EXPLAIN | FollowPhase.DOUBTS:
                return 2 * most.profile * self.rules.users_per_call
            case FollowPhase.CHECKS:
                return most.relation

    def _spent(self, at: FollowSyncArgs) -> int:
        return at.spent + (self.meter.credits if self.meter else 0)

    def _affords(self, at: FollowSyncArgs) -> bool:
        return at.max_credits is None or self._spent(at) + self._most(at.phase) <= at.max_credits

    async def _step(self, job: Job[FollowSyncArgs]) -> Outcome:
        match job.args.phase:
            case FollowPhase.BEGIN:
                return await self._begin(job)
            case FollowPhase.PAGES:
                return await self._pages(job)
            case FollowPhase.JUDGE:
                return await self._judge(job)
            case FollowPhase.EXPLAIN:
                return await self._doubter.explain(job)
            case FollowPhase.DOUBTS:
                return await self._doubter.doubt(job) or await self._finish(job, _believed(job.args))
            case FollowPhase.CHECKS:
                return await self._doubter.check(job) or await self._finish(job, _believed(job.args))

    @property
    def _doubter(self) -> Doubter:
        return Doubter(
            look=self.look, x=self.x, clock=self.clock, rules=self.rules, profile_holds=PROFILE_HOLDS, meter=self.meter
        )

    async def _begin(self, job: Job[FollowSyncArgs]) -> Outcome:
        """The subject comes first: its handle, and how long its list is to be."""
        at = job.args
        if at.mode is SyncMode.INCREMENTAL and await self.look.last_sync(X, at.side, at.user_id) is None:
            return Continue(args=msgspec.structs.replace(at, mode=SyncMode.FULL))
        now = self.clock.now()
        user = await self._subject(job)
        if user is None or _hidden(user):
            return self._unreadable(job, user)
        down = msgspec.structs.replace(
            at,
            phase=FollowPhase.PAGES,
            begun_at=now,
            profiled_at=now,
            handle=user.handle or "",
            at_start=at.side.count_of(user),
        )
        return Continue([begun(job), user, IngestAdvanced(job_id=job.id, calls=1)], args=down)

    async def _subject(self, job: Job[FollowSyncArgs]) -> User | None:
        """Asked by id: handles change, ids do not."""
        user_id = job.args.user_id
        gathered = await self.x.users([user_id], purpose=self._purpose(job))
        if user_id not in gathered.users and gathered.unreadable:
            raise BrokenAnswer(X_SOURCE, "user/batch_info_by_ids", gathered.unreadable[0].problem)
        return gathered.users.get(user_id)

    def _unreadable(self, job: Job[FollowSyncArgs], user: User | None) -> Done:
        """No one can act on a user who is gone or protected: the ingest records it, the job is no gap."""
        at = job.args
        why = _hidden(user) if user else NEVER_RETURNED
        said = f"the {at.side} of user {at.user_id} cannot be read: {why}"
        ended = IngestEnded(job_id=job.id, status=IngestStatus.ERROR, calls=1, problem=said)
        return Done([user or never_returned(at.user_id), begun(job), ended, _over(at)])

    async def _pages(self, job: Job[FollowSyncArgs]) -> Outcome:
        """As many pages as come within a moment: what a slow source sends is kept page by page.

        If the profile was seen long ago, or a fault came between, after a look at that.
        """
        at, started = job.args, self.clock.now()
        writes: list[Write] = [begun(job)]
        if job.attempt > 1 or at.profiled_at is None or started - at.profiled_at > PROFILE_HOLDS:
            user = await self._subject(job)
            if user is None or _hidden(user):
                return self._unreadable(job, user)
            writes += [user, IngestAdvanced(job_id=job.id, calls=1)]
            at = msgspec.structs.replace(at, profiled_at=started, handle=user.handle or "")
        for number in range(PAGES_PER_STEP):
            try:
                page = _believable(await self._ask(job, at), at)
            except WorkError:
                if not number:
                    raise
                break  # what came before is kept; the next step meets the same fault again
            at = await self._after_page(at, page)
            writes += self._collected(job, page)
            if not self._goes_on(at, page) or self.clock.now() - started >= STEP_TAKES or not self._affords(at):
                break
        return self._turned(job, at, page, writes)

    async def _after_page(self, at: FollowSyncArgs, page: UserPage) -> FollowSyncArgs:
        ids = _listed(at, page)
        return msgspec.structs.replace(
            at,
            cursor=page.cursor,
            cursors=[*at.cursors, *([at.cursor] if at.cursor else [])][-CURSORS_KEPT:],
            tally=at.tally.with_page(page, listed=len(ids)),
            known_pages=await self._known_pages(at, ids),
        )

    async def _ask(self, job: Job[FollowSyncArgs], at: FollowSyncArgs) -> UserPage:
        ask = self.x.followers if at.side is Side.FOLLOWERS else self.x.followings
        return await ask(at.handle, size=PAGE_SIZE, cursor=at.cursor, purpose=self._purpose(job))

    async def _known_pages(self, at: FollowSyncArgs, ids: Sequence[UserId]) -> int:
        """How many pages in a row, this one included, hold nothing that an earlier sync has not seen."""
        if at.mode is SyncMode.FULL or not ids:
            return 0
        known = await self.look.last_sync(X, at.side, at.user_id)
        if known is None:
            return 0
        found = await self.look.known_edges(X, at.side, at.user_id, ids, known)
        return at.known_pages + 1 if len(found) == len(ids) else 0

    def _collected(self, job: Job[FollowSyncArgs], page: UserPage) -> list[Write]:
        at, ids = job.args, _listed(job.args, page)
        seen = FollowsSeen(platform=X, side=at.side, subject_id=at.user_id, ids=ids, job_id=job.id)
        advanced = IngestAdvanced(job_id=job.id, calls=1, items=len(ids))
        return [*page.gathered.writes, seen, advanced]

    def _goes_on(self, at: FollowSyncArgs, page: UserPage) -> bool:
        return page.has_more and at.known_pages < KNOWN_PAGES and not _circles(at)

    def _turned(
        self, job: Job[FollowSyncArgs], down: FollowSyncArgs, page: UserPage, writes: Sequence[Write]
    ) -> Outcome:
        """On to the next page, or to the end."""
        if self._goes_on(down, page):
            return Continue(writes, args=down)
        if page.has_more and _circles(down):
            circles = f"the list does not end: {down.tally.pages:,} pages for the {down.at_start:,} the profile counts"
            found = SyncVerdict(plausible=False, problem=circles)
            return Done([*writes, self._ended(job, found), _over(down)])
        if down.known_pages >= KNOWN_PAGES:
            return Done([*writes, self._ended(job, SyncVerdict(plausible=True)), _over(down)])
        return Continue(writes, args=msgspec.structs.replace(down, phase=FollowPhase.JUDGE, cursor=None, cursors=()))

    async def _judge(self, job: Job[FollowSyncArgs]) -> Outcome:
        """The list is read. Can it be believed, and who is missing from it?"""
        at, now = job.args, self.clock.now()
        user = await self._subject(job)
        if user is None or _hidden(user):
            return self._unreadable(job, user)
        seen = await self.look.seen(sync_of(job))
        known = await self.look.hidden(sync_of(job)) + (at.explained or 0)
        found = verdict(at.tally, seen=seen, at_start=at.at_start, at_end=at.side.count_of(user), explained=known)
        phase = await self._after(job, found)
        writes: list[Write] = [user, IngestAdvanced(job_id=job.id, calls=1)]
        if phase is None:
            return await self._finish(job, found, writes)
        told = {"accounted": found.accounted, "seen": seen, "handle": user.handle or "", "profiled_at": now}
        return Continue([begun(job), *writes], args=msgspec.structs.replace(at, phase=phase, **told))

    async def _after(self, job: Job[FollowSyncArgs], found: SyncVerdict) -> FollowPhase | None:
        """A short list may be explained by those who cannot be shown any more; one to believe leads to its doubts."""
        at, sync = job.args, sync_of(job)
        if at.mode is not SyncMode.FULL:
            return None
        if found.plausible:
            return FollowPhase.DOUBTS if await self.look.missed(sync, after=None, limit=1) else None
        if not found.lacking or at.explained is not None:
            return None
        return FollowPhase.EXPLAIN if await self.look.unseen(sync, after=None, limit=1) else None

    async def _finish(self, job: Job[FollowSyncArgs], found: SyncVerdict, writes: Sequence[Write] = ()) -> Done:
        """A full list that can be believed casts doubt on whom it lacks; the first to do so asks for a second look."""
        at, sync = job.args, sync_of(job)
        told: list[Write] = [begun(job), *writes, self._ended(job, found), _over(at)]
        if not found.plausible or at.mode is not SyncMode.FULL:
            return Done(told)
        if not at.confirming and await self.look.newly_missed(sync):
            told.append(confirming_sync(at, self.clock.now() + self.rules.second_look))
        ended = SyncEnded(
            platform=sync.platform,
            side=sync.side,
            subject_id=sync.subject_id,
            job_id=sync.job_id,
            since=sync.since,
        )
        return Done([*told, ended])

    def _ended(self, job: Job[FollowSyncArgs], found: SyncVerdict) -> IngestEnded:
        return IngestEnded(job_id=job.id, status=IngestStatus.SUCCESS, plausible=found.plausible, problem=found.problem)

    def _purpose(self, job: Job[FollowSyncArgs]) -> CallPurpose:
        return CallPurpose(job.id, job.args.user_id, self.meter)


def _listed(at: FollowSyncArgs, page: UserPage) -> list[UserId]:
    """Nobody follows himself."""
    return [each for each in page.own if each != at.user_id]


def _circles(at: FollowSyncArgs) -> bool:
    most = pages_at_most(at.at_start)
    return most is not None and at.tally.pages >= most


def _stopped(at: FollowSyncArgs) -> SyncVerdict:
    read = "1 user is read" if at.tally.listed == 1 else f"{at.tally.listed:,} users are read"
    said = f"stopped at its cap of {at.max_credits:,} credits: {at.spent:,} are spent, {read}"
    return SyncVerdict(plausible=False, problem=said)


def _hidden(user: User) -> str | None:
    """Why nobody can read this user's lists."""
    if user.unavailable_reason is not None:
        return f"unavailable: {user.unavailable_reason}"
    if user.protected:
        return "the account is protected"
    return None if user.handle else "upstream tells no handle to ask by"


def _believed(at: FollowSyncArgs) -> SyncVerdict:
    """A sync that came as far as its doubts was plausible; what stays unsure is told."""
    unsure = f"{at.unsure:,} edges stay as they are: the list is incomplete" if at.unsure else None
    return SyncVerdict(plausible=True, accounted=at.accounted, problem=unsure)


def _believable(page: UserPage, at: FollowSyncArgs) -> UserPage:
    """Raises BrokenAnswer for a page one cannot go on from: it is asked for again, and is never an end."""
    endpoint = f"user/{at.side}"
    if page.has_more and not page.cursor:
        raise BrokenAnswer(X_SOURCE, endpoint, "a page that claims there is more and does not say where")
    if page.has_more and page.cursor in (at.cursor, *at.cursors):
        raise BrokenAnswer(X_SOURCE, endpoint, "a cursor that leads back to an earlier page")
    if not page.own and page.gathered.unreadable:
        raise BrokenAnswer(X_SOURCE, endpoint, "nothing on the page can be read")
    return page


def _over(at: FollowSyncArgs) -> Wake:
    """Whoever waits for this sync need not wait any longer."""
    return Wake(kind=MATERIALIZE, reason=awaits(Need(platform=X, side=at.side, subject_id=at.user_id)))
