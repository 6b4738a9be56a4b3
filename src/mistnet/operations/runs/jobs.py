"""One account of a run: its newest posts, a page per step, until there are as many as were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mistnet.governor.model import CallPurpose, Meter
from mistnet.operations.runs.model import RunStatus, RunStep, ScrapeArgs
from mistnet.queue.model import Continue, Done, Job, NewJob, Outcome, Write
from mistnet.social.accounts import AccountState
from mistnet.social.fetch_sizes import Fetched
from mistnet.social.jobs.profiles import state_of
from mistnet.social.jobs.reply_chains import about
from mistnet.social.jobs.sweeps import SECOND_LOOK, Emptiness, OtherAuthors, Progress, Span, Sweeper, query, verdict
from mistnet.social.model import Gathered, Page, Platform, Post, PostId, Unreadable, User, UserId

NOBODY: Final = UserId(0)
UNKNOWN: Final = "upstream knows nobody of that name"
PROTECTED: Final = "its posts are protected"
NOTHING_SHOWN: Final = "search shows no posts of this account"


class Scraper(msgspec.Struct, frozen=True, kw_only=True):
    """Works for runs. Boundaries of accounts stay where they are: a run proves nothing about what lies between."""

    sweeper: Sweeper

    async def scrape(self, job: Job[ScrapeArgs]) -> Outcome:
        """Newest first, down to the limit or the end. Tracked or not makes no difference to what is counted."""
        at, meter = job.args, Meter()
        if at.max_credits is None:
            return await self._look(job, CallPurpose(job.id, at.user_id))
        # Tries that failed may have cost as much as a good one.
        most = self.sweeper.rules.most
        spent = at.spent + (job.attempt - 1) * (most.posts + most.profile)
        if spent + most.posts > at.max_credits:
            return Done([self._told(at, RunStatus.FAILED, _stopped(at, spent))])
        match await self._look(job, CallPurpose(job.id, at.user_id, meter)):
            case Continue(args=ScrapeArgs() as down) as outcome:
                counted = msgspec.structs.replace(down, spent=spent + meter.credits)
                return msgspec.structs.replace(outcome, args=counted)
            case outcome:
                return outcome

    async def _look(self, job: Job[ScrapeArgs], purpose: CallPurpose) -> Outcome:
        at = job.args
        span = Span(ceiling=at.ceiling)
        page = await self.sweeper.x.search(query(at.handle, span), purpose=purpose)
        user_id = at.user_id or author_of(page, at.handle)
        match verdict(page, user_id or NOBODY, span):
            case Progress(posts=posts, lowest=lowest):
                return await self._step(at, user_id, first(page, posts, span, at.limit - at.counted), lowest)
            case Emptiness() | OtherAuthors() if at.suspected and job.is_first_try:
                reason = None if at.counted else NOTHING_SHOWN
                ended = [self._told(at, RunStatus.COMPLETED, reason), *_fetched(at)]
                return Done([*page.gathered.writes, *ended])
            case Emptiness() | OtherAuthors():
                return await self._suspect(job, page, purpose)

    async def _step(self, at: ScrapeArgs, user_id: UserId | None, page: Page, lowest: PostId) -> Outcome:
        own = [page.gathered.posts[each] for each in page.own]
        span = Span(ceiling=at.ceiling)
        failed = len(unread(page, span))
        counted = at.counted + len(own) + failed
        step = msgspec.structs.replace(
            self._told(at, RunStatus.RUNNING if counted < at.limit else RunStatus.COMPLETED),
            posts=page.own,
            failed=failed,
            user_id=user_id,
        )
        writes = [*page.gathered.writes, step, *await self._leads(page, own, user_id, span)]
        known = await self.sweeper.look.known_posts(Platform.X, page.own)
        down = msgspec.structs.replace(
            at,
            user_id=user_id,
            ceiling=PostId(lowest - 1),
            counted=counted,
            suspected=False,
            found=at.found + len(own),
            known=at.known + len(known),
        )
        if step.status is RunStatus.COMPLETED:
            return Done([*writes, *_fetched(down)])
        return Continue(writes, args=down)

    async def _leads(self, page: Page, own: Sequence[Post], user_id: UserId | None, span: Span) -> list[NewJob]:
        """Posts of a tracked account lead on as if it had been swept."""
        account = await self.sweeper.look.account(Platform.X, user_id) if user_id else None
        if account is None or account.state is AccountState.UNTRACKED:
            return []
        return [*await self.sweeper.leads(page, own, account), *await self.sweeper.mending(page, account, span)]

    async def _suspect(self, job: Job[ScrapeArgs], page: Page, purpose: CallPurpose) -> Outcome:
        """An end is looked at twice. Where nothing was ever shown, the profile may tell why."""
        at = job.args
        writes: list[Write] = list(page.gathered.writes)
        if not at.counted:
            user = await self.sweeper.x.user(at.handle, purpose=purpose)
            writes += [user] if user else []
            if problem := _problem(user):
                return Done([*writes, self._told(at, RunStatus.FAILED, problem)])
        again = msgspec.structs.replace(at, suspected=True)
        later = self.sweeper.clock.now() + self.sweeper.rules.second_look
        return Continue([*writes, self._told(at, RunStatus.RUNNING)], args=again, run_at=later, reason=SECOND_LOOK)

    def _told(self, at: ScrapeArgs, status: RunStatus, reason: str | None = None) -> RunStep:
        return RunStep(
            run_id=at.run_id,
            position=at.position,
            status=status,
            reason=reason,
            summarize=self.sweeper.rules.summarize,
        )


def _fetched(at: ScrapeArgs) -> list[Fetched]:
    """What a run fetched counts like a round of a catch-up. Nothing is kept of accounts that are not tracked."""
    if at.user_id is None:
        return []
    new = at.found - at.known
    return [Fetched(platform=Platform.X, user_id=at.user_id, fetched=at.found, new=new, limit=at.limit)]


def author_of(page: Page, handle: str) -> UserId | None:
    """Whose posts a search for this handle shows."""
    authors = [page.gathered.users.get(page.gathered.posts[each].author_id) for each in page.own]
    named = (each.id for each in authors if each and (each.handle or "").lower() == handle.lower())
    return next(named, None)


def first(page: Page, posts: Sequence[Post], span: Span, room: int) -> Page:
    """The page as far down as `room` posts go, unreadable ones included. What was not asked for is left out."""
    ranked: list[tuple[int, Post | Unreadable]] = [*((each.id, each) for each in posts)]
    ranked += [(_place(each, span), each) for each in unread(page, span)]
    if len(ranked) <= room:
        return msgspec.structs.replace(page, own=[each.id for each in posts])
    kept = [each for _, each in sorted(ranked, key=lambda pair: pair[0], reverse=True)[:room]]
    own = [each for each in kept if isinstance(each, Post)]
    shown = [write for each in own for write in about(each, page.gathered)]
    gathered = Gathered(
        {each.id: each for each in shown if isinstance(each, Post)},
        {each.id: each for each in shown if isinstance(each, User)},
        [each for each in kept if isinstance(each, Unreadable)],
    )
    return msgspec.structs.replace(page, own=[each.id for each in own], gathered=gathered)


def unread(page: Page, span: Span) -> list[Unreadable]:
    """What this page was to show and could not be read, and is not on it once more in good shape."""
    return [each for each in page.gathered.unreadable if _counts(each, span) and each.post_id not in page.own]


def _counts(hole: Unreadable, span: Span) -> bool:
    """Without an id and below all others it is on the next page again, and counts there; above, it has counted."""
    if hole.post_id is not None:
        return hole.post_id in span
    return hole.below is not None and PostId(hole.below + 1) in span


def _place(hole: Unreadable, span: Span) -> int:
    """About where it stands among the ids of its page."""
    if hole.post_id is not None:
        return hole.post_id
    return hole.above - 1 if hole.above else span.ceiling or 1 << 63


def _stopped(at: ScrapeArgs, spent: int) -> str:
    return f"stopped: {spent:,} of the {at.max_credits:,} credits are spent that the run's cap leaves for this account"


def _problem(user: User | None) -> str | None:
    """Why nothing can be had of an account."""
    if user is None:
        return UNKNOWN
    match state_of(user):
        case AccountState.ACTIVE:
            return None
        case AccountState.PROTECTED:
            return PROTECTED
        case _:
            return f"unavailable: {user.unavailable_reason}"
