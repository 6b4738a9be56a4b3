"""Scrape one account of a run: its newest posts, one page per step, until the run's limit is reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mistnet.governor.model import CallPurpose, Meter
from mistnet.operations.runs.model import RunStatus, RunStep, ScrapeArgs
from mistnet.queue.model import Continue, Done, Job, Outcome, Write
from mistnet.social.accounts import AccountState, Fetched
from mistnet.social.jobs.hydration import about, state_of
from mistnet.social.jobs.sweeps import SECOND_LOOK, Emptiness, OtherAuthors, Progress, Sweeper, verdict
from mistnet.social.model import Gathered, Page, Post, PostId, Span, Unreadable, User, UserId, X

_UNKNOWN_USER: Final = UserId(0)


class Scraper(msgspec.Struct, frozen=True, kw_only=True):
    """Handles the jobs of runs. It moves no account's boundaries: a run proves nothing about the posts in between."""

    sweeper: Sweeper

    async def scrape(self, job: Job[ScrapeArgs]) -> Outcome:
        """Fetch a page, newest posts first. Tracked and untracked accounts are counted alike."""
        args, meter = job.args, Meter()
        if args.max_credits is None:
            return await self._fetch_page(job, CallPurpose(job.id, args.user_id))
        # An attempt that failed may have cost as much as one that succeeded.
        most = self.sweeper.rules.most
        spent = args.spent + (job.attempt - 1) * (most.posts + most.profile)
        if spent + most.posts > args.max_credits:
            stopped = f"stopped: {spent:,} of the {args.max_credits:,} credits of this account's share are spent"
            return Done([self._step(args, RunStatus.FAILED, stopped)])
        match await self._fetch_page(job, CallPurpose(job.id, args.user_id, meter)):
            case Continue(args=ScrapeArgs() as down) as outcome:
                charged = msgspec.structs.replace(down, spent=spent + meter.credits)
                return msgspec.structs.replace(outcome, args=charged)
            case outcome:
                return outcome

    async def _fetch_page(self, job: Job[ScrapeArgs], purpose: CallPurpose) -> Outcome:
        args = job.args
        span = Span(ceiling=args.ceiling)
        page = await self.sweeper.sources[X].search_posts([args.handle], span, purpose=purpose)
        # Until then, the author is not known: it is the one of the posts that a search for the handle shows.
        authors = [page.gathered.users.get(page.gathered.posts[each].author_id) for each in page.own]
        named = (each.id for each in authors if each and (each.handle or "").lower() == args.handle.lower())
        user_id = args.user_id or next(named, None)
        match verdict(page, user_id or _UNKNOWN_USER, span):
            case Progress(posts=posts, lowest=lowest):
                return await self._count(args, user_id, _cut(page, posts, span, args.limit - args.counted), lowest)
            case Emptiness() | OtherAuthors() if args.suspected and job.is_first_try:
                reason = None if args.counted else "search shows no posts of this account"
                ended = [self._step(args, RunStatus.COMPLETED, reason), *_statistics(args)]
                return Done([*page.gathered.writes, *ended])
            case Emptiness() | OtherAuthors():
                return await self._suspect_end(job, page, purpose)

    async def _count(self, args: ScrapeArgs, user_id: UserId | None, page: Page, lowest: PostId) -> Outcome:
        own = [page.gathered.posts[each] for each in page.own]
        span = Span(ceiling=args.ceiling)
        failed = len(_unreadable(page, span))
        counted = args.counted + len(own) + failed
        status = RunStatus.RUNNING if counted < args.limit else RunStatus.COMPLETED
        step = msgspec.structs.replace(self._step(args, status), posts=page.own, failed=failed, user_id=user_id)
        writes = [*page.gathered.writes, step]
        account = await self.sweeper.look.account(X, user_id) if user_id else None
        if account is not None and account.state is not AccountState.UNTRACKED:
            # Posts of a tracked account lead to the same jobs as in a sweep.
            writes += await self.sweeper.leads(page, own, account)
            writes += await self.sweeper.mending(page, account, span)
        known = await self.sweeper.look.known_posts(X, page.own)
        down = msgspec.structs.replace(
            args,
            user_id=user_id,
            ceiling=PostId(lowest - 1),
            counted=counted,
            suspected=False,
            found=args.found + len(own),
            known=args.known + len(known),
        )
        if status is RunStatus.COMPLETED:
            return Done([*writes, *_statistics(down)])
        return Continue(writes, args=down)

    async def _suspect_end(self, job: Job[ScrapeArgs], page: Page, purpose: CallPurpose) -> Outcome:
        """Check an end twice, as search sometimes answers with an empty page. Without any post, read the profile."""
        args = job.args
        writes: list[Write] = list(page.gathered.writes)
        if not args.counted:
            user = await self.sweeper.sources[X].user(args.handle, purpose=purpose)
            writes += [user] if user else []
            problem = None
            if user is None:
                problem = "there is no account of that name"
            elif (state := state_of(user)) is AccountState.PROTECTED:
                problem = "its posts are protected"
            elif state is not AccountState.ACTIVE:
                problem = f"unavailable: {user.unavailable_reason}"
            if problem:
                return Done([*writes, self._step(args, RunStatus.FAILED, problem)])
        suspected = msgspec.structs.replace(args, suspected=True)
        later = self.sweeper.clock.now() + self.sweeper.rules.second_look
        running = self._step(args, RunStatus.RUNNING)
        return Continue([*writes, running], args=suspected, run_at=later, reason=SECOND_LOOK)

    def _step(self, args: ScrapeArgs, status: RunStatus, reason: str | None = None) -> RunStep:
        return RunStep(
            run_id=args.run_id,
            position=args.position,
            status=status,
            reason=reason,
            summarize=self.sweeper.rules.summarize,
        )


def _statistics(args: ScrapeArgs) -> list[Fetched]:
    """The posts of a run count like those of a catch-up. They are kept for tracked accounts only."""
    if args.user_id is None:
        return []
    new = args.found - args.known
    return [Fetched(platform=X, user_id=args.user_id, fetched=args.found, new=new, limit=args.limit)]


def _cut(page: Page, posts: Sequence[Post], span: Span, room: int) -> Page:
    """The newest `room` posts of a page, unreadable ones included, and what belongs to them."""
    ranked: list[tuple[int, Post | Unreadable]] = [(each.id, each) for each in posts]
    for each in _unreadable(page, span):
        # One without an id has its place below the post that it follows on the page.
        approximate = each.above - 1 if each.above else span.ceiling or 1 << 63
        ranked.append((approximate if each.post_id is None else each.post_id, each))
    if len(ranked) <= room:
        return msgspec.structs.replace(page, own=[each.id for each in posts])
    kept = [each for _, each in sorted(ranked, key=lambda pair: pair[0], reverse=True)[:room]]
    own = [each for each in kept if isinstance(each, Post)]
    related = [write for each in own for write in about(each, page.gathered)]
    gathered = Gathered(
        {each.id: each for each in related if isinstance(each, Post)},
        {each.id: each for each in related if isinstance(each, User)},
        [each for each in kept if isinstance(each, Unreadable)],
    )
    return msgspec.structs.replace(page, own=[each.id for each in own], gathered=gathered)


def _unreadable(page: Page, span: Span) -> list[Unreadable]:
    """The unreadable posts that count for this page, without those that it also shows in a readable form.

    One without an id and below all others is on the next page again and counts there.
    """
    unreadable = []
    for each in page.gathered.unreadable:
        place = each.post_id
        if place is None and each.below is not None:
            place = PostId(each.below + 1)
        if place is not None and place in span and each.post_id not in page.own:
            unreadable.append(each)
    return unreadable
